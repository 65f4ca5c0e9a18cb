"""Run a simulation to its end, with checkpoints, callbacks, signals, and a lock on its folder."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from turnout.callbacks import Callbacks
from turnout.core import signals
from turnout.core.adapter import BASE_OFFSET
from turnout.core.checks import CheckpointError, TurnoutError
from turnout.core.types import State
from turnout.distributed import collectives
from turnout.engine.choice import Choice
from turnout.protocol.tensors import as_arrays, as_tensors
from turnout.record import checkpoint, contents, lock
from turnout.record.describe import differences, without_neutral
from turnout.record.query import History, save_run
from turnout.record.saved import save_end
from turnout.record.trained import Trained
from turnout.simulation.simulation import Simulation
from turnout.simulation.stall import check_participation


class Interrupted(TurnoutError):
    """The user stopped the run; the message says where its checkpoint is."""


def rounds_left(
    simulation: Simulation,
    folder: Path | None,
    checkpoint_every: int | None,
    ended: Callable[[], bool],
    callbacks: Callbacks,
    signal: signals.Flag,
) -> Iterator[int]:
    """Yield the version before each remaining round; save checkpoints after rounds and at the end.

    The caller takes the round before it requests the next version.

    Args:
        simulation: the run.
        folder: the folder of the run; None saves nothing.
        checkpoint_every: rounds between checkpoints; None saves once a minute.
        ended: reports a round to callbacks, and returns True if it is to be the last.
        callbacks: receive the progress of long work.
        signal: set to stop after the present round.

    Raises:
        Interrupted: if the run was stopped.
    """
    rounds, saved = simulation.experiment.rounds, time.monotonic()

    def save(finished: bool = False) -> None:
        if folder is not None and collectives.rank() == 0:
            save_simulation(simulation, folder, finished)

    simulation.workspace.watch = _watch(folder, callbacks, signal)
    if collectives.world_size() > 1 and not simulation.state.version:
        save()  # the run can be resumed from here if another process is lost
    while (spent := simulation.server.over) is None:
        yield simulation.state.version
        version = simulation.state.version
        try:
            over = ended()
        except Interrupted:
            save()
            raise
        due = version % checkpoint_every == 0 if checkpoint_every else time.monotonic() - saved > 60.0
        if collectives.anyone(signal.is_set()):
            save()
            go_on = f", all saved. Go on with: turnout run --resume {folder}"
            how = go_on if folder is not None else "; without a folder nothing was saved"
            raise Interrupted(f"stopped after round {version} of {rounds}{how}")
        if collectives.anyone(over):
            break
        if due and version < rounds:
            save()
            saved = time.monotonic()
    simulation.finish()
    save(finished=True)
    check_participation(simulation.history, simulation.experiment)
    if simulation.state.version < rounds:
        if spent is not None:
            warnings.warn(spent, RuntimeWarning, stacklevel=2)
        if folder is not None and collectives.rank() == 0:
            save_end(folder, simulation.state.version, simulation.history.stopped_by)


def _watch(folder: Path | None, callbacks: Callbacks, signal: signals.Flag) -> Callable[[str, int, int], None]:
    """Return a function that passes the progress of long work to callbacks, and ends the run if it was stopped."""

    def watch(what: str, done: int, total: int) -> None:
        callbacks.on_work(what, done, total)
        if signal.is_set() and collectives.world_size() == 1:  # several processes stop together, after the round
            saved = folder is not None and checkpoint.exists(folder)
            hint = (
                f"go on from the last checkpoint with: turnout run --resume {folder}" if saved else "nothing was saved"
            )
            raise Interrupted(f"stopped within a round, at {what} ({done} of {total} clients); {hint}")

    return watch


@contextmanager
def watching(simulation: Simulation, folder: Path | None, callbacks: Callbacks) -> Iterator[Callable[[], bool]]:
    """Call callbacks at the start and the end of a run; yield a function that calls them after a round."""
    over = False

    def ended() -> bool:
        nonlocal over
        over = bool(callbacks.on_round({"round": simulation.state.version, **simulation.row}))
        if over:
            simulation.history.stopped_by = callbacks.stopped_by
        return over

    callbacks.on_start(simulation.recorder.published.settings(simulation.description), folder)
    if simulation.state.version and callbacks.look_back:
        callbacks.on_earlier(simulation.history.rounds.to_pylist())
    try:
        yield ended
    except BaseException as error:
        status = "interrupted" if isinstance(error, Interrupted | KeyboardInterrupt) else "failed"
        callbacks.on_end({"status": status, "rounds": simulation.state.version})
        raise
    status = "stopped" if over or simulation.state.version < simulation.experiment.rounds else "finished"
    callbacks.on_end({"status": status, "rounds": simulation.state.version} | simulation.history.summary())


@contextmanager
def alone_in(folder: Path | None) -> Iterator[bool]:
    """Lock a folder against other runs, if there is one; process 0 locks it for all processes of this run.

    Yields:
        True if this process created the folder.

    Raises:
        CheckpointError: if another run uses the folder, on all processes.
    """
    refused: CheckpointError | None = None
    created = False
    with ExitStack() as stack:
        if folder is not None and collectives.rank() == 0:
            try:
                created = stack.enter_context(lock.locked(folder))
            except CheckpointError as error:
                refused = error
        if (why := collectives.broadcast(refused and str(refused))) is not None:
            raise CheckpointError(why) from refused
        yield created


@contextmanager
def stops_on_signal() -> Iterator[signals.Flag]:
    """Yield a flag that Ctrl-C, SIGTERM and SIGHUP set, so that a run stops between rounds.

    A second Ctrl-C or SIGTERM stops at once. A second SIGHUP does not, because both shell and system may send one.
    """
    signal = signals.Flag()

    def stop(number: int) -> None:
        if signal.is_set() and number != signals.HANGUP:
            raise KeyboardInterrupt
        signal.set()

    with signals.handled(stop):
        yield signal


def _tensors(simulation: Simulation) -> dict[str, torch.Tensor]:
    """Return the state of a simulation as one flat mapping, except the trained model."""
    groups = simulation.coordinator.state_groups() | {"memory": simulation.memory.state()}
    groups["opt_in"] = simulation.opt_in.state()
    groups |= {f"time.{name}": as_tensors(arrays) for name, arrays in simulation.driver.state().items()}
    return checkpoint.flatten(groups)


def trained(simulation: Simulation) -> Trained:
    """Return the present model of a simulation."""
    experiment = simulation.experiment
    personal = simulation.memory if experiment.algorithm.personal is not None else None
    model = Trained.of(experiment, simulation.objective, simulation.state.params.clone(), personal)
    if (offset := simulation.server.shared().get(BASE_OFFSET)) is None:
        return model
    return replace(model, offset=offset.detach().cpu().clone())


def save_simulation(simulation: Simulation, folder: Path, finished: bool = False) -> None:
    """Save the tables and a checkpoint of a run."""
    tensors, model = trained(simulation).saved()
    facts = {
        "model": model,
        "version": simulation.state.version,
        "experiment": simulation.description,
        "engine": simulation.objective.engine,
        "unplanned": simulation.recorder.unplanned,
    }
    whole = _tensors(simulation) | checkpoint.flatten(tensors)
    save_run(folder, simulation.history, whole, facts, finished)


def restore(simulation: Simulation, folder: Path) -> None:
    """Restore a run from its checkpoint. It continues as if it had not been interrupted.

    Raises:
        CheckpointError: if the checkpoint is of another experiment, naming the differences.
    """
    tensors, facts = checkpoint.load(folder, or_previous=True)
    then, now = map(without_neutral, (facts.get("experiment", {}), simulation.description))
    if different := list(differences(then, now)):
        raise CheckpointError(
            f"the checkpoint in {folder} is of another experiment (there, and here): {'; '.join(different[:5])}"
        )
    if (engine := facts.get("engine", simulation.objective.engine)) != simulation.objective.engine:
        simulation.objective.use(Choice(engine, "as this run began"))
    file = folder / checkpoint.FILE
    _check_forms(file, tensors, _tensors(simulation))
    with contents.restoring(file, "coordinator"):
        simulation.coordinator.restore(lambda group: checkpoint.unflatten(tensors, group))
        simulation.show()
    with contents.restoring(file, "memory"):
        simulation.memory.restore(checkpoint.unflatten(tensors, "memory"))
    with contents.restoring(file, "opt_in"):
        simulation.opt_in.restore(checkpoint.unflatten(tensors, "opt_in"))
    with contents.restoring(file, "time"):
        groups = simulation.driver.state()
        simulation.driver.restore({name: as_arrays(checkpoint.unflatten(tensors, f"time.{name}")) for name in groups})
    history = History.load(folder, simulation.state.version)
    history.stopped_by = None  # the run goes on
    if simulation.state.version < simulation.experiment.rounds and (names := facts.get("unplanned")):
        with contents.restoring(file, "unplanned"):
            history.forget(names)  # an uninterrupted run does not evaluate here
    if collectives.rank():  # process 0 alone appends to the log and deletes it
        history.rewind(history.last_round)
    simulation.recorder.history = history


def _check_forms(file: Path, tensors: State, fresh: State) -> None:
    """Check the types and shapes of saved tensors against those of the simulation before its first round.

    The state of the server keeps its shapes. Tables of the pace, of client memory and of the clock gain rows and keep their
    columns.

    Raises:
        CheckpointError: if not, naming the tensor.
    """
    for name, first in fresh.items():
        if (tensor := tensors.get(name)) is None:
            continue  # `restore` reports it, or sets a default where earlier versions saved no such tensor
        grows = not name.startswith(("model/", "server."))
        shapes = [tuple(it.shape[1:] if grows and it.dim() else it.shape) for it in (tensor, first)]
        if tensor.dtype != first.dtype or tensor.dim() != first.dim() or shapes[0] != shapes[1]:
            got, needed = (f"{it.dtype} {list(it.shape)}" for it in (tensor, first))
            raise contents.damaged(file, f"{name}: got {got}, needed {needed}")
