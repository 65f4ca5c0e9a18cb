"""Base classes of weightings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import numpy as np
import torch

from turnout.base.piece import Stateful, check_tensor
from turnout.core.device import to_device
from turnout.core.registry import Family
from turnout.core.types import Federation, Report, State, WithState

Weights = torch.Tensor
"""One weight for each report, float64 ``[B]``."""


Whose = Literal["none", "own", "others"]
"""The clients whose participation affects how a piece treats a client's report.

``"none"``: no client's; ``"own"``: the client's own; ``"others"``: also that of other clients, through the number of
reports or a state that clients share. If the server samples clients at random, the sample is private.
"""


class Weighting(Stateful):
    """Change the weights of the reports. Weightings are chained, and a chain ends in exactly one `Normalizer`."""

    slot: ClassVar[str] = "weighting"
    family = Family("weighting", "weightings", ("turnout.pieces.weighting",))

    reads: ClassVar[Literal["staleness", "timing", "own", "others"]] = "others"
    """The data that a weight depends on.

    ``"staleness"``: no data, only the staleness of the report, so that the factor is the same for one version;
    ``"timing"``: no data, only the timing of participation; ``"own"``: the client's own data; ``"others"``: also the
    data of other clients. Differential privacy bounds all but the last.
    """

    participation: ClassVar[Whose] = "others"
    """The clients whose participation changes a weight, in this round or in earlier ones."""

    undoes_participation: ClassVar[bool] = False
    """True if it weights a client by the inverse of its participation rate. A chain has at most one such weighting."""

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Return the new weights ``[B]`` and the new state; by default, the weights times `factors`.

        Tensors with one entry per client may be changed in place, because copying them would cost as much as the
        population. Rows changed in place should be declared in `client_rows`; other rows must not change. If reports
        turn out to hold NaN or infinity, the state is restored and the method is called again without them, so it must
        store nothing elsewhere.
        """
        factors = check_weights(self, self.factors(report, version, state, federation), len(report))
        return weights * to_device(factors, weights.device), state

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return the factor of each weight, float64 ``[B]``, up to a common factor of all reports of a step.

        Define it for a weighting that does not need the other reports of the step. If all weightings of a chain define
        it, updates are summed as they arrive and are never held together. It is called before `apply`, on a few reports
        at a time; it may read only their scalars, and must not change the state.
        """
        raise NotImplementedError  # `Algorithm` refuses a weighting that defines neither method


class Normalizer(Weighting):
    """End a chain of weightings by dividing the weights. The papers differ in the divisor."""


class InformsClients(ABC):
    """A weighting that sends clients a part of its state with their task."""

    @abstractmethod
    def per_client_inputs(self, clients: np.ndarray, state: State, federation: Federation) -> State:
        """Return the inputs of the tasks of `clients` (int64 ``[B]``), ``[B]`` by name.

        Each client receives only its own.
        """


class KnownInAdvance(ABC):
    """A weighting that knows the weights of all clients before a round, for the table of clients."""

    @abstractmethod
    def client_weights(self, version: int, state: State, federation: Federation) -> np.ndarray:
        """Return the factor of every client's weight in the next round, ``[N]``."""


def has_factors(piece: Weighting) -> bool:
    """Return whether a weighting defines `Weighting.factors`, so that updates can be summed as they arrive."""
    return type(piece).factors is not Weighting.factors


def check_weights(piece: Weighting, weights: Weights, num_reports: int) -> Weights:
    """Return the weights that a piece computed, one for each report.

    Raises:
        ConfigurationError: if they are not a tensor of that shape; the message names the piece.
    """
    check_tensor(piece, weights, (num_reports,), "weights", "one weight for each report")
    return weights
