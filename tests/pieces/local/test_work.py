"""Random numbers of local steps or epochs."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout import ConfigurationError, Experiment, Sgd, fedavg, fedprox, folb, models
from turnout.core.types import Task
from turnout.engine.cohort import Clients
from turnout.engine.objective import Objective
from turnout.pieces.local import UniformWork
from turnout.simulation import Simulation

from ...phases import train


def amounts(work, ids, version: int | np.ndarray = 0, seed=0):
    ids = np.asarray(ids)
    return work.amount(Task(torch.zeros(1), version, seed), Clients(ids, ids, None, None))  # type: ignore[arg-type]


def test_amounts_are_uniform():
    draws = np.concatenate([amounts(UniformWork(1, 20), np.arange(500), t) for t in range(40)])
    seen = np.bincount(draws, minlength=21)
    assert seen[0] == 0
    assert len(seen) == 21
    expected = len(draws) / 20
    assert abs(((seen[1:] - expected) ** 2 / expected).sum() - 19) < 4.5 * np.sqrt(2 * 19)


def test_amounts_are_independent_over_clients_and_rounds():
    """No correlation between neighboring clients or rounds."""
    draws = np.array([amounts(UniformWork(1, 20), np.arange(200), t) for t in range(200)], dtype=float)
    draws -= draws.mean()
    for one, other in ((draws[1:], draws[:-1]), (draws[:, 1:], draws[:, :-1])):
        assert abs((one * other).mean() / draws.var()) < 4.5 / np.sqrt(one.size)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 50), st.integers(0, 50), st.integers(0, 10**6), st.integers(0, 10**6))
def test_amounts_stay_within_their_bounds(least, more, version, seed):
    draws = amounts(UniformWork(least, least + more), np.arange(100), version, seed)
    assert draws.dtype == np.int64
    assert least <= draws.min() <= draws.max() <= least + more


def test_draw_depends_only_on_seed_round_and_client():
    work = UniformWork()
    together = amounts(work, np.arange(50), version=3, seed=5)
    assert amounts(work, [7, 31], version=3, seed=5).tolist() == together[[7, 31]].tolist()
    lanes = amounts(work, [7, 7, 7], version=np.array([3, 4, 5]), seed=5)
    assert lanes.tolist() == [int(amounts(work, [7], version=t, seed=5)[0]) for t in (3, 4, 5)]
    assert not np.array_equal(together, amounts(work, np.arange(50), version=4, seed=5))
    assert not np.array_equal(together, amounts(work, np.arange(50), version=3, seed=6))


def test_all_algorithms_see_the_same_draws(tiny):
    local = Sgd(steps=UniformWork(1, 9))
    found = []
    for algorithm in (fedavg(local), fedprox(local, cohort_size=8), folb(local, cohort_size=8)):
        simulation = Simulation(Experiment(tiny, models.Logistic(), algorithm, rounds=3, seed=4))
        steps = []
        for _ in range(3):
            steps.append(train(simulation, np.arange(8)).num_steps.tolist())
            simulation.round()
        found.append(steps)
    assert found[0] == found[1] == found[2]
    assert len(set(map(tuple, found[0]))) == 3


def test_amount_in_epochs_counts_passes_over_own_data(tiny):
    ids = np.array([0, 1, 7])  # 40, 5 and 64 examples
    objective = Objective(models.Logistic().build((16,), 4))
    task = Task(objective.initial, 2, seed=1)
    clients = Clients(ids, ids, tiny.train, objective)
    epochs = UniformWork(1, 4).amount(task, clients)
    memory = {"steps_done": torch.zeros(3, dtype=torch.int64)}
    report = Sgd(steps=None, epochs=UniformWork(1, 4), batch_size=16).train(task, memory, clients, ())
    assert report.num_steps.tolist() == (epochs * [3, 1, 4]).tolist()
    assert memory["steps_done"].tolist() == report.num_steps.tolist()


def test_equal_amounts_give_equal_training(tiny):
    """What varies is the number of steps, and nothing else."""
    ids = np.arange(8)
    clients = Clients(ids, ids, tiny.train, Objective(models.Logistic().build((16,), 4)))
    task = Task(clients.objective.initial, 0, seed=1)

    def trained(steps, rows=ids):
        some = Clients(rows, rows, tiny.train, clients.objective)
        return Sgd(lr=0.3, steps=steps, sampling="fresh").train(task, {}, some, ())

    varied = trained(UniformWork(1, 5))
    assert len(set(varied.num_steps.tolist())) > 2
    for k in ids:
        alone = trained(int(varied.num_steps[k]), ids[k : k + 1])
        assert torch.equal(alone.delta[0], varied.delta[k])
        assert torch.equal(alone.seen["loss"][0], varied.seen["loss"][k])
    assert torch.equal(trained(UniformWork(3, 3)).updates.gathered(), trained(3).updates.gathered())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"least": 0}, "least: got 0, needed a whole number >= 1"),
        ({"least": 2.5}, "least: got 2.5, needed a whole number >= 1"),
        ({"most": 0}, "most: got 0, needed a whole number >= 1"),
        ({"most": True}, "most: got True, needed a whole number >= 1"),
        ({"least": 5, "most": 4}, "most: got 4, needed a whole number >= least = 5"),
    ],
)
def test_invalid_arguments_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        UniformWork(**options)


def test_steps_and_epochs_together_are_refused():
    with pytest.raises(ConfigurationError, match="needed one of them, and None for the other"):
        Sgd(epochs=UniformWork())
    assert Sgd(steps=None, epochs=UniformWork()).epochs == UniformWork(1, 20)
