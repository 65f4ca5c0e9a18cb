"""Exchange tensors between the processes of an experiment (`torch.distributed`).

All exchanges are sums. To gather rows, each process fills its rows and has zeros elsewhere, so that the sum of their bits, as
integers, is exact. A sum has the same bits on all processes, so that they take the same server steps.
"""

from __future__ import annotations

import importlib
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
    """Another process of the run has died or is unreachable."""


def world_size() -> int:
    """Return the number of processes of the experiment; 1 without `torch.distributed`."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def rank() -> int:
    """Return the number of this process, from 0. Process 0 alone writes files and output."""
    return distributed.get_rank() if world_size() > 1 else 0


def share(number: int) -> slice:
    """Return the consecutive items of this process, of `number` items that are divided evenly among processes."""
    size, rest = divmod(number, world_size())
    return slice(*(size * r + min(r, rest) for r in (rank(), rank() + 1)))


def all_reduce(values: torch.Tensor) -> torch.Tensor:
    """Sum tensors of the same shape over all processes, in place, and return the sum.

    Raises:
        ProcessLost: if a process is missing.
    """
    if world_size() > 1 and values.numel():
        with _together():
            distributed.all_reduce(values)
    return values


def all_gather(rows: torch.Tensor, index: torch.Tensor, num_rows: int) -> torch.Tensor:
    """Return all rows ``[num_rows, ...]``, bit for bit, on every process.

    Args:
        rows: the rows of this process, ``[b, ...]``.
        index: their indices among all rows, int64 ``[b]``.
        num_rows: the number of all rows.
    """
    return all_reduce(_bits(rows, index, num_rows)).view(rows.dtype)


def gather(rows: torch.Tensor, index: torch.Tensor, num_rows: int, destination: int) -> torch.Tensor | None:
    """Return all rows as `all_gather` does, on one process; None on the others.

    Args:
        rows, index, num_rows: see `all_gather`.
        destination: the rank of the process that gets them.

    Raises:
        ProcessLost: if a process is missing.
    """
    bits = _bits(rows, index, num_rows)
    if world_size() > 1 and bits.numel():
        with _together():
            distributed.reduce(bits, destination)
    return bits.view(rows.dtype) if rank() == destination else None


def _bits(rows: torch.Tensor, index: torch.Tensor, num_rows: int) -> torch.Tensor:
    """Return all rows as integers with the same bits, with zeros for the rows of other processes."""
    bits = rows.new_zeros((num_rows, *rows.shape[1:])).view(_INTEGERS[rows.element_size()])
    bits[index] = rows.contiguous().view(bits.dtype)
    return bits


def broadcast(value: Value) -> Value:
    """Return the value of process 0, a plain value, on every process."""
    if world_size() == 1:
        return value
    box = [value]
    with _together():
        distributed.broadcast_object_list(box, src=0)
    return box[0]


def anyone(flag: bool) -> bool:
    """Return True if the flag is True on any process."""
    if world_size() == 1:
        return flag
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    return bool(all_reduce(torch.tensor(int(flag), device=device)))


@contextmanager
def started(device: str) -> Iterator[None]:
    """Connect to the other processes that ``torchrun`` started, if any.

    Args:
        device: the device that they compute on. On GPUs they communicate by NCCL, and each process uses one GPU.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # Functions of this module have the default group as a default argument. If tracing imported it later, they would keep the
    # group alive after it was destroyed, and gloo's threads abort a process whose interpreter they outlive.
    importlib.import_module("torch.distributed.nn.functional")
    with _together(ValueError):
        distributed.init_process_group("nccl" if on_gpu else "gloo")
    yield
    distributed.destroy_process_group()  # not after an error, where it would wait for lost processes


@contextmanager
def _together(*errors: type[Exception]) -> Iterator[None]:
    """Explain a RuntimeError, or one of these errors, of a collective operation.

    Raises:
        ProcessLost: if it fails.
    """
    try:
        yield
    except (RuntimeError, *errors) as error:
        # Without positions in the source of gloo.
        said = re.sub(r"\[\S*\]", "", str(error)).strip() or type(error).__name__
        why = said.splitlines()[0].split(". ")[0].strip()
        raise ProcessLost(f"another process of this run was lost ({why})") from error
