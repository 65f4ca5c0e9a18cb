"""ExecuTorch programs compute the update of a PyTorch client, or are not written."""

# pyright: reportMissingImports=false

import importlib.util

import pytest
import torch
from torch import nn

import turnout as to
from turnout import ConfigurationError, Experiment, models
from turnout.export.traced import _WithLoss, executorch_bytes

from ..tiny import classification

needs_executorch = pytest.mark.skipif(not importlib.util.find_spec("executorch"), reason=".[executorch]")
pytestmark = pytest.mark.filterwarnings("ignore")


@needs_executorch
def test_device_sends_the_update_of_torch(tmp_path):
    from executorch.extension.training import _load_for_executorch_for_training_from_buffer, get_sgd_optimizer

    Experiment(classification(), models.Mlp(hidden=(8,)), rounds=2).run(tmp_path / "run")
    result = to.load(tmp_path / "run")
    buffer = result.export(tmp_path / "model.pte").read_bytes()
    module, model = _load_for_executorch_for_training_from_buffer(buffer), result.model
    generator = torch.Generator().manual_seed(1)
    minibatches = [
        (torch.randn(16, 16, generator=generator), torch.randint(0, 4, (16,), generator=generator)) for _ in range(5)
    ]
    module.forward_backward("forward", minibatches[0])  # parameters exist after the first call
    ours, theirs = torch.optim.SGD(model.parameters(), lr=0.1), get_sgd_optimizer(module.named_parameters(), 0.1)
    for x, y in minibatches:
        ours.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        ours.step()
        torch.testing.assert_close(module.forward_backward("forward", (x, y))[0], loss.detach())
        theirs.step(module.named_gradients())
    trained = {name.removeprefix("net."): value for name, value in module.named_parameters().items()}
    for name, value in model.named_parameters():
        torch.testing.assert_close(trained[name], value.detach(), rtol=1e-5, atol=1e-6)


@needs_executorch
def test_program_with_other_gradients_is_refused():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 3))
    with pytest.raises(
        ConfigurationError, match=r"ExecuTorch computes another loss or other gradients|cannot be exported"
    ):
        executorch_bytes(net, torch.randn(4, 1, 8, 8), 3)


@needs_executorch
def test_numeric_targets_use_the_squared_error():
    assert executorch_bytes(nn.Linear(3, 1), torch.randn(4, 3), None)


@pytest.mark.skipif(importlib.util.find_spec("executorch") is not None, reason="executorch is installed")
def test_missing_package_names_the_extra():
    with pytest.raises(ConfigurationError, match=r"'\.\[executorch\]'"):
        executorch_bytes(nn.Linear(3, 2), torch.randn(4, 3), 2)


def test_one_output_for_two_classes_uses_the_binary_cross_entropy():
    x, y = torch.randn(6, 3), torch.tensor([0, 1, 1, 0, 1, 0])
    for net in (nn.Linear(3, 1), nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))):
        expected = nn.functional.binary_cross_entropy_with_logits(net(x).reshape(6), y.float())
        torch.testing.assert_close(_WithLoss(net, 2)(x, y)[0], expected)
    torch.testing.assert_close(_WithLoss(nn.Identity(), 3)(x, y)[0], nn.functional.cross_entropy(x, y))
