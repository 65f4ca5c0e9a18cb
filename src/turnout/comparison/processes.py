"""Perform runs one after another in this process, or in several processes side by side."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from multiprocessing.connection import wait
from multiprocessing.synchronize import Event
from types import ModuleType
from typing import Any, Protocol

import cloudpickle
import torch

from turnout.comparison.run import Run, Update, perform
from turnout.comparison.sharing import Worker
from turnout.core.signals import HANGUP, Flag
from turnout.engine.allocator import keep_large_buffers


class StopSignal(Protocol):
    """Tell whether runs are to stop: a `turnout.core.signals.Flag`, or a file."""

    def is_set(self) -> bool:
        """Return whether they are to stop."""
        ...

    def wait(self, timeout: float) -> bool:
        """Wait for it, or so many seconds."""
        ...


def in_sequence(worker: Worker, threads: int, stopped: StopSignal) -> None:
    """Perform the runs of a worker one after another in this process."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        while not worker.is_done and not stopped.is_set():
            if (run := worker.next()) is None:
                stopped.wait(0.2)  # until another worker ends, or dies
                worker.refresh()
                continue
            update = perform(run, partial(worker.tell, run), stopped.is_set)
            worker.tell(run, update)
            if update.status == "stopped":
                worker.leave()
    finally:
        torch.set_num_threads(before)


def in_processes(worker: Worker, processes: int, threads: int, stopped: Flag, devices: Sequence[str] = ()) -> None:
    """Perform the runs of a worker; where a process dies, its run has failed and the others go on.

    Args:
        worker: takes runs, and is told of them.
        processes: at most so many.
        threads: of each.
        stopped: whether runs are to be saved and left.
        devices: GPUs; each process gets the one that the fewest others have.
    """
    with _unheard():  # which starts a process that keeps track of what all share
        stop = _context().Event()
    busy: dict[Any, _Process] = {}
    try:
        while busy or not worker.is_done:
            if stopped.is_set():
                stop.set()
                worker.leave()
            while len(busy) < processes and (run := worker.next()) is not None:
                users = Counter(process.device for process in busy.values())
                process = _Process(threads, stop, run, min(devices, key=lambda device: users[device], default=None))
                busy[process.connection] = process
            if not busy:
                stopped.wait(0.2)  # until another worker ends, or dies
            for connection in wait(list(busy), timeout=0.2):
                process = busy[connection]
                if not process.goes_on(worker):
                    busy.pop(process.connection).close()
            worker.refresh()
    finally:
        stop.set()
        for process in busy.values():
            process.close()


class _Process:
    """A process that performs runs, and the run that it is at."""

    def __init__(self, threads: int, stop: Event, run: Run, device: str | None) -> None:
        self.device = device
        self.connection, end = _context().Pipe()
        arguments = end, stop, threads, device, dict(os.environ)
        self.process = _context().Process(target=_work, args=arguments, daemon=True)
        with _unheard(), _unread_main():
            self.process.start()
        end.close()  # so that it is closed everywhere when the process dies
        self.take(run)

    def take(self, run: Run) -> None:
        """Begin a run."""
        self.run = run
        with suppress(OSError):  # it has died, and news() will say so
            self.connection.send_bytes(packed(run))

    def goes_on(self, worker: Worker) -> bool:
        """Pass on the next update, and begin the next run if this one has ended; whether it is at a run then."""
        update = self.news()
        worker.tell(self.run, update)
        if update.status in ("started", "running"):
            return True
        if not self.process.is_alive() or (following := worker.next()) is None:
            return False
        self.take(following)
        return True

    def news(self) -> Update:
        """Return the next update of the run."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            why = f"its process died ({_cause(self.process.exitcode)}). The same command goes on where it stopped"
            return Update(self.run.label, self.run.seed, "failed", note=why)

    def close(self) -> None:
        """End the process, which saves a run that is under way first."""
        self.connection.close()
        self.process.join()


@cache
def _context() -> Any:  # some systems lack the class of a fork server's context
    """Return how processes are started. A fork of this one may hang, because torch has threads in it.

    On Linux a server forks instead, which has computed nothing, and has imported the package for all processes, which takes
    seconds. It listens in the temporary folder, in a path of 107 bytes.
    """
    if sys.platform != "linux" or len(os.fsencode(tempfile.gettempdir())) > 70:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["turnout.exports"])
    return context


def _cause(exitcode: int | None) -> str:
    """Return why a process may have ended."""
    if exitcode == -getattr(signal, "SIGKILL", 9):
        return "it was killed: if memory ran out, fewer jobs need less"
    return f"exit code {exitcode}"


def packed(run: Run) -> bytes:
    """Return what another process is sent: functions and classes of a script or a notebook by what they are, not by name."""
    return cloudpickle.dumps(run)


@contextmanager
def _unread_main() -> Iterator[None]:
    """Keep processes that are started here from running the user's script again, so that it needs no ``__main__`` guard."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _unheard() -> Iterator[None]:
    """Keep Ctrl-C and SIGHUP from processes that are started here: they are asked to stop when their run can be saved."""
    mask: Any = getattr(signal, "pthread_sigmask", None)
    if mask is None:  # Windows, where processes of a console all get its Ctrl-C
        yield
        return
    before = mask(_BLOCK, {signal.SIGINT, HANGUP})
    try:
        yield
    finally:
        mask(_SET, before)


_BLOCK, _SET = (getattr(signal, name, None) for name in ("SIG_BLOCK", "SIG_SETMASK"))


def _work(connection: Any, stop: Event, threads: int, device: str | None, environment: dict[str, str]) -> None:
    """Perform the runs that come, until no more do or nobody listens any more."""
    os.environ.clear()  # of the first comparison, if a server has forked this process
    os.environ.update(environment)
    torch.set_num_threads(threads)
    if device is not None:
        torch.cuda.set_device(device)
    keep_large_buffers()
    try:
        while True:
            run = pickle.loads(connection.recv_bytes())
            connection.send(perform(run, connection.send, stop.is_set))
    except (EOFError, OSError):
        return
