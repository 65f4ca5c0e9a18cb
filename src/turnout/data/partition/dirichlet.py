"""Partitions with Dirichlet class proportions: of FedAU, and of Hsu et al. for clients of equal size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.checks import refuse
from turnout.core.ranges import Count, Positive, Whole
from turnout.data.partition.base import Artificial, by_owner, rows_by_class

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
        shape, best = (num_clients, int(labels.max() - labels.min()) + 1), 0
        for _ in range(_DRAWS):
            log_kappa = log_dirichlet(self.alpha, shape, rng)
            clients = cut_by_shares(labels, np.exp(log_kappa - log_kappa.max(axis=0)))
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


@dataclass(frozen=True)
class HsuDirichlet(Artificial, name="hsu_dirichlet"):
    """Assign equally many examples to all clients, with unequal class proportions.

    Client n has q_n ~ Dir(alpha * prior), where the prior is the share of each class in the data, as in Hsu et al. In every
    turn all clients, in random order, draw one example each: its class from q_n, then an unassigned example of the class.
    Exhausted classes are removed from q_n, which is renormalized. Because clients draw in turns, the last client is as close
    to its proportions as the first.

    Many papers that cite Hsu et al. mean ``Dir(alpha, ..., alpha)``, with alpha for each class. For C balanced classes this
    is ``HsuDirichlet(C * alpha)``: "alpha = 0.5" with ten classes is ``HsuDirichlet(0.5)`` in one convention, with one or two
    classes per client (``1 / E[sum_c q_c^2] = 1.4``), and ``HsuDirichlet(5.0)`` in the other, with about four. `Dirichlet`
    takes the alpha of each class.

    The remainder of n / N examples is not used.

    Attributes:
        alpha: concentration, > 0.
        examples_per_client: size of each client; None is n // N.

    Raises:
        ConfigurationError: if alpha <= 0, or there are too few examples.

    Example:
        >>> import numpy as np, turnout as to
        >>> labels = np.repeat(np.arange(3), 20)
        >>> shards = to.partition.HsuDirichlet(alpha=0.5).assign(labels, 4, seed=0)
        >>> [np.bincount(labels[rows], minlength=3).tolist() for rows in shards]
        [[1, 8, 6], [10, 5, 0], [8, 0, 7], [1, 7, 7]]

    Reference: Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    Classification", 2019, section 3.
    """

    alpha: Positive = 1.0
    examples_per_client: Count | None = None

    def _rows(self, labels: np.ndarray, num_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        most = len(labels) // num_clients
        size = self.examples_per_client or most
        if size > most:
            raise refuse(
                "examples_per_client",
                given=size,
                needed=f"at most {most}: {num_clients} clients share {len(labels)} examples",
                instead="Write fewer clients or fewer examples for each",
            )
        _, rows = rows_by_class(labels)
        left = np.array([len(of_class) for of_class in rows])
        log_q = log_dirichlet(self.alpha * left / len(labels), (num_clients, len(left)), rng)
        drawn = np.concatenate([_turn(log_q, left, rng) for _ in range(size)])
        shuffled = np.concatenate([rng.permutation(of_class) for of_class in rows])
        starts = np.cumsum([0] + [len(of_class) for of_class in rows[:-1]])
        # The i-th draw of a class, counted over all clients and turns, takes the i-th of its shuffled rows.
        order = np.argsort(drawn, kind="stable")
        sizes = np.bincount(drawn, minlength=len(starts))
        nth = np.empty(len(drawn), dtype=np.int64)
        nth[order] = np.arange(len(drawn)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return by_owner(shuffled[starts[drawn] + nth], np.tile(np.arange(num_clients), size), num_clients)


def _turn(log_q: np.ndarray, left: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw one class for each client, int64 ``[N]``, and subtract the draws from `left` ``[C]``.

    A client whose class is exhausted draws again. Each pass but the last exhausts a class, so C passes suffice.
    """
    drawn = np.empty(len(log_q), dtype=np.int64)
    waiting = rng.permutation(len(log_q))
    while len(waiting):
        # The argmax of log q plus Gumbel noise is a draw from q, or from the rest of q without the masked classes.
        noisy = log_q[waiting] + rng.gumbel(size=(len(waiting), len(left)))
        drawn[waiting] = np.where(left > 0, noisy, -np.inf).argmax(axis=1)
        served = np.concatenate([np.flatnonzero(drawn[waiting] == c)[: left[c]] for c in np.unique(drawn[waiting])])
        left -= np.bincount(drawn[waiting[served]], minlength=len(left))
        waiting = np.delete(waiting, served)
    return drawn
