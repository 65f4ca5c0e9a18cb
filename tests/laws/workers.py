"""One of several processes that run every recipe together."""

import torch
from torch import distributed

from .recipes import SOME, experiment, standard, tables, trained

RESUMED = ("fedau", "scaffold_p", "fedvarp")
"""Recipes that are stopped and resumed: what the server keeps of clients, what they keep, and a table of updates."""

SHARDED = sorted(
    {
        *SOME, "average_all", "folb_heterogeneous", "fednu with signs", "fednova", "scaffold, option I", "qffl",
        "fedstaleweight", "fedexp",
    }
)  # fmt: skip
"""Recipes that two processes run: everything that they exchange, which is sums, lengths and products of updates, rows of
tables, measurements and memory; laws of one process hold for all."""


def outcome(simulation):
    """All that a run ends with, as plain values and tensors."""
    state, memory = simulation.state, simulation.memory.state()
    order = memory["clients"].argsort() if memory else torch.empty(0)
    return {
        "params": state.params,
        "slots": {f"{place}.{name}": value for place, slot in state.slots.items() for name, value in slot.items()},
        "memory": {name: rows[order] for name, rows in memory.items()},
        "tables": {name: table.to_pylist() for name, table in tables(simulation).items()},
    }


def main(rank, processes, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=processes)
    torch.save({name: outcome(trained(standard(name), lanes=2)) for name in SHARDED}, folder / f"{rank}.pt")
    for name in RESUMED:
        experiment(name, rounds=8).run(folder / name / "whole")
        experiment(name, rounds=5).run(folder / name / "cut")
        experiment(name, rounds=8).run(folder / name / "cut", resume=True)
        experiment(name, rounds=5).run(folder / name / "half")
    distributed.destroy_process_group()
