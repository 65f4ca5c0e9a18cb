"""Maintain the means, over all N clients, of vectors in the memory of clients, such as SCAFFOLD's c."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from turnout.base.aggregation import Aggregation
from turnout.core.types import Federation, Report, State

_PLACE = "controls"
_HELD = "held controls"
PLACES = {_PLACE, _HELD}
"""Slots of the server's state that hold means."""

Slots = Mapping[str, State]


def zeros(names: tuple[str, ...], federation: Federation, renews: Mapping[str, int]) -> dict[str, State]:
    """Return the means before the first round, float64 ``[P]`` by name, as a part of the server's state.

    Args:
        names: names of the vectors.
        federation: known properties of the federation.
        renews: number of server steps for which the broadcast mean stays the same, for vectors where it is more than
            one.
    """
    if not names:
        return {}
    like = torch.zeros(federation.num_params, dtype=torch.float64, device=federation.device)
    held = {_HELD: {name: like.clone() for name in renews}} if renews else {}
    return {_PLACE: {name: like.clone() for name in names}} | held


def broadcast(slots: Slots, dtype: torch.dtype) -> State:
    """Return the means as clients receive them, in the model's type."""
    return {name: mean.to(dtype) for name, mean in (slots.get(_PLACE, {}) | slots.get(_HELD, {})).items()}


def moved(slots: Slots, reports: Report, federation: Federation, aggregation: Aggregation) -> dict[str, State]:
    """Update the means by the changes that clients sent: ``c <- c + (1/N) sum_k (c_k(after) - c_k(before))``.

    Returns:
        The means, and the state of the aggregation, which sums the changes.
    """
    if _PLACE not in slots or not (len(reports) or aggregation.noises_controls):
        return {}
    means, state = dict(slots[_PLACE]), slots["aggregation"]
    even = torch.full((len(reports),), 1.0 / federation.num_clients, dtype=torch.float64, device=federation.device)
    for name, mean in means.items():
        change, state = aggregation.move(name, even, reports, state, federation)
        means[name] = mean + change
    return {_PLACE: means, "aggregation": state}


def renewed(slots: Slots, version: int, renews: Mapping[str, int]) -> dict[str, State]:
    """Return the broadcast copies of the means whose period begins with this version, replaced by the present means."""
    if not (due := [name for name, period in renews.items() if version % period == 0]):
        return {}
    return {_HELD: slots[_HELD] | {name: slots[_PLACE][name].clone() for name in due}}


def grown(slots: Slots, before: Federation, after: Federation) -> dict[str, State]:
    """Return the means after clients enrolled, whose vectors are zero."""
    if _PLACE not in slots:
        return {}
    share = before.num_clients / after.num_clients
    held = [slot for slot in (_PLACE, _HELD) if slot in slots]
    return {slot: {name: mean * share for name, mean in slots[slot].items()} for slot in held}
