"""Show the sizes of a run, its messages and its memory, without training."""

from __future__ import annotations

from collections.abc import Mapping

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table

from turnout.cli.options import without
from turnout.cli.run_plan import Plan, about
from turnout.core.device import memory_budget
from turnout.experiment import Experiment
from turnout.simulation.simulation import Simulation

Figures = Mapping[str, int | str]


def planned(experiment: Experiment) -> dict[str, int | str]:
    """Build a run, try it on one minibatch, and return its sizes.

    Bytes are those of one client in one round, without the phases of measurements. Memory is an upper bound for the
    parameters, gradients and saved activations of one client.

    Raises:
        ConfigurationError: if the run would raise it.
    """
    experiment.check_budget()
    simulation = Simulation(experiment)
    data, params = experiment.data, simulation.objective.initial
    up, down = simulation.messages.of("train")
    plan, private = experiment.algorithm.privacy, {}
    if plan is not None:
        private = {
            f"epsilon at delta {plan.delta:g}": f"{plan.spent(experiment.rounds, experiment.rounds):.4g} ({plan.relation})"
        }
    steps, side_by_side = getattr(experiment.algorithm.local, "steps", None), simulation.workspace.lanes
    return {
        "clients": data.num_clients,
        "training examples": len(data.train.x),
        "test examples": 0 if data.test is None else len(data.test.x),
        "parameters": params.numel(),
        "shared parameters": simulation.objective.layout.num_shared,
        "rounds": experiment.rounds,
        "local steps per client and round": steps if isinstance(steps, int) else "variable",
        "bytes down per client and round": down,
        "bytes up per client and round": up,
        "maximum clients in parallel": min(side_by_side, data.num_clients),
        "maximum memory of each, bytes": memory_budget(simulation.objective.device, experiment.memory_budget)
        // side_by_side,
        "memory of examples, bytes": sum(
            part.x.nbytes + part.y.nbytes for part in (data.train, data.test) if part is not None
        ),
        "engine": simulation.objective.engine,
        **private,
    }


def table_of(figures: Figures) -> Table:
    """Return the figures as a table."""
    table = Table("size", "", box=SIMPLE_HEAD)
    for name, value in figures.items():
        table.add_row(name, _text(value))
    return table


def planned_of_all(plan: Plan, what: str, runs: int | None = None) -> Group:
    """Return a table of the sizes that experiments have in common, and one of the others with a row per experiment.

    Args:
        plan: the runs; the sizes are those of the first seed.
        what: title of the column of names: ``"algorithm"``.
        runs: number of runs; None is all experiments with all seeds.

    Raises:
        ConfigurationError: if a run would raise it, with the name of the experiment.
    """
    sizes: dict[str, Figures] = {}
    for name, experiment in plan.experiments(plan.seeds[0]).items():
        with about(name):
            sizes[name] = planned(experiment)
    number = len(plan.settings) * len(plan.seeds) if runs is None else runs
    names = list(dict.fromkeys(name for figures in sizes.values() for name in figures))
    different = [name for name in names if len({figures.get(name) for figures in sizes.values()}) > 1]
    first = next(iter(sizes.values()))
    tables = [table_of({"runs": number, **without(first, different)})]
    if different:
        tables.append(table := Table(what, *different, box=SIMPLE_HEAD))
        for name, figures in sizes.items():
            table.add_row(name, *(_text(figures.get(column, "–")) for column in different))
    return Group(*tables)


def _text(value: int | str) -> str:
    return f"{value:,}" if isinstance(value, int) else value
