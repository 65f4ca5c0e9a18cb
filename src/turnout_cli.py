"""The command ``turnout``. It is outside the package, whose import takes time in which Ctrl-C is already a way to end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Import the command line and run it; Ctrl-C before it is there ends with one line and exit code 130."""
    with leaving_at_once():
        from turnout.cli import main as run

    run()


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process here and now, with one line and exit code 130, while modules are imported.

    Not by an exception, which modules that are being imported would turn into errors of their own.
    """
    here = threading.current_thread() is threading.main_thread()
    interruptible = here and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End here and now: nothing has begun."""
    del number, frame
    sys.stderr.write("stopped before anything began\n")
    sys.stderr.flush()
    os._exit(130)
