"""Run a round of a secure sum with all its clients in one process."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from turnout.protocol.secure.client import SecureClient
from turnout.protocol.secure.server import SecureServer


def secure_sum(
    values: Mapping[int, np.ndarray],
    *,
    bits: int,
    threshold: int,
    degree: int | None = None,
    seed: Sequence[int] | int = 0,
    leave: Mapping[str, Collection[int]] | None = None,
) -> tuple[np.ndarray, list[int]]:
    """Return the sum of clients' values modulo ``2^bits``, ``[P]``, and the clients in it, by all messages of SecAgg+.

    Args:
        values: values of each client, ``[P]`` of type `turnout.protocol.secure.masks.word`; client numbers are >= 1.
        bits: number of bits of the modulus.
        threshold: t, the number of neighbors whose shares reconstruct a secret.
        degree: k, the number of neighbors of a client; None makes all clients neighbors of each other.
        seed: seed of the graph.
        leave: clients that leave before the phase ``"share"``, ``"mask"`` or ``"open"``.

    Raises:
        TooFewClients: if fewer clients remain than the threshold requires.
    """
    gone, left = dict(leave or {}), set[int]()
    length = len(next(iter(values.values())))
    server = SecureServer(length, bits, threshold, degree, seed)
    clients = {number: SecureClient(number, threshold, bits) for number in sorted(values)}
    for number, client in clients.items():
        server.advertised(number, client.advertise())
    left |= set(gone.get("share", ()))
    for number, keys in server.keys().items():
        if number not in left:
            server.shared(number, clients[number].share(keys))
    left |= set(gone.get("mask", ()))
    for number, sealed in server.sealed().items():
        if number not in left:
            server.masked(number, clients[number].mask(values[number], sealed))
    left |= set(gone.get("open", ()))
    for number, request in server.requests().items():
        if number not in left:
            server.opened(number, clients[number].open(request))
    return server.total(), server.clients
