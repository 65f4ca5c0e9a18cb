"""The backends, which run traces, and the choice among them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch

from turnout.core.checks import known_name
from turnout.engine.compile import plain, stretches, torchscript
from turnout.engine.compile.tracer import Operations

SETTING = "TURNOUT_BACKEND"
"""An environment variable: ``auto``, or the name of one of `BACKENDS`, which is then used on its devices."""


@dataclass(frozen=True)
class Backend:
    """A way to run a trace.

    Attributes:
        name: name in `SETTING` and in reports.
        devices: kinds of devices that it supports; empty for `plain`, which supports all.
        build: function that returns a function that runs a trace, or None if the trace is not supported. Its arguments
            are the trace; tensors to try it with, which may be changed; the indices of the tensors that the trace
            changes in place; and the number of fixed tensors. If that number is None, the returned function takes these
            tensors and runs the trace once. Otherwise it takes the list of the fixed tensors and the list of the
            others, with a row for each repetition, and repeats the trace for its changes in place.
        lacking: function that returns the reason why the backend is not available; None if it is.
        is_tried: True if its functions are used only if they give the same bits as the traced function.
    """

    name: str
    devices: frozenset[str]
    build: Callable[[Operations, list[torch.Tensor], tuple[int, ...], int | None], Callable[..., Any] | None]
    lacking: Callable[[], str | None] = lambda: None
    is_tried: bool = False


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend("cuda_graph", frozenset({"cuda"}), stretches.build),
        # For CPUs only: on GPUs its interpreter fuses operations, which rounds differently.
        Backend("torchscript", frozenset({"cpu"}), torchscript.build, torchscript.lacking, is_tried=True),
        Backend("plain", frozenset(), plain.build),
    )
}
"""Backends by name, the fastest first."""


def forced() -> str:
    """Return the value of `SETTING`, ``"auto"`` by default.

    Raises:
        ConfigurationError: if a name is unknown.
    """
    return known_name(SETTING, os.environ.get(SETTING) or "auto", ("auto", *BACKENDS))


def usable(devices: Collection[str]) -> list[Backend]:
    """Return the backends for tensors on these kinds of devices, the fastest first; the last one always works."""
    name = forced()
    return [
        backend
        for backend in BACKENDS.values()
        if backend.name == "plain"
        or (name in (backend.name, "auto") and backend.devices >= set(devices) and backend.lacking() is None)
    ]
