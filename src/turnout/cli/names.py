"""Families of pieces that can be named in files and on the command line, as the registry has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from turnout.core.registry import Family
from turnout.core.schedule import Schedule
from turnout.data.column_transforms import TRANSFORMS
from turnout.data.columns import Transform
from turnout.data.partition import Partition
from turnout.data.source import SOURCES
from turnout.data.transforms.ready_made import AUGMENTATIONS
from turnout.engine.loss import LOSSES
from turnout.models import MODELS
from turnout.pieces.aggregation.mixing import Mixing
from turnout.pieces.base import Aggregation, Guard, Local, Personalization, Selection, Server, Weighting
from turnout.pieces.base.algorithm import ALGORITHMS
from turnout.pieces.local import Solver, Work
from turnout.population import Availability, Requirement, SpeedModel
from turnout.population.behaviour import Attack
from turnout.population.delay import Delay
from turnout.privacy import Correlation
from turnout.protocol.pace import Pace
from turnout.trackers import TRACKERS


class Additions(Mapping[str, Callable[..., Any]]):
    """Members of several families that `also` adds to an algorithm: all but solvers, of which an algorithm has one."""

    def __init__(self, *families: Family) -> None:
        self.families = families

    @property
    def needs(self) -> str:
        """The requirement for a member, in words."""
        bases = [base.__name__ for family in self.families for base in family.bases if base is not Local]
        return f"a class that derives from {' or '.join(bases)}"

    def takes(self, piece: object) -> bool:
        """Tell whether an object could be a member."""
        return any(family.takes(piece) for family in self.families) and not _is_solver(piece)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._members()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members())

    def __len__(self) -> int:
        return len(self._members())

    def _members(self) -> dict[str, Callable[..., Any]]:
        members = {name: piece for family in self.families for name, piece in family.items()}
        return {name: piece for name, piece in members.items() if not _is_solver(piece)}


def _is_solver(piece: object) -> bool:
    return isinstance(piece, type) and issubclass(piece, Local)


AVAILABILITY = Availability.family
PARTITIONS = Partition.family
SELECTIONS = Selection.family
AGGREGATIONS = Aggregation.family
MIXINGS = Mixing.family
CORRELATIONS = Correlation.family
SERVER_OPTIMIZERS = Server.family
WORK = Work.family
SCHEDULES = Schedule.family
SOLVERS = Solver.family
REQUIREMENTS = Requirement.family
BEHAVIOURS = Attack.family
SPEEDS = SpeedModel.family
DELAYS = Delay.family
PACES = Pace.family

LOCAL_PARTS = Additions(Local.family)
PERSONALIZATIONS = Additions(Personalization.family)
GUARDS = Additions(Guard.family)
WEIGHTINGS = Additions(Weighting.family)
ALSO = Additions(Local.family, Personalization.family, Guard.family, Weighting.family)
"""Pieces that can be added to any algorithm."""

FAMILIES: Mapping[type, Family] = {
    Transform: TRANSFORMS,
    **{
        base: family
        for family in (CORRELATIONS, SOLVERS, MIXINGS, SCHEDULES, WORK, REQUIREMENTS, BEHAVIOURS, SPEEDS, DELAYS)
        for base in family.bases
    },
}
"""Options that are a piece of their own, a name or a table with ``kind = NAME``: the family that the name is of."""

LISTED: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "algorithms": ALGORITHMS,
    "data": SOURCES,
    "models": MODELS,
    "availability": AVAILABILITY,
    "paces": PACES,
    "partitions": PARTITIONS,
    "augmentations": AUGMENTATIONS,
    "transforms": TRANSFORMS,
    "selections": SELECTIONS,
    "aggregations": AGGREGATIONS,
    "mixings": MIXINGS,
    "server_optimizers": SERVER_OPTIMIZERS,
    "local": LOCAL_PARTS,
    "personalizations": PERSONALIZATIONS,
    "guards": GUARDS,
    "weightings": WEIGHTINGS,
    "solvers": SOLVERS,
    "schedules": SCHEDULES,
    "requirements": REQUIREMENTS,
    "behaviours": BEHAVIOURS,
    "speeds": SPEEDS,
    "delays": DELAYS,
    "correlations": CORRELATIONS,
    "losses": LOSSES,
    "trackers": TRACKERS,
    "work": WORK,
}
"""List pieces, data sets and settings for ``turnout list``."""
