"""The five workloads: their sizes, their data, and that they can be learned."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from turnout.cli.settings import Settings
from turnout.core.checks import ConfigurationError
from turnout.engine.parameters import Layout
from turnout.models import model
from turnout.workbench.speed.workloads import WORKLOADS

SMALL = {name: replace(workload, num_clients=12, cohort_size=4) for name, workload in WORKLOADS.items()}


@pytest.mark.parametrize(
    ("name", "parameters", "work"),
    [
        ("W1", 551_786, (250, 200, 25, 5, 16, 0.05)),
        ("W2", 7_850, (1000, 60, 10, 20, 10, 0.05)),
        ("W3", 52_500, (100, 300, 5, 30, 32, 0.05)),
        ("W4", 133_520, (100, 100, 10, 10, 10, 0.5)),
        ("W5", 4_810, (250, 100, 25, 5, 16, 0.05)),
    ],
)
def test_workloads_have_the_sizes_of_published_timings(name, parameters, work):
    workload = WORKLOADS[name]
    spec = model(workload.model["name"], **{k: v for k, v in workload.model.items() if k != "name"})
    assert Layout.of(spec.build(workload.shape, workload.num_classes)).num_params == parameters
    steps, batch, lr = (workload.local[option] for option in ("steps", "batch_size", "lr"))
    assert (workload.num_clients, workload.num_examples, workload.cohort_size, steps, batch, lr) == work
    assert f"{parameters:,}" in workload.title or name != "W1"


@pytest.mark.parametrize("name", WORKLOADS)
def test_data_depend_on_the_seed_alone(name):
    workload = SMALL[name]
    one, same, other = (workload.data(seed).train for seed in (3, 3, 4))
    assert one.x.shape == (one.sizes.sum(), *workload.shape)
    assert one.x.dtype == (torch.int64 if name == "W4" else torch.float32)
    assert one.y.dtype == torch.int64
    assert len(one.sizes) == 12
    if name == "W5":
        assert 5 <= one.sizes.min() < one.sizes.max() <= 100
    else:
        np.testing.assert_array_equal(one.sizes, workload.num_examples)
    assert torch.equal(one.x, same.x)
    assert torch.equal(one.y, same.y)
    assert not torch.equal(one.x, other.x)


@pytest.mark.parametrize("name", ["W1", "W2", "W3"])
def test_inputs_lie_around_a_center_of_their_class(name):
    workload = replace(SMALL[name], centers=1.0, scale=1.0)
    shards = workload.data().train
    means = torch.stack([shards.x[shards.y == label].mean(0) for label in range(10)]).flatten(1)
    spread = (shards.x.flatten(1) - means[shards.y]).std()
    assert spread == pytest.approx(1.0, abs=0.02)
    assert means.std() == pytest.approx(1.0, abs=0.3)


def test_last_character_of_a_text_predicts_the_label():
    shards = WORKLOADS["W4"].data().train
    assert 0 <= shards.x.min() <= shards.x.max() < 80
    table = torch.zeros(80, 80).index_put_((shards.x[:, -1], shards.y), torch.ones(()), accumulate=True)
    assert (table.max(dim=1).values.sum() / table.sum()) == pytest.approx(0.8, abs=0.06)


def test_settings_of_a_workload_are_an_experiment_that_learns():
    workload = SMALL["W2"]
    settings = Settings.of(workload.settings, {"rounds": 5})
    history = settings.experiment(workload.data()).run().history
    assert history.column("train_loss")[1][-1] < np.log(10) - 0.05
    assert history.rounds["num_participants"].to_pylist() == [4] * 5


def test_cohorts_of_the_last_workload_vary_around_their_mean():
    workload = WORKLOADS["W5"]
    settings = Settings.of(workload.settings, {"rounds": 40, "evaluate_every": 40})
    result = settings.experiment(workload.data()).run()
    cohorts = result.history.rounds["num_participants"].to_numpy()
    assert cohorts.mean() == pytest.approx(
        25, abs=4 * (25 * 0.9 / 40) ** 0.5
    )  # four standard errors of a binomial mean
    assert len(set(cohorts)) > 8
    assert result.history.column("train_loss")[1][-1] < np.log(10) - 0.05


def test_invalid_numbers_are_refused():
    with pytest.raises(ConfigurationError, match="cohort_size: got 0, needed a whole number >= 1"):
        replace(WORKLOADS["W1"], cohort_size=0)
