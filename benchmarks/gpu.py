"""Measure an NVIDIA GPU, and write the figures as one JSON file, which docs/performance.md shows.

sh scripts/gpu.sh --device cuda                        # writes benchmarks/gpu.json and the section of the page
sh scripts/gpu.sh --call causes --out causes.json      # in nine minutes: what a round consists of
sh scripts/gpu.sh --call figures --out figures.json    # in four minutes: the figures with goals
sh scripts/gpu.sh --device cpu --quick --out /tmp/gpu.json   # tiny sizes, to see that it ends

Each measurement is a process of its own, so that one that fails leaves its reason in the file and not the others out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmarks import gpu_causes, gpu_page

ROOT = Path(__file__).resolve().parents[1]
OUT, PAGE = ROOT / "benchmarks" / "gpu.json", ROOT / "docs" / "performance.md"
WORKLOADS, COHORTS = ("W2", "W3", "W1", "W4"), (25, 1000)
WAYS: Mapping[str, tuple[str, str, bool, bool]] = {
    "cuda_graph": ("cuda_graph", "full", True, False),
    "plain": ("plain", "full", True, False),
    "float32": ("cuda_graph", "full", False, False),
    "tf32": ("cuda_graph", "full", True, True),
    "bf16": ("cuda_graph", "bf16", True, False),
}
"""What is compared: the backend of traces, the precision, and whether convolutions and products may use TF32.

PyTorch lets convolutions use TF32 by default, and products not.
"""

TESTS = ("tests/engine", "tests/laws/test_engines.py", "tests/laws/test_bf16.py", "tests/models/test_recurrence.py")
"""Tests that compute on ``TURNOUT_TEST_DEVICE``, and those that need a GPU."""

PEERS = {"jax": (25, 1000)}
"""Other programs (`gpu_peers`), and the cohorts that are measured; their minibatches are drawn within the measured time."""


CALLS: Mapping[str, tuple[float, Mapping[str, float]]] = {
    "causes": (540, {"plan": 30, "cell": 60, "tests": 150, "constants": 40, "profile": 180, "W4": 90, "W2": 60, "W3": 60}),
    "figures": (240, {
        "fedau_table_1": 60, "cifar10_iid": 80, "irregular": 60, "W2 cohort 25 jax": 30, "W2 cohort 1000 jax": 30,
        "planned_ahead": 40, "W3 cohort 25 jax": 30, "W3 cohort 1000 jax": 30, "synchronizations": 60,
    }),
}  # fmt: skip
"""Selections of measurements for short use of a machine: seconds in all, and by name, the most important first."""


@dataclass(frozen=True)
class Measurement:
    """Name a measurement, and say which process makes it: its last line of output is JSON."""

    name: str
    command: tuple[str, ...]


def measurements(device: str, quick: bool, num_devices: int, only_figures: bool = False) -> Iterator[Measurement]:
    """Yield what is measured on a device, the most important first.

    Args:
        device: ``"cuda"``, or ``"cpu"`` to try the script out.
        quick: tiny sizes.
        num_devices: of the machine; two processes are measured where there are two, and on a CPU.
        only_figures: without tests.
    """
    own = ("benchmarks/gpu.py", "--device", device, *(["--quick"] if quick else []), "--only")
    python = sys.executable
    for name in (
        *gpu_causes.CAUSES,
        "irregular",
        "cifar10_iid",
        "fedau_table_1",
        "lockstep",
        "planned_ahead",
        "synchronizations",
    ):
        yield Measurement(name, (python, *own, name))
    for workload in WORKLOADS[:1] if quick else WORKLOADS:
        yield Measurement(workload, (python, *own, workload))
        for peer, cohorts in () if quick else PEERS.items():
            for cohort in cohorts:
                of = (peer, workload, "--cohort", str(cohort), "--device", device)
                yield Measurement(f"{workload} cohort {cohort} {peer}", (python, "benchmarks/gpu_peers.py", *of))
    if device == "cpu" or num_devices > 1:
        two = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *own, "rounds")
        yield Measurement("one process", (python, *own, "rounds"))
        yield Measurement("two processes", (python, *two))
    if not only_figures:
        yield Measurement("tests", (python, *own, "tests"))


def selected(all_of: Iterable[Measurement], call: str | None, limit: float) -> tuple[float, dict[Measurement, float]]:
    """Return the seconds that measurements may take together, and each of them, in the order of a call."""
    if call is None:
        return float("inf"), dict.fromkeys(all_of, limit)
    named = {each.name: each for each in all_of}
    seconds, limits = CALLS[call]
    return seconds, {named[name]: min(own, limit) for name, own in limits.items() if name in named}


def made(measurement: Measurement, limit: float) -> dict[str, Any]:
    """Return the figures of a measurement; under ``error`` why there are none."""
    path = os.pathsep.join(map(str, (ROOT / "src", ROOT, *filter(None, [os.environ.get("PYTHONPATH")]))))
    environment = os.environ | {"PYTHONPATH": path}
    try:
        done = subprocess.run(
            measurement.command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {limit:g} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        said = [line for line in (done.stderr.strip() or done.stdout).splitlines() if line.strip(" =-")]
        return {"error": said[-1] if said else f"exit code {done.returncode}"}
    return json.loads(lines[-1])


def tests(device: str, quick: bool) -> dict[str, Any]:
    """Run the tests on the device."""
    which = TESTS[1:2] if quick else TESTS
    without = ("-p", "no:cacheprovider", "-p", "no:benchmark")  # the latter warns where it is installed
    command = (sys.executable, "-m", "pytest", "-q", "-n", "0" if quick else "8", *without, *which)
    more = ("-k", "trained_together and vectorized") if quick else ()
    done = subprocess.run(
        (*command, *more),
        cwd=ROOT,
        env=os.environ | {"TURNOUT_TEST_DEVICE": device},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    return {
        "passed": done.returncode == 0,
        "failed": [line for line in lines if line.startswith("FAILED")],
        "summary": lines[-1:],
    }


def workload(name: str, device: str, quick: bool) -> dict[str, Any]:
    """Time rounds of a workload for each size of cohort and in each way; a way that fails leaves its error."""
    from turnout.workbench.speed.workloads import WORKLOADS as ALL

    cohorts = (3, 30) if quick else COHORTS
    federation = replace(ALL[name], num_clients=max(cohorts), num_examples=60)
    data, figures = federation.data(), {}
    for way in WAYS:
        for cohort in cohorts if way in ("cuda_graph", "plain") else cohorts[-1:]:
            try:
                figures[f"{name} cohort {cohort} {way}"] = _timed(
                    replace(federation, cohort_size=cohort), data, way, device
                )
            except Exception as error:
                figures[f"{name} cohort {cohort} {way}"] = {"error": f"{type(error).__name__}: {error}"}
    return figures


def irregular(device: str, quick: bool) -> dict[str, Any]:
    """Time rounds of W5, whose cohorts vary, and of fixed cohorts of the same mean, from the first round on."""
    from turnout.cli.settings import Settings
    from turnout.simulation import Simulation
    from turnout.workbench.speed.workloads import WORKLOADS as ALL

    number, totals = 4 if quick else 300, {}
    for way, workload in {"by_chance_s": ALL["W5"], "fixed_s": replace(ALL["W5"], by_chance=False)}.items():
        settings = Settings.of({"device": device, "rounds": 10**6}, workload.settings)
        simulation = Simulation(settings.experiment(workload.data()))
        totals[way] = sum(_seconds_of_round(simulation, torch.device(device)) for _ in range(number))
    return {"rounds": number, **totals, "by_chance_over_fixed": totals["by_chance_s"] / totals["fixed_s"]}


def _timed(federation: Any, data: Any, way: str, device: str) -> dict[str, Any]:
    """Return the median seconds of a round once its steps are replayed, and the seconds until then."""
    from turnout.cli.settings import Settings
    from turnout.simulation import Simulation

    os.environ["TURNOUT_BACKEND"], precision, in_convolutions, in_products = WAYS[way]
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = in_convolutions, in_products
    more = {"device": device, "rounds": 10**6, "precision": precision}
    simulation = Simulation(Settings.of(more, federation.settings).experiment(data))
    warm_up, seconds, of = [], [], torch.device(device)
    while len(warm_up) < 100 and not (simulation.objective.backends and len(warm_up) > 2):
        warm_up.append(_seconds_of_round(simulation, of))
    warm_up += [_seconds_of_round(simulation, of) for _ in range(3)]  # recordings are compared with the operations
    while len(seconds) < 3 or sum(seconds) < 0.7:
        seconds.append(_seconds_of_round(simulation, of))
    middle = sorted(seconds)[len(seconds) // 2]
    return {
        "client_updates_per_s": federation.cohort_size / middle,
        "round_s_median": middle,
        "warm_up_s": sum(warm_up),
        "backends": simulation.objective.backends,
        "lanes": simulation.workspace.lanes,
    }


def cifar10_iid(device: str, quick: bool) -> dict[str, Any]:
    """Time rounds of the CIFAR10-IID job of pfl-research's benchmarks, on random images of that shape; the goal is 30 s.

    1,000 clients of 50 images, 50 of them in each of 1,500 rounds, one epoch of minibatches of 10 at a step size of 0.1, and
    a network of two convolutions without padding (32 and 64 channels), one max-pooling, dropout of 0.25, a hidden layer of
    128, and dropout of 0.5. That job evaluates in every tenth round; here 400 rounds without evaluations are timed.

    Reference: github.com/apple/pfl-research, benchmarks/image_classification/configs/baseline.yaml and `simple_cnn` in
    benchmarks/model/pytorch/cnn.py.
    """
    from benchmarks.common import random_data
    from torch import nn

    import turnout as to

    clients, cohort, rounds = (6, 3, 3) if quick else (1000, 50, 400)
    first, second, hidden = (2, 2, 4) if quick else (32, 64, 128)
    model = nn.Sequential(
        nn.Conv2d(3, first, 3), nn.ReLU(), nn.Conv2d(first, second, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(second * 14 * 14, hidden), nn.ReLU(), nn.Dropout(0.5), nn.Linear(hidden, 10),
    )  # fmt: skip
    run = to.Experiment(
        random_data(clients, 50, (3, 32, 32)),
        model,
        to.average_participating(
            to.Sgd(lr=0.1, steps=None, epochs=1, batch_size=10), also=(to.selection.Uniform(cohort),)
        ),
        rounds=rounds,
        evaluate_every=rounds,
        device=device,
    )
    seconds = _seconds(run, rounds)
    middle = sorted(seconds)[len(seconds) // 2]
    return {
        "rounds": rounds,
        "cohort": cohort,
        "round_s_median": middle,
        "all_1500_rounds_s": 1500 * middle,
        "goal_s": 30.0,
    }


def fedau_table_1(device: str, quick: bool) -> dict[str, Any]:
    """Time rounds of FedAU's Table 1 (`reproductions/fedau/table-1.toml`) on random images, and what 10,000 of them take.

    250 clients of 200 images, each present with probability 0.1, the paper's network and augmentation, and in every tenth
    round an evaluation on 10,000 examples. The first 100 rounds, in which steps are recorded, are not timed.
    """
    from turnout.cli.settings import Settings
    from turnout.data.transforms import AUGMENTATIONS
    from turnout.simulation import Simulation
    from turnout.workbench.speed.workloads import WORKLOADS as ALL

    workload, number = replace(ALL["W1"], algorithm="fedau", by_chance=True), 3 if quick else 500
    workload = replace(workload, num_clients=10, num_examples=20) if quick else workload
    more = {"device": device, "rounds": 10**6, "evaluate_every": 10, "evaluation_examples": 10_000}
    data = workload.data()
    images = data.train.x.mul(0.2).add_(0.5)  # values around those of pixels, which the augmentation normalizes
    data = replace(data, train=replace(data.train, x=images), transforms=AUGMENTATIONS["cifar"]())
    simulation = Simulation(Settings.of(more, workload.settings).experiment(data))
    seconds = [_seconds_of_round(simulation, torch.device(device)) for _ in range(number + (0 if quick else 100))][
        -number:
    ]
    mean, middle = sum(seconds) / number, sorted(seconds)[number // 2]
    return {"round_s_median": middle, "round_s_mean": mean, "all_10000_rounds_s": 10_000 * mean, "goal_s": 60.0}


def rounds(device: str, quick: bool) -> dict[str, Any] | None:
    """Time rounds of W1's network in this process, or in all that torchrun has started, of which the first one tells."""
    from benchmarks.common import random_data

    import turnout as to
    from turnout.distributed import collectives

    number, cohort = (3, 4) if quick else (20, 100)
    with collectives.started(device):
        run = to.Experiment(
            random_data(2 * cohort, 20, (3, 32, 32)),
            to.models.Cnn(hidden=(4,), channels=2) if quick else to.models.Cnn.cifar10(),
            to.average_participating(to.Sgd(lr=0.05, steps=2 if quick else 5), also=(to.selection.Uniform(cohort),)),
            rounds=number,
            device=device,
        )
        seconds, processes = sorted(_seconds(run, number)), collectives.world_size()
        first = collectives.rank() == 0
    return {"processes": processes, "round_s_median": seconds[len(seconds) // 2]} if first else None


def lockstep(device: str, quick: bool) -> dict[str, Any]:
    """Return the milliseconds per round and run of one run, and of five seeds in lock-step, for the small workloads."""
    from turnout.cli.settings import Settings
    from turnout.engine.hardware import synchronize
    from turnout.simulation import Simulation
    from turnout.simulation.lockstep import together
    from turnout.workbench.speed.workloads import WORKLOADS as ALL

    def steps(simulation: Simulation, number: int) -> Any:
        for _ in range(number):
            yield from simulation.steps()

    figures, number = {}, 2 if quick else 50
    for name in ("W2", "W3"):
        workload = replace(ALL[name], num_clients=10 if quick else 100, num_examples=60, cohort_size=3 if quick else 25)
        data = workload.data()
        for runs in (1, 5):
            settings = [{"device": device, "rounds": 10**6, "seed": seed} for seed in range(runs)]
            simulations = [Simulation(Settings.of(each, workload.settings).experiment(data)) for each in settings]
            for _ in range(2):  # the first time, steps are traced
                begin = time.perf_counter()
                together([steps(simulation, number) for simulation in simulations])
                synchronize(torch.device(device))
                figures[f"{name} {runs} ms"] = 1e3 * (time.perf_counter() - begin) / number / runs
    return figures


def planned_ahead(device: str, quick: bool) -> dict[str, Any]:
    """Return the milliseconds per round with and without plans of the next round while the device computes, in turns."""
    from turnout.cli.settings import Settings
    from turnout.simulation import Simulation
    from turnout.workbench.speed.workloads import WORKLOADS as ALL

    figures, number = {}, 2 if quick else 20
    for name, cohort in (("W2", 25), ("W3", 25), ("W2", 1000), ("W3", 1000)):
        clients, cohort = (10, 3) if quick else (max(100, cohort), cohort)
        workload = replace(ALL[name], num_clients=clients, num_examples=60, cohort_size=cohort)
        run = Settings.of({"device": device, "rounds": 10**6}, workload.settings).experiment(workload.data())
        simulation = Simulation(run)
        plan_ahead, seconds = simulation.plan_ahead, {"ahead": list[float](), "in turn": list[float]()}
        for round in range(6 * number):
            way = ("ahead", "in turn")[round // number % 2]
            simulation.plan_ahead = plan_ahead if way == "ahead" else None
            took = _seconds_of_round(simulation, torch.device(device))
            if round >= 2 * number:  # at first, steps are traced
                seconds[way].append(took)
        figures |= {f"{name} cohort {cohort} {way} ms": 1e3 * sorted(all_of)[number] for way, all_of in seconds.items()}
    return figures


def synchronizations(device: str, quick: bool) -> dict[str, Any]:
    """Count how often the host waits for the GPU in a round of each workload, once steps are traced.

    On a CPU the rounds are run and nothing is counted.
    """
    from turnout.cli.settings import Settings
    from turnout.simulation import Simulation
    from turnout.workbench.speed.workloads import WORKLOADS as ALL

    counts: dict[str, Any] = {}
    for name in WORKLOADS:
        workload, more = ALL[name], {"device": device, "rounds": 10**6}
        if quick:
            workload = replace(workload, num_clients=3, num_examples=10, cohort_size=2)
            more |= {"local": {**workload.local, "steps": 1}}
        simulation = Simulation(Settings.of(more, workload.settings).experiment(workload.data()))
        for _ in range(1 if quick else 10):
            simulation.round()
        counts[name] = None if device == "cpu" else sorted(_waits(simulation) for _ in range(5))[2]
    return counts


def _waits(simulation: Any) -> int:
    """Return how often the host waits for the GPU in one round."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            simulation.round()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(warning.message) for warning in caught)


def _seconds(run: Any, number: int) -> list[float]:
    """Return the seconds of each round of an experiment but the last, which is evaluated."""
    from turnout.simulation import Simulation

    simulation = Simulation(run)
    return [_seconds_of_round(simulation, torch.device(run.device)) for _ in range(number - 1)]


def _seconds_of_round(simulation: Any, device: torch.device) -> float:
    """Return the seconds of the next round."""
    from turnout.engine.hardware import synchronize

    begin = time.perf_counter()
    simulation.round()
    synchronize(device)
    return time.perf_counter() - begin


OWN: Mapping[str, Callable[[str, bool], Any]] = {
    **{
        each.__name__: each
        for each in (tests, irregular, cifar10_iid, fedau_table_1, lockstep, planned_ahead, rounds, synchronizations)
    },
    **{name: partial(workload, name) for name in WORKLOADS},
    **gpu_causes.CAUSES,
}
"""Measurements that this file makes, by name."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the file and, without ``--out``, the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds that one measurement may take")
    parser.add_argument("--only", choices=OWN)
    parser.add_argument("--call", choices=CALLS, help="a selection, with limits in seconds")
    parser.add_argument("--only-figures", action="store_true", help="no tests")
    options = parser.parse_args(arguments)
    if options.only:
        if (figures := OWN[options.only](options.device, options.quick)) is not None:
            print(json.dumps(figures))
        return
    on_gpu = options.device != "cpu"
    if on_gpu and not torch.cuda.is_available():
        parser.error("there is no GPU here: write --device cpu --quick to try the script out")
    name = torch.cuda.get_device_name() if on_gpu else platform.processor() or platform.machine()
    number = torch.cuda.device_count()
    results: dict[str, Any] = {
        "machine": {"device": name, "devices": number, "torch": torch.__version__, "quick": options.quick},
        "figures": {},
    }
    out = options.out or (OUT if options.call is None else ROOT / "benchmarks" / f"gpu.{options.call}.json")
    every = measurements(options.device, options.quick, number, options.only_figures)
    (left, limits), began = selected(every, options.call, options.limit), time.perf_counter()
    for each, limit in limits.items():
        limit = min(limit, left - (time.perf_counter() - began))
        figures = made(each, limit) if limit > 0 else {"error": "no time was left"}
        results["figures"] |= figures if each.name in WORKLOADS and "error" not in figures else {each.name: figures}
        print(f"{each.name}: {figures.get('error') or 'done'}", flush=True)
        out.write_text(
            json.dumps(results, indent=1) + "\n", encoding="utf-8"
        )  # after each: a machine may be taken away
    if options.out is None and options.call is None:
        PAGE.write_text(gpu_page.with_section(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
