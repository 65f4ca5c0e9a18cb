"""Algorithms as records of slots that are filled with pieces."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from turnout.base import controls
from turnout.base.aggregation import Aggregation
from turnout.base.composition import check_composition
from turnout.base.guard import ChangesDownloadType, Guard
from turnout.base.local import Correction, KeepingCorrection, Local, Measurement
from turnout.base.personalization import CorrectsColumns, Personalization
from turnout.base.piece import Slots, Stateful, check_lengths, refuse_new_clients
from turnout.base.selection import Selection, check_selection
from turnout.base.server import ScalesByReports, Server
from turnout.base.weighting import InformsClients, Weighting, has_factors
from turnout.core.adapter import BASE_OFFSET
from turnout.core.checks import ConfigurationError
from turnout.core.display import html_table, short
from turnout.core.registry import Family
from turnout.core.types import Federation, ServerState, State
from turnout.privacy.plan import Plan, plan_of


@dataclass(frozen=True)
class Algorithm(Slots):
    """Combine pieces into a federated algorithm, as a record of slots.

    Algorithms are made by `compose`, or by a recipe such as `turnout.fedau`.

    Attributes:
        name: name of the algorithm in records and tables.
        selection: selection of cohorts.
        local: local rule of clients.
        corrections: corrections of local gradients, in the order in which they apply.
        measurements: measurements that clients report beside their update.
        guard: guards, which change reports before they are sent, in order.
        weighting: chain of weightings, which ends in one normalizer.
        aggregation: aggregation of weighted updates into a direction.
        server: server optimizer.
        personal: personalization; None if all parameters are shared.

    Raises:
        ConfigurationError: if pieces do not fit together.
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
    personal: Personalization | None = None

    def __post_init__(self) -> None:
        check_composition(self)
        for piece in self.pieces().values():
            piece.fits(self)

    def __repr__(self) -> str:
        return f"Algorithm({self.name!r}: {' -> '.join(short(piece) for piece in self.pieces().values())})"

    def _repr_html_(self) -> str:
        """Return the slots in the order of the data flow, for notebooks."""
        return html_table(f"Algorithm {self.name}", {name: repr(piece) for name, piece in self.pieces().items()})

    @property
    def privacy(self) -> Plan | None:
        """The privacy accounting of a run; None if no piece adds noise."""
        return plan_of(self.pieces().values())

    @property
    def noised_privacy(self) -> Plan | None:
        """The privacy accounting of a run with noise; None without noise, and so without a guarantee."""
        plan = self.privacy
        return plan if plan is not None and plan.is_noised else None

    @property
    def nulls_dropped(self) -> bool:
        """True if a report with NaN or infinity is replaced by zeros (`Report.nulled`) instead of being left out.

        Leaving out a report changes the weights of the others, which differential privacy does not allow.
        """
        return self.privacy is not None

    @property
    def keeping(self) -> tuple[KeepingCorrection, ...]:
        """Corrections that keep vectors in the memory of every client."""
        return tuple(correction for correction in self.corrections if isinstance(correction, KeepingCorrection))

    @property
    def keeps(self) -> tuple[str, ...]:
        """Names of vectors in the memory of every client whose mean over all clients the server maintains."""
        return tuple(name for correction in self.keeping for name in correction.keeps)

    @property
    def remembers(self) -> tuple[str, ...]:
        """Names of client memory that changes only if the server uses the report, and that is not sent."""
        names = (name for piece in self.corrections for name in piece.memory(1, torch.float32))
        return (*self.local.traits.remembers, *names)

    @property
    def renews(self) -> dict[str, int]:
        """Number of server steps for which a broadcast mean stays the same, by name, if that is more than one."""
        return {name: piece.renews_every for piece in self.keeping for name in piece.keeps if piece.renews_every > 1}

    def pieces(self) -> dict[str, Any]:
        """Return all pieces by slot, e.g. ``{"selection": ..., "weighting.0": ..., "server": ...}``."""
        chains = {
            "correction": self.corrections,
            "measurement": self.measurements,
            "guard": self.guard,
            "weighting": self.weighting,
        }
        chained = {f"{slot}.{i}": piece for slot, chain in chains.items() for i, piece in enumerate(chain)}
        last = {"aggregation": self.aggregation, "server": self.server}
        personal = {} if self.personal is None else {"personal": self.personal}
        return {"selection": self.selection, "local": self.local, **chained, **last, **personal}

    def init(self, params: torch.Tensor, federation: Federation) -> ServerState:
        """Return the server's state before the first round.

        Raises:
            ConfigurationError: if a piece has options for another number of clients, or a state without what it declares.
        """
        check_selection(self.selection, federation.num_clients)
        slots = dict[str, State]()
        for slot, piece in self.pieces().items():
            check_lengths(piece, federation.num_clients)
            if isinstance(piece, Stateful):
                slots[slot] = piece.init(federation)
        if "base" in self.aggregation.reads and BASE_OFFSET not in slots["aggregation"]:
            raise ConfigurationError(
                f"{type(self.aggregation).__name__} reads the base, to which clients add {BASE_OFFSET!r}, and of that its "
                "state has nothing: return it from init(), zeros of the size of all adapted weights"
            )
        return ServerState(params, 0, slots | controls.zeros(self.keeps, federation, self.renews))

    def grown(self, state: ServerState, before: Federation, after: Federation) -> ServerState:
        """Return the state with rows for newly enrolled clients, as for clients that have never participated.

        Means over all N clients are rescaled to the new N: the new clients contribute zero.

        Raises:
            ConfigurationError: if a piece has options for a fixed number of clients.
        """
        slots = dict(state.slots)
        for slot, piece in self.pieces().items():
            refuse_new_clients(piece)
            if isinstance(piece, Stateful):
                slots[slot] = piece.grow(slots[slot], before, after, state.version)
        return replace(state, slots=slots | controls.grown(slots, before, after))

    def shared(self, state: ServerState) -> State:
        """Return the tensors that are broadcast beside the model, in its type, by name.

        They are the means of the clients' vectors, and the offset of the frozen weights below adapters.
        """
        result = controls.broadcast(state.slots, state.params.dtype)
        if "base" in self.aggregation.reads:
            result[BASE_OFFSET] = state.slots["aggregation"][BASE_OFFSET].to(state.params.dtype)
        return result

    def broadcast_bytes(self, state: ServerState, alone: bool = False) -> int:
        """Return the bytes of a client's download: the model ``[P]`` and the tensors that are broadcast with it.

        Args:
            state: state of the server.
            alone: whether the model is sent without these tensors.
        """
        numbers = state.params.numel() * (1 if alone else 1 + len(self.keeps))
        if "base" in self.aggregation.reads and not alone:
            numbers += state.slots["aggregation"][BASE_OFFSET].numel()
        return numbers * self.broadcast_dtype(state.params.dtype).itemsize

    def broadcast_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return the type in which the model is sent to clients."""
        for guard in self.guard:
            dtype = guard.broadcast_dtype(dtype) if isinstance(guard, ChangesDownloadType) else dtype
        return dtype

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases of a round in order; ``"prepare"`` precedes the first round only."""
        prepares = any(correction.asks_everyone for correction in self.keeping)
        measures = bool(self.selection.measurements)
        before = (*(("prepare",) if prepares else ()), *(("measure",) if measures else ()))
        return (*before, "train", *self.extra_phases)

    @property
    def extra_phases(self) -> tuple[str, ...]:
        """The phases of a round after training."""
        return () if self.aggregation.extra is None else self.aggregation.extra.names

    @property
    def sends_in(self) -> str:
        """The phase in which clients send their updates."""
        return "train" if self.aggregation.extra is None else self.aggregation.extra.sends_in

    @property
    def continues(self) -> bool:
        """True if clients train from the model of the last step in which they participated."""
        return "kept" in self.aggregation.reads

    @property
    def sums_early(self) -> bool:
        """True if the updates of a step can be summed as they arrive."""
        sums = self.aggregation.only_sums or self.aggregation.extra is not None
        of_reports = isinstance(self.server, ScalesByReports)
        return sums and not of_reports and all(has_factors(piece) for piece in self.weighting)

    @property
    def steps(self) -> tuple[Correction, ...]:
        """All corrections of a local gradient, including those of the personalization, in order."""
        return self.corrections + (self.personal.columns if isinstance(self.personal, CorrectsColumns) else ())

    def per_client_inputs(self, clients: np.ndarray, state: ServerState, federation: Federation) -> State:
        """Return the inputs that each of `clients` (int64 ``[B]``) alone receives with its task, ``[B]`` by name."""
        result: State = {}
        for i, piece in enumerate(self.weighting):
            if isinstance(piece, InformsClients):
                result |= piece.per_client_inputs(clients, state.slots[f"weighting.{i}"], federation)
        return result

    def first_inputs(self, federation: Federation) -> State:
        """Return the inputs that client 0 alone receives with its first task, ``[1]`` by name."""
        result: State = {}
        for piece in self.weighting:
            if isinstance(piece, InformsClients):
                result |= piece.per_client_inputs(np.zeros(1, dtype=np.int64), piece.init(federation), federation)
        return result

    def memory(
        self, federation: Federation, personal: torch.Tensor, parameters: tuple[tuple[int, ...], ...] = ()
    ) -> State:
        """Return the memory of a client that has not taken part yet: tensors by name.

        Args:
            federation: known properties of the federation.
            personal: initial personal row of a client, ``[P_v]``; read only with a personalization.
            parameters: shapes of the shared parameters.
        """
        trained = torch.zeros(1, federation.num_params)
        if self.personal is not None:
            trained = self.personal.join(trained, {"personal": personal[None]})
        shapes = self.local.memory(trained.shape[1], federation.dtype)
        for guard in self.guard:
            shapes |= guard.memory(federation.num_params, federation.dtype, parameters)
        for piece in self.corrections:
            shapes |= piece.memory(federation.num_params, federation.dtype)
        shapes |= dict.fromkeys(self.keeps, ((federation.num_params,), federation.dtype))
        first = {name: torch.zeros(shape, dtype=dtype) for name, (shape, dtype) in shapes.items()}
        return first if self.personal is None else first | {"personal": personal.cpu()}

    def named(self, name: str) -> Algorithm:
        """Return the same algorithm with another name."""
        return replace(self, name=name)


ALGORITHMS = Family("algorithm", "algorithms", ("turnout.algorithms",), returns=Algorithm)
"""Registry of recipes by name: functions that return an algorithm."""
