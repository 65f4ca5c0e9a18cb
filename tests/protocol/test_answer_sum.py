"""Sums of answers with noise are multiples of a grid, and each count is as possible as any other."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from turnout import ConfigurationError
from turnout.core.types import Federation
from turnout.evaluation.queries import Question
from turnout.privacy import Answers
from turnout.privacy.noise import GridNoise
from turnout.protocol.answer_sum import AnswerSum
from turnout.protocol.secure.fixed_point import FixedPoint
from turnout.protocol.secure.masking import Masking

ANSWERS = Answers(noise_multiplier=50.0)
SHAPES = {
    "num_examples": (), "loss": (), "score": (), "appeal_train": (), "appeal_test": (), "client_bins": (20,),
}  # fmt: skip
WIDTHS = {"features": 3, "targets": 1, "classes": 4}
QUESTIONS = [
    Question("count"),
    Question("mean", "targets", bound=1.0),
    Question("variance", bound=2.5, center=0.3),
    Question("histogram", column=1, edges=(-1.0, 0.0, 1.0)),
    Question("label_histogram"),
]


def of_query(adds, question, widths):
    return adds.of_query(question.kind, question.shapes(widths), question.bound)


def known(secret: int | None = 7, dtype=torch.float32):
    return Federation(300, 1, dtype=dtype, secret=secret)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("z", [0.3, 4.0, 50.0])
def test_one_figure_is_consistent_with_every_count(dtype, z):
    """The attack: of 1,000 counts, only the true one was consistent with a published fraction."""
    layout = AnswerSum(None, Answers(noise_multiplier=z)).layout(SHAPES)
    place, grid, rng = list(layout.shapes).index("appeal_test"), layout.grid["appeal_test"], np.random.default_rng(0)
    for trial in range(20):
        number = int(rng.integers(100, 1000))
        vector = np.zeros(layout.size)
        vector[place] = rng.integers(0, number + 1)
        published = float(layout.totals(vector, known(trial, dtype), trial)["appeal_test"] / number)
        counts = np.rint(np.arange(number + 1) / grid) * grid  # each count, rounded to the grid
        steps = (published * number - counts) / grid
        assert (np.abs(steps - np.rint(steps)) < 1e-3).all()


@pytest.mark.parametrize("question", [None, *QUESTIONS], ids=lambda one: getattr(one, "kind", "evaluation"))
@pytest.mark.parametrize("without", [False, True])
def test_sums_with_noise_are_multiples_of_the_grid_for_all_data(question, without):
    adds = AnswerSum(None, replace(ANSWERS, noise_multiplier=2.0))
    layout = adds.layout(SHAPES) if question is None else of_query(adds, question, WIDTHS)
    rng = np.random.default_rng(3)
    vector = np.zeros(layout.size) if without else rng.normal(size=layout.size) * 30
    totals = layout.totals(vector, known(), 0)
    for name, total in totals.items():
        steps = total / layout.grid[name]
        np.testing.assert_allclose(steps, np.rint(steps), rtol=1e-14)
        assert layout.deviations[name] / layout.grid[name] > 2.0**19
    assert totals.keys() == layout.grid.keys()


def test_noise_of_answers_has_the_deviation_of_the_accounting():
    layout = of_query(AnswerSum(None, ANSWERS), Question("variance", bound=1.0), {"features": 3000, "classes": 0})
    noise = layout.server_noise
    assert noise == GridNoise(50.0, layout.norm, 6001)
    total = layout.totals(np.zeros(6001), known(), 0)
    assert float(total["sums"].std()) == pytest.approx(layout.deviations["sums"], rel=0.05)


def test_sums_without_noise_have_no_grid():
    layout = AnswerSum(None, None).layout({"num_examples": (), "loss": ()})
    assert (layout.grid, layout.server_noise) == ({}, None)
    assert layout.totals(np.array([3.0, 1 / 3]), known(None), 0) == {"num_examples": 3.0, "loss": 1 / 3}


def test_noise_of_clients_is_on_the_grid_of_the_masks():
    """With the smallest and the largest answer, a client sends multiples of one step within one range."""
    adds = AnswerSum(Masking(FixedPoint(), 0.6, 3), ANSWERS, shares=4)
    layout = adds.layout({"num_examples": (), "loss": ()})
    code = layout.masking.code
    for answer in (None, {"num_examples": 10**6, "loss": 1e9}):
        numbers = np.concatenate([code.decode(layout.encoded(answer)) for _ in range(200)])
        steps = numbers * 2.0**code.fraction_bits
        assert (steps == np.rint(steps)).all()
        assert np.abs(numbers).max() <= code.largest
        assert abs((steps % 2).mean() - 0.5) < 0.15


@pytest.mark.parametrize("bound", [1e-200, 1e200])
def test_bounds_whose_squares_are_not_finite_are_refused(bound):
    with pytest.raises(ConfigurationError, match=r"bound: got 1e.*, needed a number from 1e-30 to 1e\+09"):
        of_query(AnswerSum(None, ANSWERS), Question("variance", bound=bound), WIDTHS)


@pytest.mark.parametrize(
    ("option", "needed"),
    [("examples", "a whole number of at most 1000000000"), ("largest_loss", r"a number from 1e-30 to 1e\+09")],
)
def test_bounds_of_answers_that_are_not_finite_in_sums_are_refused(option, needed):
    with pytest.raises(ConfigurationError, match=f"{option}: got 10000000000, needed {needed}"):
        Answers(**{option: 10**10})
