"""Every recipe is in the file of its name, or in that of its family."""

import inspect

import pytest

from turnout import ALGORITHMS

FAMILIES = {
    "ace": ("aced",),
    "amplified": ("amplified_fedavg", "amplified_scaffold"),
    "baselines": ("average_all", "average_participating", "centralized", "known_statistics", "local"),
    "fedalt": ("fedsim",),
    "fedopt": ("fedadagrad", "fedadam", "fedyogi"),
    "folb": ("folb_heterogeneous", "folb_two_set"),
}
"""Versions of one method, which share its file."""

FILES = {recipe: file for file, recipes in FAMILIES.items() for recipe in recipes}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_recipe_is_in_the_file_of_its_name_or_family(name):
    module = inspect.getmodule(ALGORITHMS[name])
    assert module is not None
    assert module.__name__ == f"turnout.algorithms.{FILES.get(name, name)}"
