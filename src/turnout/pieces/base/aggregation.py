"""Base class of what makes one direction of the updates."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal, NamedTuple

import torch

from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.pieces.base.stateful import Stateful
from turnout.pieces.base.weighting import Weights

SecurePhase = Literal["share", "mask", "open"]
"""What a client does, once it has trained, for a sum in which its update cannot be seen."""


class ParticipationLimit(NamedTuple):
    """How often the server lets one client take part.

    Attributes:
        separation: least number of rounds from one participation to the next; 1 is no limit.
        most: participations at most; None is no limit.
    """

    separation: int = 1
    most: int | None = None


class Aggregation(Stateful):
    """Makes one direction out of weights and updates."""

    slot: ClassVar[str] = "aggregation"

    @abstractmethod
    def apply(
        self, weights: Weights, report: Report, state: State, federation: Federation
    ) -> tuple[torch.Tensor, State]:
        """Return the direction ``[P]`` and the new state. Called in empty rounds (B = 0) only if `acts_alone`.

        As a weighting, it may change rows of tensors with one row a client in place.
        """

    def move(
        self, name: str, weights: Weights, report: Report, state: State, federation: Federation
    ) -> tuple[torch.Tensor, State]:
        """Return by how much the mean of what clients keep moves, ``sum_b w_b change_b``, float64 ``[P]``, and the new state.

        It is called before `apply`, in an empty round only if `noises_controls`.

        Args:
            name: of what they keep; ``report.extra`` has the changes.
            weights: 1/N each, ``[B]``.
            report, state, federation: as for `apply`.
        """
        del federation
        return Updates.of(report.extra[name]).weighted_sum(weights), state

    noises_controls: ClassVar[bool] = False
    """Whether `move` adds noise, so that it has its part even in a round without reports."""

    def search(self) -> list[float] | None:
        """Return what is searched before the first round, to be kept with the run; None where that is nothing."""
        return None

    def settled(self, state: State, found: list[float]) -> State:
        """Return the state with what `search` has found."""
        del found
        return state

    @property
    def limit(self) -> ParticipationLimit | None:
        """Say how often the server lets a client take part, at most once a step; None is as often as it comes."""
        return None

    only_sums: ClassVar[bool] = False
    """Whether all it does with updates is to sum them with the weights."""

    acts_alone: ClassVar[bool] = False
    """True if there is a direction even in a round without reports."""

    nulls_dropped: ClassVar[bool] = False
    """Whether a report that holds NaN or infinity stays in the step as zeros (`Report.nulled`) instead of being left out.

    A report that is left out changes the weights of the others, which differential privacy does not allow."""

    continues: ClassVar[bool] = False
    """Whether a client trains from the model that the last step it took part in led to, which it keeps, and not from the
    present one."""

    phases: ClassVar[tuple[SecurePhase, ...]] = ()
    """What a round asks for after training, where updates are summed in secret."""

    of_models: ClassVar[bool] = False
    """Whether it reads ``report.model_offset``: how far the models behind stale reports are from the present one."""
