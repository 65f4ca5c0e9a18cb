"""Run one minibatch through a model before training: check that they fit, and measure memory and work."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import torch

from turnout.core.checks import ConfigurationError
from turnout.data.targets import IGNORED
from turnout.engine.compile.tracer import FlopCounter
from turnout.engine.loss import Loss
from turnout.engine.network import Network
from turnout.engine.reading import check_columns

_FEW = 4
"""The number of examples whose losses are also computed alone."""


def check(network: Network, loss: Loss, x: torch.Tensor, y: torch.Tensor, num_classes: int | None = None) -> None:
    """Check that a model can be trained and evaluated on a minibatch.

    Raises:
        ConfigurationError: if the model fails on these inputs, if its outputs do not fit the loss or the labels, or if it
            draws random numbers, changes its buffers or inputs, or remembers earlier minibatches, in training or evaluation
            mode.
    """
    leaf = network.initial.detach().requires_grad_()
    for training in (True, False):
        network.mode(training)
        outputs, version = None, x._version
        drawn, written = _random_state(x.device), {name: value._version for name, value in network.constants.items()}
        try:
            with torch.set_grad_enabled(training), warnings.catch_warnings():
                outputs = network.outputs(leaf, x, _key(x))
                warnings.filterwarnings("ignore", "Using a target size")  # torch's warning of what is an error here
                check_columns(loss, outputs, y, num_classes)
                losses = loss(outputs, y)
                _check_losses(outputs, losses, loss, y)
            if training:
                torch.autograd.grad(losses.mean(), leaf)
            else:
                _check_one(network, x, outputs)
        except ConfigurationError:
            raise
        except Exception as error:  # modules and losses of users may raise any exception
            _check_types(network.initial.dtype, x, y)
            raise ConfigurationError(_explained(error, network, loss, x, y, outputs)) from error
        if drawn != _random_state(x.device):
            raise ConfigurationError(
                f"the model draws random numbers in forward(){'' if training else ' in evaluation mode'}, which no seed of "
                "a client controls: use nn.Dropout layers, without hooks or methods of their own, which are made "
                "reproducible for each client"
            )
        if x._version != version:
            raise ConfigurationError(
                "the model changes its inputs in place in forward(), and with them the clients' examples: write x = x * 2 in "
                "place of x.mul_(2), or begin with x = x.clone()"
            )
        changed = [name for name, value in network.constants.items() if value._version != written[name]]
        _check_memory(network, loss, x, y, losses.detach(), changed)
    network.mode(training=True)


def _check_memory(
    network: Network, loss: Loss, x: torch.Tensor, y: torch.Tensor, losses: torch.Tensor, changed: list[str]
) -> None:
    """Check that a second call with the same minibatch gives the same losses, and that no buffer changes.

    A model that depends on earlier calls would depend on the data of other clients.
    """
    outputs, assigned = network.outputs_and_assigned(network.initial.detach().requires_grad_(), x, _key(x))
    if changed := changed + assigned:
        raise ConfigurationError(
            f"the model changes its buffer {changed[0]!r} in forward(); buffers are neither averaged nor sent, so one "
            "client's would leak into the next: make it a parameter, or leave it unchanged"
        )
    again = loss(outputs, y).detach()
    # Sums on a GPU may be rounded in another order, which shows most in narrow types.
    narrow = network.precision == "bf16" or network.initial.dtype.itemsize < 4
    rtol, atol = (5e-2, 1e-2) if narrow else (1e-3, 1e-5)
    if not torch.allclose(again, losses, rtol=rtol, atol=atol, equal_nan=True):
        raise ConfigurationError(
            "the model gives other outputs when it is called twice with the same minibatch: forward() changes an attribute, "
            "which is neither averaged nor sent, so one client's would leak into the next: make it a parameter, or leave it "
            "unchanged"
        )


def _explained(error: Exception, network: Network, loss: Loss, x: torch.Tensor, y: torch.Tensor, outputs: Any) -> str:
    """Return the message for an error of the model or the loss, with a remedy."""
    if network.precision == "bf16" and outputs is None:
        return (
            f"precision='bf16': the model failed in bfloat16 on {x.device.type} with: {error}. Leave precision out if it "
            "runs in full precision"
        )
    if outputs is not None and not isinstance(outputs, torch.Tensor):
        name = getattr(loss, "__name__", type(loss).__name__)
        return (
            f"the model returns a {type(outputs).__name__}, and the loss {name} failed with it: {error}. Give a loss "
            "that takes what the model returns: a function of (outputs, targets), one number for each example"
        )
    if isinstance(error, IndexError) and not x.is_floating_point():
        if x.min() == IGNORED:
            return (
                f"the model does not fit the data: inputs are padded with {IGNORED}, and it failed with: {error}. An "
                "Embedding has no row for padding: write self.embedding(x.clamp(min=0)) in forward, which is the row of "
                "padding_idx=0, and leave positions with x < 0 out of means and attention"
            )
        return (
            f"the model does not fit the data: inputs are whole numbers from {x.min()} to {x.max()}, and it failed with: "
            f"{error}; an Embedding has a row for each of num_embeddings numbers from 0"
        )
    of_types = not x.is_floating_point() and ("same dtype" in str(error) or "should be the same" in str(error))
    whole = ". Inputs are whole numbers: write x.astype('float32'), and / 255 for images" if of_types else ""
    return (
        f"the model does not fit the data: inputs {tuple(x.shape)} ({x.dtype}) and targets {tuple(y.shape)} "
        f"({y.dtype}) of a minibatch failed with: {error}{whole}"
    )


def _check_losses(outputs: Any, losses: Any, loss: Loss, y: torch.Tensor) -> None:
    """Check that a loss returns one number for each example, which depends only on that example."""
    kind = tuple(losses.shape) if isinstance(losses, torch.Tensor) else f"a {type(losses).__name__}"
    if kind != (len(y),):
        raise ConfigurationError(
            f"the loss must give one number for each of {len(y)} examples, it gave {kind}: write "
            "reduction='none'" + (", and the mean over all but the first dimension" if len(kind) > 1 else "")
        )
    if not isinstance(outputs, torch.Tensor) or len(outputs) != len(y):
        return
    alone = torch.cat([loss(outputs[i : i + 1].detach(), y[i : i + 1]) for i in range(min(_FEW, len(y)))])
    beside = [losses[:_FEW].detach(), _with_others(outputs.detach(), y, loss)]
    close = {"rtol": 1e-2, "atol": 1e-4, "equal_nan": True}
    if any(each is not None and not torch.allclose(alone[: len(each)], each, **close) for each in beside):
        raise ConfigurationError(
            f"the loss of an example depends on the other examples of its minibatch: outputs {tuple(outputs.shape)} against "
            f"targets {tuple(y.shape)}; bring them to one shape in the loss, e.g. outputs.reshape(targets.shape)"
        )


def _with_others(outputs: torch.Tensor, y: torch.Tensor, loss: Loss) -> torch.Tensor | None:
    """Return the loss of the first example beside others, ``[1]``, for outputs and targets that torch would broadcast.

    The examples of a minibatch may be equal, and then a loss of all pairs of them is that of each. None if shapes agree, or
    the loss fails with the made-up numbers.
    """
    if outputs.shape == y.shape or outputs.numel() != y.numel():
        return None
    one, target = outputs.cpu(), y.cpu()
    try:
        return loss(torch.cat([one[:1], 1 - one]), torch.cat([target[:1], 1 - target]))[:1].to(outputs.device)
    except Exception:  # losses of users may raise any exception
        return None


def _check_one(network: Network, x: torch.Tensor, outputs: Any) -> None:
    """Check that the model keeps the dimension of examples for a minibatch of one, as the last of a pass may be."""
    if not isinstance(outputs, torch.Tensor) or len(x) < 2:
        return
    one = network.outputs(network.initial, x[:1], _key(x))
    if one.shape != (needed := (1, *outputs.shape[1:])):
        raise ConfigurationError(
            f"the model gives outputs {tuple(outputs.shape)} for {len(x)} examples and {tuple(one.shape)} for one, needed "
            f"{needed}: squeeze() in forward() drops the dimension of a single example: write squeeze(-1)"
        )


def _check_types(parameters: torch.dtype, x: torch.Tensor, y: torch.Tensor) -> None:
    """Check that floating-point inputs and targets have the type of the parameters."""
    for what, values in (("inputs", x), ("targets", y)):
        if values.is_floating_point() and values.dtype != parameters:
            own_type, other_type = (str(dtype).removeprefix("torch.") for dtype in (parameters, values.dtype))
            raise ConfigurationError(
                f"the model's parameters are {own_type} and the {what} {other_type}: write "
                f"model.to(torch.{other_type}), or give the {what} as {own_type}"
            )


def saved_bytes(network: Network, loss: Loss, x: torch.Tensor, y: torch.Tensor) -> int:
    """Return the bytes of the activations that are saved for the gradient of one client's minibatch."""
    saved = 0

    def count(value: torch.Tensor) -> torch.Tensor:
        nonlocal saved
        saved += value.numel() * value.element_size()
        return value

    with torch.autograd.graph.saved_tensors_hooks(count, lambda value: value):
        leaf = network.initial.detach().requires_grad_()
        loss(network.outputs(leaf, x, _key(x)), y).mean()
    return saved


def products(network: Network, x: torch.Tensor) -> int:
    """Return the number of multiplications in the matrix products and convolutions of a forward pass."""
    with torch.no_grad(), FlopCounter() as counter:
        network.outputs(network.initial, x, _key(x))
    return counter.flops // 2  # one multiplication and one addition count as two


def _key(x: torch.Tensor) -> torch.Tensor:
    """Return a constant key for dropout."""
    return torch.zeros((), dtype=torch.int64, device=x.device)


def _random_state(device: torch.device) -> tuple[Any, ...]:
    """Return the states of the random numbers of torch on a device, of NumPy and of Python."""
    state = torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
    numpy = tuple(part.tobytes() if isinstance(part, np.ndarray) else part for part in np.random.get_state())  # noqa: NPY002
    return state.numpy().tobytes(), numpy, random.getstate()
