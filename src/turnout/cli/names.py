"""Families of pieces that files and the command line can name."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any

from turnout.base import Aggregation, Guard, Local, Personalization, Selection, Server, Weighting
from turnout.base.algorithm import ALGORITHMS
from turnout.core.registry import Family
from turnout.core.schedule import Schedule
from turnout.data.partition import Partition
from turnout.data.source import SOURCES
from turnout.data.transformer import TRANSFORMS, Transform
from turnout.data.transforms import AUGMENTATIONS
from turnout.engine.loss import LOSSES
from turnout.models import MODELS
from turnout.pieces.aggregation.mixing import Mixing
from turnout.pieces.local import Solver, Work
from turnout.population import Availability, Requirement, SpeedModel
from turnout.population.behavior import Attack
from turnout.population.delay import Delay
from turnout.privacy import Correlation
from turnout.protocol.pace import Pace
from turnout.trackers import TRACKERS


class Additions(ChainMap[str, Callable[..., Any]]):
    """Members of several families that `also` adds to an algorithm: all except solvers, of which an algorithm has one."""

    maps: list[Family]  # pyright: ignore[reportIncompatibleVariableOverride]
    noun = "piece"

    @property
    def needs(self) -> str:
        """The requirement for members, in words."""
        bases = [base.__name__ for family in self.maps for base in family.bases if base is not Local]
        return f"a class that derives from {' or '.join(bases)}"

    def takes(self, piece: object) -> bool:
        """Return whether an object can be a member."""
        is_solver = isinstance(piece, type) and issubclass(piece, Local)
        return not is_solver and any(family.takes(piece) for family in self.maps)


AVAILABILITY = Availability.family
PARTITIONS = Partition.family
SELECTIONS = Selection.family
AGGREGATIONS = Aggregation.family
SERVER_OPTIMIZERS = Server.family
SOLVERS = Solver.family
DELAYS = Delay.family
PACES = Pace.family

GUARDS = Guard.family

ALSO = Additions(Local.family, Personalization.family, GUARDS, Weighting.family)  # type: ignore[arg-type]
"""Pieces that can be added to any algorithm."""

LISTED: Mapping[str, Family] = {
    family.plural: family
    for family in (
        ALGORITHMS, SOURCES, MODELS, AVAILABILITY, PACES, PARTITIONS, AUGMENTATIONS, TRANSFORMS, SELECTIONS, AGGREGATIONS,
        Mixing.family, SERVER_OPTIMIZERS, Local.family, Personalization.family, GUARDS, Weighting.family, SOLVERS,
        Schedule.family, Requirement.family, Attack.family, SpeedModel.family, DELAYS, Correlation.family, LOSSES, TRACKERS,
        Work.family,
    )
}  # fmt: skip
"""The families that ``turnout list`` lists."""

_OF_OPTIONS = (
    "correlations", "solvers", "mixings", "schedules", "work", "requirements", "behaviors", "speeds", "delays",
)  # fmt: skip

FAMILIES: Mapping[type, Family] = {
    Transform: TRANSFORMS,
    **{base: LISTED[plural] for plural in _OF_OPTIONS for base in LISTED[plural].bases},
}
"""Families of pieces that are values of options, by name or as a table with ``kind = NAME``, by base class."""
