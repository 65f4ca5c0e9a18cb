"""Draw the graph of clients that mask with each other, and compute its degree and threshold for given bits of security."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import ceil, comb, floor
from typing import NamedTuple

import numpy as np

from turnout.core.checks import ConfigurationError, below_one, count


def neighbors(clients: Sequence[int], degree: int | None, seed: Sequence[int] | int) -> dict[int, tuple[int, ...]]:
    """Return the neighbors of every client in a Harary graph with randomly permuted vertices.

    The n clients are arranged in a circle in random order, and each is connected to the next k/2 on both sides. An odd
    `degree` is rounded up. If `degree` is None or at least n - 1, the graph is complete, as in Bonawitz et al. (2017).

    Args:
        clients: client numbers, all different.
        degree: k, the number of neighbors of a client.
        seed: seed of the permutation.

    Reference: Bell et al., "Secure single-server aggregation with (poly)logarithmic overhead", CCS 2020, section 3 and
    Algorithm 2.
    """
    if degree is not None:
        count("degree", degree)
    n = len(clients)
    half = n if degree is None else (degree + 1) // 2
    order = [clients[i] for i in np.random.default_rng(seed).permutation(n)]
    if 2 * half >= n - 1:
        return {client: tuple(sorted(set(clients) - {client})) for client in clients}
    steps = [step for distance in range(1, half + 1) for step in (distance, -distance)]
    return {client: tuple(sorted(order[(i + step) % n] for step in steps)) for i, client in enumerate(order)}


class Sizes(NamedTuple):
    """The size of a graph: k neighbors per client, and t shares that reconstruct a secret."""

    degree: int
    threshold: int


def sizes(num_clients: int, *, corrupt: float, dropout: float, security: int = 40, correctness: int = 20) -> Sizes:
    """Return the least even degree, and a threshold, for which a round of n clients is secure and completes.

    At most ``c = corrupt n`` clients collude with the server, and at most ``d = dropout n`` leave, independently of the
    random graph. The probabilities of three events are bounded by a union bound over all clients:

    - a server that claims to some neighbors of a client that it stayed, and to others that it left, obtains t shares of both
      of its secrets with the help of 2t - k corrupt neighbors, which reveal both:
      ``n P[H(n - 1, c, k) >= 2t - k] <= 2^-security``, where H is the hypergeometric number of corrupt clients among k
      neighbors. Hence t is more than k/2, and fewer than t are corrupt;
    - the graph of honest clients that stay is disconnected, so that the server learns the sums of its components: k/2
      consecutive clients of the circle are corrupt or leave, ``n prod_{i < k/2} (c + d - i) / (n - i) <= 2^-security``;
    - fewer than t neighbors of a client stay, and the round has no sum:
      ``n P[H(n - 1, n - 1 - d, k) < t] <= 2^-correctness``.

    If no degree below n - 1 satisfies the bounds, the graph is complete, and neither event depends on chance.

    Args:
        num_clients: n, the number of clients in a round.
        corrupt: the fraction of clients that collude with the server, in [0, 1).
        dropout: the fraction of clients that leave during the round, in [0, 1).
        security, correctness: bits.

    Raises:
        ConfigurationError: if even a complete graph is insufficient for these fractions.

    Example:
        >>> from turnout.protocol.secure import sizes
        >>> sizes(1000, corrupt=0.05, dropout=0.1)
        Sizes(degree=74, threshold=49)
        >>> sizes(20, corrupt=0.1, dropout=0.2)
        Sizes(degree=14, threshold=9)

    Reference: the three events are those of Bell et al., "Secure single-server aggregation with (poly)logarithmic
    overhead", CCS 2020, section 3; the bounds are union bounds for the graph of `neighbors`.
    """
    count("num_clients", num_clients, least=3)
    below_one("corrupt", corrupt)
    below_one("dropout", dropout)
    bad, gone = floor(corrupt * num_clients), ceil(dropout * num_clients)
    for degree in range(2, num_clients - 1, 2):
        threshold = _above_half(degree, _surely_fewer(num_clients, bad, degree, security))
        if (
            threshold <= degree
            and num_clients * _run_of_gone(num_clients, bad + gone, degree // 2) <= 2.0**-security
            and num_clients * _at_most(threshold - 1, num_clients - 1, num_clients - 1 - gone, degree)
            <= 2.0**-correctness
        ):
            return Sizes(degree, threshold)
    threshold = _above_half(num_clients - 1, bad + 1)
    if threshold > num_clients - 1 - gone:
        raise ConfigurationError(
            f"of {num_clients} clients, {bad} may collude with the server and {gone} may leave, and the {threshold} "
            "who must help a client outnumber the other clients that stay: write a smaller fraction for corrupt or dropout"
        )
    return Sizes(num_clients - 1, threshold)


def _above_half(degree: int, corrupt: int) -> int:
    """Return the least t with ``2t - k >= corrupt``."""
    return (degree + corrupt + 1) // 2


def _surely_fewer(num_clients: int, bad: int, degree: int, security: int) -> int:
    """Return the least m >= 1 with ``n P[H >= m] <= 2^-security``.

    H is the number of corrupt clients among k neighbors.
    """
    above = 0.0
    for t in range(min(bad, degree), -1, -1):
        above += _exactly(t, num_clients - 1, bad, degree)
        if num_clients * above > 2.0**-security:
            return t + 1
    return 1


def _exactly(marked: int, population: int, num_marked: int, drawn: int) -> float:
    """Return the hypergeometric probability of exactly `marked` marked clients among those drawn."""
    return comb(num_marked, marked) * comb(population - num_marked, drawn - marked) / comb(population, drawn)


def _at_most(marked: int, population: int, num_marked: int, drawn: int) -> float:
    """Return the hypergeometric probability of at most `marked` marked clients among those drawn."""
    least = max(0, drawn - population + num_marked)
    return sum(_exactly(i, population, num_marked, drawn) for i in range(least, marked + 1))


def _run_of_gone(num_clients: int, gone: int, length: int) -> float:
    """Return the probability that `length` consecutive clients are all corrupt or gone."""
    return math.prod(max(gone - i, 0) / (num_clients - i) for i in range(length))
