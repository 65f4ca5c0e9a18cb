"""Say what a run would compute, send and need, without training it."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table

from turnout.experiment import Experiment
from turnout.simulation.simulation import Simulation


def planned(experiment: Experiment) -> dict[str, int | str]:
    """Return the sizes of a run, after everything was built and tried on one minibatch, as a run does before its first round.

    Bytes are those of one client that takes part in one round, as a run counts them, without measurements of their own phase.
    The memory is an upper bound of what one client in training takes, for parameters, gradients and saved activations.

    Raises:
        ConfigurationError: for what a run would refuse.
    """
    simulation = Simulation(experiment)
    data, params = experiment.data, simulation.objective.initial
    up, down = simulation.message_bytes("train")
    plan, private = experiment.algorithm.privacy, {}
    if plan is not None:
        private = {f"epsilon at delta {plan.delta:g}": f"{plan.spent(experiment.rounds):.4g} ({plan.relation})"}
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


def table_of(figures: dict[str, int | str]) -> Table:
    """Return the figures as a table."""
    table = Table("what would run", "", box=SIMPLE_HEAD)
    for name, value in figures.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else value)
    return table
