"""Compute the requirements of clients, from local models where a requirement compares with them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from turnout.base import Local
from turnout.core.types import Task
from turnout.population.requirement import BoundRequirement, Requirement
from turnout.simulation.client_groups import ClientGroup, ClientScores
from turnout.simulation.workspace import Workspace


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
        workspace: the number of clients that train side by side, and what receives the progress of their training.
        solo: the scores of local models; None until they are computed.
    """

    group: ClientGroup
    unseen: bool
    requirement: Requirement
    rule: Local | None
    task: Task
    workspace: Workspace
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
        lanes, watch = self.workspace.lanes, self.workspace.watch
        return group.scores_after(rule, lambda _: self.task.params, self.task, "own models", lanes, watch)
