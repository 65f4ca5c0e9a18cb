"""Every recipe joins the table of laws."""

from turnout import ALGORITHMS

from .recipes import LOCAL, RECIPES


def test_every_algorithm_is_in_the_table_of_laws():
    missing = ALGORITHMS.keys() - RECIPES.keys()
    assert not missing, f"add to RECIPES in tests/laws/recipes.py: {sorted(missing)}"


def test_recipes_take_their_local_rule_and_their_name():
    for name, make in RECIPES.items():
        algorithm = make(LOCAL)
        assert algorithm.local is LOCAL
        if name in ALGORITHMS:
            assert algorithm.name == name
