"""Base class of aggregations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch

from turnout.core.registry import Family
from turnout.core.types import Federation, Report, ServerState, State
from turnout.core.updates import Updates
from turnout.pieces.base.phases import Attendance, ClientSide, Form, Messages, ServerSide, Shapes
from turnout.pieces.base.stateful import Stateful, WithState
from turnout.pieces.base.weighting import Weighting, Weights


class ParticipationLimit(NamedTuple):
    """How often the server lets one client take part.

    Attributes:
        separation: least number of rounds from one participation to the next; 1 is no limit.
        most: participations at most; None is no limit.
    """

    separation: int = 1
    most: int | None = None


class Aggregation(Stateful):
    """Make one direction out of weights and updates."""

    slot: ClassVar[str] = "aggregation"
    family = Family("aggregation", "aggregations", ("turnout.pieces.aggregation",))

    @abstractmethod
    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]`` and the new state. Called in empty rounds (B = 0) only if `acts_alone`.

        As a weighting, it may change rows of tensors with one row a client in place.
        """

    def move(self, name: str, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return by how much the mean of what clients keep moves, ``sum_b w_b change_b``, float64 ``[P]``, and the new state.

        It is called before `apply`, in an empty round only if `noises_controls`.

        Args:
            name: of what they keep; ``report.extra`` has the changes.
            weights: 1/N each, ``[B]``.
            report, state, federation: as for `apply`.
        """
        return Updates.of(report.extra[name]).weighted_sum(weights), state

    noises_controls: ClassVar[bool] = False
    """True if `move` adds noise, so that it has its part even in a round without reports."""

    def search(self) -> list[float] | None:
        """Return the result of a search before the first round, to be stored with the run; None without a search."""
        return None

    def settled(self, state: State, values: list[float]) -> State:
        """Return the state with the result of `search`."""
        return state

    @property
    def limit(self) -> ParticipationLimit | None:
        """The limit on the participation of a client, at most once a step; None is no limit."""
        return None

    adds_up: ClassVar[bool] = False
    """True if reports are changes of what clients hold, which it adds up, and not updates (`GradientTracking`)."""

    mirrors_clients: ClassVar[bool] = False
    """True if its state is a sum of what clients remember. They remember it even where a step overflows, so that the state
    stands then; of others nothing does."""

    only_sums: ClassVar[bool] = False
    """True if all it does with updates is to sum them with the weights."""

    acts_alone: ClassVar[bool] = False
    """True if there is a direction even in a round without reports."""

    nulls_dropped: ClassVar[bool] = False
    """True if a report that holds NaN or infinity stays in the step as zeros (`Report.nulled`) instead of being left out.

    A report that is left out changes the weights of the others, which differential privacy does not allow."""

    continues: ClassVar[bool] = False
    """True if a client trains from the model that the last step it took part in led to, which it keeps, and not from the
    present one."""

    phases: ClassVar[tuple[str, ...]] = ()
    """Phases of a round after training. With any, `attendance` returns who takes part in them, and `server_side`,
    `client_side` and `form` define what is sent between machines."""

    sums_groups: ClassVar[bool] = False
    """True if sums over groups of clients, each of a version of its own, can be added up in one step."""

    sends_in: ClassVar[str] = "train"
    """The phase in which an update leaves its client: a client that does not complete it is not in the step."""

    def attendance(self, seed: int, version: int) -> Attendance:
        """Return who takes part in the extra phases of the round from `version`, or of the group of that number."""
        raise NotImplementedError(f"{type(self).__name__} declares phases: it has to define attendance()")

    def server_side(
        self,
        weighting: Sequence[Weighting],
        state: ServerState,
        federation: Federation,
        attendance: Any,
        messages: Messages,
    ) -> ServerSide:
        """Return the server's side of the extra phases of a round; `attendance` is what `attendance` returned."""
        raise NotImplementedError(f"{type(self).__name__} declares phases: it has to define server_side()")

    def client_side(self) -> ClientSide | None:
        """Return one client's side of the extra phases; None where there are none."""
        return None

    def form(self, phase: str, inputs: Shapes, num_params: int) -> Form:
        """Return the tensors of a client's message in an extra phase, for these shapes of the task's inputs."""
        raise NotImplementedError(f"{type(self).__name__} declares phases: it has to define form()")

    def bytes(self, phase: str, num_clients: int, num_params: int) -> tuple[int, int] | None:
        """Return the bytes that each of `num_clients` sends and receives in a phase, beside those of any task.

        In ``"train"`` they are sent in place of the update. None where the update is sent unchanged.
        """
        return None

    def summand(self, factors: torch.Tensor, report: Report, seed: int | None) -> torch.Tensor | None:
        """Return the summands in place of ``f_b Delta_b``, float64 ``[B, P]``; None for these.

        Args:
            factors: the products of the weighting chain's factors, ``[B]``.
            report: who reports, and the updates ``[B, P]``.
            seed: of a simulation, which noise of clients follows from; None at a client of a server, who draws its own.
        """
        return None

    reads_model: ClassVar[bool] = False
    """True if it reads ``report.model``."""

    moves_base: ClassVar[bool] = False
    """True if it adds something to the frozen weights below adapters, which `base_offset` gives and clients receive."""

    def base_offset(self, state: State) -> torch.Tensor:
        """Return what is added to the frozen weights below adapters, end to end ``[sum m n]``; only where it `moves_base`."""
        raise NotImplementedError(f"{type(self).__name__} declares moves_base: it has to define base_offset()")

    of_models: ClassVar[bool] = False
    """True if it reads ``report.model_offset``: how far the models behind stale reports are from the present one."""
