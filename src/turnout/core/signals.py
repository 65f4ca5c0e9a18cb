"""Handle the signals that ask a process to terminate: SIGINT, SIGTERM and SIGHUP."""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

HANGUP = getattr(signal, "SIGHUP", None)
"""The signal that a process receives when its terminal is closed; None if the system has no such signal."""


class Flag:
    """A flag that signal handlers may set: a `threading.Event` whose `set` never waits for a lock.

    Python runs a handler between two instructions of the main thread. If that thread is in `Event.wait`, or in `Event.set` of
    an earlier handler, it holds the event's lock, and `set` in the handler would deadlock. `queue.SimpleQueue.put` is
    reentrant.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        """Return True if it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake all waiting threads."""
        self._is_set = True
        self._wakes.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set or the timeout in seconds expires; return True if it is set."""
        if not self._is_set:
            with suppress(Empty):
                self._wakes.get(timeout=timeout)
                self._wakes.put(None)  # for other waiting threads
        return self._is_set


def asking_to_end() -> list[signal.Signals]:
    """Return the signals that ask this process to terminate; SIGHUP is left out if it is ignored, as under ``nohup``."""
    signals = [signal.SIGINT, signal.SIGTERM]
    return signals if HANGUP is None or signal.getsignal(HANGUP) is signal.SIG_IGN else [*signals, HANGUP]


@contextmanager
def handled(handler: Callable[[int], object], *but: int) -> Iterator[None]:
    """Call a function with the number of each signal that asks this process to terminate, except those in `but`.

    It has no effect outside the main thread. After SIGHUP, output to the closed terminal is discarded, so that writing to it
    does not fail before everything is saved.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, _: object) -> None:
        if number == HANGUP:
            _leave_terminal()
        handler(number)

    before = {number: signal.signal(number, handle) for number in asking_to_end() if number not in but}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _leave_terminal() -> None:
    """Redirect standard output and error to the null device if they go to a terminal."""
    with open(os.devnull, "wb") as nowhere:
        for number in (1, 2):
            with suppress(OSError):
                if stat.S_ISCHR(os.fstat(number).st_mode):
                    os.dup2(nowhere.fileno(), number)
