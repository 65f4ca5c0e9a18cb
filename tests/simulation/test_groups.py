"""Buffered groups with masked updates: plain sums up to rounding, and one staleness per group."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

import turnout as to
from turnout import ConfigurationError
from turnout.base import Weighting, Whose
from turnout.pieces.aggregation import PrivateSum, SecureSum
from turnout.protocol.pace import Pace, Training
from turnout.simulation import Simulation

from ..laws.recipes import DATA, LOCAL

FINE = SecureSum(bits=54, fraction_bits=36, largest=64.0, min_clients=2, threshold=0.51)
UNEQUAL = to.speed.Speed(compute=to.delay.Constant(1.0), spread=1.0, per="task")
GROUPS: Pace = to.pace.BufferedGroups(buffer_size=2, group_size=2)


def run(algorithm, pace: Pace = GROUPS, rounds=8, population=None, **options):
    population = population or to.Population(speed=UNEQUAL)
    return to.Experiment(
        DATA, to.models.Logistic(), algorithm, population, pace=pace, rounds=rounds, evaluate_every=4, **options
    )


def finished(experiment):
    simulation = Simulation(experiment)
    for _ in range(experiment.rounds):
        simulation.round()
    return simulation


@dataclass(frozen=True)
class TwiceByStaleness(Weighting):
    """Twice the weight of the fresh, so that a factor which is applied when clients mask and in the step again shows."""

    participation: ClassVar[Whose] = "own"
    reads = "staleness"

    def factors(self, report, version, state, federation):
        del state, federation
        return torch.from_numpy(2.0 / (1.0 + version - report.version))


RECIPES = {
    "twice": lambda also: to.compose(LOCAL, TwiceByStaleness(), to.weighting.DivideByParticipants(), *also),
    "fedbuff": lambda also: to.fedbuff(LOCAL, discount="polynomial", also=also),
    "fedbuff, hinge": lambda also: to.fedbuff(LOCAL, discount="hinge", grace=0, also=also),
    "fedbuff, exponential": lambda also: to.fedbuff(LOCAL, discount="exponential", also=also),
    "fedau": lambda also: to.fedau(LOCAL, cutoff=None, also=also),
    "fedau by staleness": lambda also: to.fedau(LOCAL, cutoff=None, also=(to.weighting.ByStaleness(), *also)),
    "fedavg": lambda also: to.fedavg(LOCAL, also=also),
}


@pytest.fixture(scope="module")
def unweighted():
    """The model after a run in which all updates count the same."""
    return finished(run(to.average_participating(LOCAL))).state.params


@pytest.mark.parametrize("name", RECIPES)
def test_group_sums_equal_plain_sums_up_to_rounding(name, unweighted):
    plain, secure = (finished(run(RECIPES[name](also))) for also in ((), (FINE,)))
    assert plain.history.participation.equals(secure.history.participation)
    staleness = secure.history.rounds["staleness_max"].to_pylist()
    assert max(staleness) >= 2
    assert plain.history.rounds["staleness_mean"].equals(secure.history.rounds["staleness_mean"])
    assert torch.allclose(plain.state.params, secure.state.params, rtol=0, atol=1e-5)
    assert not torch.equal(plain.state.params, unweighted)
    np.testing.assert_allclose(
        plain.history.rounds["weight_sum"].to_numpy(), secure.history.rounds["weight_sum"].to_numpy(), rtol=1e-12
    )


def test_group_of_all_clients_equals_a_round():
    """The same weights, masks and bits."""
    rounds = run(to.fedau(LOCAL, also=(FINE,)), to.pace.Rounds(deadline=1e6))
    groups = run(to.fedau(LOCAL, also=(FINE,)), to.pace.BufferedGroups(buffer_size=1, group_size=8))
    one, other = finished(rounds), finished(groups)
    assert one.history.participation.equals(other.history.participation)
    assert torch.equal(one.state.params, other.state.params)


def test_resumed_run_equals_an_uninterrupted_one(tmp_path):
    """The checkpoint contains groups that are training or in the buffer."""
    population = to.Population(
        to.availability.Bernoulli(mean=0.8), speed=UNEQUAL, dropout=to.behavior.Dropout(0.05), seconds_per_round=2.0
    )
    experiment = run(RECIPES["fedau"]((FINE,)), rounds=12, population=population)
    whole = experiment.run(folder=tmp_path / "whole")
    for rounds in (3, 4, 7, 12):
        part = replace(experiment, rounds=rounds).run(folder=tmp_path / "part", resume=True)
    for name in ("bytes_up", "staleness_mean", "weight_sum", "num_unused", "simulated_seconds", "update_norm"):
        assert part.rounds[name].to_pylist() == whole.rounds[name].to_pylist(), name
    assert part.participation.equals(whole.participation)


def test_dropped_clients_return_and_groups_keep_their_maximum_size():
    population = to.Population(
        to.availability.Bernoulli(mean=0.8), speed=UNEQUAL, dropout=to.behavior.Dropout(0.1), seconds_per_round=3.0
    )
    pace = to.pace.BufferedGroups(buffer_size=1, group_size=3, concurrency=2, deadline=20.0)
    result = run(to.fedbuff(LOCAL, also=(FINE,)), pace, rounds=40, population=population).run()
    sizes = np.array(result.rounds["num_participants"].to_pylist())
    assert sizes.max() <= 3
    assert {2, 3} <= set(sizes.tolist())  # who dropped out before it masked is not in the sum
    assert 1 not in sizes  # of whom a sum is never opened
    assert set(result.participation["client"].to_pylist()) == set(range(8))


def test_unsupported_weights_and_clipped_sums_are_refused():
    with pytest.raises(
        ConfigurationError,
        match=r"Participation weighs a client by the participation of other clients, .* group multiply",
    ):
        run(to.compose(LOCAL, to.weighting.Participation(groups=(0, 1) * 4), to.weighting.DivideByClients(), FINE))
    private = PrivateSum(secure=FINE)
    with pytest.raises(
        ConfigurationError, match="PrivateSum with secure does not support BufferedGroups: clients clip"
    ):
        run(to.fedau(LOCAL, also=(private,)))
    with pytest.raises(
        ConfigurationError, match=r"SecureSum masks .* Rounds.., or BufferedGroups.., whose groups mask"
    ):
        run(to.fedau(LOCAL, also=(FINE,)), to.pace.Buffered(2))
    with pytest.raises(ConfigurationError, match=r"StartGradient|measures before it chooses"):
        run(to.fednu(LOCAL))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"buffer_size": 0}, "buffer_size"),
        ({"group_size": 0}, "group_size"),
        ({"concurrency": 0}, "concurrency"),
        ({"deadline": 0.0}, "deadline"),
        ({"max_staleness": -1}, "max_staleness"),
    ],
)
def test_numbers_out_of_range_are_refused(options, message):
    with pytest.raises(ConfigurationError, match=message):
        to.pace.BufferedGroups(**options)


def test_oversized_buffers_and_earlier_phases_are_refused():
    with pytest.raises(
        ConfigurationError, match=r"buffer_size: got 3 groups of 3 clients, .* there are 8 clients of 9"
    ):
        to.pace.BufferedGroups(3, 3).bind(8)
    with pytest.raises(ConfigurationError, match="begins by training, it cannot measure"):
        to.pace.BufferedGroups(2, 2).bind(8, Training(("measure", "train")))
    with pytest.raises(ConfigurationError, match="begins by training, it cannot continue"):
        to.pace.BufferedGroups(2, 2).bind(8, Training(continues=True))
    bound = to.pace.BufferedGroups(2, 2).bind(8)
    bound.start(0.0)
    bound.chosen(0.0, [3, 4])
    with pytest.raises(ConfigurationError, match="client 4 is in group 1: choose one that is idle"):
        bound.chosen(0.0, [4, 5])


def test_bytes_equal_those_of_sums_within_groups():
    """A client in a group of two sends less than in a group of four, where it has three neighbors."""
    for number in (2, 4):
        pace = to.pace.BufferedGroups(buffer_size=1, group_size=number, concurrency=1)
        simulation = Simulation(run(to.fedbuff(LOCAL, also=(FINE,)), pace, rounds=1))
        simulation.round()
        sizes = [FINE.extra.bytes(phase, number, 272) for phase in FINE.extra.names]
        (train, _) = simulation.messages.of("train")
        up = number * (train + sum(size[0] for size in sizes if size is not None))
        assert simulation.history.rounds["bytes_up"].to_pylist() == [up]
