"""What a measurement says: every field, and that the sums agree. No test depends on how fast anything is."""

import json
import math
import time

import numpy as np
import pytest
import torch
from tests.tiny import classification
from torch import nn

import turnout as to
from turnout.core.checks import ConfigurationError
from turnout.population import Speed, delay
from turnout.simulation import Simulation
from turnout.workbench.speed import arithmetic, process
from turnout.workbench.speed.measure import measure
from turnout.workbench.speed.stopwatch import Stopwatch, TimedSimulation

PEERS = {
    "peer", "workload", "rounds", "startup_s", "first_round_s", "round_s_median", "round_s_min", "round_s_max", "total_s",
    "client_updates_per_s", "client_updates_per_s_mean", "cpu_s_per_round", "cores_used", "other_cpu_share",
    "peak_rss_mb", "initial_loss", "final_loss", "loss_fell", "loadavg_1m_at_end",
    "malloc_mmap_threshold", "minor_faults", "versions", "threads",
}  # fmt: skip
"""The fields that measurements of other simulators have, too."""


def experiment(**changes):
    options = {
        "data": classification(),
        "model": to.models.Logistic(),
        "algorithm": to.average_participating(to.Sgd(lr=0.1, steps=3, batch_size=8), also=(to.selection.Uniform(3),)),
        "rounds": 6,
        "evaluate_every": 2,
    }
    return to.Experiment(**options | changes)


@pytest.fixture(scope="module")
def found():
    return measure(experiment(), name="tiny", rates=False)


def test_figures_are_complete_and_plain(found):
    assert found.keys() >= PEERS
    assert json.loads(json.dumps(found)) == found
    assert found["engine"] == "vectorized"
    assert found["engine_reason"]
    assert found["parameters"] == 17 * 4


def test_seconds_add_up(found):
    assert found["startup_and_first_round_s"] == pytest.approx(found["startup_s"] + found["first_round_s"], abs=1e-3)
    assert found["round_s_min"] <= found["round_s_median"] <= found["round_s_max"]
    rounds = sum(found["stages_s"][stage] for stage in ("data", "training", "server"))
    assert rounds <= found["total_s"] - found["startup_s"] + 2e-3
    assert found["startup_s"] + found["first_round_s"] + 5 * found["round_s_min"] <= found["total_s"] + 2e-3
    assert rounds >= found["first_round_s"] * 0.9
    assert found["stages_s"]["evaluation"] > 0


def test_updates_a_second_are_the_cohort_over_the_median_round(found):
    assert found["cohort"] == 3
    assert found["client_updates_per_s"] == pytest.approx(3 / found["round_s_median"], rel=0.01)
    low, high = found["client_updates_per_s_quartiles"]
    assert low <= found["client_updates_per_s"] * 1.01
    assert high >= found["client_updates_per_s"] * 0.99


def test_operations_are_those_of_the_local_steps():
    alike = classification(sizes=(20,) * 6)
    found = measure(experiment(data=alike), rates=False)
    assert found["gflop_per_update"] * 1e9 == pytest.approx(3 * 8 * 4 * 16 * 4, abs=501)  # rounded to 1e-6
    small = measure(experiment(data=classification(sizes=(4,) * 6)), rates=False)  # minibatches are what clients have
    assert small["gflop_per_update"] <= 0.6 * found["gflop_per_update"]


def test_losses_are_those_of_the_first_and_of_the_last_model(found):
    history = experiment().run().history
    assert found["initial_loss"] == round(Simulation(experiment()).evaluate()["train_loss"], 5)
    assert found["final_loss"] == round(history.column("train_loss")[1][-1], 5)
    assert found["loss_fell"] is True


def test_excluded_seconds_are_not_in_startup_and_total():
    there = measure(experiment(), rates=False)
    without = measure(experiment(), apart=1000.0, rates=False)
    assert without["startup_s"] < there["startup_s"] - 900
    assert without["total_s"] < there["total_s"] - 900


def test_the_share_of_the_machine_is_the_time_that_the_operations_would_take(monkeypatch):
    monkeypatch.setattr(arithmetic, "matrix_rate", lambda _: 2e8)
    monkeypatch.setattr(arithmetic, "convolution_rate", lambda _: 1e8)
    found = measure(experiment(data=classification(sizes=(20,) * 6)))
    assert (found["matrix_gflops"], found["convolution_gflops"]) == (0.2, 0.1)
    assert found["fraction_of_machine"] == pytest.approx(found["gflops"] / 0.2, abs=3e-3)
    speeds = found["client_updates_per_s_by_engine"]
    assert list(speeds) == ["vectorized", "one_by_one"]
    assert speeds["vectorized"] == found["client_updates_per_s"]
    assert speeds["one_by_one"] > 0


def test_engine_that_cannot_compute_the_model_has_no_speed(monkeypatch):
    monkeypatch.setattr(arithmetic, "matrix_rate", lambda _: 2e8)
    monkeypatch.setattr(arithmetic, "convolution_rate", lambda _: 1e8)
    module = nn.Sequential(nn.Unflatten(1, (4, 4)), nn.RNN(4, 4, batch_first=True), Last())
    speeds = measure(experiment(model=module, rounds=2))["client_updates_per_s_by_engine"]
    assert speeds["one_by_one"] > 0
    assert speeds["vectorized"] is None
    assert "client_updates_per_s_by_engine" not in measure(experiment(engine="vectorized", rounds=2))


class Last(nn.Module):
    def forward(self, outputs):
        return outputs[0][:, -1]


def test_asynchronous_rounds_and_measurements_before_selection_are_timed():
    speed = Speed(delay.Uniform(0.5, 1.5), per="task")
    late = experiment(
        algorithm=to.fedbuff(to.Sgd(lr=0.1, steps=3, batch_size=8)), pace=to.pace.Buffered(buffer_size=2),
        population=to.Population(speed=speed),
    )  # fmt: skip
    found = measure(late, rates=False)
    assert found["cohort"] == 2
    assert found["stages_s"]["training"] > 0
    asked = measure(
        experiment(algorithm=to.folb_two_set(to.Sgd(lr=0.1, steps=3, batch_size=8), cohort_size=3)), rates=False
    )
    assert asked["cohort"] <= 6


def test_too_few_rounds_are_refused():
    with pytest.raises(ConfigurationError, match="rounds: got 1, needed a whole number >= 2"):
        measure(experiment(rounds=1))


def test_timing_changes_no_result():
    timed, plain = TimedSimulation(experiment()), Simulation(experiment())
    for _ in range(3):
        timed.round()
        plain.round()
    assert torch.equal(timed.state.params, plain.state.params)
    before = timed.state.params.clone()
    assert (timed.data_seconds() or 0) > 0
    assert torch.equal(timed.state.params, before)
    assert timed.workers.num_trained == 9


def test_outer_stage_is_paused_during_an_inner_one(monkeypatch):
    now = iter([0.0, 1.0, 3.0, 7.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    watch = Stopwatch()
    with watch.stage("server"), watch.stage("training"):
        pass
    assert watch.seconds == {"training": 2.0, "server": 5.0, "evaluation": 0.0}


def test_rates_are_measured_and_leave_threads_as_they_were():
    before = torch.get_num_threads()
    for rate in (
        arithmetic.matrix_rate("cpu", size=64),
        arithmetic.convolution_rate("cpu", batch=2, channels=4, side=8),
    ):
        assert math.isfinite(rate)
        assert rate > 1e5
    assert torch.get_num_threads() == before


def test_peak_memory_covers_held_arrays():
    before, held = process.peak(), np.ones(64 << 17)
    assert process.peak() >= max(before, held.nbytes / 2**20)


def test_processor_time_and_age_increase():
    usage, age = process.Usage.now(), process.age()
    while process.Usage.now().process < usage.process + 0.02:
        sum(range(10**5))
    assert process.age() > age
    assert age > 0


def test_pages_are_counted():
    before = process.Usage.now().faults
    if before is None:
        pytest.skip("this system does not say how many pages a process was given")
    held = np.ones(64 << 17)
    after = process.Usage.now().faults
    assert after is not None
    assert after >= before + held.nbytes // (4 << 20)  # as many huge pages, at least
