"""Choose between the two engines, vectorized and one by one, by the layers and the size of a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import nn

from turnout.core.checks import ConfigurationError, known_name
from turnout.core.earlier_names import present

Engine = Literal["auto", "vectorized", "one_by_one"]
ENGINES = ("auto", "vectorized", "one_by_one")

Precision = Literal["full", "bf16"]
"""Precisions of local steps: the type of the parameters, or bfloat16 by autocast (see `turnout.engine.network.Network`)."""

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_RECURRENT = (nn.RNNBase, nn.RNNCellBase)
# Forward multiplications of a minibatch below which one more client costs less vectorized than one by one,
# measured for CNNs of 1,000 to 1,070,000 parameters and for character LSTMs, with minibatches of 1 to 64 (torch 2.13).
_SMALL = 1_000_000


@dataclass(frozen=True)
class Choice:
    """The engine, and the reason for it.

    Attributes:
        engine: ``"vectorized"`` (all clients in one call) or ``"one_by_one"``.
        reason: the reason, in words.
        settled: False if the choice also depends on the size of minibatches.
    """

    engine: str
    reason: str
    settled: bool = True


_TOGETHER = Choice("vectorized", "clients of a cohort train together")


def expected(module: nn.Module, engine: Engine, device: torch.device) -> Choice:
    """Return the requested engine; with ``"auto"``, the only possible one or the one that is usually faster.

    Raises:
        ConfigurationError: if the engine is unknown, or if layers cannot be batched over clients.
    """
    known_name("engine", engine := present(engine), ENGINES)
    layers = list(module.modules())
    recurrent = next((type(layer).__name__ for layer in layers if isinstance(layer, _RECURRENT)), None)
    if engine == "vectorized" and recurrent:
        raise ConfigurationError(
            f"engine='vectorized' cannot batch {recurrent} over clients, because torch.func.vmap has no rule for it: "
            "write engine='one_by_one', or use turnout.models.CharLstm, whose cell is written out"
        )
    if engine != "auto":
        return Choice(engine, "as asked for")
    if recurrent:
        return Choice("one_by_one", f"torch.func.vmap has no rule for {recurrent}")
    return _faster_on_cpu(layers) if device.type == "cpu" else _TOGETHER


def _faster_on_cpu(layers: list[nn.Module]) -> Choice:
    """Return the engine that is usually faster on a CPU."""
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
    """Return the choice for minibatches with this number of multiplications per client.

    The overhead of an operation is the same for one client and for many, and dominates in small models, so that their
    clients train together. The choice counts and does not measure time, so that it does not depend on the load of the
    machine.

    Args:
        first: choice before the size of minibatches was known.
        products: number of multiplications of a minibatch's forward pass.
    """
    if products >= _SMALL:
        return replace(first, settled=True)
    return Choice("vectorized", f"{products:,} multiplications of a client take less time than the overhead of a call")
