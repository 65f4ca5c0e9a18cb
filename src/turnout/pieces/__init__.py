"""Base classes of pieces, to derive your own from: one for each slot of an algorithm, and what clients and paces are made of.

A piece is a frozen dataclass that derives from the base class of its slot. This one counts clients by the inverse of their
number of examples, ``w_b <- w_b / n_b``:

>>> from dataclasses import dataclass
>>> import torch, turnout as to
>>> @dataclass(frozen=True)
... class ByFewExamples(to.pieces.Weighting):
...     def factors(self, report, version, state, federation):
...         return 1.0 / torch.from_numpy(report.num_examples).double()
>>> to.compose(ByFewExamples(), to.weighting.DivideBySum()).name
'custom'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # at run time by `__getattr__`: pieces themselves live in this folder, and import what is below it
    from turnout.base import *  # noqa: F403
    from turnout.core.schedule import Schedule as Schedule
    from turnout.data.partition import Partition as Partition
    from turnout.models import ModelSpec as ModelSpec
    from turnout.pieces.local import Solver as Solver
    from turnout.pieces.local import Update as Update
    from turnout.pieces.local import Work as Work
    from turnout.population import Attack as Attack
    from turnout.population import Availability as Availability
    from turnout.population import BoundAttack as BoundAttack
    from turnout.population import BoundAvailability as BoundAvailability
    from turnout.population import BoundRequirement as BoundRequirement
    from turnout.population import BoundSpeed as BoundSpeed
    from turnout.population import Requirement as Requirement
    from turnout.population import SpeedModel as SpeedModel
    from turnout.population.delay import Delay as Delay
    from turnout.protocol.pace import BoundPace as BoundPace
    from turnout.protocol.pace import Pace as Pace
    from turnout.trackers.tracker import Tracker as Tracker

_HOMES = {
    "Attack": "turnout.population",
    "Availability": "turnout.population",
    "BoundAttack": "turnout.population",
    "BoundAvailability": "turnout.population",
    "BoundPace": "turnout.protocol.pace",
    "BoundRequirement": "turnout.population",
    "BoundSpeed": "turnout.population",
    "Delay": "turnout.population.delay",
    "ModelSpec": "turnout.models",
    "Pace": "turnout.protocol.pace",
    "Partition": "turnout.data.partition",
    "Requirement": "turnout.population",
    "Schedule": "turnout.core.schedule",
    "Solver": "turnout.pieces.local",
    "SpeedModel": "turnout.population",
    "Tracker": "turnout.trackers.tracker",
    "Update": "turnout.pieces.local",
    "Work": "turnout.pieces.local",
}
"""Modules of the base classes that are not of a slot."""


def __getattr__(name: str) -> Any:
    """Load a base class, or the list `__all__`, when it is first used (PEP 562)."""
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    base = import_module("turnout.base")
    if name == "__all__":
        return sorted([*_HOMES, *(each for each, thing in vars(base).items() if isinstance(thing, type))])
    return getattr(import_module(_HOMES[name]) if name in _HOMES else base, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
