"""Evaluation of personal models."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from turnout import ConfigurationError, Experiment, Population, Sgd, compose, fedavg_p, models
from turnout.core.types import Task
from turnout.data.shards import Shards
from turnout.pieces.personalization import Personal
from turnout.population.availability import Bernoulli
from turnout.simulation import Simulation
from turnout.simulation.client_groups import Newcomers

from ..tiny import classification

MODEL = models.Mlp(hidden=(6,))


def cut(sizes, seed):
    """Return examples of clients, some of which may have none."""
    whole = classification(sizes=(sum(sizes),), seed=seed).train
    return Shards(whole.x, whole.y, np.concatenate([[0], np.cumsum(sizes)]))


TINY = classification()
OTHERS = cut((12, 30, 7), seed=5)
TESTS = cut((5, 0, 9, 3, 300, 20, 9, 6), seed=1)
DATA = replace(TINY, client_test=TESTS)


def simulation_of(data=DATA, *pieces, rounds=3, **options):
    local = Sgd(lr=0.3, steps=3, batch_size=8)
    algorithm = compose(*pieces) if pieces else fedavg_p(local, cohort_size=4)
    run = Experiment(
        data, MODEL, algorithm, Population(Bernoulli(mean=0.5)), rounds=rounds, evaluate_every=3, **options
    )
    simulation = Simulation(run)
    for _ in range(rounds):
        simulation.round()
    simulation.finish()
    return simulation


def score(simulation, client, shards, params):
    """Losses and correctness of a client's examples by plain torch."""
    module = simulation.experiment.build_model().eval()
    simulation.objective.layout.load(module, params)
    x, y = shards.client(client)
    with torch.no_grad():
        outputs = module(x)
    return nn.functional.cross_entropy(outputs, y, reduction="none"), (outputs.argmax(dim=1) == y).float()


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_clients_are_evaluated_with_shared_and_personal_parts(engine):
    simulation = simulation_of(engine=engine)
    row, clients = simulation.history.rounds.to_pylist()[-1], simulation.history.clients.to_pydict()
    own = simulation.models.serving(np.arange(8))
    for split, shards in (("train", DATA.train), ("test", TESTS)):
        scores = [score(simulation, k, shards, own[k]) for k in range(8)]
        for place, name in enumerate(("loss", "accuracy")):
            each = [float(s[place].mean()) for s in scores]
            found = [np.nan if v is None else v for v in clients[f"{split}_{name}"]]
            np.testing.assert_allclose(found, each, rtol=1e-5)
            assert row[f"{split}_{name}"] == pytest.approx(
                float(torch.cat([s[place] for s in scores]).mean()), rel=1e-5
            )
    assert (own - own[0]).abs().max() > 0.01


def test_client_without_participation_uses_the_initial_personal_part():
    simulation = simulation_of(rounds=1)
    absent = np.setdiff1d(np.arange(8), simulation.history.participation["client"].to_numpy())
    assert len(absent)
    shared = simulation.server.federation.num_params
    for k in absent:
        params = torch.cat([simulation.state.params, simulation.objective.initial[shared:]])
        loss = score(simulation, int(k), DATA.train, params)[0].mean()
        assert simulation.history.clients["train_loss"][int(k)].as_py() == pytest.approx(float(loss), rel=1e-5)


def test_lanes_do_not_change_results():
    simulation = simulation_of()
    before = simulation.evaluate()
    simulation.workspace.lanes = 3
    assert simulation.evaluate() == before


def test_subset_of_examples_uses_the_models_of_their_clients():
    simulation = simulation_of(evaluation_examples=20)
    few = simulation.evaluate()
    rows = np.linspace(0, 234, 20).round().astype(int)
    owners = DATA.train.owners()[rows].numpy()
    own = simulation.models.serving(np.arange(8))
    expected = []
    for row, k in zip(rows, owners, strict=True):
        one = Shards.pooled(DATA.train.x[row : row + 1], DATA.train.y[row : row + 1])
        expected.append(float(score(simulation, 0, one, own[k])[0]))
    assert few["train_loss"] == pytest.approx(np.mean(expected), rel=1e-5)


def test_pooled_test_examples_do_not_evaluate_personal_models():
    row = simulation_of(TINY).history.rounds.to_pylist()[-1]
    assert row["test_accuracy"] is None
    assert row["train_accuracy"] is not None
    assert simulation_of(TINY, Sgd()).history.rounds.to_pylist()[-1]["test_accuracy"] is not None


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_unseen_clients_fine_tune_only_their_personal_part(engine):
    """One full-batch step: the head changes, and the body does not."""
    tests = cut((4, 0, 9), seed=6)
    data = replace(DATA, unseen_train=OTHERS, unseen_test=tests)
    pieces = (Sgd(lr=0.3, steps=3, batch_size=64), Personal(adaptation_steps=1))
    simulation = simulation_of(data, *pieces, engine=engine)
    row = simulation.history.rounds.to_pylist()[-1]
    shared = simulation.server.federation.num_params
    first = torch.cat([simulation.state.params, simulation.objective.initial[shared:]])
    losses, before = [], []
    for k in range(3):
        module = simulation.experiment.build_model()
        simulation.objective.layout.load(module, first)
        x, y = OTHERS.client(k)
        named = dict(module.named_parameters())
        loss = nn.functional.cross_entropy(module(x), y)
        step = torch.autograd.grad(loss, [named["output.weight"], named["output.bias"]])
        step = torch.cat([part.flatten() for part in step])
        adapted = torch.cat([first[:shared], first[shared:] - 0.3 * step])
        losses.append(score(simulation, k, tests, adapted)[0])
        before.append(score(simulation, k, tests, first)[0])
    assert row["unseen_test_loss"] == pytest.approx(float(torch.cat(losses).mean()), rel=1e-5)
    assert abs(row["unseen_test_loss"] - float(torch.cat(before).mean())) > 1e-3
    assert {name for name in row if name.startswith("unseen")} == {
        f"unseen_{split}_{what}" for split in ("train", "test") for what in ("loss", "accuracy")
    }
    assert len(simulation.history.column("unseen_test_loss")[1]) == 1  # at the end alone
    assert "unseen_test_loss" not in simulation_of(data, Sgd()).history.column_names


def test_unseen_clients_are_evaluated_after_each_number_of_steps():
    def last(adaptation_steps):
        run = simulation_of(
            replace(DATA, unseen_train=OTHERS), Sgd(lr=0.3, batch_size=4), Personal(adaptation_steps=adaptation_steps)
        )
        return {name: value for name, value in run.history.rounds.to_pylist()[-1].items() if name.startswith("unseen")}

    both, one, eight = last((1, 8)), last(1), last(8)
    expected = {
        name.replace("unseen", f"unseen_after_{k}"): v for k, row in ((1, one), (8, eight)) for name, v in row.items()
    }
    assert both == expected
    assert one["unseen_train_loss"] != eight["unseen_train_loss"]
    for steps, message in (((), "each once"), ((2, 2), "each once"), ((1, 0), "got 0, needed a whole number >= 1")):
        with pytest.raises(ConfigurationError, match=f"adaptation_steps: .*{message}"):
            Personal(adaptation_steps=steps)


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_validation_clients_fine_tune_on_one_half_and_are_evaluated_on_the_other(engine):
    """One full-batch step on the first half, so the result is known."""
    data = replace(DATA, unseen_validation=OTHERS)
    pieces = (Sgd(lr=0.3, steps=3, batch_size=64), Personal(adaptation_steps=(1,)))
    simulation = simulation_of(data, *pieces, engine=engine)
    newcomers = Newcomers.of(simulation.experiment, simulation.workspace)
    assert newcomers is not None
    fitting, validation = newcomers.group.train, newcomers.group.test
    assert validation is not None
    halves = fitting, validation
    for k in range(3):
        rows = torch.cat([half.client(k)[0] for half in halves])
        assert sorted(rows.tolist()) == sorted(OTHERS.client(k)[0].tolist())
    assert np.abs(halves[0].sizes - halves[1].sizes).tolist() == [size % 2 for size in OTHERS.sizes]
    shared = simulation.server.federation.num_params
    first, losses = torch.cat([simulation.state.params, simulation.objective.initial[shared:]]), []
    for k in range(3):
        module = simulation.experiment.build_model()
        simulation.objective.layout.load(module, first)
        x, y = fitting.client(k)
        named = dict(module.named_parameters())
        step = torch.autograd.grad(
            nn.functional.cross_entropy(module(x), y), [named["output.weight"], named["output.bias"]]
        )
        adapted = first - 0.3 * torch.cat([torch.zeros(shared), *[part.flatten() for part in step]])
        losses.append(score(simulation, k, validation, adapted)[0])
    last = simulation.history.rounds.to_pylist()[-1]
    assert last["validation_loss"] == pytest.approx(float(torch.cat(losses).mean()), rel=1e-5)


def test_validation_clients_fit_by_the_largest_number_of_steps_and_draw_their_own_minibatches():
    def newcomers(steps):
        pieces = (Sgd(lr=0.3, batch_size=4), Personal(adaptation_steps=steps))
        simulation = simulation_of(replace(DATA, unseen_validation=OTHERS), *pieces, rounds=1)
        made = Newcomers.of(simulation.experiment, simulation.workspace)
        assert made is not None
        return made, Task(simulation.state.params, 1, 0)

    (both, task), (eight, _), (one, _) = (newcomers(steps) for steps in ((1, 8), 8, 1))
    rows = np.arange(3)
    assert torch.equal(both.models(task, rows), eight.models(task, rows))
    assert not torch.equal(both.models(task, rows), one.models(task, rows))
    # With the numbers of clients 0, 1 and 2, which train.
    as_trained = replace(both, group=replace(both.group, first=0))
    assert not torch.equal(both.models(task, rows), as_trained.models(task, rows))


def test_validation_by_new_clients_has_metrics_and_changes_no_training():
    pieces = (Sgd(lr=0.3, batch_size=4), Personal(adaptation_steps=2))
    runs = [
        simulation_of(replace(DATA, unseen_validation=shards), *pieces, metrics=("balanced_accuracy",))
        for shards in (OTHERS, None)
    ]
    assert torch.equal(*(run.state.params for run in runs))
    assert 0.0 <= runs[0].history.rounds.to_pylist()[-1]["validation_balanced_accuracy"] <= 1.0
    assert not any(name.startswith("validation") for name in runs[1].history.column_names)


def test_validation_by_new_clients_is_in_every_evaluation():
    data, algorithm = replace(DATA, unseen_validation=OTHERS), compose(Sgd(lr=0.3, batch_size=4), Personal())
    result = Experiment(data, MODEL, algorithm, rounds=4, evaluate_every=2).run()
    assert [row["round"] for row in result.rounds.to_pylist() if row["validation_loss"] is not None] == [2, 4]


def test_new_clients_with_one_example_are_refused():
    with pytest.raises(ConfigurationError, match="validation_clients: no client has two examples, one to fit"):
        simulation_of(replace(DATA, unseen_validation=cut((1, 1), seed=6)), Sgd(), Personal())
