"""Read what a run has saved: its tables, or the log of a run that has not finished, and how it ended early."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from turnout.record import storage
from turnout.record.contents import Contents, Whole
from turnout.record.log import FILE as LOG
from turnout.record.log import Log, Rounds
from turnout.record.schema import CLIENT_COLUMNS, PARTICIPATION_COLUMNS, ROUND_COLUMNS
from turnout.record.tables import build, damaged, numbers, read

ROUNDS, CLIENTS, PARTICIPATION = "rounds.parquet", "clients.parquet", "participation.parquet"
STOPPED = "stopped.json"
"""The file with the end of a run that a callback, or the privacy budget, ended early."""


class Saved(NamedTuple):
    """The rounds of a run, and its table of clients, which has no rows before the end of the run."""

    log: Log
    clients: pa.Table


def load(folder: Path, last: int | None = None) -> Saved:
    """Read the log or the tables in the folder of a run, whichever has the rounds up to `last`; None is all rounds.

    A resumed run has both: the tables of its end before, and the log of the rounds since. A run that was killed between
    saving its tables and deleting its log also has both.

    Raises:
        CheckpointError: if a file is missing or damaged, or if both end before the round `last`.
    """
    log, no_clients = Log.open(folder / LOG, last), build({}, CLIENT_COLUMNS)
    has_tables = (folder / ROUNDS).exists() or (last is None and not len(log))
    tables = _tables(folder) if has_tables else Saved(Log(), no_clients)
    if tables.log.last == last or (last is None and tables.log.last >= log.last):
        return tables
    if last is None or log.last == last:
        return Saved(log, no_clients)
    if tables.log.last < last:
        raise damaged(folder / LOG, f"it ends before round {last}, which the checkpoint is of")
    return Saved(tables.log.up_to(last), no_clients)


def _tables(folder: Path) -> Saved:
    """Read the tables of a run."""
    rounds = read(folder / ROUNDS, ROUND_COLUMNS)
    clients = read(folder / CLIENTS, CLIENT_COLUMNS)
    participation = read(folder / PARTICIPATION, PARTICIPATION_COLUMNS)
    if (np.diff(numbers(rounds["round"])) <= 0).any() or (np.diff(numbers(participation["round"])) < 0).any():
        raise damaged(folder, "its rounds do not ascend")
    # Participation is saved first: a process that was killed while saving leaves rows of later rounds.
    tables = Rounds(rounds, participation)
    return Saved(Log([tables.up_to(tables.last)] if len(rounds) else []), clients)


class _End(Contents):
    """The content of the file: the number of rounds, and the column whose values ended the run, if any did."""

    rounds: Whole
    by: str | None = None


def save_end(folder: Path, rounds: int, by: str | None) -> None:
    """Save that the run in a folder ended after a number of rounds, by a column of the table of rounds or by None."""
    storage.save(folder, {STOPPED: storage.json_writer({"rounds": rounds, "by": by})})


def load_end(folder: Path) -> dict[str, Any] | None:
    """Return ``rounds`` and ``by`` of a run that ended early; None if it did not.

    Raises:
        CheckpointError: if the file is damaged.
    """
    path = folder / STOPPED
    return {"by": None, **storage.read_json(path, instead="run again", form=_End)} if path.exists() else None
