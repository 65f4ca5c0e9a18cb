"""Time the rounds of an experiment, and compare them with the throughput of the machine."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import replace
from typing import Any

import torch

from turnout.core.checks import ConfigurationError, count
from turnout.engine import allocator
from turnout.engine.choice import Engine
from turnout.engine.hardware import synchronize
from turnout.experiment import Experiment
from turnout.record.environment import environment
from turnout.simulation.simulation import Simulation
from turnout.workbench.speed import arithmetic, process
from turnout.workbench.speed.stopwatch import TimedSimulation

_ROUNDS_OF_OTHER = 4  # the first of which is not counted


def measure(experiment: Experiment, *, name: str = "", apart: float = 0.0, rates: bool = True) -> dict[str, Any]:
    """Time the rounds of an experiment without saving anything.

    The first round, which loads libraries and compiles, is reported separately from the others. Evaluations count only in
    their own stage. For a correct start-up time, call it first in a new process.

    Args:
        experiment: experiment of at least two rounds.
        name: name of the workload.
        apart: seconds of the process that do not count as start-up, such as those of drawing random data.
        rates: also measure the throughput of the machine and, if the experiment does not name an engine, the speed of
            the other engine. This takes a second and a few more rounds.

    Returns:
        Plain values by name:

        - ``startup_s``, ``first_round_s``, ``startup_and_first_round_s``, ``total_s``: seconds from the start of the process
          to the first round, of the first round, of both, and to the end of the last round;
        - ``round_s_median``, ``_min``, ``_max``; ``client_updates_per_s``: the median cohort over the median round;
          ``client_updates_per_s_quartiles`` over rounds; ``client_updates_per_s_mean`` over all rounds but the first;
        - ``stages_s``: total seconds of ``data`` (choosing and gathering minibatches, see
          `TimedSimulation.data_seconds`), ``training`` (other work of clients), ``server`` and ``evaluation``;
        - ``cpu_s_per_round``, ``cores_used`` of this process; ``other_cpu_share``: the share of all processors' time that
          other processes used; ``minor_faults`` of this process, in total and per round;
        - ``peak_rss_mb``: peak memory of this process; ``data_mb`` of the examples;
        - ``initial_loss``, ``final_loss`` on the training examples of evaluations;
        - ``gflop_per_update``, ``gflops``: operations of the gradients of local steps, per update and per second;
        - ``engine``, ``engine_reason``; ``client_updates_per_s_by_engine``: the speed of both engines, that of the other one
          over a few rounds, None if it cannot compute the model;
        - ``matrix_gflops``, ``convolution_gflops``: throughput of the machine; ``fraction_of_machine``: the share of the
          time of the rounds that their operations would take at this throughput.

    Raises:
        ConfigurationError: if there are fewer than two rounds, or experiments cannot run.
    """
    count("rounds", experiment.rounds, least=2, instead="The first round is not counted among the others")
    simulation = TimedSimulation(experiment)
    synchronize(torch.device(experiment.device))
    startup, began = process.age() - apart, time.perf_counter()
    simulation.round()
    usage = time.perf_counter(), process.Usage.now()
    for _ in range(experiment.rounds - 1):
        simulation.round()
    total = startup + time.perf_counter() - began - simulation.watch.seconds["evaluation"]
    figures = {"peer": "turnout", "workload": name, "rounds": experiment.rounds}
    figures |= _speed(simulation, startup, total)
    figures |= _load(usage, experiment.rounds - 1)
    train = experiment.data.train
    data_mb = (train.x.nbytes + train.y.nbytes) / 2**20
    figures |= {"peak_rss_mb": round(process.peak(), 1), "data_mb": round(data_mb, 1)}
    figures |= {"stages_s": _stages(simulation)}
    figures |= _losses(simulation)
    figures |= _arithmetic(simulation, rates)
    objective = simulation.objective
    if rates and experiment.engine == "auto":
        figures |= {"client_updates_per_s_by_engine": _by_engine(simulation, figures["client_updates_per_s"])}
    load: Any = getattr(os, "getloadavg", None)  # which Windows lacks
    return figures | {
        "engine": objective.engine,
        "engine_reason": objective.choice.reason,
        "backends": ", ".join(f"{name} ({number})" for name, number in objective.backends.items()) or "none yet",
        "threads": objective.threads.num_threads,
        "device": experiment.device,
        "parameters": objective.initial.numel(),
        "loadavg_1m_at_end": round(load()[0], 2) if load is not None else None,
        "malloc_mmap_threshold": allocator.setting(),
        "versions": {key: environment()[key] for key in ("turnout", "python", "torch", "numpy")},
    }


def _by_engine(simulation: TimedSimulation, speed: float) -> dict[str, float | None]:
    """Return the updates per second of both engines: the known speed of one, and that of a few rounds with the other."""
    experiment, used = simulation.experiment, simulation.objective.engine
    other: Engine = "one_by_one" if used == "vectorized" else "vectorized"
    speeds: dict[str, float | None] = {used: speed, other: None}
    try:
        timed = TimedSimulation(replace(experiment, engine=other))
    except ConfigurationError:  # torch.func.vmap cannot batch the model
        return speeds
    for _ in range(min(experiment.rounds, _ROUNDS_OF_OTHER)):
        timed.round()
    return speeds | {other: round(statistics.median(timed.updates[1:]) / statistics.median(timed.seconds[1:]), 2)}


def _speed(simulation: TimedSimulation, startup: float, total: float) -> dict[str, Any]:
    """Summarize the duration of rounds and the updates per second: the first round alone, statistics of the others."""
    (first, *later), done = simulation.seconds, simulation.updates[1:]
    middle = statistics.median(later)
    rates = [u / s for u, s in zip(done, later, strict=True)]
    low, _, high = statistics.quantiles(rates, n=4, method="inclusive") if len(rates) > 1 else rates * 3
    return {
        "startup_s": round(startup, 3),
        "first_round_s": round(first, 4),
        "startup_and_first_round_s": round(startup + first, 3),
        "round_s_median": round(middle, 5),
        "round_s_min": round(min(later), 5),
        "round_s_max": round(max(later), 5),
        "total_s": round(total, 3),
        "cohort": statistics.median(done),
        "client_updates_per_s": round(statistics.median(done) / middle, 2),
        "client_updates_per_s_quartiles": [round(low, 2), round(high, 2)],
        "client_updates_per_s_mean": round(sum(done) / sum(later), 2),
    }


def _stages(simulation: TimedSimulation) -> dict[str, float | None]:
    """Return the seconds in each stage, with the time of gathering data taken out of that of training."""
    stages, data = simulation.watch.seconds, simulation.data_seconds()
    alone = None if data is None else min(data, stages["training"])
    seconds_by_stage = {"data": alone} | stages | {"training": stages["training"] - (alone or 0.0)}
    return {stage: None if seconds is None else round(seconds, 4) for stage, seconds in seconds_by_stage.items()}


def _load(since: tuple[float, process.Usage], rounds: int) -> dict[str, Any]:
    """Return the processor time since the end of the first round."""
    begin, before = since
    seconds, now = time.perf_counter() - begin, process.Usage.now()
    used, share, faults = now.process - before.process, None, None
    if now.machine is not None and before.machine is not None:
        share = round(max(0.0, now.machine - before.machine - used) / (seconds * (os.cpu_count() or 1)), 3)
    if now.faults is not None and before.faults is not None:
        faults = round((now.faults - before.faults) / rounds)
    return {
        "cpu_s_per_round": round(used / rounds, 4),
        "cores_used": round(used / seconds, 2),
        "other_cpu_share": share,
        "minor_faults": now.faults,
        "minor_faults_per_round": faults,
    }


def _losses(simulation: Simulation) -> dict[str, Any]:
    """Return the training loss at the start and now."""
    before, after = Simulation(simulation.experiment).evaluate()["train_loss"], simulation.evaluate()["train_loss"]
    return {"initial_loss": round(before, 5), "final_loss": round(after, 5), "loss_fell": after < before}


def _arithmetic(simulation: TimedSimulation, rates: bool) -> dict[str, Any]:
    """Return the operations of local steps and, with `rates`, the share of the machine's throughput that they use."""
    done = arithmetic.of_gradient(simulation.experiment).times(simulation.workers.num_examples_used)
    seconds = sum(simulation.seconds)
    figures = {
        "gflop_per_update": round(done.total / max(simulation.workers.num_trained, 1) / 1e9, 6),
        "gflops": round(done.total / seconds / 1e9, 3),
    }
    if not rates:
        return figures
    matrix = arithmetic.matrix_rate(simulation.experiment.device)
    convolution = arithmetic.convolution_rate(simulation.experiment.device)
    return figures | {
        "matrix_gflops": round(matrix / 1e9, 1),
        "convolution_gflops": round(convolution / 1e9, 1),
        "fraction_of_machine": round(done.seconds(matrix, convolution) / seconds, 4),
    }
