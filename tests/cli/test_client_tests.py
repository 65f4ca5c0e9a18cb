"""With personal models, all compared algorithms are evaluated on clients' own test examples."""

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
    "local",
)
PARTS = {"local": "all", "ditto": None, "apfl": None, "pfedme": None, "fedala": None}
"""The personal parts that no model determines; None is a model of one's own beside the shared one."""


def shares(settings):
    data = settings.table["data"]
    return data.get("test_fraction"), data.get("client_test_fraction")


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_personalized_algorithms_have_client_tests(name):
    settings = Settings.of({"algorithm": name})
    assert (settings.algorithm().personal is not None) == (name in PERSONAL)
    assert shares(settings) == ((0.0, 0.2) if name in PERSONAL else (None, None))


def test_examples_of_an_official_test_are_given_to_clients():
    """Algorithms without a personal part were tested on the official test, and others on clients' own examples."""
    layers = Layers.of([{"data": "cifar10"}], ["fedavg", "ditto"])
    for settings in layers.plan(["fedavg", "ditto"]).values():
        assert shares(settings) == (0.0, 0.2)
        assert settings.table["data"]["official_test"] == "pool"
    kept = {"official_test": "keep", "test_fraction": None, "name": "cifar10"}
    assert shares(Settings.of({"algorithm": "fedsim", "data": kept})) == (None, 0.2)


def test_data_without_client_tests_by_default_stay_so():
    assert shares(Settings.of({"algorithm": "fedsim", "data": "shakespeare"})) == (None, None)


def test_explicit_settings_have_priority():
    layer = {"algorithm": "fedsim", "data": {"client_test_fraction": 0.4, "test_fraction": 0.1}}
    assert shares(Settings.of(layer)) == (0.1, 0.4)


def test_personal_parameters_add_client_tests():
    settings = Settings.of({"algorithm": "fedau", "also": {"personal": {"parameters": "first"}}})
    assert shares(settings) == (0.0, 0.2)


def test_compared_algorithms_share_the_evaluation():
    layers = Layers.of([{}], ["fedavg", "scaffold_p"])
    assert {shares(settings) for settings in layers.plan(["fedavg", "scaffold_p"]).values()} == {(0.0, 0.2)}
    assert shares(layers.plan(["fedavg"])["fedavg"]) == (None, None)


@pytest.mark.parametrize("name", PERSONAL)
def test_split_model_determines_its_personal_part(name):
    algorithm = Settings.of({"algorithm": name, "data": "digits_binary"}).algorithm()
    assert getattr(algorithm.personal, "parameters", None) == PARTS.get(name, "personal")


def test_explicit_settings_of_the_split_model_have_priority():
    personal = {"algorithm": {"name": "fedsim", "personal": "shared"}, "data": "digits_binary"}
    assert Settings.of(personal).algorithm().personal == Personal("shared")
    assert (
        Settings.of({"algorithm": "fedsim", "data": "digits_binary", "model": "mlp"}).algorithm().personal == Personal()
    )


def test_baselines_are_compared_on_client_tests():
    plan = Layers.of([{}]).plan(["fedavg", "centralized"])
    assert {shares(settings) for settings in plan.values()} == {(0.0, 0.2)}
    assert Layers.of([{}]).plan(["fedavg"])["fedavg"].table["data"].get("client_test_fraction") is None
