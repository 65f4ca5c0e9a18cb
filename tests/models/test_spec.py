"""Laws of every model."""

from dataclasses import FrozenInstanceError, dataclass

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from turnout.core.checks import ConfigurationError
from turnout.models import MODELS, CharLstm, Cnn, GroupNormCnn, Logistic, Mlp, ModelSpec, TextLstm

# A small one of every kind, with the shape of its input; dropout is tested apart.
SMALL = {
    "logistic": (Logistic(), (2, 6)),
    "mlp": (Mlp(hidden=(5, 4)), (2, 6)),
    "cnn": (Cnn(hidden=(6,), channels=(3, 4)), (2, 8, 9)),
    "char_lstm": (CharLstm(embedding=3, hidden=6, layers=2), (7,)),
    "text_lstm": (TextLstm(hidden=6, layers=2, dense=4), (7, 3)),
    "group_norm_cnn": (GroupNormCnn(channels=(4, 8), dropout=(0.0, 0.0), hidden=8, hidden_dropout=0.0), (2, 8, 9)),
}
CLASSES = 5
every_model = pytest.mark.parametrize(("spec", "shape"), SMALL.values(), ids=SMALL.keys())


def minibatch(spec: ModelSpec, *shape: int) -> torch.Tensor:
    if isinstance(spec, CharLstm):
        return torch.randint(0, CLASSES, shape, dtype=torch.uint8)
    return torch.randn(shape)


def weights(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def test_table_has_every_model():
    apart = {"split_logistic", "huggingface"}  # two classes and zeros at first; packages of an extra: they have tests
    assert SMALL.keys() | apart == MODELS.keys()


@every_model
def test_maps_minibatches_to_logits(spec, shape):
    for rows in (1, 4):
        assert spec.build(shape, CLASSES)(minibatch(spec, rows, *shape)).shape == (rows, CLASSES)


@every_model
def test_weights_depend_only_on_the_seed(spec, shape):
    torch.manual_seed(1)
    first = weights(spec.build(shape, CLASSES, seed=3))
    torch.manual_seed(2)
    assert torch.equal(weights(spec.build(shape, CLASSES, seed=3)), first)
    assert not torch.equal(weights(spec.build(shape, CLASSES, seed=4)), first)


@every_model
def test_global_random_state_is_unchanged(spec, shape):
    before = torch.get_rng_state()
    spec.build(shape, CLASSES, seed=7)
    assert torch.equal(torch.get_rng_state(), before)


def test_global_random_state_is_unchanged_by_a_refusal():
    @dataclass(frozen=True)
    class Breaks(ModelSpec):
        def module(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
            nn.Linear(input_shape[0], num_classes)
            raise ConfigurationError("no")

    before = torch.get_rng_state()
    with pytest.raises(ConfigurationError, match="no"):
        Breaks().build((3,), 2)
    assert torch.equal(torch.get_rng_state(), before)


@every_model
def test_modules_are_created_on_the_cpu(spec, shape):
    with torch.device("meta"):
        module = spec.build(shape, CLASSES)
    assert {p.device.type for p in module.parameters()} == {"cpu"}


@every_model
def test_last_layer_is_named_output(spec, shape):
    module = spec.build(shape, CLASSES)
    assert [name for name, _ in module.named_parameters()][-2:] == ["output.weight", "output.bias"]
    assert module.get_parameter("output.bias").shape == (CLASSES,)


@every_model
def test_vectorized_gradients_equal_those_one_by_one(spec, shape):
    torch.manual_seed(0)
    module = spec.build(shape, CLASSES)
    x, y = minibatch(spec, 3, 4, *shape), torch.randint(0, CLASSES, (3, 4))
    params = {n: torch.randn(3, *p.shape) * 0.3 for n, p in module.named_parameters()}

    def loss(params: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(module, params, (x,)), y)

    together = vmap(grad(loss))(params, x, y)
    for client in range(3):
        module.load_state_dict({name: value[client] for name, value in params.items()})
        module.zero_grad()
        F.cross_entropy(module(x[client]), y[client]).backward()
        for name, parameter in module.named_parameters():
            assert parameter.grad is not None
            assert parameter.grad.abs().max() > 0, name
            torch.testing.assert_close(together[name][client], parameter.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("spec", [spec for spec, _ in SMALL.values()], ids=SMALL.keys())
def test_specifications_are_frozen(spec):
    assert spec == type(spec)(**vars(spec))
    assert hash(spec) == hash(type(spec)(**vars(spec)))
    with pytest.raises(FrozenInstanceError):
        spec.anything = 1


@pytest.mark.parametrize("shape", [(), [64], (0,), (-1, 4), (2.0,), (True,), 64])
@pytest.mark.parametrize("spec", [spec for spec, _ in SMALL.values()], ids=SMALL.keys())
def test_invalid_input_shapes_are_refused(spec, shape):
    with pytest.raises(ConfigurationError, match=r"input_shape: got .* without the minibatch axis"):
        spec.build(shape, CLASSES)


def test_invalid_classes_and_seeds_are_refused():
    with pytest.raises(ConfigurationError, match="num_classes: got 0, needed a whole number >= 1"):
        Logistic().build((4,), 0)
    with pytest.raises(ConfigurationError, match="seed: got -1, needed a whole number >= 0"):
        Logistic().build((4,), 2, seed=-1)
