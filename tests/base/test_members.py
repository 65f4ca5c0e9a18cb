"""How many members the base classes of pieces have, and that each serves at least three pieces.

Whoever writes a piece reads the members of its base class. What fewer pieces need is a class of its own, from which those
pieces derive and which others ask for by `isinstance`, or an object that a piece returns.
"""

import inspect
import pkgutil
from importlib import import_module

import pytest

import turnout.pieces
from turnout import base
from turnout.base.guard import ChangesDownloadType, Compression, OfShapes
from turnout.base.smoothed_rates import SmoothedRates

for module in pkgutil.walk_packages(turnout.pieces.__path__, "turnout.pieces."):
    import_module(module.name)

BASES = (
    base.Piece, base.ClientPiece, base.Stateful, base.Selection, base.RecordingSelection, base.Local, base.Correction,
    base.Measurement, base.Guard, Compression, base.Weighting, base.Normalizer, base.Aggregation, base.Server,
    base.Personalization,
)  # fmt: skip
"""Base classes of the pieces of a slot."""

OF_FEW = (
    base.PoolsExamples, base.TakesAll, base.FixedCohort, base.Enlargeable, base.CountsSteps, base.FineTunes,
    base.KeepingCorrection, base.LossTerm, base.OfTraining, base.OfRequirement, ChangesDownloadType, OfShapes,
    base.InformsClients, base.KnownInAdvance, base.AddsDirection, base.ScalesByReports, base.ShortensSteps,
    base.StepsAlone, base.CorrectsColumns, base.TrainsBeside, base.MutatesRows,
)  # fmt: skip
"""Classes of what few pieces do, whose authors alone read them."""

EXCEPTIONS = {
    ("Aggregation", "extra"): "two sums are masked, and nine modules of three distributions ask for the phases",
    ("Compression", "sent"): "two codes share work with their decoding, and the others are right without it",
}

INSIDE = {"slot", "family"}
"""Members by which the registry finds a class."""


def members(kind):
    """Return the public members that a class adds to those above it; options of a dataclass are none."""
    options = {field.name for field in getattr(kind, "__dataclass_fields__", {}).values()}
    above = {name for parent in kind.__mro__[1:] for name in (*vars(parent), *inspect.get_annotations(parent))}
    names = {*vars(kind), *inspect.get_annotations(kind)} - above - options - INSIDE
    return {name for name in names if not name.startswith("_")}


def below(kind):
    """Return all classes of the package that derive from a class."""
    found = {one for child in kind.__subclasses__() for one in (child, *below(child))}
    return {one for one in found if one.__module__.startswith("turnout.")}


def writers(kind, name):
    """Return the classes that define a member anew."""
    return {one.__name__ for one in below(kind) if name in {*vars(one), *inspect.get_annotations(one)}}


MEMBERS = [(kind, name) for kind in BASES for name in sorted(members(kind))]


@pytest.mark.parametrize(("kind", "name"), MEMBERS, ids=lambda value: getattr(value, "__name__", value))
def test_member_of_a_base_class_has_three_writers(kind, name):
    if name in getattr(kind, "__abstractmethods__", ()):
        return  # every piece answers
    few = len(writers(kind, name)) < 3
    assert few == ((kind.__name__, name) in EXCEPTIONS), (
        f"{kind.__name__}.{name} is written by {', '.join(sorted(writers(kind, name))) or 'nobody'}: give it a class of its "
        "own, from which these derive"
    )


def test_base_classes_have_few_members():
    assert len(MEMBERS) <= 56
    assert sum(len(members(kind)) for kind in OF_FEW) <= 24


def test_all_base_classes_of_pieces_are_counted():
    """Also those that a module of `turnout.base` adds later."""
    parents = {parent for piece in below(base.Piece) for parent in piece.__mro__}
    public = {one for one in parents if one.__module__.startswith("turnout.base.") and not one.__name__.startswith("_")}
    assert public == {*BASES, *OF_FEW, SmoothedRates}


def test_methods_that_pieces_share_are_not_members_to_write():
    """Of `SmoothedRates`, which two pieces use, nothing is defined anew, so it is no base class of a slot."""
    assert not {
        name for name in members(SmoothedRates) if writers(SmoothedRates, name) and name not in ("beta", "shares")
    }


@pytest.mark.parametrize("kind", OF_FEW, ids=lambda kind: kind.__name__)
def test_class_of_few_pieces_has_a_piece(kind):
    assert below(kind)
