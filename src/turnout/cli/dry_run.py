"""Say what a run would compute, send and need, without training it."""

from __future__ import annotations

from collections.abc import Mapping

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table

from turnout.cli.runs import Plan, about
from turnout.experiment import Experiment
from turnout.simulation.simulation import Simulation

Figures = Mapping[str, int | str]


def planned(experiment: Experiment) -> dict[str, int | str]:
    """Return the sizes of a run, after everything was built and tried on one minibatch, as a run does before its first round.

    Bytes are those of one client that takes part in one round, as a run counts them, without measurements of their own phase.
    The memory is an upper bound of what one client in training takes, for parameters, gradients and saved activations.

    Raises:
        ConfigurationError: for what a run would refuse.
    """
    experiment.check_budget()
    simulation = Simulation(experiment)
    data, params = experiment.data, simulation.objective.initial
    up, down = simulation.message_bytes("train")
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
        "of which shared": simulation.objective.layout.num_shared,
        "rounds": experiment.rounds,
        "local steps of a client a round": steps if isinstance(steps, int) else "they vary",
        "bytes down, a client a round": down,
        "bytes up, a client a round": up,
        "clients that may train side by side": min(side_by_side, data.num_clients),
        "bytes of memory for each of them, at most": experiment.memory_budget // side_by_side,
        "bytes of memory for examples": sum(
            part.x.nbytes + part.y.nbytes for part in (data.train, data.test) if part is not None
        ),
        "engine": simulation.objective.engine,
        **private,
    }


def table_of(figures: Figures) -> Table:
    """Return the figures as a table."""
    table = Table("what would run", "", box=SIMPLE_HEAD)
    for name, value in figures.items():
        table.add_row(name, _text(value))
    return table


def planned_of_all(plan: Plan, what: str, runs: int | None = None) -> Group:
    """Return a table of what several experiments have in common, and one with a line for each of what they have not.

    Args:
        plan: the runs; the sizes are those of the first seed.
        what: an experiment is called: ``"algorithm"``.
        runs: how many there would be; None is every experiment with every seed.

    Raises:
        ConfigurationError: for what a run would refuse, with the name of what it is.
    """
    sizes: dict[str, Figures] = {}
    for name, experiment in plan.experiments(plan.seeds[0]).items():
        with about(name):
            sizes[name] = planned(experiment)
    names = list(dict.fromkeys(name for figures in sizes.values() for name in figures))
    unlike = [name for name in names if len({figures.get(name) for figures in sizes.values()}) > 1]
    first = next(iter(sizes.values()))
    number = len(plan.settings) * len(plan.seeds) if runs is None else runs
    tables = [table_of({"runs": number, **{name: first[name] for name in names if name not in unlike}})]
    if unlike:
        tables.append(table := Table(what, *unlike, box=SIMPLE_HEAD))
        for name, figures in sizes.items():
            table.add_row(name, *(_text(figures.get(column, "–")) for column in unlike))
    return Group(*tables)


def _text(value: int | str) -> str:
    return f"{value:,}" if isinstance(value, int) else value
