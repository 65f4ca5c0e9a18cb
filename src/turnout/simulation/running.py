"""Take a run from its first round to its last: checkpoints, callbacks, signals, and one run in a folder at a time."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from turnout.callbacks import Callbacks
from turnout.core import signals
from turnout.core.checks import CheckpointError, TurnoutError
from turnout.distributed import collectives
from turnout.record import checkpoint, storage
from turnout.simulation.checkpointing import save as save_simulation
from turnout.simulation.simulation import Simulation

STOPPED = "stopped.json"
"""The file that says after how many rounds a callback ended a run, which is whole then and yet may go on."""


class Interrupted(TurnoutError):
    """The run was stopped by the user; its checkpoint is saved where the message says."""


def train_to_the_end(
    simulation: Simulation,
    folder: Path | None,
    checkpoint_every: int | None,
    ended: Callable[[], bool],
    callbacks: Callbacks,
    stopped: signals.Flag,
) -> None:
    """Go through the rounds that are left, with checkpoints on the way and at the end."""
    rounds, saved = simulation.experiment.rounds, time.monotonic()

    def save(finished: bool = False) -> None:
        if folder is not None and collectives.rank() == 0:
            save_simulation(simulation, folder, finished)

    simulation.workspace.watch = _watch(folder, callbacks, stopped)
    if collectives.world_size() > 1 and not simulation.state.version:
        save()  # so that there is something to go on from whenever another process is lost
    while (spent := simulation.coordinator.over) is None:
        simulation.round()
        version = simulation.state.version
        try:
            over = ended()
        except Interrupted:
            save()
            raise
        due = version % checkpoint_every == 0 if checkpoint_every else time.monotonic() - saved > 60.0
        if collectives.anyone(stopped.is_set()):
            save()
            raise Interrupted(_stopped(version, rounds, folder))
        if collectives.anyone(over):
            break
        if due and version < rounds:
            save()
            saved = time.monotonic()
    simulation.finish()
    save(finished=True)
    if simulation.state.version < rounds:
        if spent is not None:
            warnings.warn(spent, RuntimeWarning, stacklevel=2)
        _note_end(simulation.state.version, folder)


def _note_end(version: int, folder: Path | None) -> None:
    """Keep after how many rounds a callback, or the privacy budget, ended the run."""
    if folder is not None and collectives.rank() == 0:
        storage.save(folder, {STOPPED: storage.json_writer({"rounds": version})})


def _stopped(version: int, rounds: int, folder: Path | None) -> str:
    """Say where a run was stopped, and how it goes on."""
    where = f"stopped after round {version} of {rounds}"
    if folder is None:
        return f"{where}; without a folder nothing was saved"
    return f"{where}, all saved. Go on with: turnout run --resume {folder}"


def _watch(folder: Path | None, callbacks: Callbacks, stopped: signals.Flag) -> Callable[[str, int, int], None]:
    """Make what is told of long work within a round: it tells callbacks, and ends the run where it was stopped."""

    def watch(what: str, done: int, total: int) -> None:
        callbacks.on_work(what, done, total)
        if stopped.is_set() and collectives.world_size() == 1:  # several processes stop together, after the round
            saved = folder is not None and checkpoint.exists(folder)
            hint = (
                f"go on from the last checkpoint with: turnout run --resume {folder}" if saved else "nothing was saved"
            )
            raise Interrupted(f"stopped within a round, at {what} ({done} of {total} clients); {hint}")

    return watch


@contextmanager
def watching(simulation: Simulation, folder: Path | None, callbacks: Callbacks) -> Iterator[Callable[[], bool]]:
    """Tell callbacks of a run; yields a function that tells them of a round, and returns whether it is to be the last."""
    over = False

    def ended() -> bool:
        nonlocal over
        over = callbacks.on_round({"round": simulation.state.version, **simulation.row})
        return over

    callbacks.on_start(simulation.description, folder)
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
    """Keep other runs out of a folder, if there is one; process 0 does so for all of this run.

    Yields whether this process created the folder.

    Raises:
        CheckpointError: on all processes, where another run is going on there.
    """
    refused: CheckpointError | None = None
    created = False
    with ExitStack() as held:
        if folder is not None and collectives.rank() == 0:
            try:
                created = held.enter_context(storage.locked(folder))
            except CheckpointError as error:
                refused = error
        if (why := collectives.broadcast(refused and str(refused))) is not None:
            raise CheckpointError(why) from refused
        yield created


@contextmanager
def stops_on_signal() -> Iterator[signals.Flag]:
    """Yield a flag that Ctrl-C, SIGTERM and SIGHUP set, so that a round is never cut in the middle.

    A second Ctrl-C or SIGTERM stops at once. A second SIGHUP does not: a shell and the system both send one.
    """
    stopped = signals.Flag()

    def stop(number: int) -> None:
        if stopped.is_set() and number != signals.HANGUP:
            raise KeyboardInterrupt
        stopped.set()

    with signals.handled(stop):
        yield stopped
