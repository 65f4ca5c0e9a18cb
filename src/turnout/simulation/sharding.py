"""Exchange the reports of a cohort between processes.

Scalars and clients' memory are gathered by all processes. Vectors ``[P]`` stay on the process that computed them (`Sharded`),
or are summed at once (`Summed`), so that every process takes the same server step without having most of the updates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from turnout.core.checks import TurnoutError
from turnout.core.random import fold
from turnout.core.types import Report
from turnout.core.updates import Updates
from turnout.distributed import collectives
from turnout.distributed.sums import Summed
from turnout.distributed.updates import Sharded

if TYPE_CHECKING:
    from turnout.record.client_memory import ClientMemory


class ProcessesDiffer(TurnoutError):
    """The processes of a run have different models."""


def gather_reports(report: Report, number: int) -> Report:
    """Return the reports of all processes as one batch, in the order of their shares.

    Args:
        report: the reports of this process; if there are none, an empty report of the same form.
        number: the total number of reports.
    """
    if collectives.world_size() == 1:
        return report
    share, device = collectives.share(number), report.delta.device
    index = torch.arange(share.start, share.stop, device=device)
    numbers = {name: torch.from_numpy(np.ascontiguousarray(getattr(report, name))) for name in _NUMBERS}
    seen = {f"seen.{name}": value for name, value in report.seen.items()}
    vectors = {"delta": report.delta} | {f"extra.{name}": value for name, value in report.extra.items()}
    vectors |= {name: value for name, value in seen.items() if value.dim() > 1}
    scalars = numbers | {"good": torch.from_numpy(report.finite())} | {n: v for n, v in seen.items() if v.dim() == 1}
    scalars |= {name: value.weights for name, value in vectors.items() if isinstance(value, Summed)}
    # One table for all scalars: the cost of a collective is its latency.
    table = collectives.all_gather(
        torch.stack([_bits(value.to(device)) for value in scalars.values()], dim=1), index, number
    )
    columns = {name: _value(column, scalars[name].dtype) for name, column in zip(scalars, table.T, strict=True)}

    def rows(name: str, value: torch.Tensor | Updates) -> Updates:
        if isinstance(value, Summed):
            return Summed(collectives.all_reduce(value.sum), columns[name], value.dtype)
        assert isinstance(value, torch.Tensor)
        return Sharded(value, index, number)

    values = columns | {name: rows(name, value) for name, value in vectors.items()}
    extra, seen = ({name: values[f"{kind}.{name}"] for name in getattr(report, kind)} for kind in ("extra", "seen"))
    client, version, num_examples, num_steps, good = (columns[name].cpu().numpy() for name in (*_NUMBERS, "good"))
    return Report(
        client,
        version,
        num_examples,
        num_steps,
        values["delta"],
        extra,
        seen,
        good=good,
        vector_bytes=report.vector_bytes,
    )


_NUMBERS = ("client", "version", "num_examples", "num_steps")


def share_memory(memory: ClientMemory, clients: np.ndarray, device: torch.device) -> None:
    """Send what these clients remember to all processes; each process has the rows of its share."""
    if collectives.world_size() == 1:
        return
    share = collectives.share(len(clients))
    index = torch.arange(share.start, share.stop, device=device)
    rows = memory.gather(clients[share])
    gathered = {name: collectives.all_gather(row.to(device), index, len(clients)).cpu() for name, row in rows.items()}
    memory.scatter(clients, gathered)


def check_agreement(params: torch.Tensor) -> None:
    """Check that all processes have the same model, bit for bit.

    Raises:
        ProcessesDiffer: if they differ.
    """
    if collectives.world_size() == 1:
        return
    digest = fold(_bits(params), torch.arange(len(params), device=params.device)).sum()
    rank = torch.tensor([collectives.rank()], device=params.device)
    if (collectives.all_gather(digest[None], rank, collectives.world_size()) != digest).any():
        raise ProcessesDiffer(
            "the processes of this run no longer have the same model: they must run the same versions of all software, with "
            "the same settings, on processors with the same rounding"
        )


def _bits(values: torch.Tensor) -> torch.Tensor:
    """Return numbers ``[b]`` as int64: the bits of floating-point numbers as float64, or the values of integers."""
    return values.double().view(torch.int64) if values.is_floating_point() else values.long()


def _value(bits: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Invert `_bits`."""
    return bits.contiguous().view(torch.float64).to(dtype) if dtype.is_floating_point else bits.to(dtype)
