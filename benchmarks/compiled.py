"""Compare steps compiled by ``torch.compile`` with steps as they are replayed, on one thread.

    python benchmarks/compiled.py                # W1, W2 and W3 of `turnout speed`; needs a C++ compiler

The trace of a step (of all clients, or of one if they are computed one by one) is compiled, and compared with the same trace
replayed. Steps are timed in turns. "after" is the number of rounds after which compiling has paid off, with the cohort and
the steps of the workload.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch._inductor import config as inductor

import turnout
from turnout.cli.settings import Settings
from turnout.engine.compile.backends import BACKENDS
from turnout.simulation.simulation import Simulation
from turnout.workbench.speed.workloads import WORKLOADS

_STEPS = 20


def main() -> None:
    """Time the named workloads."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("workloads", nargs="*", help="W1, W2 or W3; all of them if none is named")
    parser.add_argument("--repeats", type=int, default=30)
    given = parser.parse_args()
    torch.set_num_threads(1)
    inductor.force_disable_caches = True  # an earlier run's work does not count
    turnout.keep_large_buffers()
    print("workload  steps are     ours, us  compiled, us  ratio  compiling, s  pays after, rounds")
    for name in given.workloads or ("W1", "W2", "W3"):
        workload = WORKLOADS[name]
        simulation = Simulation(Settings.of({"rounds": 10**6}, workload.settings).experiment(workload.data()))
        ours, make = _steps(simulation)
        begin = time.perf_counter()
        compiled = make()
        compiled()
        took = time.perf_counter() - begin
        here, there = _in_turns(ours, compiled, given.repeats)
        way = simulation.objective.engine
        clients = 1 if way == "vectorized" else workload.cohort_size  # whose steps one call is
        saved = (here - there) * clients * workload.local["steps"]
        after = f"{took / saved:,.0f}" if saved > 0 else "never"
        figures = f"{1e6 * here:8,.0f}  {1e6 * there:12,.0f}  {here / there:5.2f}  {took:12.1f}  {after:>18s}"
        print(f"{name:8s}  {way:12s}  {figures}", flush=True)


def _steps(simulation: Simulation) -> tuple[Callable[[], Any], Callable[[], Callable[[], Any]]]:
    """Return a stretch of steps as it is replayed, and a function that compiles it."""
    seen: list[Any] = []
    torchscript = BACKENDS["torchscript"]

    def kept(traced: Any, arguments: list[torch.Tensor], written: tuple[int, ...], fixed: int | None) -> Any:
        seen.append((traced.module(), arguments, fixed, torchscript.build(traced, arguments, written, fixed)))
        return seen[-1][-1]

    BACKENDS["torchscript"] = replace(torchscript, build=kept)
    while not seen:
        simulation.round()
    BACKENDS["torchscript"] = torchscript
    traced, arguments, fixed, loop = seen[-1]
    stays, each = arguments[:fixed], [a.expand(_STEPS, *a.shape).contiguous() for a in arguments[fixed:]]

    def make() -> Callable[[], Any]:
        compiled = torch.compile(traced)
        return lambda: [compiled(*stays, *(rows[i] for rows in each)) for i in range(_STEPS)]

    return torch.no_grad()(lambda: loop(stays, each)), lambda: torch.no_grad()(make())


def _in_turns(ours: Callable[[], Any], theirs: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Return the median seconds of a step of each way."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for function, found in zip((ours, theirs), seconds, strict=True):
            begin = time.perf_counter()
            function()
            found.append((time.perf_counter() - begin) / _STEPS)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


if __name__ == "__main__":
    main()
