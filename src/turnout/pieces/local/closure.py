"""Separate corrections from their tensors, which differ in every round, and collect what they leave after the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from turnout.core.types import State
from turnout.pieces.base import Correction


@dataclass(frozen=True)
class StaticCorrections:
    """Corrections without their tensors; equal to those of another round, so that a step is traced once for all rounds.

    Attributes:
        corrections: with None in place of every tensor.
        names: of each, the fields that held one.
    """

    corrections: tuple[Correction, ...]
    names: tuple[tuple[str, ...], ...]

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> tuple[Correction, ...]:
        """Return the corrections with these tensors."""
        rest = iter(tensors)
        return tuple(
            replace(cast("Any", correction), **{name: next(rest) for name in names}) if names else correction
            for correction, names in zip(self.corrections, self.names, strict=True)
        )


def split_tensors(corrections: tuple[Correction, ...]) -> tuple[StaticCorrections, list[torch.Tensor]] | None:
    """Return corrections without their tensors, and the tensors; None if anything else may change from step to step.

    Nothing does where they are frozen dataclasses of tensors and of what can be hashed (see `Correction`).
    """
    bare, names, held = [], [], []
    for correction in corrections:
        options = getattr(correction, "__dataclass_params__", None)
        if options is None or not options.frozen or not hasattr(correction, "__dict__"):
            return None
        tensors = {name: value for name, value in vars(correction).items() if isinstance(value, torch.Tensor)}
        if tensors and hasattr(correction, "__post_init__"):  # which might want to look at them
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


def outcome(begun: Sequence[Sequence[Correction]], deltas: Sequence[torch.Tensor]) -> tuple[State, State]:
    """Return what all corrections changed and what they remember, by name, part after part."""
    ended = [(one, delta) for corrections, delta in zip(begun, deltas, strict=True) for one in corrections]
    return _joined([one.changes(delta) for one, delta in ended]), _joined(
        [one.remembered(delta) for one, delta in ended]
    )


def sent(begun: Sequence[Sequence[Correction]], deltas: Sequence[torch.Tensor], whole: torch.Tensor) -> torch.Tensor:
    """Return what is reported of how far clients came, part after part.

    Args:
        begun: the corrections of each part.
        deltas: how far the clients of each part came.
        whole: the same of all parts, which is returned as it is where no correction reports anything else.
    """
    changed = []
    for corrections, delta in zip(begun, deltas, strict=True):
        moved = delta
        for one in corrections:
            moved = one.sent(moved)
        changed.append(moved)
    return whole if all(a is b for a, b in zip(changed, deltas, strict=True)) else torch.cat(changed)


def _joined(parts: Sequence[State]) -> State:
    """Return the rows of all parts by name, in the order of the parts."""
    rows: dict[str, list[torch.Tensor]] = {}
    for part in parts:
        for name, value in part.items():
            rows.setdefault(name, []).append(value)
    return {name: torch.cat(values) for name, values in rows.items()}
