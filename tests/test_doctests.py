"""Doctests of the package."""

import doctest
import importlib
from pathlib import Path

import pytest

import turnout
from turnout.base import ALGORITHMS
from turnout.pieces import base
from turnout.pieces.aggregation.mixing import Mixing
from turnout.pieces.local import Work

ROOT = Path(turnout.__file__).parent
MODULES = [
    ".".join(("turnout", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(ROOT.rglob("*.py"))
    if ">>> " in path.read_text("utf-8")
]


@pytest.mark.parametrize("module", MODULES)
def test_doctests_pass(module):
    found = doctest.testmod(importlib.import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted
    assert not found.failed


def test_every_recipe_and_piece_has_a_doctest():
    families = [getattr(base, name).family for name in base.__all__ if hasattr(getattr(base, name), "family")]
    pieces = {piece for family in (ALGORITHMS, *families, Mixing.family, Work.family) for piece in family.values()}
    missing = sorted(
        piece.__name__
        for piece in pieces
        if ">>> " not in (piece.__doc__ or "") and "lora" not in piece.__name__.lower()
    )
    assert not missing


def test_doctests_are_collected():
    assert len(MODULES) > 30
