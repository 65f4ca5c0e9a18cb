"""The requirement of a client: what a model has to reach for the client to take part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from turnout.base.tuning import tuned
from turnout.core.types import State, Task
from turnout.engine.cohort import Clients
from turnout.engine.full_batch import full_scores
from turnout.population.requirement import BoundRequirement, WarmUp
from turnout_serve.client.computer import Computer

_WORST = np.finfo(np.float64).max  # loss of a solo model that has diverged: any other model is better


class ClientRequirement:
    """The requirement of one client, computed from its own data when it is first needed.

    Args:
        computer: model and data.
        row: row of the client's data.
    """

    def __init__(self, computer: Computer, row: int) -> None:
        self._computer, self._row = computer, row
        self._bound: BoundRequirement | None = None

    def is_met(self, version: int, model: State, memory: State) -> bool:
        """Return whether the client takes part with a model; True where the run does not let clients choose."""
        experiment = self._computer.experiment
        opting, personal = experiment.population.opting, experiment.algorithm.personal
        if opting is None or version < opting.mandatory_rounds:
            return True
        params, _ = self._computer.received(model)
        if personal is not None:
            params = personal.serving(params, {name: value[None] for name, value in memory.items()})
        required = self.bound(self._row)
        assert required is not None
        scores = full_scores(self._computer.clients(self._row, self._row), params)
        loss, accuracy = (value.cpu().numpy() for value in scores)
        return bool(required.gap(loss[0], accuracy[0], required.train[self._row]) < 0)

    def bound(self, client: int) -> BoundRequirement | None:
        """Return the requirement in arrays by row; None in a run where no piece uses it.

        Args:
            client: number of the client.
        """
        computer = self._computer
        if self._bound is not None or not computer.judges:
            return self._bound
        requirement = computer.experiment.population.requirement or WarmUp()
        rule = requirement.solo(computer.experiment.algorithm.local)
        if rule is None:
            num_clients, solo, index = computer.shards.num_clients, None, self._row
        else:
            task = Task(computer.objective.initial, 0, computer.experiment.seed)
            clients = computer.clients(client, self._row)
            params = tuned(rule, task, clients, "own models").params
            num_clients, solo, index = 1, _scores("train", clients, params), 0
            if computer.test is not None and computer.test.sizes[self._row]:
                solo |= _scores("test", replace(clients, shards=computer.test), params)
        bound = requirement.bind(num_clients, solo)
        assert bound is not None
        arrays = {name: self._in_row(value[index]) for name, value in arrays_of(bound).items()}
        self._bound = replace(bound, **arrays)
        return self._bound

    def _in_row(self, value: float) -> np.ndarray:
        """Return an array that has a number in the client's row, where pieces look it up."""
        rows = np.full(self._row + 1, np.nan)
        rows[self._row] = value
        return rows


def arrays_of(bound: BoundRequirement) -> dict[str, np.ndarray]:
    """Return the arrays of a requirement, by name."""
    return {name: value for name, value in vars(bound).items() if isinstance(value, np.ndarray)}


def _scores(split: str, clients: Clients, params: torch.Tensor) -> dict[str, np.ndarray]:
    """Return loss and accuracy of a client's solo model; one that has diverged gets the largest loss."""
    loss, accuracy = (value.cpu().numpy() for value in full_scores(clients, params))
    return {f"{split}_loss": np.where(np.isfinite(loss), loss, _WORST), f"{split}_accuracy": accuracy}
