"""What is personal is judged by clients' own test examples, and then so is everything that is compared with it."""

import pytest

from turnout.algorithms import ALGORITHMS
from turnout.cli.settings import Settings
from turnout.cli.variants import Layers
from turnout.pieces.personalization import Personal

PERSONAL = (
    "fedavg_p",
    "scaffold_p",
    "fedsim",
    "fedalt",
    "fedrep",
    "fedper",
    "fedbn",
    "ditto",
    "apfl",
    "pfedme",
    "fedala",
    "fedbabu",
)
WHOLE = ("ditto", "apfl", "pfedme", "fedala")  # a model of one's own beside the shared one


def shares(settings):
    data = settings.table["data"]
    return data.get("test_fraction"), data.get("client_test_fraction")


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_algorithms_with_a_personal_part_have_tests_at_clients(name):
    settings = Settings.of({"algorithm": name})
    assert (settings.algorithm().personal is not None) == (name in PERSONAL)
    assert shares(settings) == ((0.0, 0.2) if name in PERSONAL else (None, None))


def test_an_official_test_split_stays_beside_them():
    assert shares(Settings.of({"algorithm": "fedsim", "data": "cifar10"})) == (None, 0.2)
    assert shares(Settings.of({"algorithm": "fedsim", "data": "shakespeare"})) == (None, None)


def test_what_is_written_goes_before():
    layer = {"algorithm": "fedsim", "data": {"client_test_fraction": 0.4, "test_fraction": 0.1}}
    assert shares(Settings.of(layer)) == (0.1, 0.4)


def test_any_algorithm_gets_them_with_a_personal_part():
    settings = Settings.of({"algorithm": "fedau", "also": {"personal": {"parameters": "first"}}})
    assert shares(settings) == (0.0, 0.2)


def test_what_is_compared_is_judged_alike():
    layers = Layers.of([{}], ["fedavg", "scaffold_p"])
    assert {shares(settings) for settings in layers.plan(["fedavg", "scaffold_p"]).values()} == {(0.0, 0.2)}
    assert shares(layers.plan(["fedavg"])["fedavg"]) == (None, None)


@pytest.mark.parametrize("name", PERSONAL)
def test_the_model_in_two_parts_says_which_is_personal(name):
    algorithm = Settings.of({"algorithm": name, "data": "digits_binary"}).algorithm()
    assert getattr(algorithm.personal, "parameters", None) == (None if name in WHOLE else "personal")


def test_what_is_written_of_the_model_in_two_parts_goes_before():
    personal = {"algorithm": {"name": "fedsim", "personal": "shared"}, "data": "digits_binary"}
    assert Settings.of(personal).algorithm().personal == Personal("shared")
    assert (
        Settings.of({"algorithm": "fedsim", "data": "digits_binary", "model": "mlp"}).algorithm().personal == Personal()
    )
