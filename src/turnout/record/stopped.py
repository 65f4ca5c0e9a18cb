"""Save and read how a run ended early: after which round, and by which column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from turnout.record import storage
from turnout.record.contents import Contents, Whole
from turnout.record.schema import is_of_test_examples

FILE = "stopped.json"
"""The file with the end of a run that a callback, or the privacy budget, ended early."""


class Stopped(Contents):
    """The content of the file: the number of rounds, and the column whose values ended the run, if any did."""

    rounds: Whole
    by: str | None = None


def save(folder: Path, rounds: int, by: str | None) -> None:
    """Save that the run in a folder ended after a number of rounds, by a column of the table of rounds or by None."""
    storage.save(folder, {FILE: storage.json_writer({"rounds": rounds, "by": by})})


def load(folder: Path) -> dict[str, Any] | None:
    """Return ``rounds`` and ``by`` of a run that ended early; None if it did not.

    Raises:
        CheckpointError: if the file is damaged.
    """
    path = folder / FILE
    return {"by": None, **storage.read_json(path, instead="run again", form=Stopped)} if path.exists() else None


def explain(column: str) -> str:
    """Say that test examples ended a run, and what to do instead; empty for other columns."""
    if not is_of_test_examples(column):
        return ""
    return (
        f"the {column.replace('_', ' ')} ended the run, so figures of test examples are biased: hold out validation "
        "examples (validation_fraction=0.1 in split, or data.validation_fraction=0.1)"
    )
