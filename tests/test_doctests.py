"""Doctests of the package."""

import doctest
import importlib
from pathlib import Path

import pytest

import turnout
import turnout_serve
from turnout import base
from turnout.base import ALGORITHMS
from turnout.pieces.aggregation.mixing import Mixing
from turnout.pieces.local import Work

FOLDERS = [Path(package.__file__).parent for package in (turnout, turnout_serve)]
MODULES = [
    ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__")
    for folder in FOLDERS
    for path in sorted(folder.rglob("*.py"))
    if ">>> " in path.read_text("utf-8")
]


@pytest.mark.parametrize("module", MODULES)
def test_doctests_pass(module):
    found = doctest.testmod(importlib.import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted
    assert not found.failed


def test_every_recipe_and_piece_has_a_doctest():
    families = [piece.family for piece in vars(base).values() if hasattr(piece, "family")]
    pieces = {piece for family in (ALGORITHMS, *families, Mixing.family, Work.family) for piece in family.values()}
    missing = sorted(
        piece.__name__
        for piece in pieces
        if ">>> " not in (piece.__doc__ or "") and "lora" not in piece.__name__.lower()
    )
    assert not missing


def test_doctests_are_collected():
    assert len(MODULES) > 30
