"""Separate corrections from their tensors, which change every round, and collect their results after the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from turnout.base import Correction
from turnout.core.types import State


@dataclass(frozen=True)
class StaticCorrections:
    """Corrections without their tensors. They are equal in all rounds, so that a step is traced once for all of them.

    Attributes:
        corrections: the corrections, with None in place of every tensor.
        names: names of the fields that held a tensor, for each correction.
    """

    corrections: tuple[Correction, ...]
    names: tuple[tuple[str, ...], ...]

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> tuple[Correction, ...]:
        """Return the corrections with the given tensors, in the order of `split_tensors`."""
        rest = iter(tensors)
        return tuple(
            replace(cast("Any", correction), **{name: next(rest) for name in names}) if names else correction
            for correction, names in zip(self.corrections, self.names, strict=True)
        )


def split_tensors(corrections: tuple[Correction, ...]) -> tuple[StaticCorrections, list[torch.Tensor]] | None:
    """Return corrections without their tensors, and the tensors; None if other values may change between steps.

    Other values cannot change if a correction is a frozen dataclass of tensors and hashable values (see `Correction`).
    """
    bare, names, held = [], [], []
    for correction in corrections:
        options = getattr(correction, "__dataclass_params__", None)
        if options is None or not options.frozen or not hasattr(correction, "__dict__"):
            return None
        tensors = {name: value for name, value in vars(correction).items() if isinstance(value, torch.Tensor)}
        if tensors and hasattr(correction, "__post_init__"):  # it would run on None in place of the tensors
            return None
        bare.append(replace(cast("Any", correction), **dict.fromkeys(tensors)) if tensors else correction)
        names.append(tuple(tensors))
        held += tensors.values()
    static = StaticCorrections(tuple(bare), tuple(names))
    try:
        hash(static)
    except TypeError:
        return None
    return static, held


def outcome(
    begun: Sequence[Sequence[Correction]], deltas: Sequence[torch.Tensor], whole: torch.Tensor
) -> tuple[State, State, torch.Tensor]:
    """Return the changes and the new memory of all corrections, by name, and the updates that are reported, ``[B, P]``.

    Rows of all parts are concatenated.

    Args:
        begun: corrections of each part.
        deltas: updates of each part, ``[b, P]``.
        whole: updates of all parts, ``[B, P]``; returned without a copy if no correction replaces them.
    """
    ended = [[one.outcome(delta) for one in corrections] for corrections, delta in zip(begun, deltas, strict=True)]
    changed, remembered = (
        _joined([getattr(left, name) for part in ended for left in part]) for name in ("changes", "remembered")
    )
    sent = [[left.sent for left in part if left.sent is not None] for part in ended]
    if any(sent):
        whole = torch.cat([part[-1] if part else delta for part, delta in zip(sent, deltas, strict=True)])
    return changed, remembered, whole


def _joined(parts: Sequence[State]) -> State:
    """Concatenate the rows of all parts, by name."""
    rows: dict[str, list[torch.Tensor]] = {}
    for part in parts:
        for name, value in part.items():
            rows.setdefault(name, []).append(value)
    return {name: torch.cat(values) for name, values in rows.items()}
