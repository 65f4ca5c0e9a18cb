"""Compute the requirements of clients, from local models where a requirement compares with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from turnout.base import Local
from turnout.core.types import State, Task
from turnout.population.requirement import BoundRequirement, Requirement
from turnout.simulation.client_groups import ClientGroup, ClientScores
from turnout.simulation.workspace import Workspace


class Requirements:
    """A `Requirement` of the clients of one run: those that train (``"seen"``) and those that never do (``"unseen"``).

    Local models start from the initial parameters and depend on (seed, client) alone, so that their scores are the same
    whenever they are computed. They are saved with the run nevertheless, because training them takes time.

    Args:
        requirement: the requirement.
        local: the local rule of the algorithm.
        group: function that returns the clients of a kind; None if there are none.
        task: the task of local models, with the parameters before the first round and the seed of the run.
        workspace: the number of clients that train side by side, and what receives the progress of their training.
    """

    def __init__(
        self,
        requirement: Requirement,
        local: Local,
        group: Callable[[str], ClientGroup | None],
        task: Task,
        workspace: Workspace,
    ) -> None:
        self._requirement, self._rule = requirement, requirement.solo(local)
        self._group, self._task, self._workspace = group, task, workspace
        self._solo: dict[str, ClientScores] = {}
        self._bound: dict[str, BoundRequirement | None] = {}

    def of(self, kind: str) -> BoundRequirement | None:
        """Return the requirement of the clients of a kind; None if there are none, or if it is unknown."""
        if kind not in self._bound:
            group = self._group(kind)
            self._bound[kind] = None if group is None else self._bind(kind, group)
        return self._bound[kind]

    def of_one(self, kind: str) -> BoundRequirement | None:
        """Return the requirement of one client of a kind, from its own local model."""
        group = self._group(kind)
        if self._rule is None or group is None:
            known = self.of(kind)
            if known is None:
                return None
            return replace(known, train=known.train[:1], test=None if known.test is None else known.test[:1])
        return self._requirement.bind(1, self._trained_alone(group.one(), self._rule), unseen=kind == "unseen")

    def _bind(self, kind: str, group: ClientGroup) -> BoundRequirement | None:
        if self._rule is not None and kind not in self._solo:
            self._solo[kind] = self._trained_alone(group, self._rule)
        return self._requirement.bind(group.num_clients, self._solo.get(kind), unseen=kind == "unseen")

    def _trained_alone(self, group: ClientGroup, rule: Local) -> ClientScores:
        """Return the scores of clients with local models."""
        lanes, watch = self._workspace.lanes, self._workspace.watch
        return group.scores_after(rule, lambda _: self._task.params, self._task, "own models", lanes, watch)

    def state(self) -> State:
        """Return the scores of local models that were computed so far."""
        return {
            f"{kind}.{name}": torch.from_numpy(values)
            for kind, scores in self._solo.items()
            for name, values in scores.items()
        }

    def restore(self, state: State) -> None:
        """Restore what `state` returned."""
        self._solo, self._bound = {}, {}
        for name, values in state.items():
            kind, _, score = name.partition(".")
            self._solo.setdefault(kind, {})[score] = values.numpy()
