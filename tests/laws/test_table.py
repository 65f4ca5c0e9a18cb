"""Every recipe joins the table of laws."""

from dataclasses import replace

from turnout import ALGORITHMS
from turnout.pieces.local.sgd import SgdSteps

from .recipes import BASELINES, LOCAL, RECIPES, adamw

OF_THEIR_OWN = ("perfedavg", "mw_fed", "apfl", "pfedme", "fedala")
"""Recipes that change the local rule: what a step is, or how many there are."""


def test_every_algorithm_is_in_the_table_of_laws():
    missing = ALGORITHMS.keys() - RECIPES.keys() - set(BASELINES)
    assert not missing, f"add to RECIPES in tests/laws/recipes.py: {sorted(missing)}"


def test_recipes_take_their_local_rule_and_their_name():
    for name, make in RECIPES.items():
        algorithm = make(LOCAL)
        if name.startswith(OF_THEIR_OWN):
            assert isinstance(algorithm.local, SgdSteps)
            assert (algorithm.local.lr, algorithm.local.batch_size) == (LOCAL.lr, LOCAL.batch_size)
        elif name == "focus":
            assert algorithm.local == replace(LOCAL, lr=0.03)
        elif "adamw" in name:
            assert algorithm.local == adamw(LOCAL)
        else:
            assert algorithm.local is LOCAL
        if name in ALGORITHMS:
            assert algorithm.name == name
