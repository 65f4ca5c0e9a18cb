"""Runs in several processes, each of which takes one run after another."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.synchronize import Event
from types import ModuleType

import cloudpickle
import torch

from turnout.comparison.run import Listener, Run, Update, perform
from turnout.engine.allocator import keep_large_buffers


def in_processes(
    runs: Sequence[Run], processes: int, threads: int, tell: Listener, stopped: threading.Event
) -> list[Update]:
    """Perform all runs and return how each ended; where a process dies, its run has failed and the others go on."""
    left, ended = deque(runs), {}
    with _unheard():  # which starts a process that keeps track of what all share
        stop = _context().Event()
    workers: dict[Connection, _Worker] = {}
    try:
        while workers or left:
            if stopped.is_set():
                stop.set()
                left.clear()
            while left and len(workers) < processes:
                worker = _Worker(threads, stop, left.popleft())
                workers[worker.connection] = worker
            for connection in wait(list(workers), timeout=0.2):
                worker = workers[connection]  # type: ignore[index]
                update = worker.news()
                tell(update)
                if update.status not in ("started", "running"):
                    ended[worker.run] = update
                    if not worker.goes_on_with(left):
                        workers.pop(worker.connection).close()
    finally:
        stop.set()
        for worker in workers.values():
            worker.close()
    return [ended.get(run) or Update(run.label, run.seed, "stopped", note="not begun") for run in runs]


class _Worker:
    """A process that performs runs, and the run that it is at."""

    def __init__(self, threads: int, stop: Event, run: Run) -> None:
        self.connection, end = _context().Pipe()
        self.process = _context().Process(target=_work, args=(end, stop, threads, dict(os.environ)), daemon=True)
        with _unheard(), _unread_main():
            self.process.start()
        end.close()  # so that it is closed everywhere when the process dies
        self.take(run)

    def take(self, run: Run) -> None:
        """Begin a run."""
        self.run = run
        with suppress(OSError):  # it has died, and news() will say so
            self.connection.send_bytes(packed(run))

    def goes_on_with(self, left: deque[Run]) -> bool:
        """Begin the next of the runs that are left, if there is one and the process is alive; whether it does."""
        if going := bool(left) and self.process.is_alive():
            self.take(left.popleft())
        return going

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
def _context() -> ForkServerContext | SpawnContext:
    """How processes are started. A fork of this one may hang, because torch has threads in it.

    On Linux a server forks instead, which has computed nothing, and has imported the package for all processes, which takes
    seconds. It listens in the temporary folder, in a path of 107 bytes.
    """
    if sys.platform != "linux" or len(os.fsencode(tempfile.gettempdir())) > 70:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["turnout.exports"])
    return context


def _cause(exitcode: int | None) -> str:
    """Why a process may have ended."""
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
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(connection: Connection, stop: Event, threads: int, environment: dict[str, str]) -> None:
    """Perform the runs that come, until no more do or nobody listens any more."""
    os.environ.clear()  # of the first comparison, if a server has forked this process
    os.environ.update(environment)
    torch.set_num_threads(threads)
    keep_large_buffers()
    try:
        while True:
            run = pickle.loads(connection.recv_bytes())
            connection.send(perform(run, connection.send, stop.is_set))
    except (EOFError, OSError):
        return
