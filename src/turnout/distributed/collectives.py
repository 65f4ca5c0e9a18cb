"""Several processes that run one experiment together (`torch.distributed`): which one this is, and how they add up.

Everything is exchanged by sums. Where each process fills rows of its own and has zeros elsewhere, the sum of their bits is
the whole, exactly; and a sum is the same on all of them, to the last bit, so that they take the same server steps.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import distributed

from turnout.core.checks import TurnoutError

Value = TypeVar("Value")

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class ProcessLost(TurnoutError):
    """Another process of the same run has died or cannot be reached."""


def world_size() -> int:
    """How many processes run the experiment; 1 unless `torch.distributed` says otherwise."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def rank() -> int:
    """Which of them this is, from 0. Process 0 alone writes files and speaks."""
    return distributed.get_rank() if world_size() > 1 else 0


def share(number_of_things: int) -> slice:
    """Which of so many things are this process's: neighbours, as many as anybody's, or one less."""
    each, rest = divmod(number_of_things, world_size())
    return slice(*(each * r + min(r, rest) for r in (rank(), rank() + 1)))


def all_reduce(values: torch.Tensor) -> torch.Tensor:
    """Return the sum of everybody's tensors, which all have the same shape; `values` is changed in place and returned.

    Raises:
        ProcessLost: where not everybody is there.
    """
    if world_size() > 1 and values.numel():
        try:
            distributed.all_reduce(values)
        except RuntimeError as error:
            raise lost(error) from error
    return values


def all_gather(own: torch.Tensor, place: torch.Tensor, num_rows: int) -> torch.Tensor:
    """All rows ``[num_rows, ...]``, of which everybody has some, to the last bit.

    Args:
        own: rows of this process, ``[b, ...]``.
        place: where they are in the whole, int64 ``[b]``.
    """
    return all_reduce(_bits(own, place, num_rows)).view(own.dtype)


def gather(own: torch.Tensor, place: torch.Tensor, num_rows: int, rank_of_all: int) -> torch.Tensor | None:
    """Return all rows as `all_gather` does, in one process; None in the others.

    Args:
        rank_of_all: of the process that gets them.

    Raises:
        ProcessLost: where not everybody is there.
    """
    bits = _bits(own, place, num_rows)
    if world_size() > 1 and bits.numel():
        try:
            distributed.reduce(bits, rank_of_all)
        except RuntimeError as error:
            raise lost(error) from error
    return bits.view(own.dtype) if rank() == rank_of_all else None


def _bits(own: torch.Tensor, place: torch.Tensor, num_rows: int) -> torch.Tensor:
    """Return the bits of some rows in their places, and zeros in those of others: integers, whose sum is all rows exactly."""
    bits = own.new_zeros((num_rows, *own.shape[1:])).view(_INTEGERS[own.element_size()])
    bits[place] = own.contiguous().view(bits.dtype)
    return bits


def broadcast(value: Value) -> Value:
    """Return what process 0 has here, for everybody: plain values."""
    if world_size() == 1:
        return value
    box = [value]
    try:
        distributed.broadcast_object_list(box, src=0)
    except RuntimeError as error:
        raise lost(error) from error
    return box[0]


def anyone(flag: bool) -> bool:
    """Whether it is true of any process."""
    if world_size() == 1:
        return flag
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    return bool(all_reduce(torch.tensor(int(flag), device=device)))


@contextmanager
def started(device: str) -> Iterator[None]:
    """Join the processes that ``torchrun`` started this one with, if it did.

    Args:
        device: where they compute: NCCL connects those on GPUs, each of which takes the next GPU of its machine.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    try:
        distributed.init_process_group("nccl" if on_gpu else "gloo")
    except (RuntimeError, ValueError) as error:
        raise lost(error) from error
    yield
    distributed.destroy_process_group()  # not after an error: it would wait for those who are lost


def lost(error: Exception) -> ProcessLost:
    """Return the error for a collective operation that failed."""
    said = re.sub(r"\[\S*\]", "", str(error)).strip() or type(error).__name__  # without places in gloo's source
    return ProcessLost(f"another process of this run was lost ({said.splitlines()[0].split('. ')[0].strip()})")
