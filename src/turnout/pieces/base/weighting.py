"""Base classes of weightings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, counted
from turnout.core.device import to_device
from turnout.core.registry import Family
from turnout.core.types import Federation, Report, State
from turnout.pieces.base.stateful import Stateful, WithState

Weights = torch.Tensor
"""One weight for each report, float64 ``[B]``."""


Whose = Literal["none", "own", "others"]
"""Whose participation changes what a piece does with a client's report: nobody's, the client's own, or that of others, too,
by a count of reports or by a state that clients share. Where the server draws clients at random, who was drawn is private."""


class Weighting(Stateful):
    """Changes the weights of the reports; chained, and ended by exactly one `Normaliser`."""

    slot: ClassVar[str] = "weighting"
    family = Family("weighting", "weightings", ("turnout.pieces.weighting",))

    reads: ClassVar[Literal["timing", "own", "others"]] = "others"
    """Of whose data a weight tells something: nobody's, for it depends on who took part when alone; the client's own; or
    those of others, too. Differential privacy bounds the first two."""

    participation: ClassVar[Whose] = "others"
    """The clients whose participation changes a weight, in this round or in earlier ones."""

    of_staleness: ClassVar[bool] = False
    """True if its factor follows from how stale a report is alone, so that all reports of one version have the same."""

    needs: ClassVar[tuple[str, ...]] = ()
    """What it reads in ``report.seen``, by name."""

    undoes_participation: ClassVar[bool] = False
    """True if it weighs a client by the inverse of how often it takes part. A chain has at most one of these."""

    reads_steps: ClassVar[bool] = False
    """True if it reads ``report.num_steps``, which foreign clients need not say."""

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Return new weights ``[B]`` and the state afterwards: the weights times `factors`, unless a piece says otherwise.

        Tensors with one entry a client may be changed in place: copying them would cost the whole population. `client_rows`
        should say which; what it does not name is to be left as it is. If reports turn out to hold NaN or infinity, the
        state is put back and this is called again without them, so it remembers nothing elsewhere.
        """
        factors = check_weights(self, self.factors(report, version, state, federation), len(report))
        return weights * to_device(factors, weights.device), state

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return what `apply` multiplies each weight by, up to one number for all reports of a step, float64 ``[B]``.

        A piece defines this where it can tell without the other reports of the step. If all pieces of a chain do, updates
        are summed as they come in, and are never held all at once. It is asked before `apply`, of a few reports at a
        time, of which it may read scalars alone, and changes no state.
        """
        raise NotImplementedError  # which `Algorithm` refuses


class Normaliser(Weighting):
    """The visible last link of a weighting chain: it says what the weights are divided by."""


class InformsClients(ABC):
    """A weighting that tells clients something of its state with their task."""

    informs: ClassVar[str] = (
        "{piece} tells clients what depends on all reports so far, and with {pace} some of those are still under way when a "
        "task is given"
    )
    """Why such a weighting needs rounds."""

    @abstractmethod
    def per_client_inputs(self, clients: np.ndarray, state: State, federation: Federation) -> State:
        """Return what each of `clients` (int64 ``[B]``) is told, and it alone: ``[B]`` by name."""


class KnownInAdvance(ABC):
    """A weighting that knows before a round what every client would weigh in it, for the table of clients."""

    @abstractmethod
    def client_weights(self, version: int, state: State, federation: Federation) -> np.ndarray:
        """Return the factor of every client's weight in the round to come, ``[N]``."""


def check_weights(piece: Weighting, weights: Weights, num_reports: int) -> Weights:
    """Return what a piece made of reports, one number for each of them.

    Raises:
        ConfigurationError: for anything but a tensor, and for any other shape, naming the piece.
    """
    if not isinstance(weights, torch.Tensor):
        raise ConfigurationError(
            f"{type(piece).__name__} made weights of type {type(weights).__name__}: needed a tensor of shape "
            f"({num_reports},), one weight for each report"
        )
    if tuple(weights.shape) != (num_reports,):
        raise ConfigurationError(
            f"{type(piece).__name__} made weights of shape {tuple(weights.shape)} of {counted(num_reports, 'report')}: "
            f"needed one for each, shape ({num_reports},)"
        )
    return weights
