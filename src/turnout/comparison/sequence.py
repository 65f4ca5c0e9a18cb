"""Perform runs one after another in this process."""

from __future__ import annotations

from functools import partial
from typing import Protocol

import torch

from turnout.comparison.run import perform
from turnout.comparison.sharing import Worker


class Event(Protocol):
    """Tell whether runs are to stop: a `turnout.core.signals.Flag`, or a file."""

    def is_set(self) -> bool:
        """Return whether they are to stop."""
        ...

    def wait(self, timeout: float) -> bool:
        """Wait for it, or so many seconds."""
        ...


def in_sequence(worker: Worker, threads: int, stopped: Event) -> None:
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
