"""Partition of FedAU: every class is divided in proportion to Dirichlet draws of the clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.checks import refuse
from turnout.core.ranges import Positive, Whole
from turnout.data.partition.base import Artificial, by_owner

_DRAWS = 100


@dataclass(frozen=True)
class Dirichlet(Artificial, name="dirichlet"):
    """Divide every class in proportion to a Dirichlet draw for each client, with unequal sizes and class proportions.

    With kappa_n ~ Dir(alpha * 1_C) for each client and L_c the rows of class c in the order of the data::

        client n gets  L_c[end(n - 1) : end(n)],   end(n) = round(|L_c| * sum_{m<=n} kappa_mc / sum_m kappa_mc)

    where halves round to even. The C classes are all integers from the least to the greatest label. The shares of a class are
    computed from logarithms, so that they are not 0 / 0 for any alpha.

    Clients may be empty. With `min_examples` the partition is drawn again, at most 100 times, until each client has enough
    examples; the first draw is the same as without it.

    Attributes:
        alpha: concentration, > 0; clients have few classes for small values, and equal proportions for large ones.
        min_examples: the least number of examples of a client; 0 accepts the first draw.

    Raises:
        ConfigurationError: if alpha <= 0, or if `min_examples` cannot be met.

    Example:
        >>> import numpy as np, turnout as to
        >>> labels = np.repeat(np.arange(3), 20)
        >>> shards = to.partition.Dirichlet(alpha=0.3).assign(labels, 4, seed=0)
        >>> [np.bincount(labels[rows], minlength=3).tolist() for rows in shards]
        [[0, 4, 7], [13, 11, 1], [7, 1, 5], [0, 4, 7]]

    Reference: Wang and Ji, "A Lightweight Method for Tackling Unknown Participation Statistics in Federated Averaging",
    ICLR 2024, section 6 and the authors' code.
    """

    alpha: Positive = 0.1
    min_examples: Whole = 0

    def _rows(self, labels: np.ndarray, num_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        most = len(labels) // num_clients
        if self.min_examples > most:
            needed = f"at most {most}: {num_clients} clients share {len(labels)} examples"
            raise refuse("min_examples", given=self.min_examples, needed=needed)
        best = 0
        for _ in range(_DRAWS):
            clients = self._draw(labels, num_clients, rng)
            least = min(len(rows) for rows in clients)
            if least >= self.min_examples:
                return clients
            best = max(best, least)
        raise refuse(
            "min_examples",
            given=self.min_examples,
            needed=f"what a draw gives to {num_clients} clients at alpha={self.alpha:g}: in the best of {_DRAWS}, the "
            f"smallest had {best} examples",
            instead="Write fewer clients, a larger alpha, or min_examples=0 with empty='drop' in split()",
        )

    def _draw(self, labels: np.ndarray, num_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Draw one partition by the equation above."""
        log_kappa = log_dirichlet(self.alpha, (num_clients, int(labels.max() - labels.min()) + 1), rng)
        return cut_by_shares(labels, np.exp(log_kappa - log_kappa.max(axis=0)))


def log_dirichlet(alpha: float | np.ndarray, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Return the logarithms of N draws from Dir(alpha), float64 ``[N, C]``; `alpha` is a number or ``[C]``.

    A gamma variable with a small shape underflows to 0, but its logarithm does not: G(a) is distributed as
    G(a + 1) U^(1/a).
    """
    # Below 1e-200 the largest entry is 1 and the others are 0 in floating point, and logarithms would overflow.
    alpha = np.maximum(alpha, 1e-200)
    logs = np.log(rng.standard_gamma(np.broadcast_to(alpha + 1.0, shape))) - rng.standard_exponential(shape) / alpha
    peak = logs.max(axis=1, keepdims=True)
    return logs - peak - np.log(np.exp(logs - peak).sum(axis=1, keepdims=True))


def cut_by_shares(labels: np.ndarray, shares: np.ndarray) -> list[np.ndarray]:
    """Divide each class, in the order of the data, into consecutive pieces in proportion to a column of `shares`.

    Args:
        labels: ``[n]``; column c of `shares` is for label ``labels.min() + c``.
        shares: ``[N, C]``, >= 0, with a positive entry in each column.
    """
    num_clients, num_classes = shares.shape
    column = labels - labels.min()
    sizes = np.bincount(column, minlength=num_classes)
    cumulative = np.cumsum(shares, axis=0)
    ends = np.rint(sizes * cumulative / cumulative[-1]).astype(np.int64)
    pieces = np.diff(ends, axis=0, prepend=0)
    owner = np.tile(np.arange(num_clients), num_classes).repeat(pieces.T.reshape(-1))
    return by_owner(np.argsort(column, kind="stable"), owner, num_clients)
