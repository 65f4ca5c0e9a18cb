"""Doctests of the package."""

import doctest
import importlib
from pathlib import Path

import pytest

import turnout
import turnout_serve
from turnout import base
from turnout.base import ALGORITHMS
from turnout.data.partition import Partition
from turnout.models import HuggingFace, ModelSpec
from turnout.pieces.aggregation.mixing import Mixing
from turnout.pieces.local import Work
from turnout.population import delay, requirement
from turnout.population.availability import Availability, Flash
from turnout.population.behavior import Attack
from turnout.population.speed import SpeedModel

FOLDERS = [Path(package.__path__[0]) for package in (turnout, turnout_serve)]
MODULES = [
    ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__")
    for folder in FOLDERS
    for path in sorted(folder.rglob("*.py"))
    if ">>> " in path.read_text("utf-8")
]

BASES = (
    Mixing, Work, Availability, Attack, SpeedModel, delay.Delay, requirement.Requirement, Partition, ModelSpec,
)  # fmt: skip
"""Base classes of further families."""

NEED_FILES = (Flash, HuggingFace)
"""Pieces whose examples would need a recording or another package."""


@pytest.mark.parametrize("module", MODULES)
def test_doctests_pass(module):
    found = doctest.testmod(importlib.import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted
    assert not found.failed


def test_every_recipe_and_piece_has_a_doctest():
    families = [piece.family for piece in vars(base).values() if hasattr(piece, "family")]
    families += [ALGORITHMS, *(piece.family for piece in BASES)]
    pieces = {piece for family in families for piece in family.values()}
    missing = sorted(
        piece.__name__
        for piece in pieces
        if ">>> " not in (piece.__doc__ or "") and piece not in NEED_FILES and "lora" not in piece.__name__.lower()
    )
    assert not missing


def test_doctests_are_collected():
    assert len(MODULES) > 30
