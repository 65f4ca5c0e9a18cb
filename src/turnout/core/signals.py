"""Handle the signals that ask a process to end: Ctrl-C, a scheduler's SIGTERM, and a terminal that is closed."""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

HANGUP = getattr(signal, "SIGHUP", None)
"""What a process is sent when its terminal is closed; None where a system has no such signal."""


class Flag:
    """A flag that handlers of signals may set: `threading.Event` whose `set` never waits for a lock.

    Python runs a handler between two instructions of the main thread. Inside of `Event.wait`, or of `Event.set` in the
    handler of an earlier signal, that thread holds the event's lock, and the handler's `set` would wait for it forever.
    `queue.SimpleQueue.put` is made to be interrupted by itself.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake whoever waits for it."""
        self._is_set = True
        self._wakes.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or so many seconds; return whether it is."""
        if not self._is_set:
            with suppress(Empty):
                self._wakes.get(timeout=timeout)
                self._wakes.put(None)  # for others who wait
        return self._is_set


def asking_to_end() -> list[signal.Signals]:
    """Return the signals that ask this process to end: without SIGHUP where it is ignored, as ``nohup`` has it."""
    found = [signal.SIGINT, signal.SIGTERM]
    return found if HANGUP is None or signal.getsignal(HANGUP) is signal.SIG_IGN else [*found, HANGUP]


@contextmanager
def handled(handler: Callable[[int], object], *but: int) -> Iterator[None]:
    """Call a function with the number of each signal that asks this process to end, except some; not in other threads.

    Output goes nowhere once the terminal is closed, so that writing to it does not fail before everything is saved.
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
    """Have output and error go nowhere where they go to a terminal."""
    with open(os.devnull, "wb") as nowhere:
        for number in (1, 2):
            with suppress(OSError):
                if stat.S_ISCHR(os.fstat(number).st_mode):
                    os.dup2(nowhere.fileno(), number)
