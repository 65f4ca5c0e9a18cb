"""Perform runs in several processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.connection import wait
from multiprocessing.synchronize import Event
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import torch

from turnout.comparison.run import Resources, Run, perform
from turnout.comparison.update import Update
from turnout.core.numerics import use_threads
from turnout.core.signals import HANGUP
from turnout.engine.allocator import keep_large_buffers
from turnout.record import outer


class Processes:
    """Processes, each of which performs one run at a time, or several in lock-step.

    If a process dies, its runs have failed, and the other runs continue.

    Args:
        number: the most processes.
        resources: threads of each process, the number of runs in lock-step, and GPUs; a process gets the one that the fewest
            others have.
    """

    def __init__(self, number: int, resources: Resources) -> None:
        self._number, self._resources = number, resources
        self._processes: list[_Process] = []
        with _signals_blocked():  # the event starts a process that tracks shared resources
            self._stop = _context().Event()

    @property
    def is_busy(self) -> bool:
        """True while a process performs a run."""
        return any(process.runs for process in self._processes)

    @property
    def room(self) -> int:
        """The number of runs for one process if a process is idle or can be started, else 0."""
        is_free = len(self._processes) < self._number or not all(process.runs for process in self._processes)
        return self._resources.lockstep if is_free else 0

    def submit(self, runs: list[Run]) -> None:
        """Begin runs in an idle process, or in a new one."""
        process = next((process for process in self._processes if not process.runs), None)
        if process is None:
            users = Counter(process.device for process in self._processes)
            device = min(self._resources.devices, key=lambda device: users[device], default=None)
            process = _Process(self._resources.threads, self._stop, device)
            self._processes.append(process)
        process.begin(runs)

    def updates(self) -> Iterator[Update]:
        """Yield the next updates of each process that sent some."""
        busy = {process.connection: process for process in self._processes if process.runs}
        for connection in wait(list(busy), timeout=0.2):
            process = busy[connection]
            yield from process.next_updates()
            if not process.runs and not process.is_alive():
                self._processes.remove(process)
                process.close()

    def stop(self) -> None:
        """Have all runs save a checkpoint and end."""
        self._stop.set()

    def close(self) -> None:
        """End the processes after their runs were saved."""
        self._stop.set()
        for process in self._processes:
            process.close()


class _Process:
    """A process and the runs that it performs, none while it is idle."""

    def __init__(self, threads: int, stop: Event, device: str | None) -> None:
        self.device = device
        self.runs: dict[str, Run] = {}
        self.connection, end = _context().Pipe()
        arguments = end, stop, threads, device, dict(os.environ), outer.all_watched()
        self._process = _context().Process(target=_work, args=arguments, daemon=True)
        with _signals_blocked(), _main_hidden():
            self._process.start()
        end.close()  # so that the process holds the only copy, and its death closes the pipe

    def begin(self, runs: list[Run]) -> None:
        """Send runs to the process."""
        self.runs = {str(run): run for run in runs}
        with suppress(OSError):  # the process has died, which `next_updates` reports
            self.connection.send_bytes(cloudpickle.dumps(runs))  # classes of a script by value

    def next_updates(self) -> list[Update]:
        """Return the next update of a run, or the last ones of all runs of a process that died."""
        try:
            updates = [self.connection.recv()]
        except (EOFError, OSError):
            self._process.join()
            why = f"its process died ({_cause(self._process.exitcode)}). The same command resumes it"
            updates = [Update(run.label, run.seed, "failed", note=why) for run in self.runs.values()]
        for update in updates:
            if update.status not in ("started", "running"):
                del self.runs[str(update)]
        return updates

    def is_alive(self) -> bool:
        """Return whether the process has not ended."""
        return self._process.is_alive()

    def close(self) -> None:
        """End the process, which first saves the run that it performs."""
        self.connection.close()
        self._process.join()


@cache
def _context() -> Any:  # some systems lack the class of a fork server's context
    """Return the start method of processes. A fork of this process could hang, because it has threads of torch.

    On Linux a server forks instead. It has imported the package, which takes seconds, for all processes, and has computed
    nothing. Its socket is in the temporary folder, and the path of a socket has at most 107 bytes.
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


@contextmanager
def _main_hidden() -> Iterator[None]:
    """Keep new processes from running the user's script again, so that it needs no ``__main__`` guard."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Start processes with Ctrl-C and SIGHUP blocked: they are told to stop when their run can be saved."""
    system: Any = signal  # whose names are not those of all systems
    if not hasattr(system, "pthread_sigmask"):  # Windows, where all processes of a console get its Ctrl-C
        yield
        return
    before = system.pthread_sigmask(system.SIG_BLOCK, {signal.SIGINT, HANGUP})
    try:
        yield
    finally:
        system.pthread_sigmask(system.SIG_SETMASK, before)


def _work(
    connection: Any,
    stop: Event,
    threads: int,
    device: str | None,
    environment: dict[str, str],
    folders: dict[Path, os.stat_result],
) -> None:
    """Perform the runs that arrive, until the pipe is closed; `folders` must stay in their places."""
    outer.watch(folders)
    os.environ.clear()  # a fork server has the environment of the first comparison
    os.environ.update(environment)
    use_threads(threads)
    if device is not None:
        torch.cuda.set_device(device)
    keep_large_buffers()
    try:
        while True:
            runs = pickle.loads(connection.recv_bytes())
            for update in perform(runs, connection.send, stop.is_set):
                connection.send(update)
    except (EOFError, OSError):
        return
