"""A run is the same, bit for bit, however many threads share it."""

import pytest
import torch

import turnout as to
from turnout.engine import threads as crew
from turnout.engine.compile import compiled as replay
from turnout.pieces.local.work import UniformWork
from turnout.simulation import Simulation

SETTINGS = {
    "logistic": (to.models.Logistic(), "auto", to.Sgd(lr=0.1, steps=4, batch_size=8), ()),
    "unequal work": (
        to.models.Mlp(hidden=(9,)),
        "auto",
        to.Sgd(steps=UniformWork(1, 4), batch_size=8),
        (to.local.Prox(0.1),),
    ),
    "control variates": (to.models.Logistic(), "auto", to.Sgd(lr=0.1, steps=3, momentum=0.5), (to.local.Scaffold(),)),
    "one by one": (to.models.Mlp(hidden=(9,), dropout=0.3), "one_by_one", to.Sgd(lr=0.1, steps=3), ()),
    "adapting": (to.models.Logistic(), "auto", to.local.Meta(lr=0.1, steps=3, hessian="difference"), ()),
}


def run(name, monkeypatch, threads):
    monkeypatch.setattr(crew, "num_processors", lambda: threads)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)  # the first evaluation sets what the line above says
    model, engine, local, also = SETTINGS[name]
    data = to.data.digits().split(to.partition.Dirichlet(alpha=0.5), num_clients=12)
    algorithm = to.average_participating(local, also=(to.selection.Uniform(7), *also))
    simulation = Simulation(to.Experiment(data=data, model=model, algorithm=algorithm, engine=engine, rounds=2))
    monkeypatch.undo()
    assert simulation.objective.threads.num_threads == threads
    return simulation


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("traced", [False, True])
def test_same_bits_with_any_number_of_threads(name, traced, monkeypatch):
    results = []
    for threads in (1, 3):  # the cohort of seven in parts of two sizes
        simulation = run(name, monkeypatch, threads)
        monkeypatch.setattr(crew, "_LEAST", 1)  # cut even the smallest cohort
        monkeypatch.setattr(replay, "_CALLS", 0 if traced else 10**9)
        for _ in range(2):
            simulation.round()
        results.append((simulation.state.params, simulation.row["train_loss"], simulation.row["test_accuracy"]))
        monkeypatch.undo()
    for params, *figures in results[1:]:
        assert torch.equal(params, results[0][0])
        assert figures == list(results[0][1:])
