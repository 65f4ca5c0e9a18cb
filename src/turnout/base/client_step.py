"""Take one step of a client. `client_step` is the only client function that handles all slots."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from turnout.base.algorithm import Algorithm
from turnout.base.local import Correction, Measurement, OfTraining
from turnout.base.personalization import TrainsBeside
from turnout.base.piece import ClientPiece
from turnout.core.lanes import Lanes
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients, Start


def client_step(algorithm: Algorithm, task: Task, memory: State, clients: Clients) -> tuple[Report, State]:
    """Let B clients do a task: train and measure, or only measure; then apply the guards and report.

    Between real machines, B is 1.

    Args:
        algorithm: the algorithm.
        task: the task that the clients received.
        memory: memory of the clients, ``[B, ...]`` by name; changed in place.
        clients: the clients with their data.

    Returns:
        The reports as they are sent, and the memory of the clients afterwards.
    """
    personal, update, before = algorithm.personal, None, dict(memory)
    for guard in algorithm.guard:
        task = guard.receive(task, memory, clients)
    clients.objective.network.rebase(task.shared)
    joined = task if personal is None else replace(task, params=personal.join(task.params, memory))
    if isinstance(personal, TrainsBeside) and task.phase == "train":
        update = personal.beside(algorithm.local, task, memory, clients, algorithm.corrections)
    report, memory = _PHASES[task.phase](algorithm, joined, memory, clients)
    if personal is not None:
        report, part = personal.split(report, clients.objective.layout.num_shared, joined.params, before["personal"])
        update = part if update is None else update
    for guard in algorithm.guard:
        report = guard.apply(report, task, memory, clients)
    if task.phase != "measure":
        _settle(algorithm, task.phase, before, memory, report, update if task.phase == "train" else None)
    return report, memory


def _settle(
    algorithm: Algorithm, phase: str, before: State, memory: State, sent: Report, update: torch.Tensor | None
) -> None:
    """Update the memory of clients by what was sent, so that the server's means stay the means of the clients' vectors.

    The memory of a client does not change if the server will drop its report, because of NaN or infinity. A personal
    part that is no longer finite is restored.
    """
    # After all guards: the server sums what it receives, so that a client's vectors must move by the same numbers.
    trained = algorithm.corrections if phase == "train" else ()
    settling = [piece for piece in (*algorithm.guard, *trained) if type(piece).settle is not ClientPiece.settle]
    if not algorithm.keeps and not algorithm.remembers and not settling and update is None:
        return  # without `finite`, which synchronizes with the device
    good = torch.from_numpy(sent.finite())[:, None]
    for piece in settling:
        piece.settle(memory, sent, good)
    for name in algorithm.keeps:
        memory[name] += sent.extra[name].to(memory[name].device).where(good, 0.0)
    for name in algorithm.remembers:
        memory[name] = memory[name].where(good, before[name])
    if update is not None and algorithm.personal is not None:
        personal = memory["personal"]
        moved = personal + update.to(personal.device)
        memory["personal"] = moved.where(good & torch.isfinite(moved).all(dim=1, keepdim=True), personal)


def _train(algorithm: Algorithm, task: Task, memory: State, clients: Clients) -> tuple[Report, State]:
    """Train, and take the algorithm's measurements before and after."""
    clients, start = clients.at(task)
    corrections = _of_objective(algorithm, task, memory, clients) if algorithm.measurements else ()
    seen = _seen(algorithm.measurements, start, None, corrections)
    report = algorithm.local.train(task, memory, clients, algorithm.steps)
    seen |= _seen(algorithm.measurements, start, report.updates.gathered(), corrections)
    return replace(report, seen=report.seen | seen), memory


def _measure(algorithm: Algorithm, task: Task, memory: State, clients: Clients) -> tuple[Report, State]:
    """Take only the measurements of the selection. If they need training, its result is neither sent nor stored."""
    (clients, start), measurements = clients.at(task), algorithm.selection.measurements
    corrections = _of_objective(algorithm, task, memory, clients)
    seen = _seen(measurements, start, None, corrections)
    if any(isinstance(measurement, OfTraining) for measurement in measurements):
        tried = {name: value.clone() for name, value in memory.items()}
        report = algorithm.local.train(task, tried, clients, algorithm.steps)
        seen |= _seen(measurements, start, report.updates.gathered(), corrections)
    versions, no_steps = task.versions(len(clients)), np.zeros(len(clients), dtype=np.int64)
    nothing = task.params.new_zeros((len(clients), 0))
    return Report(clients.ids, versions, clients.num_examples, no_steps, nothing, seen=seen), memory


def _prepare(algorithm: Algorithm, task: Task, memory: State, clients: Clients) -> tuple[Report, State]:
    """Return the initial vectors of corrections, from the gradients of local steps that do not move the model."""
    clients, _ = clients.at(task)
    report = algorithm.local.train(task, memory, clients, (*algorithm.steps, _Stay()))
    return replace(report, delta=report.delta[:, :0], seen={}), memory


@dataclass(frozen=True)
class _Stay(Correction):
    """Set every direction to zero, so that the model does not move."""

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return zeros."""
        return torch.zeros_like(gradient)


_PHASES = {"train": _train, "measure": _measure, "prepare": _prepare}


def _of_objective(algorithm: Algorithm, task: Task, memory: State, clients: Clients) -> tuple[Correction, ...]:
    """Return the corrections that belong to the local objective, started for these clients in their order."""
    lanes = Lanes(np.arange(len(clients)), np.zeros(len(clients), dtype=np.int64))
    return tuple(piece.begin(task, memory, clients, lanes) for piece in algorithm.corrections if piece.of_objective)


def _seen(
    measurements: tuple[Measurement, ...], start: Start, delta: torch.Tensor | None, corrections: tuple[Correction, ...]
) -> State:
    """Return the measurements before training (`delta` is None) or after it, by name."""
    due = [measurement for measurement in measurements if isinstance(measurement, OfTraining) == (delta is not None)]
    return {k: v for piece in due for k, v in piece.measure(start, delta, corrections).items()}
