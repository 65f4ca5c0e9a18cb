"""Base class of aggregations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch

from turnout.base.phases import Attendance, ClientSide, Form, Messages, ServerSide, Shapes
from turnout.base.stateful import Stateful, WithState
from turnout.base.weighting import Weighting, Weights
from turnout.core.registry import Family
from turnout.core.types import Federation, Report, ServerState, State
from turnout.core.updates import Updates


class ParticipationLimit(NamedTuple):
    """A limit on how often the server lets one client take part.

    Attributes:
        separation: smallest number of rounds from one participation of a client to its next; 1 sets no limit.
        most: largest number of participations of a client; None sets no limit.
    """

    separation: int = 1
    most: int | None = None


class Aggregation(Stateful):
    """Combine the weighted updates of a step into one direction of the server.

    An aggregation defines `apply`. Class attributes declare what it needs from the rest of the system; the defaults
    describe a weighted sum of updates without further phases.
    """

    slot: ClassVar[str] = "aggregation"
    family = Family("aggregation", "aggregations", ("turnout.pieces.aggregation",))

    @abstractmethod
    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction, ``[P]``, and the new state.

        In rounds without reports (B = 0), it is called only if `acts_alone`. Rows of state tensors that have one row
        per client may be changed in place, as by `Weighting.apply`.

        Args:
            weights: weights of the reports after the whole chain of weightings, float64 ``[B]``.
            report: the reports, with the updates ``[B, P]``.
            state: state after the last step.
            federation: known properties of the federation.
        """

    def move(self, name: str, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the change ``sum_b w_b change_b`` of a mean over all clients, float64 ``[P]``, and the new state.

        The mean is that of a vector in `Correction.keeps`, such as SCAFFOLD's control variate. The method is called
        before `apply`; in rounds without reports, only if `noises_controls`.

        Args:
            name: name of the vector; ``report.extra`` holds its changes, ``[B, P]``.
            weights: weights of the reports, 1/N each, float64 ``[B]``.
            report, state, federation: as in `apply`.
        """
        return Updates.of(report.extra[name]).weighted_sum(weights), state

    noises_controls: ClassVar[bool] = False
    """True if `move` adds noise, which it then adds in rounds without reports, too."""

    def search(self) -> list[float] | None:
        """Return the result of a search for options, which runs once and is stored with the run.

        It is None without a search.
        """
        return None

    def settled(self, state: State, values: list[float]) -> State:
        """Return the state with the result of `search`."""
        return state

    @property
    def limit(self) -> ParticipationLimit | None:
        """The limit on a client's participation, beyond once per step; None sets no limit."""
        return None

    adds_up: ClassVar[bool] = False
    """True if it adds up reported changes of the clients' vectors (`GradientTracking`), which are not updates."""

    mirrors_clients: ClassVar[bool] = False
    """True if its state is a sum over the memories of clients.

    Clients keep their new memory even if the server's step overflows, so the state of such an aggregation is then kept,
    too, while the state of other aggregations is restored.
    """

    only_sums: ClassVar[bool] = False
    """True if it only sums the updates with the weights."""

    acts_alone: ClassVar[bool] = False
    """True if there is a direction even in rounds without reports."""

    nulls_dropped: ClassVar[bool] = False
    """True if a report with NaN or infinity is replaced by zeros (`Report.nulled`) instead of being left out.

    Leaving out a report changes the weights of the others, which differential privacy does not allow.
    """

    continues: ClassVar[bool] = False
    """True if a client trains from a stored model, and not from the server's present model.

    The stored model is the one after the last step in which the client took part.
    """

    phases: ClassVar[tuple[str, ...]] = ()
    """Phases of a round after training.

    If there are any, `attendance` returns the clients that take part in them, and `server_side`, `client_side` and
    `form` define the messages between machines.
    """

    sums_groups: ClassVar[bool] = False
    """True if sums over groups of clients, each with its own version, can be added up in one step."""

    sends_in: ClassVar[str] = "train"
    """The phase in which an update leaves its client. A client that does not complete it is not in the step."""

    def attendance(self, seed: int, version: int) -> Attendance:
        """Return the attendance of the extra phases of the round from `version`, or of the group with that number."""
        raise NotImplementedError(f"{type(self).__name__} declares phases: it has to define attendance()")

    def server_side(
        self,
        weighting: Sequence[Weighting],
        state: ServerState,
        federation: Federation,
        attendance: Any,
        messages: Messages,
    ) -> ServerSide:
        """Return the server's side of the extra phases of a round.

        Args:
            weighting: chain of weightings.
            state: state of the server.
            federation: known properties of the federation.
            attendance: the attendance of the round, as `attendance` returned it.
            messages: messages of the round that the server has received.
        """
        raise NotImplementedError(f"{type(self).__name__} declares phases: it has to define server_side()")

    def client_side(self) -> ClientSide | None:
        """Return the client's side of the extra phases; None without extra phases."""
        return None

    def form(self, phase: str, inputs: Shapes, num_params: int) -> Form:
        """Return the type and shape of the tensors in a client's message of an extra phase.

        Args:
            phase: name of the phase.
            inputs: shapes of the inputs of the task, by name.
            num_params: P.
        """
        raise NotImplementedError(f"{type(self).__name__} declares phases: it has to define form()")

    def bytes(self, phase: str, num_clients: int, num_params: int) -> tuple[int, int] | None:
        """Return the bytes that each of `num_clients` clients sends and receives in a phase, beside those of any task.

        In the phase ``"train"``, the bytes are sent in place of the update. None if the update is sent unchanged.
        """
        return None

    def summand(self, factors: torch.Tensor, report: Report, seed: int | None) -> torch.Tensor | None:
        """Return the summands in place of ``f_b Delta_b``, float64 ``[B, P]``; None for ``f_b Delta_b`` itself.

        Args:
            factors: products f_b of the weighting chain's factors, float64 ``[B]``.
            report: the reports, with the updates Delta_b, ``[B, P]``.
            seed: seed of a simulation, from which noise of the clients is derived; None on a client of a real server,
                which draws its own noise.
        """
        return None

    reads_model: ClassVar[bool] = False
    """True if it reads ``report.model``, the server's present model."""

    moves_base: ClassVar[bool] = False
    """True if it adds a matrix to the frozen weights below adapters.

    `base_offset` returns it, and clients receive it.
    """

    def base_offset(self, state: State) -> torch.Tensor:
        """Return the total offset of the frozen weights below adapters, concatenated, ``[sum m n]``.

        It is called only if `moves_base` is true; m and n are the sizes of each adapted matrix.
        """
        raise NotImplementedError(f"{type(self).__name__} declares moves_base: it has to define base_offset()")

    of_models: ClassVar[bool] = False
    """True if it reads ``report.model_offset``, the distance of stale reports' models from the present model."""
