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
    from turnout.base import (
        AddsDirection,
        Aggregation,
        Controls,
        Correction,
        CorrectsColumns,
        CountsSteps,
        Enlargeable,
        FineTunes,
        FixedCohort,
        Guard,
        InformsClients,
        KeepingCorrection,
        KnownInAdvance,
        Local,
        LossTerm,
        Measurement,
        MutatesRows,
        Normaliser,
        OfRequirement,
        OfTraining,
        Outcome,
        Personalization,
        Piece,
        PoolsExamples,
        RecordingSelection,
        ScalesByReports,
        Selection,
        Server,
        ShortensSteps,
        StepsAlone,
        TakesAll,
        TrainsBeside,
        Traits,
        Weighting,
    )
    from turnout.core.schedule import Schedule
    from turnout.data.partition import Partition
    from turnout.models import ModelSpec
    from turnout.pieces.local import Solver, Update, Work
    from turnout.population import (
        Attack,
        Availability,
        BoundAttack,
        BoundAvailability,
        BoundRequirement,
        BoundSpeed,
        Requirement,
        SpeedModel,
    )
    from turnout.population.delay import Delay
    from turnout.protocol.pace import BoundPace, Pace
    from turnout.trackers.tracker import Tracker

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
    """Load a base class when it is first used (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "turnout.base")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "AddsDirection",
    "Aggregation",
    "Attack",
    "Availability",
    "BoundAttack",
    "BoundAvailability",
    "BoundPace",
    "BoundRequirement",
    "BoundSpeed",
    "Controls",
    "Correction",
    "CorrectsColumns",
    "CountsSteps",
    "Delay",
    "Enlargeable",
    "FineTunes",
    "FixedCohort",
    "Guard",
    "InformsClients",
    "KeepingCorrection",
    "KnownInAdvance",
    "Local",
    "LossTerm",
    "Measurement",
    "ModelSpec",
    "MutatesRows",
    "Normaliser",
    "OfRequirement",
    "OfTraining",
    "Outcome",
    "Pace",
    "Partition",
    "Personalization",
    "Piece",
    "PoolsExamples",
    "RecordingSelection",
    "Requirement",
    "ScalesByReports",
    "Schedule",
    "Selection",
    "Server",
    "ShortensSteps",
    "Solver",
    "SpeedModel",
    "StepsAlone",
    "TakesAll",
    "Tracker",
    "TrainsBeside",
    "Traits",
    "Update",
    "Weighting",
    "Work",
]
