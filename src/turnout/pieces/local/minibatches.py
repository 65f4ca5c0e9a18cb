"""Plan the minibatches of a cohort, as a function of (seed, version, client)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch

from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.random import Integers, below, fold, stream

Sampling = Literal["pass", "fresh", "replacement"]

# A sort key holds segment, hash and position side by side, so that sorting plain integers shuffles all clients.
_HASH_BITS, _POSITION_BITS = 26, 22
_BLOCK = 1 << 14  # numbers planned at a time, so that they stay in a cache; a key has 15 bits for a segment
_WASTE = 2  # numbers that may be sorted for each example, if that makes all rows equally long
_WASTE_ON_DEVICE = 8  # the same on a GPU
_LEAST_ON_DEVICE, _MOST_ON_DEVICE = 1 << 14, 1 << 25  # numbers; the host is faster for fewer


@dataclass(frozen=True, eq=False)
class Plan:
    """The minibatches of B clients.

    Attributes:
        examples: positions in the flat data, int64 ``[B, S, b]``, on the host or a device; padding repeats the client's first
            example.
        counts: number of examples of each minibatch without padding, int64 ``[B, S]``; 0 after a client's last step.
        num_steps: number of steps of each client, int64 ``[B]``.
    """

    examples: np.ndarray | torch.Tensor
    counts: np.ndarray
    num_steps: np.ndarray

    def on(self, device: torch.device, order: np.ndarray) -> torch.Tensor:
        """Return the positions on a device, step by step and for clients in a given order, int64 ``[S, B, b]``."""
        if isinstance(self.examples, torch.Tensor):
            return self.examples[to_device(order, device)].transpose(0, 1).contiguous()
        return to_device(self.examples[order].swapaxes(0, 1).copy(), device)

    @property
    def full(self) -> bool:
        """True if no minibatch has padding."""
        return bool((self.counts == self.examples.shape[2])[self.counts > 0].all())


def batches_per_pass(sizes: np.ndarray, batch_size: int, drop_last: bool) -> np.ndarray:
    """Return the number of minibatches in one pass over each client's data, int64 ``[B]``.

    With `drop_last`, an incomplete last minibatch is left out, unless it is the only one.
    """
    return np.maximum(sizes // batch_size, 1) if drop_last else -(-sizes // batch_size)


def plan(
    *,
    offsets: np.ndarray,
    sizes: np.ndarray,
    clients: np.ndarray,
    versions: np.ndarray,
    done: np.ndarray,
    num_steps: np.ndarray,
    batch_size: int,
    sampling: Sampling,
    drop_last: bool,
    seed: int | np.ndarray,
    device: torch.device | None = None,
) -> Plan:
    """Plan the minibatches of a cohort.

    Args:
        offsets: position of each client's first example in the flat data, int64 ``[B]``.
        sizes: number of examples of each client, int64 ``[B]``.
        clients, versions: client numbers and versions, int64 ``[B]``; together with `seed` they determine the shuffles.
        done: number of minibatches that each client has used in earlier rounds, int64 ``[B]``.
        num_steps: number of minibatches to plan, int64 ``[B]``.
        batch_size: number of examples in a minibatch.
        sampling: ``"pass"``: a shuffled pass over the data, continued from round to round and reshuffled after each
            pass; ``"fresh"``: a new shuffled pass in every round; ``"replacement"``: independent draws with
            replacement.
        drop_last: whether to leave out the incomplete last minibatch of a pass, unless it is the only one.
        seed: seed of the run, or of each client's run, int64 ``[B]``.
        device: device that shuffles, with the same bits, unless there are few numbers or clients are too different; None is
            the host.

    Raises:
        ConfigurationError: if a client has too many examples for a shuffled pass.
    """
    if sizes.max(initial=0) >= 2**_POSITION_BITS and sampling != "replacement":
        raise ConfigurationError(
            f"a client holds {sizes.max()} examples, and a shuffled pass goes over at most {2**_POSITION_BITS - 1}: write "
            "sampling='replacement'"
        )
    steps = np.arange(int(num_steps.max(initial=0)))
    if sampling != "pass":
        done = np.zeros_like(done)
    key = stream("minibatches", seed)
    keys = fold(key, clients) if sampling == "pass" else fold(key, versions, clients)
    in_pass = batches_per_pass(sizes, batch_size, drop_last)
    first, last = done // in_pass, (done + np.maximum(num_steps, 1) - 1) // in_pass
    passes, active = last - first + 1, steps < num_steps[:, None]
    number, batch = np.divmod(done[:, None] + steps, in_pass[:, None])  # pass, and minibatch within the pass
    segment, begin = np.minimum(number, last[:, None]) - first[:, None], batch * batch_size
    left = batch_size if sampling == "replacement" else np.minimum(batch_size, sizes[:, None] - begin)
    counts = np.where(active, left, 0)
    shape = len(sizes), len(steps), batch_size
    if device is not None and sampling != "replacement" and _fits_device(sizes, passes):
        shuffled = _shuffles_on(device, keys, sizes, first, int(passes.max()))
        examples = _cut_on(device, shuffled, segment * shuffled.shape[2] + begin, counts, batch_size)
        return Plan(examples + to_device(offsets, device)[:, None, None], counts, num_steps)
    examples = np.empty(shape, dtype=np.int64)
    for rows in _blocks(np.maximum(len(steps) * batch_size, passes * sizes)):
        if sampling == "replacement":
            draws = fold(keys[rows, None], np.arange(len(steps) * batch_size))
            chosen = below(draws, sizes[rows, None]).reshape(len(draws), *shape[1:])
        else:
            shuffled, starts = _shuffles(keys[rows], sizes[rows], first[rows], passes[rows])
            positions = starts[:, None] + segment[rows] * sizes[rows, None] + begin[rows]
            chosen = _cut(shuffled, positions, counts[rows], batch_size)
        np.add(chosen, offsets[rows, None, None], out=examples[rows])
    return Plan(examples, counts, num_steps)


def _fits_device(sizes: np.ndarray, passes: np.ndarray) -> bool:
    """Return whether a device shuffles faster: many numbers, and little waste with rows of equal length for all passes."""
    numbers = int(sizes.max(initial=0)) * int(passes.max(initial=0)) * len(sizes)
    return _LEAST_ON_DEVICE <= numbers <= min(_WASTE_ON_DEVICE * int((sizes * passes).sum()), _MOST_ON_DEVICE)


def _blocks(numbers: np.ndarray) -> Iterator[slice]:
    """Yield consecutive slices of clients whose plans together fit in a processor's cache, or of one client.

    A slice of several clients has less than 2^15 segments, as many as a sort key has bits for: the numbers of each client
    are at least as many as its steps, which are at least as many as its segments.

    Args:
        numbers: how many numbers the plan of each client takes, int64 ``[B]``.
    """
    block = np.cumsum(numbers) // _BLOCK
    edges = [0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), len(numbers)]
    return (slice(low, high) for low, high in pairwise(edges) if low < high)


def _shuffles(
    keys: np.ndarray, sizes: np.ndarray, first: np.ndarray, passes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return permutations of ``0..sizes[k]-1`` for passes ``first[k] .. first[k] + passes[k] - 1`` of every client k.

    They are concatenated, client after client and pass after pass; the second array holds the position at which each
    client's begin.
    """
    client = np.repeat(np.arange(len(sizes)), passes)  # client of each segment; a segment is one pass of one client
    number = np.arange(len(client)) - np.repeat(np.cumsum(passes) - passes, passes) + first[client]
    key, lengths, of_clients = fold(keys[client], number), sizes[client], passes * sizes
    starts = np.cumsum(of_clients) - of_clients
    width, shortest = int(lengths.max()), int(lengths.min())
    if width * len(lengths) > _WASTE * lengths.sum():
        segment = np.repeat(np.arange(len(lengths)), lengths)
        position = np.arange(len(segment)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        packed = segment << (_HASH_BITS + _POSITION_BITS) | _packed(fold(key[segment], position), position)
        packed.sort()
        return packed & (2**_POSITION_BITS - 1), starts
    columns = np.arange(width)  # a row for each segment, because many short rows are sorted faster than one long row
    packed = _packed(fold(key[:, None], columns), columns)
    if shortest < width:
        packed[columns >= lengths[:, None]] = np.iinfo(np.int64).max
    packed.sort(axis=1)
    packed &= 2**_POSITION_BITS - 1
    return packed.reshape(-1) if shortest == width else packed[columns < lengths[:, None]], starts


def _shuffles_on(
    device: torch.device, keys: np.ndarray, sizes: np.ndarray, first: np.ndarray, passes: int
) -> torch.Tensor:
    """Return these permutations for a number of passes of every client on a device, padded to the largest client."""
    key, size, start = to_device(np.stack([keys, sizes, first]), device)[:, :, None]
    columns = torch.arange(int(sizes.max()), device=device)
    key = fold(key, start + torch.arange(passes, device=device))[:, :, None]
    packed = _packed(fold(key, columns), columns)
    packed.masked_fill_(columns >= size[:, :, None], torch.iinfo(torch.int64).max)
    return packed.sort().values & (2**_POSITION_BITS - 1)


def _packed(bits: Integers, position: Integers) -> Integers:
    """Return sort keys: bits of a hash, and the position."""
    return ((bits >> (64 - _HASH_BITS)) & (2**_HASH_BITS - 1)) << _POSITION_BITS | position


def _cut(shuffled: np.ndarray, begin: np.ndarray, counts: np.ndarray, batch_size: int) -> np.ndarray:
    """Return the numbers from the positions `begin` ``[B, S]`` on, ``[B, S, b]``, with 0 as padding after `counts`."""
    columns = np.arange(batch_size)
    positions = begin[:, :, None] + columns
    if counts.min(initial=batch_size) == batch_size:
        return shuffled[positions]
    inside = columns < counts[:, :, None]
    return np.where(inside, shuffled[np.where(inside, positions, 0)], 0)


def _cut_on(
    device: torch.device, shuffled: torch.Tensor, begin: np.ndarray, counts: np.ndarray, batch_size: int
) -> torch.Tensor:
    """Return the same numbers on a device, from the position `begin` on of all rows of a client."""
    start, count = to_device(np.stack([begin, counts]), device)[..., None]
    columns = torch.arange(batch_size, device=device)
    inside = columns < count
    positions = (start + columns).where(inside, 0).flatten(1)
    return shuffled.flatten(1).gather(1, positions).unflatten(1, (-1, batch_size)).where(inside, 0)
