"""MIFA: clients who are away take part with the last update they sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from turnout.aggregation.fedvarp import replace_rows, table
from turnout.core.algorithm import Aggregation, Weighting, Weights
from turnout.core.checks import ConfigurationError
from turnout.core.types import Federation, Report, State
from turnout.weighting.normalise import DivideByClients


@dataclass(frozen=True)
class Mifa(Aggregation):
    """``Y_b = Delta_b`` for those who are there, then ``u = mean_N(Y)``; Y starts at 0, and empty rounds step as well.

    State: ``table [N, P]`` (Y), and ``mean [P]`` in float64, kept up to date at the cost of the cohort.

    The original keeps ``(w_b - w) / lr`` and multiplies by the present step size; the two differ only where it decays.

    Reference: Gu et al., "Fast federated learning in the presence of arbitrary device unavailability", NeurIPS 2021.
    """

    acts_alone: ClassVar[bool] = True

    def check(self, weighting: tuple[Weighting, ...]) -> None:
        """All N clients count alike, the absent ones too, so nothing may weigh the participants."""
        if len(weighting) != 1 or not isinstance(weighting[0], DivideByClients):
            names = " -> ".join(type(w).__name__ for w in weighting)
            raise ConfigurationError(
                f"MIFA averages the stored updates of all clients, but the weighting is {names}; weights exist only for "
                "those who are there: use DivideByClients() alone"
            )

    def init(self, federation: Federation) -> State:
        """No client has sent anything."""
        return table(federation)

    def apply(
        self, weights: Weights, report: Report, state: State, federation: Federation
    ) -> tuple[torch.Tensor, State]:
        """The direction ``[P]``; the table's rows of the participants are replaced."""
        del weights
        if len(report):
            replace_rows(state, report)
        return state["mean"].to(federation.dtype), state
