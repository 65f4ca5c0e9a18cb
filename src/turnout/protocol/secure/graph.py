"""Draw the graph of clients that mask with each other: a random regular graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turnout.core.checks import count


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
