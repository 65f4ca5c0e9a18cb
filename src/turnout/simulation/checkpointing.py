"""Save a simulation, its tables and a checkpoint, and go on from there."""

from __future__ import annotations

from pathlib import Path

from turnout.core.checks import CheckpointError
from turnout.distributed import collectives
from turnout.engine.choice import Choice
from turnout.protocol.tensors import as_arrays, as_tensors
from turnout.record import checkpoint
from turnout.record.describe import differences
from turnout.record.query import History, save_run
from turnout.simulation.simulation import Simulation
from turnout.simulation.trained import Trained


def save(simulation: Simulation, folder: Path, finished: bool = False) -> None:
    """Save what was recorded and a checkpoint."""
    groups = simulation.coordinator.state_groups() | {"memory": simulation.memory.state()}
    groups["opt_in"] = simulation.opt_in.state()
    groups |= {f"time.{name}": as_tensors(arrays) for name, arrays in simulation.driver.state().items()}
    tensors, model = Trained.of(simulation).saved()
    groups |= tensors
    facts = {
        "model": model,
        "version": simulation.state.version,
        "experiment": simulation.description,
        "engine": simulation.objective.engine,
    }
    save_run(folder, simulation.history, checkpoint.flatten(groups), facts, finished)


def restore(simulation: Simulation, folder: Path) -> None:
    """Take over what was saved, so that the run goes on as if nothing had happened.

    Raises:
        CheckpointError: for a checkpoint of another experiment, naming what differs.
    """
    tensors, facts = checkpoint.load(folder, or_previous=True)
    # More rounds than first planned are the one change that changes nothing of what was done.
    then, now = (d | {"rounds": None} for d in (facts.get("experiment", {}), simulation.description))
    if different := list(differences(then, now)):
        raise CheckpointError(
            f"the checkpoint in {folder} is of another experiment (there, and here): {'; '.join(different[:5])}"
        )
    if (engine := facts.get("engine", simulation.objective.engine)) != simulation.objective.engine:
        simulation.objective.use(Choice(engine, "as this run began"))
    simulation.coordinator.restore(lambda group: checkpoint.unflatten(tensors, group))
    simulation.show()
    simulation.memory.restore(checkpoint.unflatten(tensors, "memory"))
    simulation.opt_in.restore(checkpoint.unflatten(tensors, "opt_in"))
    groups = simulation.driver.state()
    simulation.driver.restore({name: as_arrays(checkpoint.unflatten(tensors, f"time.{name}")) for name in groups})
    history = History.load(folder, simulation.state.version)
    if collectives.rank():  # the log is for process 0 to append to and to delete
        history.rewind(history.last_round)
    simulation.recorder.history = history
