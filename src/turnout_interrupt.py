"""End at once on Ctrl-C while modules are imported; the launcher and the command line use it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


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
