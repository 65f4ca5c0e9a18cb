"""Check whether the choice of engine by counted multiplications is the faster one, for small CNNs.

    python benchmarks/engines.py                 # two minutes; milliseconds per round, and the engine that is chosen

Each network is trained vectorized and one by one, in turns, by ten clients with ten steps a round. Both ways are warmed up
until all steps are traced.
"""

from __future__ import annotations

import argparse
import statistics
import time

import turnout
from turnout.cli.settings import Settings
from turnout.simulation.simulation import Simulation
from turnout.workbench.speed.workloads import Workload

_CASES = (  # shape of an image, channels, hidden layers, minibatch
    ((1, 8, 8), [8, 16], [], 10),
    ((1, 8, 8), [32, 32], [128], 10),
    ((1, 8, 8), [32, 32], [128], 32),
    ((1, 28, 28), [8, 8], [32], 10),
    ((1, 28, 28), [32, 64], [], 10),
    ((3, 32, 32), [8, 8], [64], 16),
)


def main() -> None:
    """Time all networks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--warm-up", type=float, default=6.0, help="seconds for each of the two ways")
    parser.add_argument("--rounds", type=int, default=24, help="rounds to time, of each way")
    given = parser.parse_args()
    turnout.keep_large_buffers()
    print("input      channels  hidden  batch  vectorized  one by one  chosen      by")
    for shape, channels, hidden, batch_size in _CASES:
        model = {"name": "cnn", "channels": channels, "hidden": hidden}
        local = {"lr": 0.05, "steps": 10, "batch_size": batch_size}
        workload = Workload("CNN", "a small CNN", shape, 50, 60, 10, 10, 10, model, local, centers=0.5)
        data = workload.data()
        ways = {
            engine: Simulation(Settings.of({"rounds": 10**6, "engine": engine}, workload.settings).experiment(data))
            for engine in ("auto", "vectorized", "one_by_one")
        }
        chosen = ways.pop("auto").objective.choice
        figures = "  ".join(f"{1e3 * seconds:10.1f}" for seconds in _in_turns(ways, given.warm_up, given.rounds))
        what = f"{'x'.join(map(str, shape)):9s}  {channels!s:8s}  {hidden!s:6s}  {batch_size:5d}"
        print(f"{what}  {figures}  {chosen.engine:10s}  {chosen.reason}", flush=True)


def _in_turns(ways: dict[str, Simulation], warm_up: float, rounds: int) -> list[float]:
    """Return the median seconds of a round of each engine."""
    for simulation in ways.values():
        end = time.perf_counter() + warm_up
        while time.perf_counter() < end:
            simulation.round()
    seconds: dict[str, list[float]] = {engine: [] for engine in ways}
    for _ in range(rounds):
        for engine, simulation in ways.items():
            begin = time.perf_counter()
            simulation.round()
            seconds[engine].append(time.perf_counter() - begin)
    return [statistics.median(some) for some in seconds.values()]


if __name__ == "__main__":
    main()
