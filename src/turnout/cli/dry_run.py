"""Say what a run would compute, send and need, without training it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table

from turnout.cli.settings import Settings
from turnout.core.checks import ConfigurationError, DataError
from turnout.data.federated import FederatedData
from turnout.experiment import Experiment
from turnout.simulation.simulation import Simulation


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


Figures = Mapping[str, int | str]


def table_of(figures: Figures) -> Table:
    """Return the figures as a table."""
    table = Table("what would run", "", box=SIMPLE_HEAD)
    for name, value in figures.items():
        table.add_row(name, _text(value))
    return table


def tables_of(many: Mapping[str, Figures], runs: int, what: str) -> list[Table]:
    """Return a table of what several experiments have in common, and one with a line for each of what they have not.

    Args:
        many: the figures of each, by name.
        runs: how many runs there would be.
        what: an experiment is called: ``"algorithm"``.
    """
    names = list(dict.fromkeys(name for figures in many.values() for name in figures))
    unlike = [name for name in names if len({figures.get(name) for figures in many.values()}) > 1]
    first = next(iter(many.values()))
    found = [table_of({"runs": runs, **{name: first[name] for name in names if name not in unlike}})]
    if unlike:
        found.append(table := Table(what, *unlike, box=SIMPLE_HEAD))
        for name, figures in many.items():
            table.add_row(name, *(_text(figures.get(column, "\u2013")) for column in unlike))
    return found


def planned_of_all(plan: Mapping[str, Settings], seeds: Sequence[int], what: str, runs: int | None = None) -> Group:
    """Return the tables of a plan, each of which would run with every seed; the sizes are those of the first.

    Raises:
        ConfigurationError: for what a run would refuse, with the name of what it is.
    """
    loaded: dict[str, FederatedData] = {}
    found = {}
    for name, settings in plan.items():
        ours = settings.seeded(seeds[0])
        key = json.dumps(ours.table["data"], sort_keys=True)
        try:
            loaded[key] = loaded.get(key) or ours.data()
            found[name] = planned(ours.experiment(loaded[key]))
        except (ConfigurationError, DataError) as error:
            raise type(error)(f"{name}: {error}") from error
    return Group(*tables_of(found, runs or len(plan) * len(seeds), what))


def _text(value: int | str) -> str:
    return f"{value:,}" if isinstance(value, int) else value
