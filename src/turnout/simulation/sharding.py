"""A cohort's work, dealt out to several processes, and what they tell each other of it.

Scalars and clients' memory go to everybody. Vectors ``[P]`` stay where they were made (`Sharded`), or are summed at once
(`Summed`), so every process takes the same server step without having seen most of the updates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from turnout.core.checks import TurnoutError
from turnout.core.random import fold
from turnout.core.types import Report, State
from turnout.core.updates import Updates
from turnout.distributed import collectives
from turnout.distributed.sums import Summed
from turnout.distributed.updates import Sharded

if TYPE_CHECKING:
    from turnout.simulation.memory import ClientMemory


class ProcessesDiffer(TurnoutError):
    """Processes of one run do not have the same model."""


def together(report: Report, number: int) -> Report:
    """Everybody's reports as one batch, in the order of the shares.

    Args:
        report: those of this process's share; where that is empty, no reports that are like the others.
        number: how many they are together.
    """
    if collectives.world_size() == 1:
        return report
    mine, device = collectives.share(number), report.delta.device
    place = torch.arange(mine.start, mine.stop, device=device)
    scalars, vectors = _scalars(report), _vectors(report)
    scalars |= {name: value.weights for name, value in vectors.items() if isinstance(value, Summed)}
    # One table for all scalars, because what takes time is that everybody waits for everybody.
    table = collectives.all_gather(
        torch.stack([_bits(value.to(device)) for value in scalars.values()], dim=1), place, number
    )
    found = {name: _value(column, scalars[name].dtype) for name, column in zip(scalars, table.T, strict=True)}

    def rows(name: str, value: torch.Tensor | Updates) -> Updates:
        if isinstance(value, Summed):
            return Summed(collectives.all_reduce(value.sum), found[name], value.dtype)
        assert isinstance(value, torch.Tensor)
        return Sharded(value, place, number)

    held = found | {name: rows(name, value) for name, value in vectors.items()}
    client, version, num_examples, num_steps, good = (found[name].cpu().numpy() for name in (*_NUMBERS, "good"))
    extra, seen = ({name: held[f"{kind}.{name}"] for name in getattr(report, kind)} for kind in ("extra", "seen"))
    return Report(
        client,
        version,
        num_examples,
        num_steps,
        held["delta"],
        extra,
        seen,
        good=good,
        vector_bytes=report.vector_bytes,
    )


_NUMBERS = ("client", "version", "num_examples", "num_steps")


def _scalars(report: Report) -> dict[str, torch.Tensor]:
    """Return what a report has one number of for each client, by name."""
    numbers = {name: torch.from_numpy(np.ascontiguousarray(getattr(report, name))) for name in _NUMBERS}
    seen = {f"seen.{name}": value for name, value in report.seen.items() if value.dim() == 1}
    return numbers | {"good": torch.from_numpy(report.finite())} | seen


def _vectors(report: Report) -> dict[str, torch.Tensor | Updates]:
    """Return what a report has a vector of for each client, by name."""
    extra = {f"extra.{name}": value for name, value in report.extra.items()}
    seen = {f"seen.{name}": value for name, value in report.seen.items() if value.dim() > 1}
    return {"delta": report.delta} | extra | seen


def remember(memory: ClientMemory, clients: np.ndarray, device: torch.device) -> None:
    """Tell everybody what these clients remember by now; each knows it of its own share."""
    if collectives.world_size() == 1:
        return
    mine = collectives.share(len(clients))
    place = torch.arange(mine.start, mine.stop, device=device)
    rows: State = {}
    for name, own in memory.gather(clients[mine]).items():
        rows[name] = collectives.all_gather(own.to(device), place, len(clients)).cpu()
    memory.scatter(clients, rows)


def check_agreement(params: torch.Tensor) -> None:
    """Make sure that all processes have the same model, to the last bit.

    Raises:
        ProcessesDiffer: where they do not.
    """
    if collectives.world_size() == 1:
        return
    digest = fold(_bits(params), torch.arange(len(params), device=params.device)).sum()
    rank = torch.tensor([collectives.rank()], device=params.device)
    if (collectives.all_gather(digest[None], rank, collectives.world_size()) != digest).any():
        raise ProcessesDiffer(
            "the processes of this run do not have the same model any more: they must run the same versions of everything, "
            "with the same settings, on processors that round alike"
        )


def _bits(values: torch.Tensor) -> torch.Tensor:
    """Numbers ``[b]`` as int64 with the same bits, or the same value if they are integers."""
    return values.double().view(torch.int64) if values.is_floating_point() else values.long()


def _value(bits: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return what `_bits` was made of."""
    return bits.contiguous().view(torch.float64).to(dtype) if dtype.is_floating_point else bits.to(dtype)
