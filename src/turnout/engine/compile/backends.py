"""Backends, the ways to run a trace, and the choice among them."""

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
"""An environment variable: ``auto`` or one of `BACKENDS`, which is then used on the devices that it is for."""


@dataclass(frozen=True)
class Backend:
    """One way to run a trace.

    Attributes:
        name: as in `SETTING` and in reports.
        devices: the kinds of devices that it is for; empty for `plain`, which is for all.
        build: returns a function that runs a trace, or None where it cannot. Its arguments are the trace, tensors to try the
            trace with, which it may change, the indices of those that the trace changes in place, and how many of them are
            fixed. With None, the function takes these tensors and runs the trace once. Otherwise it takes the list of the
            fixed tensors, and a list of the others with a row for each repetition, and repeats the trace for what it changes.
        lacking: returns why it cannot be used here; None if it can.
        is_tried: True where the function is used only if it gives the bits of the traced one.
        opt_in: True where it is used only if `SETTING` names it.
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
        # For CPUs only: on GPUs its interpreter fuses operations, which rounds differently.
        Backend("torchscript", frozenset({"cpu"}), torchscript.build, torchscript.lacking, is_tried=True),
        Backend("plain", frozenset(), plain.build),
    )
}
"""By name, the fastest first."""


def forced() -> str:
    """Return the value of `SETTING`, ``"auto"`` by default.

    Raises:
        ConfigurationError: for an unknown name.
    """
    return known_name(SETTING, os.environ.get(SETTING) or "auto", ("auto", *BACKENDS))


def usable(devices: Collection[str]) -> list[Backend]:
    """Return the backends for tensors on these kinds of devices, the fastest first; the last one always works."""
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
