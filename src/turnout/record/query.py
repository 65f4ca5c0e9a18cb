"""Record the tables of a run, save and load them: rounds, clients and participation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from turnout.core.checks import ConfigurationError, count, refuse
from turnout.record import checkpoint, saved, storage
from turnout.record import predictions as predictions_of
from turnout.record.contents import writable
from turnout.record.evaluations import Evaluations
from turnout.record.figures import Recorded
from turnout.record.log import FILE as LOG
from turnout.record.log import Log, Rounds
from turnout.record.predictions import PREDICTION_COLUMNS
from turnout.record.schema import CLIENT_COLUMNS, ROUND_COLUMNS
from turnout.record.tables import build, read, write


class History(Recorded):
    """The tables of rounds, clients and participation of a run.

    ``record`` adds a round, and ``set_clients`` sets the table of clients at the end. A history that was saved, loaded and
    continued has the same tables as one that was never interrupted.
    """

    def record(self, *, round: int, participants: Any = None, weights: Any = None, **values: Any) -> None:
        """Add a completed round.

        Args:
            round: number of completed server steps, from 1, ascending.
            participants: the clients in the round, int64 ``[B]``; sets ``num_participants`` unless it is passed.
            weights: their weights, ``[B]``, NaN for a dropped report; None is not recorded.
            **values: numbers by column, of `ROUND_COLUMNS` or others; missing ones are null.

        Raises:
            ConfigurationError: if the round does not follow the last one, or if a value is not a number.
        """
        count("round", round)
        if round <= self.last_round:
            raise refuse(
                "round", given=round, needed=f"a round after the last recorded one, {self.last_round}",
                instead=f"To record it again, call rewind({round - 1}) first.",
            )  # fmt: skip
        row = {name: _scalar(name, value) for name, value in values.items()}
        cohort = np.array([] if participants is None else participants, dtype=np.int64)
        if cohort.ndim != 1:
            raise refuse("participants", given=cohort.shape, needed="client numbers, an array of shape [B]")
        if participants is not None:
            row.setdefault("num_participants", len(cohort))
        counted = None if weights is None else np.asarray(weights, dtype=np.float64)
        if counted is not None and counted.shape != cohort.shape:
            raise refuse("weights", given=counted.shape, needed=f"a weight for each participant, {cohort.shape}")
        self._log.add(row | {"round": int(round)}, cohort, counted)

    def rewind(self, round: int) -> None:
        """Remove all rounds after `round`, e.g. after the round of the checkpoint from which a run is resumed.

        The rounds are in memory afterwards, and the table of clients, which describes the end of a run, is empty.
        """
        self._log, self.clients = self._log.up_to(round), build({}, CLIENT_COLUMNS)
        self.predictions = build({}, PREDICTION_COLUMNS)

    def forget(self, names: Sequence[str]) -> None:
        """Remove the values of columns in the last round; the rounds are in memory afterwards."""
        table, participation = self._log.whole()
        for i, field in enumerate(table.schema):
            if field.name in names:
                column = pa.concat_arrays([*table[i].slice(0, len(table) - 1).chunks, pa.nulls(1, field.type)])
                table = table.set_column(i, field, column)
        self._log = Log([Rounds(table, participation)])

    def set_clients(self, **columns: Any) -> None:
        """Set the table of clients from arrays ``[N]``: those of `CLIENT_COLUMNS` or any other numbers; None is null.

        Without ``client`` the clients are numbered from 0.

        Raises:
            ConfigurationError: if columns differ in length, or have values of another type.
        """
        values = {name: column for name, column in columns.items() if column is not None}
        lengths = {name: len(column) for name, column in values.items()}
        if len(set(lengths.values())) > 1:
            raise ConfigurationError(
                f"columns of the table of clients differ in length: {lengths}; give one value per client"
            )
        values.setdefault("client", np.arange(next(iter(lengths.values()), 0)))
        self.clients = build(values, CLIENT_COLUMNS)

    def append(self, folder: str | Path) -> None:
        """Move the rounds recorded since the last call to the log file of an unfinished run.

        Raises:
            CheckpointError: if they cannot be written.
        """
        self._log.append_to(Path(folder) / LOG)

    def save(self, folder: str | Path) -> None:
        """Write rounds.parquet, clients.parquet and participation.parquet into `folder`, each atomically.

        Of a classifier that was evaluated on test examples it also writes predictions.parquet.

        Raises:
            CheckpointError: if they cannot be written (a full disk); the tables saved before are unchanged then.
        """
        rounds = (self.evaluations.filled(part.table) for part in self._log.parts())
        participation = (part.participation for part in self._log.parts())
        # The table of rounds is last, because load() goes by it: a crash in between leaves a consistent state.
        predictions = {predictions_of.FILE: lambda path: write(path, [self.predictions], self.predictions.schema)}
        tables = (predictions if len(self.predictions) else {}) | {
            saved.PARTICIPATION: lambda path: write(path, participation, self._log.participation_schema),
            saved.CLIENTS: lambda path: write(path, [self.clients], self.clients.schema),
            saved.ROUNDS: lambda path: write(path, rounds, self._schema),
        }
        storage.save(Path(folder), tables)

    def close(self, folder: str | Path) -> None:
        """Delete the log in `folder`, whose rounds `save` has written.

        Raises:
            CheckpointError: if it cannot be deleted.
        """
        self._log = self._log.up_to(self.last_round)
        path = Path(folder) / LOG
        with writable([path]):
            path.unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: str | Path, last: int | None = None) -> History:
        """Read the tables that `save` wrote, or the rounds that `append` has written since, ready to be continued.

        Args:
            folder: the folder of a run.
            last: the round of its checkpoint; later rounds are ignored. None reads all rounds.

        Raises:
            CheckpointError: if a file is missing or damaged, or ends before the round `last`.
        """
        history, folder = cls(), Path(folder)
        history._log, history.clients = saved.load(folder, last)
        if len(history.clients) and (folder / predictions_of.FILE).exists():
            history.predictions = read(folder / predictions_of.FILE, PREDICTION_COLUMNS)
        history.evaluations = Evaluations.load(folder, last)
        end = saved.load_end(folder)
        history.stopped_by = end["by"] if end is not None and end["rounds"] == history.last_round else None
        return history


def save_run(
    folder: Path, history: History, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any], finished: bool
) -> None:
    """Save the tables of a run and then a checkpoint, so that the tables are never behind the checkpoint.

    Args:
        folder: the folder of the run.
        history: the tables.
        tensors, facts: the checkpoint, see `turnout.record.checkpoint.save`.
        finished: write the tables of a finished run, in place of appending to the log.

    Raises:
        CheckpointError: if they cannot be written.
    """
    history.save(folder) if finished else history.append(folder)
    checkpoint.save(folder, tensors, facts)
    if finished:
        history.close(folder)


def _scalar(name: str, value: Any) -> int | float | None:
    """Convert a number, or a NumPy or torch scalar, to a plain number; None stays None."""
    if value is None:
        return None
    if not isinstance(value, int | float):
        if getattr(value, "ndim", None) != 0:
            raise refuse(f"history column {name!r}", given=value, needed="one number, or None")
        value = value.item()
    if ROUND_COLUMNS.get(name) == pa.int64():
        if not math.isfinite(value) or value != int(value):
            raise refuse(f"history column {name!r}", given=value, needed="a whole number")
        return int(value)
    return float(value)
