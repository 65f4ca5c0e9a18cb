"""Options of pieces from their signatures, and conversion of values."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.algorithms import ALGORITHMS
from turnout.base.algorithm import Algorithm
from turnout.cli.names import AVAILABILITY, PARTITIONS
from turnout.cli.options import REQUIRED, build, convert, needed, options_of
from turnout.core.checks import ConfigurationError, DataError, refuse
from turnout.core.schedule import Cosine, Halving, Schedule
from turnout.data.source import Source
from turnout.experiment import Experiment
from turnout.pieces.local import Sgd
from turnout.pieces.personalization.partial import Personal
from turnout.population import Cyclic


@pytest.mark.parametrize(
    ("hint", "given", "expected"),
    [
        (int, "10", 10),
        (int, 10.0, 10),
        (float, "0.5", 0.5),
        (float, 1, 1.0),
        (bool, "true", True),
        (bool, False, False),
        (str, "cuda:1", "cuda:1"),
        (int | None, "none", None),
        (int | None, "None", None),
        (int | None, "inf", None),
        (int | None, float("inf"), None),
        (int | None, None, None),
        (int | None, "7", 7),
        (tuple[int, ...], "64,30", (64, 30)),
        (tuple[int, ...], [64, 30], (64, 30)),
        (tuple[int, ...], 64, (64,)),
        (tuple[float, ...] | None, "0.1, 1", (0.1, 1.0)),
        (int | tuple[int, ...], "32", 32),
        (int | tuple[int, ...], "32,64", (32, 64)),
        (tuple[int, ...] | str | None, "4,8", (4, 8)),
        (tuple[int, ...] | str | None, "ranks.csv", "ranks.csv"),
        (Literal["pass", "fresh"], "fresh", "fresh"),
        (str | os.PathLike[str] | None, "/data", "/data"),
        (str | tuple[float, ...] | Any, "trace.csv", "trace.csv"),
        (str | tuple[float, ...] | Any, [1, 2], (1.0, 2.0)),
        (float | Schedule, 0.1, 0.1),
        (
            float | Schedule,
            {"kind": "halving", "initial": "0.1", "start": 5, "every": 2},
            Halving(0.1, start=5, every=2),
        ),
        (float | Schedule, {"kind": "cosine", "initial": 1, "rounds": 9}, Cosine(1.0, rounds=9)),
        (Sgd | None, {"lr": 0.3, "steps": "2"}, Sgd(lr=0.3, steps=2)),
    ],
)
def test_values_are_converted_to_the_annotated_type(hint: Any, given: Any, expected: Any) -> None:
    made = convert(hint, given, "place")
    assert made == expected
    assert type(made) is type(expected)


@pytest.mark.parametrize(
    ("hint", "given", "message"),
    [
        (int | None, "ten", "place: got 'ten', needed a whole number, or none"),
        (int, "none", "place: got 'none', needed a whole number"),
        (int, 2.5, "place: got 2.5, needed a whole number"),
        (int, True, "place: got True, needed a whole number"),
        (float, "fast", "place: got 'fast', needed a number"),
        (bool, "maybe", "place: got 'maybe', needed true or false"),
        (str, 3, "place: got 3, needed a text"),
        (tuple[int, ...], "a,b", "place: got 'a,b', needed a list of whole numbers"),
        (tuple[float, ...], {}, "place: got {}, needed a list of numbers"),
        (Literal["pass", "fresh"], "slow", "unknown value of place 'slow'"),
        (
            float | Schedule,
            "x",
            "place: got 'x', needed a number, or 'by_step' or 'cosine' or 'halving'",
        ),
        (float | Schedule, {"kind": "halvin"}, "unknown schedule 'halvin': did you mean 'halving'"),
        (
            float | Schedule,
            {"initial": 1},
            "place.kind: got None, needed the name of a schedule: by_step, cosine, halving",
        ),
        (float | Schedule, {"kind": "cosine", "initial": 1}, "place.rounds is missing: needed a whole number"),
        (float | Schedule, {"kind": "cosine", "initial": -1, "rounds": 2}, "place.initial: got -1.0, needed"),
        (Sgd | None, 3, "place: got 3, needed a table of options, or none"),
        (Sgd | None, {"lr": "x"}, "place.lr: got 'x', needed a number"),
        (Sgd | None, {"lrr": 1}, "unknown option 'place.lrr' of Sgd: did you mean 'lr'"),
    ],
)
def test_value_of_wrong_type_is_refused(hint: Any, given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        convert(hint, given, "place")
    assert message in str(caught.value)


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_text_and_number_give_the_same_option(number: float) -> None:
    assert convert(float, str(number), "x") == convert(float, number, "x")


def test_options_are_the_parameters_of_the_signature() -> None:
    assert {name: option.default for name, option in options_of(ALGORITHMS["known_statistics"]).items()} == {
        "local": None,
        "rates": None,
        "cohort_size": None,
        "server_lr": 1.0,
    }
    assert set(options_of(Experiment)) == {
        "rounds", "seed", "evaluate_every", "evaluation_examples", "label_groups", "appeal", "gradients", "engine", "device",
        "memory_budget", "record_weights", "metrics", "class_weights", "evaluate_share", "precision", "statistics",
    }  # fmt: skip
    assert "partition" not in options_of(Source.split)
    assert options_of(AVAILABILITY["trace"])["table"].default is REQUIRED


def test_parameter_that_accepts_a_function_is_an_option() -> None:
    assert "parameters" in options_of(Personal)
    assert build(Personal, {"parameters": "first"}, "also.personal") == Personal("first")


def test_inherited_dataclass_fields_are_options() -> None:
    assert {"mean", "floor", "period"} <= set(options_of(Cyclic))


@pytest.mark.parametrize("piece", [*AVAILABILITY.values(), *PARTITIONS.values()])
def test_every_option_of_every_piece_can_be_written(piece: Any) -> None:
    import inspect

    assert set(options_of(piece)) == set(inspect.signature(piece).parameters)


def test_new_recipe_needs_only_its_signature() -> None:
    @dataclass(frozen=True)
    class Part:
        size: int = 1

    def recipe(*, part: Part | None = None, strength: float, also: tuple[Algorithm, ...] = ()) -> Any:
        return part, strength, also

    recipe.__annotations__["part"] = Part | None
    assert set(options_of(recipe)) == {"part", "strength"}
    made = build(recipe, {"strength": "2", "part": {"size": "3"}}, "algorithm", also=())
    assert made == (Part(3), 2.0, ())


def test_unknown_option_suggests_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown option 'a.cutof' of fedau: did you mean 'cutoff'\?"):
        build(ALGORITHMS["fedau"], {"cutof": 1}, "a")


def test_unknown_option_of_a_piece_without_options_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown option 'a.x' of Everyone: it has no options"):
        build(AVAILABILITY["everyone"], {"x": 1}, "a")


def test_missing_option_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"availability.table is missing: needed a text, or a list"):
        build(AVAILABILITY["trace"], {}, "availability")


def test_errors_of_a_piece_name_the_setting() -> None:
    with pytest.raises(ConfigurationError, match=r"^local.lr: got -1.0, needed a finite number > 0"):
        build(Sgd, {"lr": -1}, "local")
    with pytest.raises(
        ConfigurationError, match=r"^local: steps and epochs: got steps=5 and epochs=1, needed one of them"
    ):
        build(Sgd, {"epochs": 1}, "local")


def test_errors_keep_their_type() -> None:
    def piece(size: int) -> None:
        raise DataError(f"size: got {size}")

    with pytest.raises(DataError, match=r"^data.size: got 3"):
        build(piece, {"size": 3}, "data")


def test_top_level_errors_name_no_section() -> None:
    def piece(size: int) -> None:
        raise refuse("size", given=size, needed="more")

    with pytest.raises(ConfigurationError, match=r"^size: got 3, needed more"):
        build(piece, {"size": 3}, "")


def test_types_are_described_in_words() -> None:
    assert needed(int | float | None) == "a whole number, a number, or none"
    assert needed(tuple[tuple[int, int], ...]) == "a list, each a list of whole numbers"
