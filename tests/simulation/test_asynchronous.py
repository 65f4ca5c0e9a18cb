"""Asynchronous server steps: reports, costs, and resumption."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from turnout import (
    AfterRound,
    ConfigurationError,
    Experiment,
    Population,
    Sgd,
    average_participating,
    compose,
    fedasync,
    fedau,
    fedavg,
    fedbuff,
    fedstaleweight,
    folb_two_set,
    mifa,
    models,
    mw_fed,
)
from turnout.pieces.local import Scaffold, UniformWork
from turnout.pieces.personalization import Personal
from turnout.pieces.selection import AllAvailable, ByGradientNorm, Uniform, WithReplacement
from turnout.pieces.weighting import ExpectedStaleness
from turnout.population import Dropout, Speed, delay
from turnout.population.availability import Bernoulli
from turnout.population.behavior import Opting
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.pace import Buffered, Rounds
from turnout.record.checkpoint import FILE
from turnout.simulation import Simulation, running
from turnout.simulation.schedule import schedule
from turnout.simulation.work_times import WorkTimes

from ..laws.recipes import assert_same_bits
from ..tiny import SIZES, classification, federation, report

N = len(SIZES)
DATA = classification(features=16, classes=16)
ALIKE = Population(speed=Speed())
UNLIKE = Population(speed=Speed(compute=delay.Uniform(1, 2), spread=1.0, per="task"))
LOCAL = Sgd(lr=0.3, steps=1, batch_size=16)
MODEL = models.Mlp(hidden=(16,), dropout=0.3)
PLAIN: dict[str, Any] = {"model": models.Logistic()}
"""Where only who reports when is looked at, and how much each counts."""


def experiment(algorithm, pace, population=UNLIKE, rounds=8, **options):
    options = {"evaluate_every": 5, "model": MODEL, **options}
    return Experiment(DATA, algorithm=algorithm, population=population, pace=pace, rounds=rounds, **options)


def trained(run, lanes=None):
    simulation = Simulation(run)
    if lanes:
        simulation.workspace.lanes = lanes
    for _ in range(run.rounds):
        simulation.round()
    simulation.finish()
    return simulation


@pytest.mark.parametrize("algorithm", [fedavg(LOCAL), fedstaleweight(LOCAL), fedasync(LOCAL), mifa(LOCAL)])
def test_full_buffer_with_equal_delays_equals_a_synchronous_round(algorithm):
    buffered = trained(experiment(algorithm, Buffered(N, waits="always"), ALIKE))
    rounds = trained(experiment(algorithm, Rounds(), ALIKE))
    np.testing.assert_array_equal(buffered.state.params.numpy(), rounds.state.params.numpy())
    for name in rounds.history.column_names:
        if name not in ("seconds", "simulated_seconds"):
            np.testing.assert_array_equal(buffered.history.column(name), rounds.history.column(name), err_msg=name)
    waiting = buffered.history.column("simulated_seconds")[1]
    np.testing.assert_allclose(waiting, rounds.history.column("simulated_seconds")[1])


def test_all_rules_equal_fedavg_without_staleness():
    plain = trained(experiment(average_participating(LOCAL), Rounds(), ALIKE)).state.params
    for algorithm in (fedstaleweight(LOCAL), fedbuff(LOCAL, discount="polynomial"), fedasync(LOCAL, alpha=1.0)):
        found = trained(experiment(algorithm, Buffered(N, waits="if_current"), ALIKE))
        assert (found.history.column("staleness_max")[1] == 0).all()
        torch.testing.assert_close(found.state.params, plain, rtol=0, atol=1e-6)


@pytest.mark.parametrize("algorithm", [fedstaleweight(LOCAL), fedasync(LOCAL), fedau(LOCAL, also=(Personal(),))])
def test_lanes_do_not_change_results(algorithm):
    run = experiment(algorithm, Buffered(5))
    few, many = trained(run, lanes=2), trained(run)
    torch.testing.assert_close(few.state.params, many.state.params, rtol=0, atol=1e-5)


def test_seed_determines_schedule_and_model():
    run = experiment(fedstaleweight(LOCAL), Buffered(3))
    one, same, other = trained(run), trained(run), trained(replace(run, seed=1))
    assert_same_bits(one, same)
    seconds = [simulation.history.column("simulated_seconds")[1] for simulation in (one, other)]
    assert (seconds[0] != seconds[1]).any()
    assert not torch.equal(one.state.params, other.state.params)


@pytest.mark.parametrize(
    "pace", [Buffered(3, waits="if_current"), Buffered(4, max_staleness=2), Buffered(2, 3, reselect=True)]
)
def test_events_follow_the_schedule(pace):
    population = replace(UNLIKE, dropout=Dropout(0.2))
    found = trained(experiment(fedstaleweight(LOCAL), pace, population, rounds=25, **PLAIN))
    timeline = schedule(pace, population, N, steps=25, num_steps=1)
    history = found.history
    np.testing.assert_allclose(history.column("simulated_seconds")[1].cumsum(), timeline.steps)
    contributions = timeline.contributions()
    for name in ("contributions", "mean_staleness"):
        np.testing.assert_allclose(history.client_column(name), contributions[name], err_msg=name)
    lost = sum(number for outcome, number in timeline.outcomes().items() if outcome != "used")
    assert history.total("num_unused") == lost > 0
    np.testing.assert_allclose(history.client_column("influence").sum(), 1)
    assert history.column("staleness_max")[1].max() > 0
    np.testing.assert_allclose(history.column("weight_sum")[1], 1)
    np.testing.assert_allclose(history.client_column("fair_share"), 1 / N)


def test_equal_weights_give_influence_by_reporting_frequency():
    found = trained(experiment(fedbuff(LOCAL), Buffered(5), rounds=30, **PLAIN)).history
    contributions = found.client_column("contributions")
    assert contributions.max() > 3 * contributions.min()
    np.testing.assert_allclose(found.client_column("influence"), contributions / 150)


@pytest.mark.parametrize("average", ["window", "cumulative", "exponential"])
def test_unnormalized_equation_8_gives_equal_influence(average):
    """At constant speeds, the weights of a client's reports sum to 1 / N per report in the long run."""
    population = Population(speed=Speed(spread=1.0, per="task"))
    timeline = schedule(Buffered(3), population, N, steps=1500)
    client, version = (timeline.tasks[name].reshape(1500, 3) for name in ("client", "version"))
    piece, known = ExpectedStaleness(average=average), federation(N)
    state, total = piece.init(known), np.zeros(N)
    for step in range(1500):
        sent = replace(report(client[step]), version=version[step])
        weights, state = piece.apply(torch.ones(3, dtype=torch.float64), sent, step, state, known)
        np.add.at(total, client[step], weights.numpy())
    shares = timeline.contributions()["share"]
    assert shares.max() > 8 * shares.min()
    np.testing.assert_allclose(total / 4500, 1 / N, rtol=0.05)


def test_normalized_weights_still_bring_the_slow_nearer_to_their_fair_share():
    population = Population(speed=Speed(spread=1.0, per="task"))
    runs = [
        trained(experiment(make(LOCAL), Buffered(5), population, 40, **PLAIN)) for make in (fedbuff, fedstaleweight)
    ]
    plain, fair = (run.history.client_column("influence") for run in runs)
    assert np.abs(fair - 1 / N).sum() < 0.7 * np.abs(plain - 1 / N).sum()


def test_buffer_of_one_steps_with_every_report():
    found = trained(experiment(fedasync(LOCAL), Buffered(1), rounds=20, **PLAIN)).history
    assert (found.column("num_participants")[1] == 1).all()
    assert found.column("staleness_max")[1].max() > 3


def test_models_are_kept_only_as_long_as_somebody_works_from_them():
    run = experiment(fedstaleweight(LOCAL), Buffered(2), rounds=25, **PLAIN)
    simulation = Simulation(run)
    for _ in range(25):
        simulation.round()
        server = simulation.server
        assert server.models.keys() <= simulation.coordinator.scheduler.pace.versions()
        assert len(server.models) <= N


def test_second_task_from_the_same_version_draws_other_minibatches():
    speed, local = Speed(spread=3.0, per="task"), Sgd(lr=0.3, steps=1, batch_size=16, sampling="fresh")
    simulation = Simulation(experiment(fedbuff(local), Buffered(40), Population(speed=speed)))
    reports = simulation.step().reports
    times = np.bincount(reports.client)
    often = int(np.where(DATA.train.sizes > 16, times, 0).argmax())
    deltas = reports.delta[torch.from_numpy(reports.client == often)]
    assert len(deltas) == times[often] > 3
    assert len(torch.unique(deltas, dim=0)) > 1


def test_more_steps_take_longer():
    population = Population(speed=Speed(compute=delay.Constant(2.0)))
    few, more = (
        trained(experiment(fedbuff(replace(LOCAL, **work)), Buffered(N, waits="always"), population, rounds=3))
        for work in ({"steps": 3}, {"steps": UniformWork(5, 5)})
    )
    np.testing.assert_allclose(few.history.column("simulated_seconds")[1], 6)
    np.testing.assert_allclose(more.history.column("simulated_seconds")[1], 10)


def test_rounds_with_a_deadline_continue_without_slow_clients():
    population = replace(UNLIKE, availability=Bernoulli(0.7))
    found = trained(experiment(fedavg(LOCAL), Rounds(deadline=2.0), population, rounds=20, **PLAIN)).history
    assert found.column("simulated_seconds")[1].max() <= 2.0
    assert found.total("num_unused") > 0
    assert (found.column("staleness_max")[1] == 0).all()


@pytest.mark.parametrize("selection", [(), (Uniform(3),)], ids=["everyone", "uniform"])
@pytest.mark.parametrize("speed", [None, UNLIKE.speed], ids=["without a clock", "with one"])
def test_unmissed_deadline_changes_no_bit(selection, speed):
    """Cohorts use the same random numbers in both drivers."""
    algorithm = fedavg(LOCAL, also=selection)
    free = trained(experiment(algorithm, Rounds(), Population(Bernoulli(0.7), speed=speed), rounds=6))
    bound = trained(experiment(algorithm, Rounds(deadline=1e9), replace(UNLIKE, availability=Bernoulli(0.7)), rounds=6))
    assert torch.equal(free.state.params, bound.state.params)
    assert free.history.participation == bound.history.participation


def test_round_uses_the_fastest_of_an_enlarged_cohort():
    algorithm = fedavg(LOCAL, also=(Uniform(4),))
    found = trained(experiment(algorithm, Rounds(over_selection=1.5), rounds=10, **PLAIN)).history
    assert (found.column("num_participants")[1] == 4).all()
    assert (found.column("num_unused")[1] == 2).all()


def carried(part):
    return part.state_groups() if isinstance(part, Coordinator) else part.state()


class PowerCutError(Exception):
    """Replace anything that ends a process."""


@pytest.mark.parametrize(
    ("algorithm", "pace"),
    [
        (fedstaleweight(LOCAL), Buffered(3, waits="if_current")),
        (fedstaleweight(LOCAL, average="exponential"), Buffered(4, max_staleness=3)),
        (fedasync(LOCAL), Buffered(1, concurrency=5, reselect=True)),
        (fedau(LOCAL, also=(Personal(),)), Buffered(5)),
        (fedavg(LOCAL), Rounds(deadline=2.5)),
    ],
)
def test_resumed_run_equals_an_uninterrupted_one(algorithm, pace, tmp_path):
    population = replace(UNLIKE, availability=Bernoulli(0.8), seconds_per_round=3.0, dropout=Dropout(0.1))
    run = experiment(algorithm, pace, population)
    run.run(tmp_path / "whole", checkpoint_every=3)

    def cut(row):
        if row["round"] == 5:
            raise PowerCutError

    with pytest.raises(PowerCutError):
        run.run(tmp_path / "cut", checkpoint_every=3, callbacks=[AfterRound(cut)])
    run.run(tmp_path / "cut", resume=True)
    whole, cut_off = Simulation(run), Simulation(run)
    running.restore(whole, tmp_path / "whole")
    running.restore(cut_off, tmp_path / "cut")
    assert_same_bits(cut_off, whole)
    for part in ("driver", "coordinator"):
        one, other = (carried(getattr(simulation, part)) for simulation in (whole, cut_off))
        assert one.keys() == other.keys()
        for name, state in one.items():
            for key, value in state.items():
                np.testing.assert_array_equal(other[name][key], value, err_msg=f"{name}.{key}")


def test_runs_of_versions_without_pace_resume(tmp_path):
    run = experiment(fedavg(LOCAL), Rounds(), Population(), rounds=3)
    run.run(tmp_path)
    with safe_open(tmp_path / FILE, framework="pt") as file:
        facts = json.loads(file.metadata()["facts"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    assert facts["experiment"].pop("pace")["kind"] == "Rounds"
    save_file(tensors, tmp_path / FILE, metadata={"facts": json.dumps(facts)})
    (tmp_path / "SHA256SUMS").unlink()
    assert replace(run, rounds=5).run(tmp_path, resume=True).rounds.num_rows == 5


@pytest.mark.parametrize("pace", [Buffered(5, waits="always"), Rounds(over_selection=1.1)])
def test_infinitely_slow_federation_is_refused(pace):
    population = Population(speed=Speed(compute=delay.Pareto(shape=1e-4)))
    with pytest.raises(
        ConfigurationError, match=r"no event will follow second .*: all open tasks take infinitely long"
    ):
        trained(
            experiment(fedbuff(LOCAL) if isinstance(pace, Buffered) else fedavg(LOCAL), pace, population, rounds=200)
        )


def test_end_of_events_is_that_of_the_last_one(monkeypatch):
    """Half of the clients report after a second, and the others never."""
    ends = {0: math.inf, 1: 1.0}
    monkeypatch.setattr(WorkTimes, "next", lambda _, clients, *__: [ends[client % 2] for client in clients])
    with pytest.raises(ConfigurationError, match="no event will follow second 1:"):
        trained(experiment(fedavg(LOCAL), Rounds(over_selection=1.1), Population(speed=Speed()), rounds=2))


BUFFER = Buffered(3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"population": Population(), "pace": Rounds(deadline=1.0)},
            "Rounds runs in virtual time, and the population has no speed",
        ),
        ({"algorithm": fedavg(also=(ByGradientNorm(3),))}, "ByGradientNorm measures before it chooses"),
        (
            {"algorithm": fedavg(also=(Uniform(3),))},
            "Uniform chooses the cohort of a round, and with Buffered the order",
        ),
        ({"algorithm": fedavg(also=(WithReplacement(3),))}, "WithReplacement chooses the cohort of a round"),
        ({"algorithm": folb_two_set(cohort_size=3)}, "TwoCohorts"),
        (
            {"algorithm": fedavg(also=(WithReplacement(3),)), "pace": Rounds(over_selection=1.3)},
            "over_selection: WithReplacement cannot be enlarged",
        ),
        (
            {"algorithm": compose(Scaffold())},
            r"of a vector \(control\) minus the client's own; these corrections cancel",
        ),
        (
            {"algorithm": mw_fed(also=(AllAvailable(),))},
            "MultiplicativeWeights tells clients what depends on all reports so far",
        ),
        ({"population": replace(UNLIKE, opting=Opting())}, "opting: clients judge the model of every round"),
        ({"population": replace(UNLIKE, availability=Bernoulli(0.5))}, "seconds_per_round=..."),
        ({"pace": Buffered(3, concurrency=99)}, "concurrency: got 99"),
        ({"pace": "buffered"}, r"pace must be a Pace, got 'buffered': write Rounds\(\) or Buffered"),
    ],
)
def test_invalid_arguments_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        Simulation(Experiment(DATA, MODEL, **{"algorithm": fedavg(), "population": UNLIKE, "pace": BUFFER, **options}))


def test_only_buffered_pace_has_unequal_speeds_by_default():
    from turnout.population.speed.distributions import UNEQUAL

    made = Experiment(DATA, MODEL, fedavg(), pace=BUFFER)
    assert made.population.speed == UNEQUAL
    assert Experiment(DATA, MODEL, fedavg(), population=UNLIKE, pace=BUFFER).population.speed == UNLIKE.speed
    assert Experiment(DATA, MODEL, fedavg()).population.speed is None
