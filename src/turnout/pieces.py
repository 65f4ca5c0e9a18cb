"""Base classes of pieces, to derive your own from: one for each slot of an algorithm, and what clients and paces are made of.

A piece is a frozen dataclass that derives from the base class of its slot. This one counts clients by the inverse of their
number of examples, ``w_b <- w_b / n_b``:

>>> from dataclasses import dataclass
>>> import torch, turnout as to
>>> @dataclass(frozen=True)
... class ByFewExamples(to.pieces.Weighting):
...     def factors(self, report, version, state, federation):
...         return 1.0 / torch.from_numpy(report.num_examples).double()
>>> to.compose(ByFewExamples(), to.DivideBySum()).name
'custom'
"""

from turnout.core.schedule import Schedule
from turnout.data.partition import Partition
from turnout.local import Work
from turnout.models import ModelSpec
from turnout.pace import Pace
from turnout.population import Availability, Requirement, SpeedModel
from turnout.population.delay import Delay
from turnout.slots import (
    Aggregation,
    Correction,
    Guard,
    Local,
    Measurement,
    Normaliser,
    Personalization,
    Piece,
    Selection,
    Server,
    Weighting,
)

__all__ = [
    "Aggregation",
    "Availability",
    "Correction",
    "Delay",
    "Guard",
    "Local",
    "Measurement",
    "ModelSpec",
    "Normaliser",
    "Pace",
    "Partition",
    "Personalization",
    "Piece",
    "Requirement",
    "Schedule",
    "Selection",
    "Server",
    "SpeedModel",
    "Weighting",
    "Work",
]
