"""How the clients of a run stand to its model: what they require, whether they are content, who can be asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch

from turnout.core.checks import ConfigurationError
from turnout.core.types import Candidates, State, Task
from turnout.data.federated import FederatedData, Shards
from turnout.evaluation.appeal import AppealMetrics, appeal_figures, content
from turnout.pieces.base import Local
from turnout.pieces.base.algorithm import Algorithm
from turnout.population import Population
from turnout.population.availability import BoundAvailability
from turnout.population.behaviour.opting import Pool
from turnout.population.requirement import BoundRequirement, Requirement, WarmUp
from turnout.simulation.client_groups import ClientGroup, ClientScores
from turnout.simulation.metrics import Judge, PresentModels
from turnout.simulation.workspace import Workspace, nobody


class OptIn:
    """What a simulation knows of its clients' requirements; nothing is computed that nobody asks for.

    Args:
        data: who holds what.
        algorithm: what clients run.
        population: what they require, and whether they opt out.
        appeal: what evaluations say of it; None is nothing.
        seed: the run's seed.
        workspace: model and data.
        models: the present models.
        judge: how well these do.
        attackers: who is in the pool whatever the model does, bool ``[N]``; None is nobody.
    """

    def __init__(
        self,
        data: FederatedData,
        algorithm: Algorithm,
        population: Population,
        appeal: AppealMetrics | None,
        seed: int,
        workspace: Workspace,
        models: PresentModels,
        judge: Judge,
        attackers: np.ndarray | None,
    ) -> None:
        self._local, self._opting, self._appeal = algorithm.local, population.opting, appeal
        self._workspace, self._models, self._judge = workspace, models, judge
        objective, transforms = workspace.objective, workspace.data.transforms
        held: dict[str, tuple[Shards | None, Shards | None]] = {"seen": (data.train, data.client_test)}
        if algorithm.personal is None:  # who never trained has no personal part
            held["unseen"] = (data.unseen_train, data.unseen_test)

        @cache
        def group(kind: str) -> ClientGroup | None:
            train, test = held.get(kind, (None, None))
            if train is None or not train.num_clients:
                return None
            first, place = 0 if kind == "seen" else data.num_clients, workspace.data
            return ClientGroup(place(train), None if test is None else place(test), objective, transforms, first)

        self._group = group
        self._present = Task(objective.initial, 0, seed)
        measured = (*algorithm.measurements, *algorithm.selection.measurements)
        self.asked = bool(population.opting or appeal or any(m.of_requirement for m in measured))
        self._requirements: Requirements | None = None
        self._pool: Pool | None = None
        if self.asked:
            self._requirements = Requirements(
                population.requirement or WarmUp(),
                algorithm.local,
                group,
                objective.initial,
                seed,
                workspace.lanes,
                lambda *told: workspace.watch(*told),
            )
        if population.opting is not None:
            if population.opting.split == "test" and data.client_test is None:
                raise ConfigurationError(
                    "clients are to judge by their test examples, and have none: write client_test_fraction=0.4 in split(), "
                    "or Opting(split='train')"
                )
            self._pool = Pool(population.opting, data.num_clients, attackers)

    @property
    def requirement(self) -> BoundRequirement | None:
        """What the clients that train require; None where nobody asks."""
        return self._requirement("seen")

    def _requirement(self, kind: str) -> BoundRequirement | None:
        return None if self._requirements is None else self._requirements.of(kind)

    def pool(self, version: int) -> np.ndarray | None:
        """Who is in the pool at the present model, which is of this version, bool ``[N]``; None is everyone."""
        return None if self._pool is None else self._pool.members(version, self._content)

    def _content(self) -> np.ndarray:
        """Whose requirement the present model meets, bool ``[N]``: one pass over all examples."""
        requirement, group, opting = self.requirement, self._group("seen"), self._opting
        assert requirement is not None
        assert group is not None
        assert opting is not None
        if opting.split == "train":
            return content(self._present_scores(group, "train"), requirement, "train")
        happy = content(self._present_scores(group, "test"), requirement, "test")
        if group.tested.all():
            return happy
        return np.where(group.tested, happy, content(self._present_scores(group, "train"), requirement, "train"))

    def figures(self, version: int) -> dict[str, float]:
        """Return the columns of `AppealMetrics` at the present model, if the experiment has them."""
        metrics, row = self._appeal, {}
        if metrics is None:
            return row
        for kind, prefix in (("seen", ""), ("unseen", "unseen_")):
            group, requirement = self._group(kind), self._requirement(kind)
            if group is None or requirement is None:
                continue
            row |= appeal_figures(self._present_scores(group, *group.splits), requirement, group.tested, prefix)
            if metrics.tuning_steps:
                rule = self._local.tuning(metrics.tuning_steps)
                task = replace(self._present, version=version)
                scores = group.scores_after(rule, self._models.serving, task, "tuning", self._workspace.lanes)
                row |= appeal_figures(scores, requirement, group.tested, f"{prefix}tuned_")
        return row

    def _present_scores(self, group: ClientGroup, *splits: str) -> ClientScores:
        """How well the present model does for each client on some of its examples."""
        found: ClientScores = {}
        for split in splits:
            scores = self._judge.scores(group.splits[split]).by_client()
            found |= {f"{split}_{name}": values for name, values in scores.items()}
        return found

    def client_columns(self) -> dict[str, Any]:
        """Return the columns of the table of clients that are about requirements."""
        requirement = self.requirement
        return {} if requirement is None else {"requirement": requirement.train}

    def state(self) -> State:
        """Return what is worth saving."""
        state = {} if self._requirements is None else self._requirements.state()
        return state if self._pool is None else state | {f"pool.{k}": v for k, v in self._pool.state().items()}

    def restore(self, state: State) -> None:
        """Take over what `state` returned."""
        pool = {name.removeprefix("pool."): value for name, value in state.items() if name.startswith("pool.")}
        if self._requirements is not None:
            self._requirements.restore({k: v for k, v in state.items() if not k.startswith("pool.")})
        if self._pool is not None:
            self._pool.restore(pool)


class Presence:
    """Availability and the pool of those who have opted in, together.

    Args:
        availability: who is there in which round.
        opt_in: who wants to be.
        seed: of the selection's random choice.
    """

    def __init__(self, availability: BoundAvailability, opt_in: OptIn, seed: int) -> None:
        self._availability, self._opt_in, self._seed = availability, opt_in, seed

    def candidates(self, version: int) -> Candidates:
        """Return whom the selection can choose from in the round that begins with a version of the model."""
        pool = self._opt_in.pool(version)

        def available(clients: np.ndarray) -> np.ndarray:
            there = self._availability.available(clients, version)
            return there if pool is None else there & pool[clients]

        return Candidates(available, self._availability.num_clients, version, self._seed)


class Requirements:
    """A `Requirement` for the clients of one run, those that train (``"seen"``) and those that never do (``"unseen"``).

    Own models start from the initial parameters and depend on (seed, client) alone, so that what they reach is the same
    whenever it is asked for; it is saved with the run nevertheless, because training them takes time.

    Args:
        requirement: what clients require.
        local: the algorithm's local rule.
        group: the clients of a kind; None where there are none.
        initial: the parameters before the first round, ``[P]``.
        seed: the run's seed.
        lanes: how many clients train side by side.
        watch: is told how far the training of own models is; see `Workspace`.
    """

    def __init__(
        self,
        requirement: Requirement,
        local: Local,
        group: Callable[[str], ClientGroup | None],
        initial: torch.Tensor,
        seed: int,
        lanes: int,
        watch: Callable[[str, int, int], None] = nobody,
    ) -> None:
        self._requirement, self._rule = requirement, requirement.solo(local)
        self._group, self._task, self._lanes, self._watch = group, Task(initial, 0, seed), lanes, watch
        self._solo: dict[str, ClientScores] = {}
        self._bound: dict[str, BoundRequirement | None] = {}

    def of(self, kind: str) -> BoundRequirement | None:
        """Return what the clients of a kind require; None where there are none, or nothing is known of them."""
        if kind not in self._bound:
            group = self._group(kind)
            self._bound[kind] = None if group is None else self._bind(kind, group)
        return self._bound[kind]

    def _bind(self, kind: str, group: ClientGroup) -> BoundRequirement | None:
        if self._rule is not None and kind not in self._solo:
            self._solo[kind] = group.scores_after(
                self._rule, lambda _: self._task.params, self._task, "own models", self._lanes, self._watch
            )
        return self._requirement.bind(group.num_clients, self._solo.get(kind), unseen=kind == "unseen")

    def state(self) -> State:
        """Return what own models reached, as far as it is known."""
        return {
            f"{kind}.{name}": torch.from_numpy(values)
            for kind, scores in self._solo.items()
            for name, values in scores.items()
        }

    def restore(self, state: State) -> None:
        """Take over what `state` returned."""
        self._solo, self._bound = {}, {}
        for name, values in state.items():
            kind, _, score = name.partition(".")
            self._solo.setdefault(kind, {})[score] = values.numpy()
