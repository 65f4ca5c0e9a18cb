"""FedVARP: the last update of every client stands in for it as a control variate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.slots import Aggregation, Normaliser, Slots, Weights
from turnout.weighting.normalise import DivideByParticipants


@dataclass(frozen=True)
class FedVarp(Aggregation):
    """``u = mean_N(Y) + sum_b w_b (Delta_b - Y_b)``, then ``Y_b = Delta_b`` for those who are there; Y starts at 0.

    An empty round changes nothing, as in FedAU's comparison (the original applies ``mean_N(Y)``).

    State: ``table [N, P]`` (Y), and ``mean [P]`` in float64, kept up to date at the cost of the cohort.

    Reference: Jhunjhunwala et al., "FedVARP: tackling the variance due to partial client participation", UAI 2022.
    """

    client_rows: ClassVar[tuple[str, ...]] = ("table",)

    def fits(self, algorithm: Slots) -> None:
        """Weights must sum to one over the participants: only then does the correction stay centred on the mean."""
        needs_alone(
            algorithm,
            DivideByParticipants,
            "FedVARP corrects with mean(Delta - Y) over the participants; other weights shift it away from the mean of Y",
        )

    def init(self, federation: Federation) -> State:
        """No client has sent anything."""
        return table(federation)

    def apply(
        self, weights: Weights, report: Report, state: State, federation: Federation
    ) -> tuple[torch.Tensor, State]:
        """Return the direction ``[P]``; the table's rows of the participants are replaced."""
        del federation
        stored, mean = replace_rows(state, report)
        change = report.updates.weighted_sum(weights) - Updates.of(stored).weighted_sum(weights)
        return (state["mean"] + change).to(report.delta.dtype), state | {"mean": mean}

    def grow(self, state: State, before: Federation, after: Federation, version: int) -> State:
        """Give new clients empty rows."""
        del version
        return grown(state, before, after)


def grown(state: State, before: Federation, after: Federation) -> State:
    """Return a table with empty rows for new clients, and the mean of all rows."""
    more = table(replace(after, num_clients=after.num_clients - before.num_clients))["table"]
    mean = state["mean"] * (before.num_clients / after.num_clients)
    return {"table": torch.cat([state["table"], more]), "mean": mean}


def table(federation: Federation) -> State:
    """Return an empty table ``[N, P]`` of updates and its mean ``[P]``."""
    shape = (federation.num_clients, federation.num_params)
    return {
        "table": torch.zeros(shape, dtype=federation.dtype, device=federation.device),
        "mean": torch.zeros(federation.num_params, dtype=torch.float64, device=federation.device),
    }


def replace_rows(state: State, report: Report) -> tuple[torch.Tensor, torch.Tensor]:
    """Write the updates into the table; return the rows that were there, ``[B, P]``, and the table's mean from now on.

    Of several processes each has the whole table.

    Of a client with several reports the one trained from the latest version stays.
    """
    clients = to_device(report.client, report.delta.device)
    stored = state["table"][clients]
    order = np.lexsort((report.version, report.client))
    last = order[np.append(np.diff(report.client[order]) != 0, True)]
    new, old = report.updates.gathered(), stored
    if len(last) < len(report):
        kept = to_device(last, clients.device)
        clients, new, old = clients[kept], new[kept], old[kept]
    state["table"][clients] = new
    # Two sums, because the difference of two finite updates can overflow, and infinity would stay in the mean for ever.
    even = torch.full((len(clients),), 1.0 / len(state["table"]), dtype=torch.float64, device=stored.device)
    return stored, state["mean"] + (Updates.of(new).weighted_sum(even) - Updates.of(old).weighted_sum(even))


def needs_alone(algorithm: Slots, normaliser: type[Normaliser], why: str) -> None:
    """Refuse weights other than those of `normaliser` alone, because of `why`."""
    if len(algorithm.weighting) != 1 or not isinstance(algorithm.weighting[0], normaliser):
        names = " -> ".join(type(piece).__name__ for piece in algorithm.weighting)
        raise ConfigurationError(f"the weighting is {names}, but {why}: use {normaliser.__name__}() alone")
