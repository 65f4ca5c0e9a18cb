"""Compute the requirements of clients, whether a model meets them, and which clients opt in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from turnout.base import Local, OfRequirement
from turnout.base.tuning import tuning_rule
from turnout.configuration import Configuration
from turnout.core.candidates import Candidates
from turnout.core.checks import ConfigurationError
from turnout.core.types import State, Task
from turnout.evaluation.appeal import appeal_figures, content
from turnout.population import BoundAttack
from turnout.population.availability import BoundAvailability
from turnout.population.behavior.leaving import Pool
from turnout.population.requirement import BoundRequirement, Requirement, WarmUp
from turnout.simulation.client_groups import ClientGroup, ClientScores, client_group
from turnout.simulation.metrics import Judge, trying
from turnout.simulation.workspace import PresentModels, Workspace


@dataclass(eq=False)
class RequiringGroup:
    """A group of clients, and their `Requirement`.

    Local models start from the initial parameters and depend on (seed, client) alone, so that their scores are the same
    whenever they are computed. They are saved with the run nevertheless, because training them takes time.

    Attributes:
        group: the clients.
        unseen: True if they never train.
        requirement: the requirement.
        rule: the rule by which they train local models; None if the requirement needs none.
        task: the task of local models, with the parameters before the first round and the seed of the run.
        solo: the scores of local models; None until they are computed.
    """

    group: ClientGroup
    unseen: bool
    requirement: Requirement
    rule: Local | None
    task: Task
    solo: ClientScores | None = None

    @cached_property
    def bound(self) -> BoundRequirement | None:
        """The requirement of the clients; None if it is unknown."""
        if self.rule is not None and self.solo is None:
            self.solo = self._trained_alone(self.group, self.rule)
        return self.requirement.bind(self.group.num_clients, self.solo, unseen=self.unseen)

    def of_one(self) -> BoundRequirement | None:
        """Return the requirement of one client, from its own local model."""
        if self.rule is not None:
            return self.requirement.bind(1, self._trained_alone(self.group.one(), self.rule), unseen=self.unseen)
        if (known := self.bound) is None:
            return None
        return replace(known, train=known.train[:1], test=None if known.test is None else known.test[:1])

    def _trained_alone(self, group: ClientGroup, rule: Local) -> ClientScores:
        """Return the scores of clients with local models."""
        watch = group.workspace.watch
        return group.scores_after(rule, lambda _: self.task.params, self.task, "own models", watch)


class OptIn:
    """The requirements of the clients of a run, computed only if they are used.

    Args:
        experiment: the configuration.
        workspace: model and data.
        models: the present models.
        judge: evaluates the present models.
        behavior: the attack of dishonest clients, who opt in whatever the model is; None without such clients.

    Attributes:
        groups: the clients that train (``"seen"``) and those that never do (``"unseen"``), with their requirements; empty if
            requirements are not used.
    """

    def __init__(
        self,
        experiment: Configuration,
        workspace: Workspace,
        models: PresentModels,
        judge: Judge,
        behavior: BoundAttack | None,
    ) -> None:
        data, algorithm, population = experiment.data, experiment.algorithm, experiment.population
        self._local, self._opting, self._appeal = algorithm.local, population.opting, experiment.appeal
        self._models, self._judge = models, judge
        self._seed = experiment.seed
        self._present = Task(workspace.objective.initial, 0, self._seed)
        self._pool: Pool | None = None
        self.groups: dict[str, RequiringGroup] = {}
        measurements = (*algorithm.measurements, *algorithm.selection.measurements)
        if self._opting or self._appeal or any(isinstance(measurement, OfRequirement) for measurement in measurements):
            requirement = (population.requirement or WarmUp()).of_clients(data.client_names)
            rule = requirement.solo(algorithm.local)
            # Clients that never train have no personal part.
            for kind in ("seen",) if algorithm.personal else ("seen", "unseen"):
                if (group := client_group(kind, data, workspace)) is not None:
                    self.groups[kind] = RequiringGroup(group, kind == "unseen", requirement, rule, self._present)
        if population.opting is not None:
            if population.opting.split == "test" and data.client_test is None:
                raise ConfigurationError(
                    "clients are to judge by their test examples, and have none: write client_test_fraction=0.4 in split(), "
                    "or Opting(split='train')"
                )
            self._pool = Pool(population.opting, data.num_clients, None if behavior is None else behavior.attackers)

    @property
    def requirement(self) -> BoundRequirement | None:
        """The requirement of the clients that train; None if it is not used."""
        return self.groups["seen"].bound if self.groups else None

    def pool(self, version: int) -> np.ndarray | None:
        """Return the clients that opt in at the present model, whose version this is, bool ``[N]``; None is all."""
        return None if self._pool is None else self._pool.members(version, self._content)

    def candidates(self, availability: BoundAvailability, version: int) -> Candidates:
        """Return the clients that are available and opt in, for the round that starts with a version of the model."""
        pool = self.pool(version)

        def available(clients: np.ndarray) -> np.ndarray:
            flags = availability.available(clients, version)
            return flags if pool is None else flags & pool[clients]

        return Candidates(available, availability.num_clients, version, self._seed)

    def _content(self) -> np.ndarray:
        """Return the clients whose requirement the present model meets, bool ``[N]``, by one pass over all examples."""
        group, requirement, opting = self.groups["seen"].group, self.requirement, self._opting
        assert requirement is not None
        assert opting is not None
        if opting.split == "train":
            return content(self._present_scores(group, "train"), requirement, "train")
        by_test = content(self._present_scores(group, "test"), requirement, "test")
        if group.tested.all():
            return by_test
        return np.where(group.tested, by_test, content(self._present_scores(group, "train"), requirement, "train"))

    def figures(self, version: int) -> dict[str, float]:
        """Return the columns of `AppealMetrics` at the present model, if the experiment has them."""
        row: dict[str, float] = {}
        for it in self.groups.values() if self._appeal is not None else ():
            if it.bound is not None:
                row |= self._figures(it.group, it.bound, version, "unseen_" if it.unseen else "")
        return row

    def _figures(
        self, group: ClientGroup, requirement: BoundRequirement, version: int, prefix: str = ""
    ) -> dict[str, float]:
        """Return the columns of `AppealMetrics` for a group of clients."""
        assert self._appeal is not None
        row = appeal_figures(self._present_scores(group, *group.splits), requirement, group.tested, prefix)
        if steps := self._appeal.tuning_steps:
            task = replace(self._present, version=version)
            rule = tuning_rule(self._local, steps)
            scores = group.scores_after(rule, self._models.serving, task, "tuning")
            row |= appeal_figures(scores, requirement, group.tested, f"{prefix}tuned_")
        return row

    def check(self) -> None:
        """Compute for one client of each kind what opting in and `AppealMetrics` need.

        Raises:
            ConfigurationError: if that fails, or if requirements do not fit the clients.
            DataError: if a table of requirements is missing or damaged.
        """
        for it in self.groups.values():
            with trying(f"the data of {'unseen ' if it.unseen else ''}clients"):
                one, requirement = it.group.one(), it.of_one()
                if requirement is not None and self._appeal is not None:
                    self._figures(one, requirement, 0)
                elif requirement is not None:
                    self._present_scores(one, *one.splits)

    def _present_scores(self, group: ClientGroup, *splits: str) -> ClientScores:
        """Return the scores of the present model for each client on these splits."""
        by_split = {split: self._judge.scores(group.splits[split]).by_client() for split in splits}
        return {f"{split}_{name}": values for split, scores in by_split.items() for name, values in scores.items()}

    def client_columns(self) -> dict[str, Any]:
        """Return the columns of the table of clients about requirements."""
        requirement = self.requirement
        return {} if requirement is None else {"requirement": requirement.train}

    def state(self) -> State:
        """Return the state, as tensors by name."""
        solo = {kind: it.solo or {} for kind, it in self.groups.items()}
        state = {f"{kind}.{k}": torch.from_numpy(v) for kind, scores in solo.items() for k, v in scores.items()}
        return state if self._pool is None else state | {f"pool.{k}": v for k, v in self._pool.state().items()}

    def restore(self, state: State) -> None:
        """Restore what `state` returned."""

        def part(kind: str) -> State:
            return {name.removeprefix(f"{kind}."): v for name, v in state.items() if name.startswith(f"{kind}.")}

        for kind, it in self.groups.items():
            self.groups[kind] = replace(it, solo={name: v.numpy() for name, v in part(kind).items()} or None)
        if self._pool is not None:
            self._pool.restore(part("pool"))
