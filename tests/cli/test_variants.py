"""Variants of recipes, and seeds."""

from __future__ import annotations

from typing import Any

import pytest

from turnout.cli.layers import override
from turnout.cli.variants import Layers, seeds_of
from turnout.core.checks import ConfigurationError
from turnout.pieces.local import Prox, Sgd
from turnout.pieces.selection import Uniform
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import Participation

FILE: dict[str, Any] = {
    "rounds": 9,
    "seeds": 4,
    "local": {"lr": 0.2},
    "algorithms": {
        "fedau": {},
        "fedau_inf": {"algorithm": "fedau", "cutoff": "none"},
        "average_all": {"server_lr": 10, "local": {"lr": 0.5}, "selection": "uniform", "also": {"prox": {"mu": 1}}},
    },
}


def test_variant_is_a_recipe_with_its_own_name() -> None:
    made = Layers.of([FILE]).settings("fedau_inf").algorithm()
    assert made.name == "fedau_inf"
    assert made.weighting[0] == Participation(cutoff=None)
    assert made.local == Sgd(lr=0.2)


def test_settings_of_one_algorithm_precede_those_of_all_in_a_layer() -> None:
    made = Layers.of([FILE]).settings("average_all").algorithm()
    assert made.server == ServerSgd(10.0)
    assert made.local == Sgd(lr=0.5)
    assert made.selection == Uniform(10)
    assert made.corrections == (Prox(1.0),)
    assert Layers.of([FILE]).settings("average_all").numbers() == {"rounds": 9}


def test_later_layers_have_priority_for_one_and_all() -> None:
    layers = Layers.of([FILE, override("local.lr=0.7"), override("fedau.local.lr=0.9"), override("rounds=3")])
    assert layers.settings("average_all").algorithm().local == Sgd(lr=0.7)
    assert layers.settings("fedau").algorithm().local == Sgd(lr=0.9)
    assert layers.settings("fedau").numbers() == {"rounds": 3}


def test_variant_can_be_written_on_the_command_line() -> None:
    layers = [override("fedau_3.algorithm=fedau"), override("fedau_3.cutoff=3")]
    made = Layers.of(layers, ["fedau", "fedau_3"]).settings("fedau_3").algorithm()
    assert made.weighting[0] == Participation(cutoff=3)
    assert Layers.of(layers, ["fedau", "fedau_3"]).settings("fedau").algorithm().weighting[0] == Participation()


def test_names_follow_the_order_of_layers() -> None:
    assert Layers.of([FILE]).names == ["fedau", "fedau_inf", "average_all"]
    assert Layers.of([{"algorithms": ["mifa", "fedavg"]}]).names == ["mifa", "fedavg"]


def test_algorithms_on_the_command_line_replace_that_of_a_file() -> None:
    file = {"algorithm": {"name": "fedau", "cutoff": 10}}
    assert Layers.of([file], ["fedau"]).settings("fedau").algorithm().weighting[0] == Participation(cutoff=10)
    assert Layers.of([file], ["mifa"]).settings("mifa").algorithm().name == "mifa"


def test_last_layer_determines_the_seeds() -> None:
    assert Layers.of([FILE]).seeds == 4
    assert Layers.of([FILE, {"seeds": "1,2"}, {}]).seeds == "1,2"
    assert Layers.of([{}]).seeds is None
    assert Layers.of([{"to_accuracy": 0.5}, override("to_accuracy=0.75"), {}]).to_accuracy == 0.75
    assert Layers.of([FILE]).to_accuracy is None


@pytest.mark.parametrize("many", [100_000_000, "100000000", "9" * 30])
def test_too_many_seeds_are_refused_immediately(many: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"seeds: got .*, needed at most 10,000"):
        seeds_of(many)


@pytest.mark.parametrize(
    ("written", "seeds"), [(3, [0, 1, 2]), ("3", [0, 1, 2]), ("0,7", [0, 7]), ([4], [4]), ("5,", [5])]
)
def test_seeds_are_a_number_or_a_list(written: Any, seeds: list[int]) -> None:
    assert seeds_of(written) == seeds


@pytest.mark.parametrize("written", ["three", 0, -1, "1,1", [], [1.5], "1,-2", None])
def test_invalid_seeds_are_refused(written: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"needed how many, as in 5, or which, as in 0,3,7"):
        seeds_of(written)


def test_invalid_tables_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"algorithms: got 3, needed a list of names, or a table"):
        Layers.of([{"algorithms": 3}])
    with pytest.raises(ConfigurationError, match=r"fedau: got 3, needed a table of options, or one of them"):
        Layers.of([{"algorithms": {"fedau": 3}}])
    with pytest.raises(ConfigurationError, match=r"unknown algorithm 'fedau_7': did you mean 'fedau'"):
        Layers.of([{"algorithms": ["fedau_7"]}]).settings("fedau_7")
