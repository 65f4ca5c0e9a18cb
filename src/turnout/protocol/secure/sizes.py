"""How many neighbours a client needs, and how many of them have to help: a graph for so many bits of security."""

from __future__ import annotations

from math import ceil, comb, floor
from typing import NamedTuple

from turnout.core.checks import ConfigurationError, count, refuse


class Sizes(NamedTuple):
    """Of a graph: k, the neighbours of a client, and t, how many of them it takes to give a secret of it."""

    degree: int
    threshold: int


def sizes(num_clients: int, *, corrupt: float, dropout: float, security: int = 40, correctness: int = 20) -> Sizes:
    """Return the least even degree, and a threshold, with which a round of n clients is secure and comes to its end.

    At most ``c = corrupt n`` clients tell the server all that they know, and at most ``d = dropout n`` leave; who they are
    does not depend on the graph, which is dealt at random. Three things may go wrong, and are bounded by a sum over all
    clients:

    - a server that tells some neighbours of a client that it stayed, and others that it left, gets t shares of both of its
      secrets from 2t - k corrupt ones, who give it both: ``n P[H(n - 1, c, k) >= 2t - k] <= 2^-security``, where H is the
      hypergeometric number of marked ones among k. So t is more than k/2, and fewer than t are corrupt;
    - honest clients who stay fall into two parts, whose sums would be learnt apart: k/2 clients in a row around the circle
      would have to be corrupt or gone, ``n prod_{i < k/2} (c + d - i) / (n - i) <= 2^-security``;
    - fewer than t neighbours of a client stay, and the round has no sum:
      ``n P[H(n - 1, n - 1 - d, k) < t] <= 2^-correctness``.

    Where no graph will do, all are joined to all, where nothing is left to chance.

    Args:
        num_clients: n, of a round.
        corrupt: the share that works with the server, in [0, 1).
        dropout: the share that leaves during the round, in [0, 1).
        security, correctness: bits.

    Raises:
        ConfigurationError: where so many are corrupt or leave that not even all others are enough.

    Example:
        >>> from turnout.protocol.secure import sizes
        >>> sizes(1000, corrupt=0.05, dropout=0.1)
        Sizes(degree=74, threshold=49)
        >>> sizes(20, corrupt=0.1, dropout=0.2)
        Sizes(degree=14, threshold=9)

    Reference: the three events are those of Bell et al., "Secure single-server aggregation with (poly)logarithmic
    overhead", CCS 2020, section 3; the bounds are union bounds for the graph of `turnout.protocol.secure.graph`.
    """
    count("num_clients", num_clients, least=3)
    for name, share in (("corrupt", corrupt), ("dropout", dropout)):
        if not 0.0 <= share < 1.0:
            raise refuse(name, given=share, needed="a share of the clients, 0 <= share < 1")
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
            f"of {num_clients} clients, {bad} corrupt ones may work with the server and {gone} leave, and the {threshold} "
            "who have to help beside a client are more than the others who stay: write a smaller share for corrupt or dropout"
        )
    return Sizes(num_clients - 1, threshold)


def _above_half(degree: int, corrupt: int) -> int:
    """Return the least t with ``2t - k >= corrupt``."""
    return (degree + corrupt + 1) // 2


def _surely_fewer(num_clients: int, bad: int, degree: int, security: int) -> int:
    """Return the least m >= 1 with ``n P[H >= m] <= 2^-security`` for the corrupt among k neighbours."""
    above = 0.0
    for t in range(min(bad, degree), -1, -1):
        above += _exactly(t, num_clients - 1, bad, degree)
        if num_clients * above > 2.0**-security:
            return t + 1
    return 1


def _exactly(marked: int, all_of: int, marked_of: int, drawn: int) -> float:
    """Return the hypergeometric probability of so many marked ones among those drawn."""
    return comb(marked_of, marked) * comb(all_of - marked_of, drawn - marked) / comb(all_of, drawn)


def _at_most(marked: int, all_of: int, marked_of: int, drawn: int) -> float:
    """Return the probability of at most so many marked ones."""
    return sum(_exactly(i, all_of, marked_of, drawn) for i in range(max(0, drawn - all_of + marked_of), marked + 1))


def _run_of_gone(num_clients: int, gone: int, length: int) -> float:
    """Return the probability that the clients at so many given places are all corrupt or gone."""
    found = 1.0
    for i in range(length):
        found *= max(gone - i, 0) / (num_clients - i)
    return found
