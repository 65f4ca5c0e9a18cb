"""The objective: gradients, evaluation and validation of models."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from turnout import ConfigurationError
from turnout.engine import validate
from turnout.engine.loss import cross_entropy
from turnout.engine.objective import Objective
from turnout.models import CharLstm

ENGINES = ("vectorized", "one_by_one")


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def lanes(objective, B=4, b=7, seed=0):
    g = torch.Generator().manual_seed(seed)
    params = objective.initial + 0.1 * torch.randn(B, objective.layout.num_params, generator=g)
    x = torch.randn(B, b, 6, generator=g)
    y = torch.randint(3, (B, b), generator=g)
    return params, x, y, torch.arange(B)


def by_autograd(module, params, x, y):
    """Loss and gradient of one client with the user's own module."""
    nn.utils.vector_to_parameters(params, module.parameters())
    module.zero_grad()
    loss = nn.functional.cross_entropy(module(x), y)
    loss.backward()
    return loss.detach(), torch.cat([p.grad.reshape(-1) for p in module.parameters() if p.grad is not None])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("masked", [False, True])
def test_gradient_equals_plain_autograd(engine, masked):
    objective = Objective(net(), engine=engine)
    params, x, y, key = lanes(objective)
    counts = [7, 1, 4, 6] if masked else [7] * 4
    mask = torch.tensor([[i < n for i in range(7)] for n in counts]).float() if masked else None
    losses, gradients = objective.gradient(params, x, y, mask, key)
    for k, n in enumerate(counts):
        loss, gradient = by_autograd(net(), params[k], x[k, :n], y[k, :n])
        torch.testing.assert_close(losses[k], loss)
        torch.testing.assert_close(gradients[k], gradient)


@pytest.mark.parametrize("engine", ENGINES)
def test_lane_does_not_see_the_mask_of_its_neighbor(engine):
    objective = Objective(net(), engine=engine)
    params, x, y, key = lanes(objective)
    mask = torch.ones(4, 7)
    mask[1, 3:] = 0
    losses, gradients = objective.gradient(params, x, y, mask, key)
    plain_losses, plain = objective.gradient(params, x, y, None, key)
    for k in (0, 2, 3):
        assert torch.equal(gradients[k], plain[k])
        assert torch.equal(losses[k], plain_losses[k])
    assert not torch.equal(gradients[1], plain[1])


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="said of Intel's matrix library")
@pytest.mark.parametrize(("d", "h", "c", "b"), [(20, 13, 10, 10), (59, 2, 15, 16), (39, 7, 11, 16), (11, 29, 6, 32)])
def test_bits_do_not_depend_on_memory_alignment(d, h, c, b):
    """Products of these sizes round differently at odd addresses by default."""
    g = torch.Generator().manual_seed(0)
    objective = Objective(nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, c)))
    params = objective.initial + 0.1 * torch.randn(9, objective.layout.num_params, generator=g)
    x, y = torch.randn(9, b, d, generator=g), torch.randint(c, (9, b), generator=g)
    losses, gradients = objective.gradient(params, x, y, None, torch.arange(9))
    for low, high in [(k, k + 1) for k in range(9)] + [(0, 4), (4, 9), (1, 3)]:
        lanes = slice(low, high)
        loss, gradient = objective.gradient(
            params[lanes].clone(), x[lanes].clone(), y[lanes], None, torch.arange(low, high)
        )
        assert torch.equal(gradient, gradients[lanes])
        assert torch.equal(loss, losses[lanes])


@pytest.mark.parametrize("engine", ENGINES)
def test_user_module_is_copied_and_unchanged(engine):
    module = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 3)).eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    objective = Objective(module, engine=engine)
    objective.gradient(*lanes(objective)[:3], None, torch.arange(4))
    assert not module.training
    assert isinstance(module[1], nn.Dropout)
    begin = objective.initial.untyped_storage().data_ptr()  # a large model is held once
    assert {p.untyped_storage().data_ptr() for p in objective.network.module.parameters()} == {begin}
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())


@pytest.mark.parametrize("engine", ENGINES)
def test_frozen_parameters_and_buffers_are_used_and_unchanged(engine):
    module = net()
    module[0].requires_grad_(False)
    module.register_buffer("unused", torch.ones(2))
    objective = Objective(module, engine=engine)
    assert objective.layout.num_params == 18
    params, x, y, key = lanes(objective)
    _, gradients = objective.gradient(params, x, y, None, key)
    assert gradients.shape == (4, 18)
    fixed = [module.get_parameter(name).reshape(-1) for name in ("0.weight", "0.bias")]
    full = torch.cat([*fixed, params[0]])
    torch.testing.assert_close(gradients[0], by_autograd(net(), full, x[0], y[0])[1][-18:])


def test_tied_parameters_get_the_sum_of_their_gradients():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.one, self.two, self.out = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
            self.two.weight = self.one.weight

        def forward(self, x):
            return self.out(self.two(self.one(x).relu()))

    objective = Objective(Tied())
    params, x, y, key = lanes(objective)
    _, gradients = objective.gradient(params, x, y, None, key)
    for k in range(4):
        torch.testing.assert_close(gradients[k], by_autograd(Tied(), params[k], x[k], y[k])[1])


@pytest.mark.parametrize("masked", [False, True])
def test_gradient_by_layer_equals_views_of_the_gradient(masked):
    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle, self.last = nn.Linear(3, 4), nn.Linear(2, 2), nn.Linear(4, 2)

        def forward(self, x):
            return self.last(torch.tanh(self.used(x)))

    torch.manual_seed(0)
    objective = Objective(Partly(), engine="one_by_one")
    x, y, key = torch.randn(5, 3), torch.randint(2, (5,)), torch.tensor(0)
    mask = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0]) if masked else None
    before = objective.initial.clone()
    loss, gradient = objective.gradient(before[None], x[None], y[None], None if mask is None else mask[None], key[None])
    after = before.clone()
    alone, layers = objective.gradient_by_layer(after, x, y, mask, key)
    assert alone == loss[0]
    for layer, part in layers:  # views of `after`
        layer.sub_(part, alpha=0.3)
    torch.testing.assert_close(after, before - 0.3 * gradient[0])
    named = objective.layout.split(after - before)
    assert not named["idle.weight"].any()
    assert named["used.weight"].all()


def test_user_defined_loss():
    objective = Objective(net().double(), loss=lambda out, y: (out[:, 0] - y) ** 2)
    params, x, y, key = lanes(objective)
    losses, _ = objective.gradient(params.double(), x.double(), y, None, key)
    expected = ((objective.network.outputs(params[2].double(), x[2].double())[:, 0] - y[2]) ** 2).mean()
    torch.testing.assert_close(losses[2], expected)


def test_evaluation_has_no_dropout_and_counts_correct_predictions():
    module = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.9), nn.Linear(5, 3))
    objective = Objective(module)
    x, y = torch.randn(20, 6), torch.randint(3, (20,))
    loss, correct = objective.evaluate(objective.initial, iter([(x[:13], y[:13]), (x[13:], y[13:])]))
    outputs = module.eval()(x)
    torch.testing.assert_close(loss, cross_entropy(outputs, y).double())
    assert loss.dtype == correct.dtype == torch.float64
    assert torch.equal(correct, (outputs.argmax(dim=1) == y).double())


def test_numeric_targets_are_scored_by_squared_error():
    objective = Objective(nn.Linear(6, 1), loss=lambda out, y: (out - y).abs().mean(dim=1))
    loss, error = objective.evaluate(objective.initial, iter([(torch.randn(4, 6), torch.randn(4, 1))]))
    torch.testing.assert_close(error, loss**2)


def test_engines_are_chosen_with_a_reason():
    assert Objective(net()).engine == "vectorized"
    convolution = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.LazyLinear(3))
    convolution(torch.zeros(1, 1, 5, 5))
    chosen = Objective(convolution)
    assert chosen.engine == "one_by_one"
    assert "convolutions" in chosen.choice.reason
    assert Objective(convolution, engine="vectorized").choice.reason == "as asked for"
    recurrent = Objective(nn.LSTM(2, 3))
    assert recurrent.engine == "one_by_one"
    assert "LSTM" in recurrent.choice.reason
    assert Objective(CharLstm().build((5,), 20)).engine in ("vectorized", "one_by_one")


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (
            nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)),
            {},
            r"'1' is a BatchNorm1d.*Write GroupNorm\(num_groups, 4\)",
        ),
        (nn.BatchNorm2d(3, track_running_stats=False), {}, "is a BatchNorm2d"),
        (
            nn.LSTM(2, 3, num_layers=2, dropout=0.1),
            {},
            r"\(LSTM\) has dropout=0.1.*stack single layers with nn.Dropout",
        ),
        (
            nn.Sequential(nn.Linear(2, 2), nn.AlphaDropout()),
            {},
            r"layer '1' \(AlphaDropout\) draws random numbers.*use nn.Dropout",
        ),
        (nn.Sequential(nn.Linear(2, 2), nn.RReLU()), {}, r"layer '1' \(RReLU\)"),
        (
            nn.GRU(2, 3),
            {"engine": "vectorized"},
            "cannot batch GRU over clients.*engine='one_by_one', or use .*CharLstm",
        ),
        (nn.Linear(2, 2), {"engine": "vectorize"}, "unknown engine 'vectorize': did you mean 'vectorized'"),
        (nn.Flatten(), {}, "Flatten has no trainable parameters"),
    ],
)
def test_unsupported_modules_are_refused(module, options, message):
    with pytest.raises(ConfigurationError, match=message):
        Objective(module, **options)


class Functional(nn.Module):
    """Drops by itself."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x):
        return nn.functional.dropout(self.linear(x), training=self.training)


class Counter(nn.Module):
    """A module that changes a buffer."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.linear(x)


class MeanBuffer(Counter):
    """A module that assigns a buffer."""

    def forward(self, x):
        self.calls = 0.9 * self.calls + x.mean()
        return self.linear(x)


class MeanAttribute(nn.Module):
    """A module that remembers minibatches in an attribute."""

    def __init__(self):
        super().__init__()
        self.linear, self.mean = nn.Linear(6, 3), torch.zeros(6)

    def forward(self, x):
        self.mean = 0.9 * self.mean + x.mean(dim=0)
        return self.linear(x - self.mean)


class PythonNoise(nn.Linear):
    """Draws from Python's random numbers."""

    def forward(self, input):
        return super().forward(input) * random.random()


class NumpyNoise(nn.Linear):
    """Draws from NumPy's random numbers."""

    def forward(self, input):
        return super().forward(input) * np.random.rand()  # noqa: NPY002


class InPlace(nn.Linear):
    """Changes its inputs, as `nn.ReLU(inplace=True)` before the first layer does."""

    def forward(self, input):
        return super().forward(input.relu_())


class OwnGenerator(nn.Linear):
    """Draws from a generator of its own."""

    rng = random.Random(0)

    def forward(self, input):
        return super().forward(input) * self.rng.random()


@pytest.mark.parametrize(
    ("module", "loss", "message"),
    [
        (
            nn.Linear(5, 3),
            cross_entropy,
            r"not fit the data: inputs \(4, 6\) \(torch.float32\) and targets \(4,\) .*5x3",
        ),
        (nn.Linear(6, 2), cross_entropy, "does not fit the data.*out of bounds"),
        (nn.Linear(6, 3).double(), cross_entropy, "are float64 and the inputs float32: write model.to"),
        (
            nn.Linear(6, 3),
            nn.functional.cross_entropy,
            r"one number for each of 4 .* gave \(\): write reduction='none'",
        ),
        (nn.Linear(6, 3), lambda out, _: out, r"it gave \(4, 3\)"),
        (nn.Linear(6, 3), lambda out: out, "does not fit the data.*positional argument"),
        (Functional(), cross_entropy, r"draws random numbers in forward\(\).*use nn.Dropout layers"),
        (Counter(), cross_entropy, r"changes its buffer 'calls' in forward\(\).*leak into the next"),
        (MeanBuffer(), cross_entropy, r"changes its buffer 'calls' in forward\(\).*leak into the next"),
        (MeanAttribute(), cross_entropy, r"gives other outputs when it is called twice.*leak into the next"),
        (PythonNoise(6, 3), cross_entropy, r"draws random numbers in forward\(\).*use nn.Dropout layers"),
        (NumpyNoise(6, 3), cross_entropy, r"draws random numbers in forward\(\).*use nn.Dropout layers"),
        (InPlace(6, 3), cross_entropy, r"changes its inputs in place in forward\(\).*write x = x \* 2 in place of"),
        (OwnGenerator(6, 3), cross_entropy, r"gives other outputs when it is called twice"),
    ],
)
def test_trial_minibatch_detects_unsupported_models(module, loss, message):
    objective = Objective(module, loss)
    with pytest.raises(ConfigurationError, match=message):
        validate.check(objective.network, objective.loss, torch.randn(4, 6), torch.tensor([0, 1, 2, 0]))


class Inspected(nn.Linear):
    """Keeps its last output for its user, and a table that follows from shapes alone."""

    def forward(self, input):
        self.last, self.table = super().forward(input), torch.arange(len(input))
        return self.last + self.table[:, None]


def test_model_may_store_what_it_never_reads_again():
    objective = Objective(Inspected(6, 3))
    validate.check(objective.network, objective.loss, torch.randn(4, 6), torch.tensor([0, 1, 2, 0]))


def test_supported_model_passes_the_trial():
    objective = Objective(nn.Sequential(nn.Linear(6, 4), nn.GroupNorm(2, 4), nn.Dropout(0.2), nn.Linear(4, 3)))
    validate.check(objective.network, objective.loss, torch.randn(4, 6), torch.tensor([0, 1, 2, 0]))


def test_memory_of_a_lane_includes_parameters_and_activations():
    objective = Objective(nn.Sequential(nn.Linear(100, 1000), nn.ReLU(), nn.Linear(1000, 3)))
    floats = objective.layout.num_params
    one, ten = (objective.bytes_per_lane(torch.randn(n, 100), torch.zeros(n, dtype=torch.long)) for n in (1, 10))
    assert one > 4 * 4 * floats
    assert ten - one >= 9 * 1000 * 4
    assert ten < 8 * (4 * floats + 2 * 10 * 3000)
