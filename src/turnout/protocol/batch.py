"""Hold the records that a server and its driver exchange: batches of tasks, orders for one client, outcomes of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from turnout.core.types import Info, Report, State
from turnout.protocol.pace import Phase


@dataclass(frozen=True, eq=False)
class Batch:
    """The tasks whose reports a step or a phase uses, sorted by client; those of one client in the order of arrival.

    Attributes:
        phase: what was asked for.
        version: the present version of the model.
        tasks: numbers of the tasks, int64 ``[B]``.
        clients: who did each, int64 ``[B]``.
        versions: what each was asked with, int64 ``[B]``.
        turn: 0 for a client's first report, then 1, ...; int64 ``[B]``.
        repeat_index: how often each client had been given the same version before, int64 ``[B]``; None is never.
        is_streamable: whether updates may be summed as they come in.
        groups: the groups of clients whose tasks these are; 0 is the round of all.
        group_of: the group of each, int64 ``[B]``, where groups have sums of their own; None where there is one sum at most.
    """

    phase: Phase
    version: int
    tasks: np.ndarray
    clients: np.ndarray
    versions: np.ndarray
    turn: np.ndarray
    repeat_index: np.ndarray | None
    is_streamable: bool
    groups: tuple[int, ...] = (0,)
    group_of: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.clients)


class Order(NamedTuple):
    """The part of a task that is meant for one client, beside the model and what is `shared`.

    Attributes:
        task: its number.
        client: whose it is.
        version: what it trains from; -1 is the model of version 0, with minibatches of no round.
        phase: what is asked for.
        repeat_index: how often it had been given the same version before.
        told: what it alone is told, ``[1]`` by name.
    """

    task: int
    client: int
    version: int
    phase: Phase
    repeat_index: int
    told: State


class Stepped(NamedTuple):
    """The outcome of a server step.

    Attributes:
        reports: what it used; who was drawn twice is in it twice.
        info: what may be looked at.
        version: the version before it.
        prepared: what all clients said before the first step; None with any other.
    """

    reports: Report
    info: Info
    version: int
    prepared: Report | None = None


def with_repeats(reports: Report, cohort: np.ndarray) -> Report:
    """Return the reports of different clients as those of a cohort, ascending, that has some of them twice.

    Whoever has not reported is left out. What the server only sums is in the first row of a client, for it was sent once.
    """
    cohort = cohort[np.isin(cohort, reports.client)]
    first, rows = np.unique(cohort, return_index=True, return_inverse=True)[1:]
    once = torch.zeros(len(cohort), dtype=torch.bool)
    once[torch.from_numpy(first)] = True
    return reports.take(rows).summed_once(once)
