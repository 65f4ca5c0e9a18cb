"""The ways to run a trace, and which of them is taken."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch

from turnout.core.checks import known_name
from turnout.engine.compile import cuda_graph, plain, torchscript
from turnout.engine.compile.tracer import Operations

SETTING = "TURNOUT_BACKEND"
"""An environment variable: ``auto`` or one of `BACKENDS`, for the devices that it can be used on."""


@dataclass(frozen=True)
class Backend:
    """One way to run a trace.

    Attributes:
        name: what `SETTING` and reports call it.
        devices: the kinds of devices that it is for; of `plain`, which is for all, none.
        build: makes what does the operations of a trace, or gives None where it cannot. It takes the trace, arguments that it
            may try it with and change, the numbers of those that the trace changes in place, and how many of them stay: None
            for a single call, which takes these arguments. Otherwise the call repeats the trace for what it changes: it takes
            the list of those that stay, and a list of the others with a row for each time.
        lacking: says why it cannot be used here; None if it can.
        is_tried: whether what it makes must give the very bits of the function, or else is not used.
        opt_in: whether it is used only where `SETTING` names it.
    """

    name: str
    devices: frozenset[str]
    build: Callable[[Operations, list[torch.Tensor], tuple[int, ...], int | None], Callable[..., Any] | None]
    lacking: Callable[[], str | None] = lambda: None
    is_tried: bool = False
    opt_in: bool = False


BACKENDS = {
    backend.name: backend
    for backend in (
        # Opt-in, because its tests fake the device: it has not been run on a GPU.
        Backend("cuda_graph", frozenset({"cuda"}), cuda_graph.build, opt_in=True),
        # For CPUs only, because elsewhere its interpreter fuses operations, which rounds differently.
        Backend("torchscript", frozenset({"cpu"}), torchscript.build, torchscript.lacking, is_tried=True),
        Backend("plain", frozenset(), plain.build),
    )
}
"""By name, the fastest first."""


def forced() -> str:
    """Return what `SETTING` says, ``"auto"`` without it.

    Raises:
        ConfigurationError: for a name that is not known.
    """
    return known_name(SETTING, os.environ.get(SETTING) or "auto", ("auto", *BACKENDS))


def usable(devices: Collection[str]) -> list[Backend]:
    """Return the backends to try for tensors on these kinds of devices, the fastest first; the last one always works."""
    name = forced()
    return [
        backend
        for backend in BACKENDS.values()
        if backend.name == "plain"
        or (
            (name == backend.name or (name == "auto" and not backend.opt_in))
            and backend.devices >= set(devices)
            and backend.lacking() is None
        )
    ]
