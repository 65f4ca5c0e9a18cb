"""The slots of an algorithm, the base class of the pieces of each, and `compose`, which fills slots with pieces.

Slots in the order data flows: selection -> local -> guard -> weighting -> aggregation -> server.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from turnout.core.checks import ConfigurationError
from turnout.core.types import Candidates, Federation, Lanes, Report, ServerState, State, Task

if TYPE_CHECKING:
    from turnout.core.clients import Clients
    from turnout.core.personal import Own
    from turnout.core.start import Start

Weights = torch.Tensor
"""One weight for each report, float64 ``[B]``."""


class Piece:
    """Something that fits into a slot: a frozen dataclass of plain options."""

    slot: ClassVar[str]

    def fits(self, algorithm: Algorithm) -> None:
        """Refuse an algorithm in which this piece means nothing, with the mathematical reason."""


class Selection(Piece, ABC):
    """Says who takes part in a round, and who is only asked for measurements before it begins."""

    slot: ClassVar[str] = "selection"

    measurements: ClassVar[tuple[Measurement, ...]] = ()
    """What those are asked for who only measure."""

    def check(self, num_clients: int) -> None:
        """Refuse a federation that this selection cannot serve."""

    def measuring(self, candidates: Candidates) -> np.ndarray:
        """Who is asked for `measurements` before anyone is selected: ascending client numbers, int64."""
        del candidates
        return np.empty(0, dtype=np.int64)

    @abstractmethod
    def select(self, candidates: Candidates) -> np.ndarray:
        """The cohort: ascending client numbers, int64 ``[B]``; who is in it twice counts twice."""


class Local(Piece, ABC):
    """What a client does with a task; exactly one solver is needed."""

    slot: ClassVar[str] = "local"

    gives: ClassVar[tuple[str, ...]] = ()
    """What the server sees of it, by the names in ``report.seen``."""

    @abstractmethod
    def train(self, task: Task, memory: State, clients: Clients, corrections: tuple[Correction, ...]) -> Report:
        """Train B clients, starting from the task's parameters, and report. Changes `memory` (rows ``[B, ...]``)."""

    @property
    def varies(self) -> bool:
        """Whether the number of a client's local steps depends on the version it is asked with."""
        return False

    @property
    def deadline(self) -> float | None:
        """Seconds that a round lasts by this rule; None where it lasts as long as the slowest of its cohort."""
        return None

    def num_steps(self, task: Task, clients: Clients) -> np.ndarray:
        """How many local steps B clients take with a task, int64 ``[B]``; 1 where a rule does not say."""
        del task
        return np.ones(len(clients), dtype=np.int64)

    def memory(self, num_params: int) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """What each client remembers: shape and type by name, zero at first."""
        del num_params
        return {}

    def alone(self, steps: int) -> Local:
        """The rule by which a client takes so many steps with a model of its own, and remembers nothing afterwards."""
        del steps
        raise ConfigurationError(f"{type(self).__name__} has no rule for a model of a client's own: use Sgd")

    def tuning(self, steps: int) -> Local:
        """The rule by which a client takes so many steps to fit the model it received to its own data."""
        return self.alone(steps)


class Correction(Piece, ABC):
    """Changes the gradient of every local step; chained in the order they are written.

    One that depends on where a client is and where it began has nothing but `correct`. One that needs more of a client, or
    of the round, makes in `begin` a correction for the very clients at work.
    """

    slot: ClassVar[str] = "local"

    keeps: ClassVar[tuple[str, ...]] = ()
    """Names of vectors ``[P]``, zero at first, that every client remembers. The server knows the mean over all N clients of
    each, at any time, and broadcasts it in ``task.shared``."""

    of_objective: ClassVar[bool] = True
    """Whether it belongs to what a client minimises, and not only to the way there."""

    @property
    def asks_everyone(self) -> bool:
        """Whether all N clients are asked, before the first round, for what it keeps."""
        return False

    def begin(self, task: Task, memory: State, clients: Clients, lanes: Lanes) -> Correction:
        """The correction for the local steps of these clients in this round, rows in the order of the lanes."""
        del task, memory, clients, lanes
        return self

    @abstractmethod
    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """The direction to descend: `gradient` at `params`, of lanes that started at `start`, all ``[B, P]``."""

    def changes(self) -> State:
        """By how much what it keeps has changed with the steps since `begin`, ``[B, P]`` by name, in the lanes' order."""
        return {}


class Measurement(Piece, ABC):
    """Tells the server something about a client beside its update; can be added to any local rule."""

    slot: ClassVar[str] = "local"

    gives: ClassVar[tuple[str, ...]]
    """What it adds to ``report.seen``, by name."""

    of_training: ClassVar[bool] = False
    """Whether it is about what training did, and not only about the model received."""

    of_requirement: ClassVar[bool] = False
    """Whether it compares the model with what clients require (`Population.requirement`)."""

    @abstractmethod
    def measure(self, start: Start, delta: torch.Tensor | None, corrections: tuple[Correction, ...]) -> State:
        """What it `gives`, ``[B]`` or ``[B, P]``.

        Args:
            start: the clients at the model they received.
            delta: their updates, ``[B, P]``; None unless it is `of_training`.
        """


class Guard(Piece, ABC):
    """Changes a report before it leaves the client (clipping, noise, compression); chained."""

    slot: ClassVar[str] = "guard"

    @abstractmethod
    def apply(self, report: Report, task: Task) -> Report:
        """The report as it is sent."""


class Weighting(Piece, ABC):
    """Changes the weights of the reports; chained, and ended by exactly one `Normaliser`."""

    slot: ClassVar[str] = "weighting"

    needs: ClassVar[tuple[str, ...]] = ()
    """What it reads in ``report.seen``, by name."""

    def init(self, federation: Federation) -> State:
        """The state before the first round."""
        del federation
        return {}

    @abstractmethod
    def apply(
        self, weights: Weights, report: Report, version: int, state: State, federation: Federation
    ) -> tuple[Weights, State]:
        """New weights ``[B]`` and the state after this round.

        Tensors with one entry a client may be changed in place: copying them would cost the whole population.
        """

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """What `apply` multiplies each weight by, up to one number for all reports of a step, float64 ``[B]``.

        A piece defines this where it can tell without the other reports of the step. If all pieces of a chain do, updates
        are summed as they come in, and are never held all at once. It is asked before `apply`, of a few reports at a
        time, of which it may read scalars alone, and changes no state.
        """
        raise NotImplementedError

    @property
    def foreseen(self) -> bool:
        """Whether it defines `factors`."""
        return type(self).factors is not Weighting.factors

    def told(self, clients: np.ndarray, state: State, federation: Federation) -> State:
        """What each of `clients` (int64 ``[B]``) is told with its task, and it alone: ``[B]`` by name."""
        del clients, state, federation
        return {}

    def client_weights(self, version: int, state: State, federation: Federation) -> np.ndarray | None:
        """The weight every client would get in the round to come, ``[N]``; None if it depends on its report."""
        del version, state, federation
        return None


class Normaliser(Weighting):
    """The visible last link of a weighting chain: it says what the weights are divided by."""


class Aggregation(Piece, ABC):
    """Makes one direction out of weights and updates."""

    slot: ClassVar[str] = "aggregation"

    def init(self, federation: Federation) -> State:
        """The state before the first round."""
        del federation
        return {}

    @abstractmethod
    def apply(
        self, weights: Weights, report: Report, state: State, federation: Federation
    ) -> tuple[torch.Tensor, State]:
        """The direction ``[P]`` and the new state. Called in empty rounds (B = 0) only if `acts_alone`."""

    only_sums: ClassVar[bool] = False
    """Whether all it does with updates is to sum them with the weights."""

    acts_alone: ClassVar[bool] = False
    """True if there is a direction even in a round without reports."""

    of_models: ClassVar[bool] = False
    """Whether it reads ``report.lag``: how far the models that stale reports were trained from are from the present one."""


class Server(Piece, ABC):
    """Takes the step from the old parameters along the direction."""

    slot: ClassVar[str] = "server"

    def init(self, federation: Federation) -> State:
        """The state before the first round."""
        del federation
        return {}

    @abstractmethod
    def apply(
        self, params: torch.Tensor, direction: torch.Tensor, version: int, state: State
    ) -> tuple[torch.Tensor, State]:
        """New parameters ``[P]`` and the new state."""


@dataclass(frozen=True)
class Algorithm:
    """A federated algorithm as a record of slots. Made by `compose`, or by a recipe such as `turnout.fedau`.

    Raises:
        ConfigurationError: where pieces do not fit together.
    """

    name: str
    selection: Selection
    local: Local
    corrections: tuple[Correction, ...]
    measurements: tuple[Measurement, ...]
    guard: tuple[Guard, ...]
    weighting: tuple[Weighting, ...]
    aggregation: Aggregation
    server: Server
    personal: Own | None = None

    def __post_init__(self) -> None:
        normalisers = [w for w in self.weighting if isinstance(w, Normaliser)]
        if len(normalisers) != 1 or not isinstance(self.weighting[-1], Normaliser):
            written = " -> ".join(type(w).__name__ for w in self.weighting) or "nothing"
            raise ConfigurationError(
                f"the weighting chain is {written}; it must end in exactly one normaliser, because the papers differ in "
                "what weights are divided by: DivideByClients, DivideByParticipants or DivideBySum"
            )
        estimates = [type(w).__name__ for w in self.weighting if getattr(w, "undoes_participation", False)]
        if len(estimates) > 1:
            raise ConfigurationError(
                f"{' and '.join(estimates)} both weigh a client by 1/p_n; together they would weigh it by 1/p_n^2, which "
                "biases the objective to rare clients: keep one"
            )
        self._check_needs()
        if len(set(self.keeps)) < len(self.keeps):
            names = " and ".join(type(correction).__name__ for correction in self.corrections if correction.keeps)
            raise ConfigurationError(
                f"{names} both keep {self.keeps[0]!r} at every client, and one would undo what the other does: leave one out"
            )
        for piece in self.pieces().values():
            piece.fits(self)

    @property
    def keeps(self) -> tuple[str, ...]:
        """The vectors that every client remembers and whose mean over all the server knows."""
        return tuple(name for correction in self.corrections for name in correction.keeps)

    def _check_needs(self) -> None:
        """Refuse weights that read what no client sends."""
        sent = {name for piece in (self.local, *self.measurements) for name in piece.gives}
        for piece in self.weighting:
            if missing := [name for name in piece.needs if name not in sent]:
                givers = [f"{_GIVEN_BY[name]}()" if name in _GIVEN_BY else f"what gives {name}" for name in missing]
                raise ConfigurationError(
                    f"{type(piece).__name__} reads {', '.join(missing)} of every report, and no client sends it: add "
                    f"{' and '.join(givers)} to the pieces"
                )

    def pieces(self) -> dict[str, Any]:
        """All pieces by their place, e.g. ``{"selection": ..., "weighting.0": ..., "server": ...}``."""
        found: dict[str, Any] = {"selection": self.selection, "local": self.local}
        chains = {
            "correction": self.corrections,
            "measurement": self.measurements,
            "guard": self.guard,
            "weighting": self.weighting,
        }
        for slot, chain in chains.items():
            found |= {f"{slot}.{i}": piece for i, piece in enumerate(chain)}
        found |= {"aggregation": self.aggregation, "server": self.server}
        return found if self.personal is None else found | {"personal": self.personal}

    def init(self, params: torch.Tensor, federation: Federation) -> ServerState:
        """The server's state before the first round."""
        self.selection.check(federation.num_clients)
        stateful = {k: p for k, p in self.pieces().items() if isinstance(p, Weighting | Aggregation | Server)}
        slots = {place: piece.init(federation) for place, piece in stateful.items()}
        if self.keeps:
            zero = torch.zeros(federation.num_params, dtype=torch.float64, device=federation.device)
            slots["controls"] = {name: zero.clone() for name in self.keeps}
        return ServerState(params, 0, slots)

    def shared(self, state: ServerState) -> State:
        """What is broadcast beside the model: the means of what clients keep, in the model's type."""
        return {name: mean.to(state.params.dtype) for name, mean in state.slots.get("controls", {}).items()}

    @property
    def sums_early(self) -> bool:
        """Whether the updates of a step can be summed as they come in, before all are there."""
        return self.aggregation.only_sums and all(piece.foreseen for piece in self.weighting)

    @property
    def steps(self) -> tuple[Correction, ...]:
        """All that changes the gradient of a local step, in order."""
        return self.corrections if self.personal is None else self.corrections + self.personal.columns

    def told(self, clients: np.ndarray, state: ServerState, federation: Federation) -> State:
        """What each of `clients` (int64 ``[B]``) is told with its task, and it alone: ``[B]`` by name."""
        found: State = {}
        for i, piece in enumerate(self.weighting):
            found |= piece.told(clients, state.slots[f"weighting.{i}"], federation)
        return found

    def memory(self, federation: Federation, personal: torch.Tensor) -> State:
        """What each client remembers before it first takes part: a row by name.

        Args:
            personal: what each has of its own at first, if it has any, ``[P_v]``.
        """
        shapes = self.local.memory(federation.num_params)
        shapes |= dict.fromkeys(self.keeps, ((federation.num_params,), federation.dtype))
        first = {name: torch.zeros(shape, dtype=dtype) for name, (shape, dtype) in shapes.items()}
        return first if self.personal is None else first | {"personal": personal.cpu()}

    def named(self, name: str) -> Algorithm:
        """The same algorithm under another name."""
        return replace(self, name=name)


_GIVEN_BY = {
    "start_loss": "StartLoss",
    "appeal_gap": "AppealGap",
    "start_gradient": "StartGradient",
    "start_gradient_norm": "GradientNorm",
    "inexactness": "Inexactness",
}
"""The measurement that gives what a weighting may need."""
