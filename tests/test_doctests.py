"""Every example in a docstring of the package runs and gives what it says."""

import doctest
import importlib
from pathlib import Path

import pytest

import turnout

ROOT = Path(turnout.__file__).parent
MODULES = [
    ".".join(("turnout", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(ROOT.rglob("*.py"))
    if ">>> " in path.read_text("utf-8")
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings(module):
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted
    assert not found.failed


def test_there_are_examples():
    assert len(MODULES) > 30
