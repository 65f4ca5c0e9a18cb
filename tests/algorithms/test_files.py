"""Every recipe is in the file of its name."""

import inspect

import pytest

from turnout import ALGORITHMS

VERSIONS = {"folb_heterogeneous": "folb", "folb_two_set": "folb"}
"""Versions of one method, which share its file."""


@pytest.mark.parametrize("name", ALGORITHMS)
def test_recipe_is_in_the_file_of_its_name(name):
    module = inspect.getmodule(ALGORITHMS[name])
    assert module is not None
    assert module.__name__ == f"turnout.algorithms.{VERSIONS.get(name, name)}"
