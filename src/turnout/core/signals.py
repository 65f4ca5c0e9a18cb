"""Handle the signals that ask a process to end: Ctrl-C, a scheduler's SIGTERM, and a terminal that is closed."""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

HANGUP = getattr(signal, "SIGHUP", None)
"""What a process is sent when its terminal is closed; None where a system has no such signal."""


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
    with open(os.devnull, "w") as nowhere:
        for number in (1, 2):
            with suppress(OSError):
                if stat.S_ISCHR(os.fstat(number).st_mode):
                    os.dup2(nowhere.fileno(), number)
