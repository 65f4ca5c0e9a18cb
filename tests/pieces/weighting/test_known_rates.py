"""Weights by known participation rates."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tests.logs import logged
from tests.tiny import federation, report

from turnout import ConfigurationError, Experiment, Population, known_statistics, models
from turnout.pieces.selection import Uniform
from turnout.pieces.weighting import KnownRates
from turnout.population.availability import Bernoulli, Trace
from turnout.population.behavior import Dropout
from turnout.population.speed import Speed
from turnout.protocol.pace import Rounds
from turnout.simulation import Simulation

GIVEN = (0.5, 0.25, 1.0, 0.1)


@pytest.mark.parametrize(
    ("piece", "known"), [(KnownRates(GIVEN), None), (KnownRates(), GIVEN), (KnownRates(GIVEN), (1.0,) * 4)]
)
def test_divides_by_the_rates(piece, known):
    fed = federation(4, rates=known)
    state = piece.init(fed)
    weights, _ = piece.apply(torch.tensor([1.0, 2.0]).double(), report([3, 1]), 0, state, fed)
    np.testing.assert_allclose(weights, [10.0, 8.0])
    np.testing.assert_allclose(piece.client_weights(0, state, fed), [2, 4, 1, 10])


@pytest.mark.parametrize(
    ("piece", "known", "message"),
    [
        (
            KnownRates(),
            None,
            r"needs the participation rate .* it is unknown .*write rates=\(...\), .* or use fedau, which estimates it",
        ),
        (KnownRates((0.5, 0.5)), None, "2 participation rates were given for 4 clients"),
        (KnownRates((0.5, 0.0, 0.5, 0.5)), None, "rate of client 1 is 0.0; 1/p needs 0 < p <= 1: raise the floor"),
        (KnownRates((0.5, 0.5, 1.5, 0.5)), None, "rate of client 2 is 1.5"),
        (KnownRates((0.5, 0.5, 0.5, float("nan"))), None, "rate of client 3 is nan"),
        (KnownRates(), (0.5, 0.5, 0.5, 0.0), "rate of client 3 is 0.0"),
    ],
)
def test_invalid_arguments_raise(piece, known, message):
    with pytest.raises(ConfigurationError, match=message):
        piece.init(federation(4, rates=known))


def test_partial_selection_makes_rates_unknown(tiny):
    with pytest.raises(ConfigurationError, match="a selection of only some of the available clients"):
        Simulation(Experiment(tiny, models.Logistic(), known_statistics(also=(Uniform(2),))))


@pytest.mark.parametrize(
    "options",
    [
        {"population": Population(Bernoulli(), speed=Speed(), dropout=Dropout(probability=0.5))},
        {"population": Population(Bernoulli(), speed=Speed()), "pace": Rounds(deadline=100.0)},
        {"population": Population(Bernoulli(), speed=Speed()), "pace": Rounds(quorum=2)},
    ],
)
def test_rates_of_availability_that_are_not_those_of_participation_are_named(tiny: Any, options: Any) -> None:
    run = partial(Experiment, tiny, models.Logistic(), rounds=2)
    with logged("known_statistics takes the rates of availability for those of participation, which are lower where"):
        run(known_statistics(), **options).run()
    for other in (
        run(known_statistics(rates=(0.1,) * 8), **options),
        run(known_statistics(), Population(Bernoulli(), Speed())),
    ):
        with pytest.raises(AssertionError, match="nothing was logged"), logged("takes the rates of availability"):
            other.run()


def test_trace_provides_its_rates(tiny):
    rows = tuple((k, 0, k + 1) for k in range(8))
    simulation = Simulation(Experiment(tiny, models.Logistic(), known_statistics(), Population(Trace(rows))))
    inverse = simulation.state.slots["weighting.0"]["inverse"]
    np.testing.assert_allclose(inverse, 8 / np.arange(1, 9))
