"""Keep the groups of two sums so different that their difference is no sum over a few clients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnout.core.random import generator


def as_bits(clients: Iterable[int]) -> int:
    """Return a set of client numbers as the bits of a number."""
    return sum(1 << client for client in set(clients))


def is_too_similar(group: int, other: int, least: int) -> bool:
    """Return True if two groups differ, but by fewer than `least` members, given as by `as_bits`.

    The difference of their sums is then a sum over fewer than `least` clients. That of equal groups is zero.
    """
    return 0 < (group ^ other).bit_count() < least


def apart(clients: Sequence[int], earlier: Sequence[int], least: int, seed: Sequence[int]) -> list[int]:
    """Return as many of the clients as can form a group that is not too similar to earlier ones; none if there are too few.

    Args:
        clients: clients that could be in the sum.
        earlier: groups of earlier sums, as by `as_bits`.
        least: smallest number of clients in a sum, and smallest number of members by which groups differ.
        seed: seed of the draw of clients that are left out.
    """
    everyone = as_bits(clients)
    subsets = [group for group in dict.fromkeys(earlier) if group & everyone == group]
    drawn = generator("group of a sum", *seed).permutation(sorted(clients)).tolist()
    candidates = [everyone, *subsets, *(as_bits(drawn[left_out:]) for left_out in range(1, len(drawn)))]
    for group in sorted(candidates, key=int.bit_count, reverse=True):
        if group.bit_count() >= least and not any(is_too_similar(group, other, least) for other in earlier):
            return [client for client in sorted(clients) if group >> client & 1]
    return []
