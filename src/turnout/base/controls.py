"""Maintain the means, over all N clients, of vectors in the memory of clients, such as SCAFFOLD's c."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from turnout.core.types import Federation, Report, State, WithState
from turnout.core.updates import Updates

_PLACE = "controls"
_HELD = "held controls"
PLACES = {_PLACE, _HELD}
"""Slots of the server's state that hold means."""

Slots = Mapping[str, State]


@dataclass(frozen=True)
class Controls:
    """Describe how an aggregation sums the changes of vectors that clients remember, such as SCAFFOLD's control variates.

    Attributes:
        change: function that returns the change of the mean of a vector over all clients, float64 ``[P]``, and the new
            state of the aggregation; None is the sum ``sum_b w_b change_b``. Its arguments are the name of the vector,
            of which ``report.extra`` holds the changes ``[B, P]``, the weights, 1/N each, float64 ``[B]``, and then those
            of `Aggregation.apply`, before which it is called.
        without_reports: whether it is called in rounds without reports, too, because it adds noise.
        mirrors_clients: whether the state of the aggregation is a sum over the memories of clients. Clients keep their
            new memory even if the server's step overflows, so this state is then kept, too, while the state of other
            aggregations is restored.
        adds_up: whether the aggregation adds up reported changes of the clients' vectors (`GradientTracking`), which are
            not updates.
    """

    change: Callable[[str, torch.Tensor, Report, State, Federation], WithState] | None = None
    without_reports: bool = False
    mirrors_clients: bool = False
    adds_up: bool = False


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


def moved(slots: Slots, reports: Report, federation: Federation, controls: Controls) -> dict[str, State]:
    """Update the means by the changes that clients sent: ``c <- c + (1/N) sum_k (c_k(after) - c_k(before))``.

    Returns:
        The means, and the state of the aggregation, which sums the changes.
    """
    if _PLACE not in slots or not (len(reports) or controls.without_reports):
        return {}
    means, state = dict(slots[_PLACE]), slots["aggregation"]
    even = torch.full((len(reports),), 1.0 / federation.num_clients, dtype=torch.float64, device=federation.device)
    for name, mean in means.items():
        if controls.change is None:
            change = Updates.of(reports.extra[name]).weighted_sum(even)
        else:
            change, state = controls.change(name, even, reports, state, federation)
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
