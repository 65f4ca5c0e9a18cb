"""A finished run frees its memory without the garbage collector."""

import gc
import weakref

import pytest
import torch

import turnout as to
from turnout.population import Speed
from turnout.simulation.simulation import Simulation

from ..tiny import recipe


@pytest.fixture
def without_collector():
    """Disable the garbage collector."""
    # The first derivative of a process loads half of torch, whose exceptions hold on to the frames that were open.
    torch.func.vmap(torch.func.grad(lambda x: x.sum()))(torch.ones(1, 1))
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def left_of(experiment, monkeypatch):
    """Return the objects of a run that are still in memory: simulation, model, data, threads."""
    kept = []

    def remember(self, experiment, *arguments, begin=Simulation.__init__, **options):
        begin(self, experiment, *arguments, **options)
        parts = {"simulation": self, "model": self.objective, "data": self.workspace, "threads": self.objective.threads}
        kept.append({name: weakref.ref(part) for name, part in parts.items()})

    with monkeypatch.context() as patch:
        patch.setattr(Simulation, "__init__", remember)
        experiment.run()
    (parts,) = kept
    return [name for name, part in parts.items() if part() is not None]


KINDS = (
    "mifa",
    "folb_two_set",
    "fednu",
    "scaffold_p",
    "ditto",
    "maxfl",
    "mw_fed",
    "fedadam",
    "fedasync",
)
"""Recipes with every kind of state, memory, phase and driver."""


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.usefixtures("without_collector")
def test_finished_run_is_freed(name, tiny, monkeypatch):
    experiment = to.Experiment(data=tiny, model=to.models.Mlp(hidden=(4,)), algorithm=recipe(name), rounds=2)
    assert left_of(experiment, monkeypatch) == []


@pytest.mark.usefixtures("without_collector")
def test_finished_run_with_a_clock_is_freed(tiny, monkeypatch):
    experiment = to.Experiment(
        data=tiny, model=to.models.Mlp(hidden=(4,)), algorithm=recipe("fedbuff"), rounds=2,
        pace=to.pace.Buffered(buffer_size=2), population=to.Population(speed=Speed()),
    )  # fmt: skip
    assert left_of(experiment, monkeypatch) == []


@pytest.mark.usefixtures("without_collector")
def test_threads_end_with_their_run(tiny, monkeypatch):
    monkeypatch.setattr("turnout.engine.threads.num_processors", lambda: 2)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        experiment = to.Experiment(data=tiny, model=to.models.Mlp(hidden=(4,)), rounds=2, engine="one_by_one")
        assert left_of(experiment, monkeypatch) == []
    finally:
        torch.set_num_threads(before)
