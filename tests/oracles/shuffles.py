"""Minibatches of one client, drawn one after the other as a data loader would."""

import numpy as np

from turnout.core.random import fold, stream


def permutation(size, key, number):
    """The order of the examples in pass `number`: sorted by 26 random bits each, ties by position."""
    segment = fold(key, np.array([number]))
    bits = fold(segment, np.arange(size)) >> 38 & (2**26 - 1)
    return sorted(range(size), key=lambda i: (bits[i], i))


def endless(size, key, batch_size, drop_last):
    """Minibatches of shuffled passes for ever, without a pass's incomplete last one unless it is the only one."""
    number = 0
    while True:
        order = permutation(size, key, number)
        batches = [order[i : i + batch_size] for i in range(0, size, batch_size)]
        if drop_last and len(batches) > 1 and len(batches[-1]) < batch_size:
            batches.pop()
        yield from batches
        number += 1


def client_key(seed, client, version=None):
    """Return the key of a client's shuffles, which includes the round if every round starts anew."""
    key = stream("minibatches", seed)
    parts = [client] if version is None else [version, client]
    return fold(key, *(np.array([part]) for part in parts))
