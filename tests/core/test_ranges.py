"""Types of options with a range."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
import torch

from turnout import Sgd
from turnout.core.checks import ConfigurationError
from turnout.core.other_names import ExplainsArguments
from turnout.core.ranges import Count, Decay, NotNegative, Positive, Probability, Share, Whole
from turnout.core.schedule import Halving, StepSize

if TYPE_CHECKING:
    from pathlib import Path as Unknown


@dataclass(frozen=True)
class Piece(ExplainsArguments):
    count: Count = 1
    whole: Whole = 0
    positive: Positive | None = 1.0
    not_negative: NotNegative = 0.0
    probability: Probability = 1.0
    decay: Decay = 0.0
    lr: StepSize = 0.1
    path: Unknown | None = None
    share: Share = 1.0
    engine: Literal["vectorized", "one_by_one"] = "vectorized"
    bits: Literal[2, 4, 8] | None = 4
    weights: Literal["balanced"] | tuple[float, ...] = "balanced"


@dataclass(frozen=True)
class Derived(Piece):
    count: int = 2
    more: Count = 1


@pytest.mark.parametrize(
    ("name", "value", "needed"),
    [
        ("count", 0, "a whole number >= 1"),
        ("whole", -1, "a whole number >= 0"),
        ("positive", 0.0, "a finite number > 0"),
        ("not_negative", -1e-9, "a finite number >= 0"),
        ("probability", 1.1, "a probability, 0 <= value <= 1"),
        ("decay", 1.0, "a number >= 0 and < 1"),
        ("lr", 0.0, "a finite number > 0"),
        ("count", None, "a whole number >= 1"),
        ("share", 0.0, "a number > 0 and <= 1"),
        ("share", True, "a number > 0 and <= 1"),
    ],
)
@pytest.mark.parametrize("piece", [Piece, Derived])
def test_values_out_of_range_are_refused(piece, name, value, needed):
    with pytest.raises(ConfigurationError, match=f"^{name}: got {value!r}, needed {needed}$"):
        piece(**{name: value})
    with pytest.raises(ConfigurationError, match=f"^{name}: "):
        replace(piece(), **{name: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"engine": "one"},
            r"unknown value of engine 'one': did you mean 'one_by_one'\? \(known: one_by_one, vectorized\)",
        ),
        ({"engine": None}, "unknown value of engine None: known: vectorized, one_by_one"),
        ({"bits": 3}, "unknown value of bits 3: known: 2, 4, 8"),
        ({"bits": "4"}, "unknown value of bits '4': known: 2, 4, 8"),
    ],
)
@pytest.mark.parametrize("piece", [Piece, Derived])
def test_values_that_a_literal_lacks_are_refused(piece: type, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{message}$"):
        piece(**options)


def test_values_in_range_are_accepted():
    made = Piece(1, 0, None, 0.0, 0.0, 0.0, Halving(0.1, start=0, every=1))
    assert made.positive is None
    assert Piece(engine="vectorised", bits=None, weights=(0.5, 0.5)).bits is None  # type: ignore[arg-type]
    assert Piece(path="anything").path == "anything"  # pyright: ignore[reportArgumentType]


def test_arguments_by_position_and_of_subclasses_are_checked():
    with pytest.raises(ConfigurationError, match=r"^whole: got -1"):
        Piece(1, -1)
    with pytest.raises(ConfigurationError, match=r"^more: got 0"):
        Derived(more=0)


@pytest.mark.parametrize("value", [np.array(["pass", "fresh"]), torch.tensor([1, 2]), ["pass"], None])
def test_values_of_other_kinds_are_refused_by_the_values_of_a_literal(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"unknown value of sampling .*: known: pass, fresh"):
        Sgd(sampling=value)
