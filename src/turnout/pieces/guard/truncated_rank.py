"""Truncate adapters to a rank of each client, which may be pruned during training (HetLoRA)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from turnout.base import Guard, MemoryShapes
from turnout.core.adapter import Adapter
from turnout.core.checks import ConfigurationError, DataError, refuse
from turnout.core.device import to_device
from turnout.core.ranges import Count, Probability
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients
from turnout.population.table import cells, clients, numbered, numbers, read_table


@dataclass(frozen=True)
class TruncatedRank(Guard, name="truncated_rank"):
    """Truncate low-rank adapters to a smaller rank at some clients, which train only part of the factors.

    The adapter of a weight W is ``W + s B A``, with a scale s and two thin factors. Client n trains the first
    ``ranks[n mod len(ranks)]`` columns of B and rows of A. The others are zero at the client, and so are their
    gradients, so local steps leave them unchanged.

    The server learns the rank as ``report.seen["rank"]``, from which `Flora`, `FlexLora`, `HetLora`, `RaFlora` and
    `FedexLora` know which part a client has sent. Messages are as long as without this guard.

    Args:
        ranks: ranks of the clients, >= 1: one for all, one for each, or a sequence that is repeated. `ranks_from_table`
            reads them from a file, as do recipes that are given its path.

    Raises:
        ConfigurationError: if a rank is below 1 or above that of the model, or if the model has no adapters.

    Example:
        Ranks by the number of examples:

        >>> import turnout as to
        >>> data = to.data.digits().split(to.partition.Dirichlet(1.0), num_clients=10)
        >>> ranks = tuple(8 if size > 150 else 2 for size in data.train.sizes.tolist())
        >>> to.guard.TruncatedRank(ranks).ranks == ranks
        True
    """

    gives = ("rank",)

    ranks: tuple[int, ...] = (4, 8)

    def __post_init__(self) -> None:
        whole = all(isinstance(rank, int) and not isinstance(rank, bool) and rank > 0 for rank in self.ranks)
        if not self.ranks or not whole:
            raise refuse("ranks", given=self.ranks, needed="whole numbers from 1 on")

    def of(self, memory: State, clients: Clients) -> torch.Tensor:
        """Return the rank of each client, int64 ``[B]``."""
        return torch.from_numpy(np.asarray(self.ranks)[clients.ids % len(self.ranks)])

    def receive(self, task: Task, memory: State, clients: Clients) -> Task:
        """Return the task with adapters of the clients' ranks, ``[B, P]``."""
        if not (adapters := clients.objective.network.adapters):
            raise ConfigurationError("TruncatedRank needs a model with adapters: write HuggingFace(lora=8)")
        most = min(adapter.rank for adapter in adapters)
        if max(self.ranks) > most:
            raise ConfigurationError(
                f"ranks: got {max(self.ranks)}, needed at most {most}, the rank of the model's adapters"
            )
        ranks = to_device(self.of(memory, clients), task.params.device)
        return replace(task, params=truncated(adapters, task.params.expand(len(clients), -1), ranks))

    def apply(self, report: Report, task: Task, memory: State, clients: Clients) -> Report:
        """Return the report with the rank."""
        if not report.delta.shape[1]:  # a report of measurements alone
            return report
        ranks = to_device(self.of(memory, clients), report.delta.device)
        return replace(report, seen=report.seen | {"rank": ranks})


def truncated(adapters: tuple[Adapter, ...], rows: torch.Tensor, ranks: torch.Tensor) -> torch.Tensor:
    """Return vectors ``[n, P]`` whose factors are zero beyond a rank of each, int64 ``[n]``."""
    result, first = rows.clone(), torch.zeros_like(ranks)
    for adapter in adapters:
        for factor, short in zip(adapter.factors(result), adapter.between(rows, first, ranks), strict=True):
            factor.copy_(short)
    return result


def ranks_from_table(
    path: str, column: str = "rank", ranks: Mapping[str, int] | None = None, names: Sequence[str] | None = None
) -> tuple[int, ...]:
    r"""Read the rank of each client from a table with the columns ``client`` and `column`.

    Args:
        path: path of a CSV or Parquet file.
        column: name of the column with the rank, or with the kind of a client's device.
        ranks: rank of each kind; None if the column holds ranks.
        names: names of the clients of the data, ``data.client_names``, if the table names them; None if it numbers them
            from 0 on.

    Raises:
        DataError: if the file cannot be read, if clients are not 0 to N - 1, each once, or if a kind has no rank.

    Example:
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "devices.csv"
        >>> _ = file.write_text("client,device\n1,laptop\n0,phone\n")
        >>> ranks_from_table(str(file), "device", {"phone": 2, "laptop": 8})
        (2, 8)
    """
    what = f"ranks {path}"
    columns = read_table(path, "ranks", ("client", column), None, ("client",))
    client = clients(columns["client"], what)
    if names is None and client.dtype.kind == "U":
        raise DataError(f"{what}: it names its clients: write ranks_from_table(path, names=data.client_names)")
    number = client if (number := numbered(client, names, what)) is None else number
    order = np.argsort(number, kind="stable")[np.count_nonzero(number < 0) :]
    if not len(order) or number[order].tolist() != list(range(len(order if names is None else names))):
        raise DataError(f"{what}: needed one row for each client, numbered from 0 to N - 1")
    values = columns[column]
    if ranks is not None:
        kinds = [str(cell) for cell in cells(values)]
        if missing := sorted({*kinds} - {*ranks}):
            raise DataError(f"{what}: column {column!r} has {', '.join(missing)}, needed one of {', '.join(ranks)}")
        values = [ranks[kind] for kind in kinds]
    values = numbers(values, column, what, whole=True)
    return tuple(int(values[row]) for row in order)


def of_ranks(ranks: tuple[int, ...] | str | None) -> tuple[TruncatedRank, ...]:
    """Return the guard for ranks, or for those of a table with the columns ``client`` and ``rank``, in a tuple.

    None returns no guard: all clients train the rank of the model.
    """
    if isinstance(ranks, str):
        ranks = ranks_from_table(ranks)
    return () if ranks is None else (TruncatedRank(ranks),)


@dataclass(frozen=True)
class PrunedRank(TruncatedRank, name="pruned_rank"):
    """Truncate each client's adapters to a rank that is pruned when their tails shrink (HetLoRA, self-pruning).

    Each adapter is a low-rank matrix ``B A``. For a client of rank r, the tail is the columns of B and the rows of A
    from ``t = floor(decay r)`` on. After the local steps, with sums over the adapters of the model::

        r <- t   if  sum |B'_tail| |A'_tail| < sum |B_tail| |A_tail|

    B and A are the received factors, B' and A' the trained ones, and norms are Frobenius norms. The client sends B' and
    A', cut to the new rank, and starts its next round with this rank. `TailPenalty` decreases tails during training.

    Client memory: ``pruned_rank []``, the present rank, int64; 0 before the client has sent anything.

    Args:
        ranks: initial ranks, as in `TruncatedRank`.
        decay: factor gamma from a rank to the pruned one, in [0, 1]; 1 disables pruning.
        least: smallest rank after pruning, >= 1.

    Raises:
        ConfigurationError: if a number is out of range, or as for `TruncatedRank`.

    Example:
        >>> import turnout as to
        >>> to.hetlora(ranks=(4, 8), penalty=0.01).guard
        (PrunedRank(ranks=(4, 8), decay=0.99, least=1),)

    Reference: Cho et al., "Heterogeneous LoRA for federated fine-tuning of on-device foundation models", EMNLP 2024
    (arXiv 2401.06432).
    """

    decay: Probability = 0.99
    least: Count = 1

    def memory(self, num_params: int, dtype: torch.dtype, shapes: tuple[tuple[int, ...], ...] = ()) -> MemoryShapes:
        """Return the shape of the present rank."""
        return {"pruned_rank": ((), torch.int64)}

    def of(self, memory: State, clients: Clients) -> torch.Tensor:
        """Return the present rank of each client, int64 ``[B]``."""
        pruned = memory["pruned_rank"]
        return pruned.where(pruned > 0, super().of(memory, clients).to(pruned.device))

    def receive(self, task: Task, memory: State, clients: Clients) -> Task:
        """Return the task with adapters of the clients' ranks, and with the start and the end of their tails."""
        task, ranks = super().receive(task, memory, clients), self.of(memory, clients)
        # A client of a rank <= `least` has an empty tail, which is neither penalized nor pruned.
        pruned = (self.decay * ranks.double()).floor().to(torch.int64).clamp(min=self.least).minimum(ranks)
        ends = {"tail": pruned, "rank": ranks}
        return replace(
            task, own=task.own | {name: to_device(value, task.params.device) for name, value in ends.items()}
        )

    def apply(self, report: Report, task: Task, memory: State, clients: Clients) -> Report:
        """Return the report with the new rank, and with zeros beyond it."""
        if not report.delta.shape[1]:  # a report of measurements alone
            return report
        adapters, tail, ranks = clients.objective.network.adapters, task.own["tail"], task.own["rank"]
        delta = report.updates.gathered()
        before, after = (_norms(adapters, rows, tail, ranks) for rows in (task.params, task.params + delta))
        ranks = tail.where(after < before, ranks)
        return replace(report, delta=truncated(adapters, delta, ranks), seen=report.seen | {"rank": ranks})

    def settle(self, memory: State, sent: Report, good: torch.Tensor) -> None:
        """Remember the ranks of reports that the server does not drop."""
        if "rank" in sent.seen:
            ranks = to_device(sent.seen["rank"], memory["pruned_rank"].device)
            memory["pruned_rank"] = ranks.where(good[:, 0].to(ranks.device), memory["pruned_rank"])


def _norms(adapters: tuple[Adapter, ...], rows: torch.Tensor, begin: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
    """Return ``sum |B_tail| |A_tail|`` over adapters, float64 ``[B]``."""
    total = rows.new_zeros(len(rows), dtype=torch.float64)
    for adapter in adapters:
        up, down = (part.flatten(1).double().norm(dim=1) for part in adapter.between(rows, begin, end))
        total += up * down
    return total
