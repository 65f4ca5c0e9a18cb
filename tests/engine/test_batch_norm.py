"""Personal BatchNorm."""

import copy

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import turnout as to
from turnout.core.checks import ConfigurationError
from turnout.engine.batch_norm import with_own_batch_norm
from turnout.engine.objective import Objective
from turnout.simulation import Simulation

from ..tiny import classification


def convolutions(**options):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, **options), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.BatchNorm1d(3), (5, 3)),
        (nn.BatchNorm1d(3, affine=False, momentum=0.4), (5, 3, 7)),
        (nn.BatchNorm2d(3, eps=0.1), (4, 3, 5, 6)),
        (nn.BatchNorm3d(3), (4, 3, 2, 3, 4)),
    ],
)
def test_outputs_and_statistics_equal_torch(layer, shape):
    x = torch.randn(shape) * 2 + 1
    own, statistics, _ = with_own_batch_norm(copy.deepcopy(layer))
    assert statistics == {"running_mean", "running_var"}
    torch.testing.assert_close(own.eval()(x), layer.eval()(x))
    y = own.train()(x)
    torch.testing.assert_close(y, layer.train()(x))
    running = [dict(own.named_parameters())[name] for name in ("running_mean", "running_var")]
    steps = torch.autograd.grad((y * torch.randn(shape)).sum(), running)
    torch.testing.assert_close(running[0] - steps[0], layer.running_mean)
    torch.testing.assert_close(running[1] - steps[1], layer.running_var)
    assert own.state_dict().keys() | {"num_batches_tracked"} == layer.state_dict().keys()


def test_padding_is_ignored():
    objective = Objective(convolutions(), engine="vectorized", personal=("1.weight", "1.bias"))
    x, y = torch.randn(2, 6, 2, 6, 6), torch.randint(0, 4, (2, 6))
    params, keys = objective.initial.expand(2, -1).contiguous(), torch.arange(2)
    mask = torch.ones(2, 6)
    mask[1, 4:] = 0
    _, padded = objective.gradient(params, x, y, mask, keys, replay=False)
    _, short = objective.gradient(params[1:], x[1:, :4], y[1:, :4], None, keys[1:], replay=False)
    torch.testing.assert_close(padded[1:], short, rtol=1e-4, atol=1e-5)


def test_statistics_have_no_gradient_in_evaluation():
    objective = Objective(convolutions(), personal=("1.weight",))
    x, y = torch.randn(1, 6, 2, 6, 6), torch.randint(0, 4, (1, 6))
    _, gradient = objective.gradient(objective.initial[None].clone(), x, y, None, torch.arange(1), training=False)
    assert objective.layout.num_statistics == 6
    assert not gradient[:, -6:].any()
    assert gradient[:, :-6].any()


@pytest.mark.parametrize(
    ("options", "algorithm", "message"),
    [
        ({}, to.fedavg(), r"'1' is a BatchNorm2d.*to.models.group_norm\(model\).*to.fedbn\(\)"),
        (
            {},
            to.ditto(cohort_size=2),
            "'1' is a BatchNorm2d: its running statistics are buffers rather than parameters",
        ),
        ({"track_running_stats": False}, to.fedbn(), "without running statistics that follow by a momentum"),
        ({"momentum": None}, to.fedbn(), "without running statistics"),
        (
            {},
            to.perfedavg(cohort_size=2, also=(to.personalization.Personal("norms"),)),
            "has layers of BatchNorm, and a meta-gradient is computed at .*: write to.models.group_norm",
        ),
    ],
)
def test_averaged_statistics_are_refused(options, algorithm, message):
    x, y = torch.randn(40, 2, 6, 6), torch.arange(40) % 4
    data = to.data.from_arrays(x, y).split(to.partition.Iid(), 4)
    with pytest.raises(ConfigurationError, match=message):
        to.Experiment(data=data, model=convolutions(**options), algorithm=algorithm).run()


def test_every_client_uses_its_own_statistics(tmp_path):
    x = torch.randn(64, 2, 6, 6) + torch.arange(64)[:, None, None, None] % 4  # a shift of each client
    data = to.data.from_arrays(x, torch.arange(64) % 3, client_ids=torch.arange(64) % 4).split(client_test_fraction=0.2)
    run = to.Experiment(data=data, model=convolutions(), algorithm=to.fedbn(to.Sgd(lr=0.05)), rounds=4)
    result = run.run(tmp_path)
    assert run.model.state_dict()["1.running_mean"].eq(0).all()  # type: ignore[union-attr]
    again = to.load(tmp_path, model=convolutions())
    means = [result.personal_model(k).state_dict()["1.running_mean"] for k in range(4)]
    assert not torch.equal(means[0], means[3])
    for client in range(4):
        for name, value in result.personal_model(client).state_dict().items():
            assert torch.equal(again.personal_model(client).state_dict()[name], value)


def test_trained_models_load_in_torch_without_a_count_of_minibatches(tmp_path):
    """Torch reads `num_batches_tracked` only without a momentum, which is refused."""
    data = classification(sizes=(20, 20), classes=4)
    net = nn.Sequential(nn.Linear(16, 6), nn.BatchNorm1d(6), nn.Linear(6, 4))
    result = to.Experiment(data=data, model=net, algorithm=to.fedbn(), rounds=2).run()
    named = load_file(result.export(tmp_path / "model.safetensors", client=0))
    assert not [name for name in named if "num_batches" in name]
    again = nn.Sequential(nn.Linear(16, 6), nn.BatchNorm1d(6), nn.Linear(6, 4))
    again.load_state_dict(named)
    x = torch.randn(3, 16)
    torch.testing.assert_close(again.eval()(x), result.personal_model(0)(x))


def test_with_a_personal_head_only_affine_parameters_are_averaged():
    data = classification(sizes=(20, 20, 20), classes=4)
    spec = to.models.Mlp(hidden=(8,), batch_norm=True)
    result = to.Experiment(data=data, model=spec, algorithm=to.fedbn(personal="head"), rounds=3).run()
    one, other = (result.state_dict(client) for client in (0, 1))
    assert torch.equal(one["norm1.weight"], other["norm1.weight"])
    assert not torch.equal(one["norm1.running_mean"], other["norm1.running_mean"])


def normed(rounds=4):
    local = to.Sgd(lr=0.1, steps=3, batch_size=16, momentum=0.5)
    spec, population = to.models.Mlp(hidden=(6,), batch_norm=True), to.Population(to.availability.Bernoulli(mean=0.6))
    return to.Experiment(classification(), spec, to.fedbn(local), population, rounds=rounds, engine="vectorized")


def test_statistics_do_not_depend_on_chunks():
    one, other = (Simulation(normed()) for _ in range(2))
    other.workspace.lanes = 3
    for _ in range(4):
        one.round()
        other.round()
    ids = np.arange(8)
    assert torch.equal(one.models.serving(ids), other.models.serving(ids))


def test_resumed_run_equals_an_uninterrupted_one(tmp_path):
    whole = normed().run()
    normed(rounds=2).run(tmp_path)
    resumed = normed().run(tmp_path, resume=True)
    for client in range(8):
        for name, value in whole.state_dict(client).items():
            assert torch.equal(resumed.state_dict(client)[name], value), name
