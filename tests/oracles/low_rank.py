"""Aggregations of low-rank updates in plain NumPy, one client and one layer after the other, as their papers have them.

`clients` has a weight, B and A for each client, B and A of the client's rank.
"""

from itertools import pairwise

import numpy as np


def fedex_lora(clients, residual, scaling):
    """FedEx-LoRA: means of the factors, and the residual for the frozen weights."""
    up, down = (np.sum([w * pair[i] for w, *pair in clients], axis=0) for i in (0, 1))
    ideal = np.sum([w * b @ a for w, b, a in clients], axis=0)
    return up, down, residual + scaling * (ideal - up @ down)


def flora(clients, residual, scaling):
    """FLoRA, as its authors' code: stacked factors, those of A weighted, go into the frozen weights."""
    up = np.concatenate([b for _, b, _ in clients], axis=1)
    down = np.concatenate([w * a for w, _, a in clients], axis=0)
    return residual + scaling * up @ down


def cut(matrix, rank):
    """The nearest matrix of a rank."""
    u, s, v = np.linalg.svd(matrix)
    return u[:, :rank] @ np.diag(s[:rank]) @ v[:rank]


def flexlora(clients, rank):
    """FlexLoRA: the mean product, cut to rank r; its factors are unique up to signs."""
    return cut(sum(w * b @ a for w, b, a in clients), rank)


def hetlora(clients, rank):
    """HetLoRA: factors padded with zeros, in proportion to the Frobenius norms of the products."""
    sizes = np.array([w * np.linalg.norm(b @ a) for w, b, a in clients])
    up, down = 0.0, 0.0
    for share, (_, b, a) in zip(sizes / sizes.sum(), clients, strict=True):
        missing = rank - len(a)
        up = up + share * np.pad(b, ((0, 0), (0, missing)))
        down = down + share * np.pad(a, ((0, missing), (0, 0)))
    return up, down


def raflora(clients, before, rank):
    """raFLoRA: rank partitions, each averaged over the clients that have it, then FlexLoRA's truncation.

    What no client has stays as it was.
    """
    total = np.zeros((len(before[0]), before[1].shape[1]))
    for low, high in pairwise([0, *sorted({len(a) for _, _, a in clients} | {rank})]):
        holders = [(w, b, a) for w, b, a in clients if len(a) >= high]
        if not holders:
            total += before[0][:, low:high] @ before[1][low:high]
        for w, b, a in holders:
            total += w / sum(each[0] for each in holders) * b[:, low:high] @ a[low:high]
    return cut(total, rank)


def tail(pair, decay, rank, least=1):
    """HetLoRA: the columns of B and rows of A that may be pruned, and the rank that would be left."""
    begin = min(max(int(decay * rank), least), rank)
    up, down = pair
    return up[:, begin:rank], down[begin:rank], begin


def tail_norms(layers, decay, rank):
    """Products of the norms of both tails, summed over layers."""
    return sum(np.linalg.norm(up) * np.linalg.norm(down) for up, down, _ in (tail(p, decay, rank) for p in layers))
