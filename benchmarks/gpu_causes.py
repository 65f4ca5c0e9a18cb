"""Measure what a round on a GPU consists of: costs of single operations, the longest kernels, and the parts of changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity
from torch.profiler import profile as recorded

from turnout.engine.hardware import synchronize


def constants(device: str, quick: bool) -> dict[str, Any]:
    """Return the costs of the host and of the device on which estimates rest, in microseconds."""
    x, page = torch.zeros(4096, device=device), torch.zeros(960_000, dtype=torch.int64)
    rows = torch.zeros(20, 25, 10, dtype=torch.int64, device=device)
    into = torch.zeros(25, 10, dtype=torch.int64, device=device)
    figures = {
        "an operation from Python": _microseconds(lambda: [x.add_(1) for _ in range(100)], device) / 100,
        "a row copied into a buffer": _microseconds(lambda: [into.copy_(row) for row in rows], device) / 20,
        "7.7 MB to the device": _microseconds(lambda: page.to(device, non_blocking=True), device),
    }
    for number in (10,) if quick else (1, 100, 2000):
        replay = _graphed(lambda number=number: [x.add_(1) for _ in range(number)], device)
        figures[f"a kernel of a graph of {number}"] = _microseconds(replay, device) / number
    return figures


def profile(device: str, quick: bool) -> dict[str, Any]:
    """Return the milliseconds of rounds, of their kernels, and of the ten longest kernels with their number."""
    from turnout.cli.settings import Settings
    from turnout.simulation import Simulation
    from turnout.workbench.speed.workloads import WORKLOADS

    figures: dict[str, Any] = {}
    jobs = [("W2", 3)] if quick else [("W3", 1000), ("W2", 1000), ("W4", 25), ("W2", 25), ("W3", 25), ("W1", 25)]
    activity, number = ProfilerActivity.CPU if device == "cpu" else ProfilerActivity.CUDA, 1 if quick else 5
    for name, cohort in jobs:
        workload = replace(WORKLOADS[name], num_clients=max(cohort, 100), num_examples=60, cohort_size=cohort)
        settings = Settings.of({"rounds": 10**6, "device": device}, workload.settings)
        simulation = Simulation(settings.experiment(workload.data()))
        for _ in range(1 if quick else 12):
            simulation.round()
        synchronize(torch.device(device))
        begin = time.perf_counter()
        for _ in range(number):
            simulation.round()
        synchronize(torch.device(device))
        milliseconds = (time.perf_counter() - begin) / number * 1e3
        with recorded(activities=[activity]) as seen:
            for _ in range(number):
                simulation.round()
            synchronize(torch.device(device))
        kernels = sorted(seen.key_averages(), key=lambda kernel: -_own(kernel, device))
        figures[f"{name} {cohort}"] = {
            "round_ms": milliseconds,
            "kernels_ms": sum(_own(kernel, device) for kernel in kernels) / number / 1e3,
            "kernels": sum(kernel.count for kernel in kernels) / number,
            "longest": [
                [each.key[:80], each.count / number, _own(each, device) / number / 1e3] for each in kernels[:10]
            ],
        }
    return figures


def plan(device: str, quick: bool) -> dict[str, Any]:
    """Return whether plans of minibatches have equal bits on the host and on the device, and their microseconds."""
    from turnout.pieces.local.minibatches import plan

    clients = np.arange(3 if quick else 1000)
    sizes = np.full(len(clients), 60)
    given: dict[str, Any] = {
        "offsets": 60 * clients, "sizes": sizes, "clients": clients, "versions": 0 * clients, "done": clients % 7,
        "num_steps": 0 * clients + 30, "batch_size": 32, "sampling": "pass", "drop_last": True, "seed": 0,
    }  # fmt: skip
    order, where = np.arange(len(clients)), torch.device(device)
    planned = {way: plan(**given, device=on).on(where, order) for way, on in {"host": None, "device": where}.items()}
    return {
        "equal": bool((planned["host"] == planned["device"]).all()),
        "host_us": _microseconds(lambda: plan(**given).on(where, order), device),
        "device_us": _microseconds(lambda: plan(**given, device=where).on(where, order), device),
    }


def cell(device: str, quick: bool) -> dict[str, Any]:
    """Return the microseconds of the gradient of an LSTM layer of W4 with PyTorch's kernel for cells, and without it."""
    from turnout.models import recurrence

    steps, clients = (3, 2) if quick else (80, 25)
    wide = torch.randn(clients, steps, 1, 10, 400, device=device)
    weights = torch.randn(clients, 1, 400, 100, device=device) / 10
    loss = torch.func.grad(lambda weights, wide: recurrence.Recurrence.apply(wide, weights)[0].sum())  # type: ignore[index]
    gradient, has_kernel = torch.func.vmap(loss), recurrence._has_kernel
    figures: dict[str, Any] = {}
    gradients = []
    for way, kernel in {"kernel": has_kernel, "written_out": lambda _: False}.items():
        recurrence._has_kernel = kernel
        gradients.append(gradient(weights, wide))
        figures[f"{way}_us"] = _microseconds(_graphed(lambda: gradient(weights, wide), device), device)
    recurrence._has_kernel = has_kernel
    return figures | {"difference": float((gradients[0] - gradients[1]).abs().max() / gradients[1].abs().max())}


CAUSES = {each.__name__: each for each in (constants, profile, plan, cell)}
"""Measurements by name."""


def _microseconds(function: Callable[[], Any], device: str, least: float = 0.15) -> float:
    """Return the median time of a call, of the host and the device together."""
    seconds: list[float] = []
    for _ in range(2):
        function()
    while len(seconds) < 5 or sum(seconds) < least:
        synchronize(torch.device(device))
        begin = time.perf_counter()
        function()
        synchronize(torch.device(device))
        seconds.append(time.perf_counter() - begin)
    return 1e6 * sorted(seconds)[len(seconds) // 2]


def _graphed(function: Callable[[], Any], device: str) -> Callable[[], Any]:
    """Return a replay of the function's kernels; on a CPU the function itself."""
    from turnout.engine.compile.cuda_graph import on_gpu

    return function if device == "cpu" else on_gpu(function, torch.device(device))[0]


def _own(kernel: Any, device: str) -> float:
    """Return the microseconds of all calls of a kernel."""
    return kernel.self_cpu_time_total if device == "cpu" else kernel.self_device_time_total
