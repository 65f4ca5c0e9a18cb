"""Two ways to compute the gradients of a cohort, and which of them is faster for a model: that depends on its size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import nn

from turnout.core.checks import ConfigurationError, known_name

Engine = Literal["auto", "vectorised", "one_by_one"]
ENGINES = ("auto", "vectorised", "one_by_one")

Precision = Literal["full", "bf16"]
PRECISIONS = ("full", "bf16")
"""Of local steps: the type of the parameters, or bfloat16 by autocast (see `turnout.engine.network.Network`)."""

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_RECURRENT = (nn.RNNBase, nn.RNNCellBase)
# Forward multiplications of a minibatch below which one more client costs less vectorised than one by one,
# measured for CNNs of 1,000 to 1,070,000 parameters and for character LSTMs, with minibatches of 1 to 64 (torch 2.13).
_SMALL = 1_000_000


@dataclass(frozen=True)
class Choice:
    """How clients are computed.

    Attributes:
        engine: ``"vectorised"`` (all clients in one call) or ``"one_by_one"``.
        reason: why, in words.
        settled: whether nothing more needs to be known of the minibatches.
    """

    engine: str
    reason: str
    settled: bool = True


_TOGETHER = Choice("vectorised", "clients of a cohort train together")


def expected(module: nn.Module, engine: Engine, device: torch.device) -> Choice:
    """Return what was asked for, what alone is possible, or what is usually faster.

    Raises:
        ConfigurationError: for an unknown engine, and for layers that cannot be batched over clients.
    """
    known_name("engine", engine, ENGINES)
    layers = list(module.modules())
    recurrent = next((type(layer).__name__ for layer in layers if isinstance(layer, _RECURRENT)), None)
    if engine == "vectorised" and recurrent:
        raise ConfigurationError(
            f"engine='vectorised' cannot batch {recurrent} over clients, because torch.func.vmap has no rule for it: "
            "write engine='one_by_one', or use turnout.models.CharLstm, whose cell is written out"
        )
    if engine != "auto":
        return Choice(engine, "as asked for")
    if recurrent:
        return Choice("one_by_one", f"torch.func.vmap has no rule for {recurrent}")
    return _faster_on_cpu(layers) if device.type == "cpu" else _TOGETHER


def _faster_on_cpu(layers: list[nn.Module]) -> Choice:
    """Return what is usually faster on a CPU."""
    if any(isinstance(layer, _CONVOLUTIONS) for layer in layers):
        reason = "on a CPU the convolutions of single clients are faster than grouped ones"
        return Choice("one_by_one", reason, settled=False)
    if any(getattr(layer, "large_activations", False) for layer in layers):
        reason = "on a CPU the activations of single clients stay in its caches"
        return Choice("one_by_one", reason, settled=False)
    if any(hasattr(layer, "alone") for layer in layers):
        return Choice("one_by_one", "a layer has a faster kernel for single clients")
    return _TOGETHER


def chosen(first: Choice, products: int) -> Choice:
    """Return the choice for minibatches that take a client so many multiplications.

    Handing operations to torch costs one client what it costs many, and small models little else, so clients of small ones
    train together where larger ones would not. Counted, not measured: a run is the same on a machine that is busy.
    """
    if products >= _SMALL:
        return replace(first, settled=True)
    return Choice("vectorised", f"{products:,} multiplications of a client take less time than handing them over does")
