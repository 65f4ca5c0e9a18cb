"""A model that is handed over, saved, loaded or exported computes what was evaluated, for every recipe and every client."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import turnout as to
from turnout.base.algorithm import Algorithm
from turnout.pieces.local import Sgd
from turnout.record import checkpoint
from turnout.result import Result
from turnout.simulation import Simulation, running

from .recipes import DATA, DEVICE, RECIPES, N, experiment

X = DATA.train.x[:7]
CLIENTS = (0, 3, N - 1)


def outputs(simulation, vector):
    """What the engine evaluates at a vector."""
    network = simulation.objective.network
    network.mode(training=False)
    return network.outputs(vector, X.to(DEVICE)).detach().cpu()


def assert_serves(module, expected):
    """The module has these outputs on a batch."""
    assert not module.training
    torch.testing.assert_close(module(X), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", RECIPES)
def test_models_that_are_handed_over_compute_what_was_evaluated(name, tmp_path):
    run = experiment(name, rounds=2)
    simulation = Simulation(run)
    for _ in range(run.rounds):
        simulation.round()
    simulation.finish()
    running.save_simulation(simulation, tmp_path / "run", finished=True)
    result, loaded = Result.of(simulation), to.load(tmp_path / "run", model=run.build_model())
    algorithm: Algorithm = run.algorithm
    served = [(k, simulation.models.serving(np.array([k]))[0]) for k in CLIENTS] if algorithm.personal else []
    shared = simulation.models.params
    models = [(None, torch.cat([shared, simulation.objective.initial[len(shared) :]])), *served]
    for client, vector in models:
        expected = outputs(simulation, vector)
        for source in (result, loaded):
            assert_serves(source.model if client is None else source.personal_model(client), expected)
        file = loaded.export(tmp_path / f"{client}.safetensors", client=client)
        module = run.build_model().eval()
        if "base" in run.algorithm.aggregation.reads:
            continue  # an offset belongs to the frozen weights, which peft merges
        module.load_state_dict(module.state_dict() | load_file(file))
        assert_serves(module, expected)
    if served:
        scores = [simulation.judge.scores(simulation.workspace.data.train).by_client()["accuracy"][k] for k in CLIENTS]
        for (k, _), accuracy in zip(served, scores, strict=True):
            x, y = DATA.train.client(k)
            assert accuracy == pytest.approx(float((loaded.personal_model(k)(x).argmax(dim=1) == y).double().mean()))


def test_a_personalization_that_is_not_registered_is_served_by_its_row(tmp_path):
    """A class of a file that is not loaded: the row is the whole model, or the part that is not shared."""
    for algorithm in (to.ditto(Sgd(), cohort_size=2), to.fedper(Sgd(), cohort_size=2)):
        run = to.Experiment(DATA, to.models.Mlp(hidden=(4,)), algorithm, rounds=1)
        folder = tmp_path / algorithm.name
        result = run.run(folder)
        tensors, facts = checkpoint.load(folder)
        facts["model"]["personalization"] = "of_another_file"
        checkpoint.save(folder, tensors, facts)
        for name, value in result.state_dict(0).items():
            assert torch.equal(to.load(folder).state_dict(0)[name], value)
