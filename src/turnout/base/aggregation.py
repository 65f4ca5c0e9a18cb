"""Base class of aggregations."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal, Protocol

import torch

from turnout.base.controls import Controls
from turnout.base.piece import Stateful
from turnout.base.weighting import Weights
from turnout.core.registry import Family
from turnout.core.types import Federation, Report, State, WithState

ModelReads = frozenset[Literal["model", "offset", "kept", "base"]]
"""Models that an aggregation uses, see `Aggregation.reads`."""


class ExtraPhases(Protocol):
    """The phases of a round after training, in which clients mask their summands and open the sum.

    A simulation adds the summands without masks. Between machines, `turnout.protocol.secure` writes and reads the messages.
    """

    names: ClassVar[tuple[str, ...]]
    """Names of the phases, in order; at least one."""

    sends_in: ClassVar[str]
    """The phase in which an update leaves its client. A client that does not complete it is not in the step."""

    @property
    def masking(self) -> Any:
        """The options of the sum, a `turnout.protocol.secure.masking.Masking`."""
        ...

    @property
    def nulls_dropped(self) -> bool:
        """True if a client whose update is not finite sends zeros in its place; otherwise it drops out."""
        ...

    @property
    def sums_groups(self) -> bool:
        """True if sums over groups of clients, each with its own version, can be added up in one step."""
        ...

    def bytes(self, phase: str, num_clients: int, num_params: int) -> tuple[int, int]:
        """Return the bytes that each of `num_clients` clients sends and receives in a phase, beside those of any task.

        In the phase ``"train"``, the bytes are sent in place of the update.
        """
        ...

    def summand(self, factors: torch.Tensor, report: Report, seed: int | None, /) -> torch.Tensor:
        """Return the summands in place of ``f_b Delta_b``, float64 ``[B, P]``.

        Args:
            factors: products f_b of the weighting chain's factors, float64 ``[B]``.
            report: the reports, with the updates Delta_b, ``[B, P]``.
            seed: seed of a simulation, from which noise of the clients is derived; None on a client of a real server,
                which draws its own noise.
        """
        ...


class Aggregation(Stateful):
    """Combine the weighted updates of a step into one direction of the server.

    An aggregation defines `apply`. Class attributes declare what it needs from the rest of the system; the defaults
    describe an aggregation that reads single updates and has no further phases.
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

    only_sums: ClassVar[bool] = False
    """True if it only sums the updates with the weights."""

    acts_alone: ClassVar[bool] = False
    """True if there is a direction even in rounds without reports."""

    reads: ClassVar[ModelReads] = frozenset()
    """Models that it uses beside the updates.

    - ``"model"``: the server's present model, in ``report.model``.
    - ``"offset"``: the distance of each report's model from the present one, in ``report.model_offset``.
    - ``"kept"``: the model after the last step in which a client took part, from which the client then trains.
    - ``"base"``: the frozen weights below adapters, to which models add ``state["base_offset"]``, ``[sum m n]``; m and n
      are the sizes of each adapted matrix. Clients receive it.
    """

    controls: ClassVar[Controls] = Controls()
    """Describe how it sums the changes of vectors that clients remember, such as control variates."""

    @property
    def extra(self) -> ExtraPhases | None:
        """The phases of a round after training, such as those of a secure sum; None without any.

        An aggregation with such phases only sums the updates.
        """
        return None
