"""The updates of runs of a comparison, which displays and other workers receive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Update:
    """The state of a run.

    Attributes:
        name: `Run.label`.
        seed: seed of the run.
        status: ``"elsewhere"`` where another process performs the run.
        done, rounds: completed and total rounds; both are 0 before the first round.
        note: the latest accuracy, or the reason of a failure.
        trace: the traceback of a failure.
    """

    name: str
    seed: int
    status: Literal["started", "running", "done", "failed", "stopped", "elsewhere"]
    done: int = 0
    rounds: int = 0
    note: str = ""
    trace: str = ""

    def __str__(self) -> str:
        return f"{self.name}, seed {self.seed}"


Listener = Callable[[Update], None]
