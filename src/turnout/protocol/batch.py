"""Records that a coordinator and its driver exchange: batches of tasks, orders of clients, and outcomes of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from turnout.core.types import Info, Report, State
from turnout.protocol.pace import Phase


@dataclass(frozen=True, eq=False)
class Batch:
    """The tasks whose reports a step or a phase uses, sorted by client and, for one client, by arrival.

    Attributes:
        phase: phase of the tasks.
        version: present version of the model.
        tasks: task numbers, int64 ``[B]``.
        clients: client of each task, int64 ``[B]``.
        versions: version that each task was sent with, int64 ``[B]``.
        turn: 0 for the first report of a client, 1 for its second, ...; int64 ``[B]``.
        repeat_index: number of times that the client had trained from the same version before, int64 ``[B]``; None is
            zero.
        is_streamable: True if updates may be summed on arrival.
        groups: groups of clients to which the tasks belong; 0 is the round of all clients.
        group_of: group of each client, int64 ``[B]``, if groups have their own sums; None if there is at most one sum.
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
    """The part of a task that differs between clients.

    Attributes:
        task: task number.
        client: client number.
        version: version that the client trains from; -1 is the model of version 0, with minibatches outside all rounds.
        phase: phase of the task.
        repeat_index: number of times that the client had trained from the same version before.
        inputs: inputs for this client alone, ``[1]`` by name.
    """

    task: int
    client: int
    version: int
    phase: Phase
    repeat_index: int
    inputs: State


class Stepped(NamedTuple):
    """The outcome of a server step.

    Attributes:
        reports: reports that the step used; those of clients that were drawn twice occur twice.
        info: figures for logging.
        version: version before the step.
        prepared: reports of the phase ``"prepare"``, at the first step; otherwise None.
    """

    reports: Report
    info: Info
    version: int
    prepared: Report | None = None


def with_repeats(reports: Report, cohort: np.ndarray) -> Report:
    """Repeat the rows of clients that occur twice in a cohort.

    Clients of the cohort that have not reported are left out. Vectors that the server only sums stay in the first row
    of a client, because they were sent once.

    Args:
        reports: reports of different clients.
        cohort: client numbers, ascending, with repeats.
    """
    cohort = cohort[np.isin(cohort, reports.client)]
    first, rows = np.unique(cohort, return_index=True, return_inverse=True)[1:]
    once = torch.zeros(len(cohort), dtype=torch.bool)
    once[torch.from_numpy(first)] = True
    return reports.take(rows).summed_once(once)
