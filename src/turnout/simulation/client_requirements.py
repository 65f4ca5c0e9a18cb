"""What the clients of a run require, found out when somebody first asks, and once."""

from __future__ import annotations

from collections.abc import Callable

import torch

from turnout.core.types import State, Task
from turnout.pieces.base import Local
from turnout.population.requirement import BoundRequirement, Requirement
from turnout.simulation.client_groups import ClientGroup, ClientScores
from turnout.simulation.workspace import nobody


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
