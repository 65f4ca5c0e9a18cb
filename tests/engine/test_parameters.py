"""The correspondence between flat vectors and named parameters."""

import pytest
import torch
from torch import nn

from turnout.core.checks import CheckpointError, ConfigurationError
from turnout.engine.parameters import Layout


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2, bias=False))


def test_vector_and_parameters_correspond():
    module = net()
    layout = Layout.of(module)
    assert layout.names == ("0.weight", "0.bias", "2.weight")
    assert layout.shapes == ((4, 3), (4,), (2, 4))
    assert layout.sizes == [12, 4, 8]
    assert layout.num_params == layout.num_shared == 24
    vector = layout.flatten(module)
    for name, value in layout.split(vector).items():
        assert torch.equal(value, module.get_parameter(name))
        assert value.data_ptr() >= vector.data_ptr()  # a view, not a copy
        assert value.untyped_storage().data_ptr() == vector.untyped_storage().data_ptr()
    other = net()
    layout.load(other, vector)
    assert torch.equal(layout.flatten(other), vector)


def test_flatten_returns_a_copy():
    module = net()
    vector = Layout.of(module).flatten(module)
    vector.zero_()
    assert module.get_parameter("0.weight").abs().sum() > 0


def test_personal_parameters_come_last():
    layout = Layout.of(net(), personal=lambda name: name.startswith("0.w"))
    assert layout.names == ("0.bias", "2.weight", "0.weight")
    assert layout.num_shared == 12
    assert layout.num_params == 24


def test_frozen_and_tied_parameters_are_stored_once():
    module = net()
    module.get_parameter("0.weight").requires_grad_(False)
    assert Layout.of(module).names == ("0.bias", "2.weight")
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    assert Layout.of(tied).names == ("0.weight", "0.bias", "1.bias")


def test_scalar_parameters_are_supported():
    module = nn.Module()
    module.register_parameter("w", nn.Parameter(torch.tensor(3.0)))
    layout = Layout.of(module)
    assert layout.num_params == 1
    assert layout.split(torch.tensor([5.0]))["w"] == 5.0


def frozen():
    module = net()
    return module.requires_grad_(False)


def mixed():
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2).double())


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.ReLU(), "ReLU has no trainable parameters: nothing could be learned"),
        (frozen(), "Sequential has no trainable parameters"),
        (
            mixed(),
            r"of Sequential have the types \['torch.float32', 'torch.float64'\]; .*write model.float\(\)",
        ),
    ],
)
def test_invalid_arguments_raise(module, message):
    with pytest.raises(ConfigurationError, match=message):
        Layout.of(module)


def test_lazy_layers_are_refused():
    module = nn.LazyLinear(3)
    with pytest.raises(
        ConfigurationError,
        match="'weight' of LazyLinear belongs to a lazy layer and has no shape yet: call the model on an example",
    ):
        Layout.of(module)


def test_vector_of_another_model_is_refused():
    with pytest.raises(CheckpointError, match=r"vector of \(23,\) numbers does not fit a model of 24 parameters"):
        Layout.of(net()).load(net(), torch.zeros(23))


def test_modules_of_torchscript_are_refused_with_the_remedy():
    with pytest.warns(DeprecationWarning, match="torch.jit"):
        scripted = torch.jit.script(nn.Linear(6, 3))
    with pytest.raises(
        ConfigurationError, match=r"is a RecursiveScriptModule.*give the module from which torch.jit.script"
    ):
        Layout.of(scripted)
