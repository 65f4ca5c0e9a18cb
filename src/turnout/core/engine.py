"""Two ways to compute the gradients of a cohort, and which of them is faster for a model: that is measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from turnout.core.checks import ConfigurationError, known_name

Engine = Literal["auto", "vectorised", "one_by_one"]
ENGINES = ("auto", "vectorised", "one_by_one")

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_RECURRENT = (nn.RNNBase, nn.RNNCellBase)
_CLEARLY = 2.0  # times faster than what is expected that the other way must be: noise should decide nothing
_ENOUGH = 0.2  # seconds after which a difference as large as that is believed


@dataclass(frozen=True)
class Choice:
    """How clients are computed.

    Attributes:
        engine: ``"vectorised"`` (all clients in one call) or ``"one_by_one"``.
        reason: why, in words.
        settled: whether there is nothing to measure.
    """

    engine: str
    reason: str
    settled: bool = True


def expected(module: nn.Module, engine: Engine, device: torch.device) -> Choice:
    """What was asked for, what alone is possible, or what is usually faster.

    Raises:
        ConfigurationError: for an unknown engine, and for layers that cannot be batched over clients.
    """
    known_name("engine", engine, ENGINES)
    recurrent = next((type(m).__name__ for m in module.modules() if isinstance(m, _RECURRENT)), None)
    if engine == "vectorised" and recurrent:
        raise ConfigurationError(
            f"engine='vectorised' cannot batch {recurrent} over clients, because torch.func.vmap has no rule for it: "
            "write engine='one_by_one', or use turnout.models.CharLstm, whose cell is written out"
        )
    if engine != "auto":
        return Choice(engine, "as asked for")
    if recurrent:
        return Choice("one_by_one", f"torch.func.vmap has no rule for {recurrent}")
    if device.type == "cpu" and any(isinstance(m, _CONVOLUTIONS) for m in module.modules()):
        reason = "on a CPU the convolutions of single clients are faster than grouped ones"
        return Choice("one_by_one", reason, settled=False)
    if device.type == "cpu" and any(hasattr(m, "alone") for m in module.modules()):
        return Choice("one_by_one", "a layer has a faster kernel for single clients", settled=False)
    return Choice("vectorised", "clients of a cohort train together", settled=False)


def faster(first: Choice, calls: dict[str, Callable[[], object]], clients: int) -> Choice:
    """The choice after measuring: what was expected, unless the other way is clearly faster.

    Args:
        first: what is expected.
        calls: the gradients of so many clients, by engine.
    """
    seconds: dict[str, float] = {}
    begin = time.perf_counter()
    for attempt in range(4):
        for engine, call in calls.items():
            now = time.perf_counter()
            call()
            took = time.perf_counter() - now
            if attempt:  # the first call loads what it needs
                seconds[engine] = min(took, seconds.get(engine, took))
        if attempt and time.perf_counter() - begin > _ENOUGH:
            break
    (other,) = calls.keys() - {first.engine}
    engine = other if seconds[first.engine] > _CLEARLY * seconds[other] else first.engine
    milliseconds = {name: f"{1e3 * took / clients:.3g}" for name, took in seconds.items()}
    together, alone = milliseconds["vectorised"], milliseconds["one_by_one"]
    return Choice(engine, f"measured: a client's gradient takes {together} ms vectorised, {alone} ms one by one")
