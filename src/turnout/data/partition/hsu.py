"""Partition of Hsu et al.: clients of equal size with Dirichlet class proportions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.checks import refuse
from turnout.core.ranges import Count, Positive
from turnout.data.partition.base import Artificial, by_owner, rows_by_class
from turnout.data.partition.dirichlet import log_dirichlet


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
