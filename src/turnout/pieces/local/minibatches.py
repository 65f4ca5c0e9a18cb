"""Plan the minibatches of a cohort on the host, as a function of (seed, version, client)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from turnout.core.checks import ConfigurationError
from turnout.core.random import below, fold, stream

Sampling = Literal["pass", "fresh", "replacement"]
SAMPLINGS = ("pass", "fresh", "replacement")

# A sort key holds segment, hash and position side by side, so that one sort of plain integers shuffles all clients.
_SEGMENT_BITS, _HASH_BITS, _POSITION_BITS = 15, 26, 22


@dataclass(frozen=True, eq=False)
class Plan:
    """The minibatches of B clients.

    Attributes:
        examples: positions in the flat data, int64 ``[B, S, b]``; padding repeats the client's first example.
        counts: number of examples of each minibatch without padding, int64 ``[B, S]``; 0 after a client's last step.
        num_steps: number of steps of each client, int64 ``[B]``.
    """

    examples: np.ndarray
    counts: np.ndarray
    num_steps: np.ndarray

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
    seed: int,
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
        seed: seed of the run.

    Raises:
        ConfigurationError: if a client has too many examples for a shuffled pass.
    """
    steps = np.arange(int(num_steps.max(initial=0)))
    active = steps < num_steps[:, None]
    if sampling == "replacement":
        key = fold(stream("minibatches", seed), versions, clients)
        draws = fold(key[:, None], np.arange(len(steps) * batch_size))
        rows = below(draws, sizes[:, None]).reshape(len(sizes), len(steps), batch_size)
        return Plan(rows + offsets[:, None, None], np.where(active, batch_size, 0), num_steps)

    in_pass = batches_per_pass(sizes, batch_size, drop_last)
    first_step = done if sampling == "pass" else np.zeros_like(done)
    number, batch = np.divmod(first_step[:, None] + steps, in_pass[:, None])  # index of the pass, and within the pass
    first, last = first_step // in_pass, (first_step + np.maximum(num_steps, 1) - 1) // in_pass
    key = stream("minibatches", seed)
    key_of_client = fold(key, clients) if sampling == "pass" else fold(key, versions, clients)
    shuffled, starts = _shuffles(key_of_client, sizes, first, last - first + 1)

    segment = np.minimum(number, last[:, None]) - first[:, None]
    begin = starts[:, None] + segment * sizes[:, None] + batch * batch_size
    counts = np.where(active, np.minimum(batch_size, sizes[:, None] - batch * batch_size), 0)
    columns = np.arange(batch_size)
    inside = columns < counts[:, :, None]
    rows = shuffled[np.where(inside, begin[:, :, None] + columns, 0)]
    return Plan(np.where(inside, rows, 0) + offsets[:, None, None], counts, num_steps)


def _shuffles(
    keys: np.ndarray, sizes: np.ndarray, first: np.ndarray, passes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return permutations of ``0..sizes[k]-1`` for passes ``first[k] .. first[k] + passes[k] - 1`` of every client k.

    They are concatenated, client after client and pass after pass; the second array holds the position at which each
    client's begin.
    """
    if sizes.max(initial=0) >= 2**_POSITION_BITS:
        raise ConfigurationError(
            f"a client holds {sizes.max()} examples, and a shuffled pass goes over at most {2**_POSITION_BITS - 1}: write "
            "sampling='replacement'"
        )
    starts = np.concatenate([[0], np.cumsum(passes * sizes)])
    client = np.repeat(np.arange(len(sizes)), passes)  # client of each segment; a segment is one pass of one client
    number = np.arange(len(client)) - np.repeat(np.cumsum(passes) - passes, passes) + first[client]
    segment_key = fold(keys[client], number)
    shuffled = np.empty(starts[-1], dtype=np.int64)
    ends = np.cumsum(sizes[client])
    for low in range(0, len(client), 2**_SEGMENT_BITS):  # a single iteration, except for tens of thousands of clients
        high = min(low + 2**_SEGMENT_BITS, len(client))
        lengths = sizes[client[low:high]]
        segment = np.repeat(np.arange(high - low), lengths)
        begin = ends[low] - lengths[0]
        position = np.arange(begin, ends[high - 1]) - np.repeat(ends[low:high] - lengths, lengths)
        bits = (fold(segment_key[low:high][segment], position) >> (64 - _HASH_BITS)) & (2**_HASH_BITS - 1)
        packed = (segment << (_HASH_BITS + _POSITION_BITS)) | (bits << _POSITION_BITS) | position
        packed.sort()
        shuffled[begin : ends[high - 1]] = packed & (2**_POSITION_BITS - 1)
    return shuffled, starts[:-1]
