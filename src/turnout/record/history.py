"""What a run recorded: a table of rounds, a table of clients, and who took part when."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from turnout.core.checks import CheckpointError, ConfigurationError, count, refuse
from turnout.record import storage
from turnout.record.columns import CLIENT_COLUMNS, ROUND_COLUMNS
from turnout.record.journal import FILE as JOURNAL
from turnout.record.journal import Rounds
from turnout.record.journal import read as read_journal
from turnout.record.recorded import Recorded
from turnout.record.recorded_rounds import PARTICIPATION, RecordedRounds
from turnout.record.tables import build, damaged, read, write

_INT = pa.int64()


class History(Recorded):
    """What a run recorded, growing by one row per recorded round.

    ``record`` adds a round, ``set_clients`` gives the table of clients at the end. A history that was saved, loaded and
    continued has the same tables as one that was never interrupted. `turnout.record.recorded.Recorded`
    answers questions about it.
    """

    def __init__(self, rounds: RecordedRounds | None = None) -> None:
        super().__init__(RecordedRounds() if rounds is None else rounds)

    def record(self, *, round: int, participants: Any = None, weights: Any = None, **values: Any) -> None:
        """Add one finished round.

        Args:
            round: how many server steps are finished, from 1; ascending from call to call.
            participants: who took part, integers ``[B]``; sets ``num_participants`` unless that is given.
            weights: how much each of them counted, ``[B]``, NaN for a report that was dropped; None is not recorded.
            **values: numbers by column, those of `ROUND_COLUMNS` or any other; what is left out is null.

        Raises:
            ConfigurationError: for a round that does not follow the last one, or a value that is not one number.
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
        self._rounds.add(row | {"round": int(round)}, cohort, counted)

    def rewind(self, round: int) -> None:
        """Forget what was recorded after `round`, e.g. after the round of the checkpoint a run goes on from."""
        self._rounds = self._rounds.up_to(round)

    def set_clients(self, **columns: Any) -> None:
        """Set the table of clients from arrays ``[N]``: those of `CLIENT_COLUMNS` or any other numbers; None is null.

        Without ``client`` the clients are numbered from 0.

        Raises:
            ConfigurationError: where columns differ in length or hold something else than their type.
        """
        given = {name: column for name, column in columns.items() if column is not None}
        lengths = {name: len(column) for name, column in given.items()}
        if len(set(lengths.values())) > 1:
            raise ConfigurationError(
                f"columns of the table of clients differ in length: {lengths}; give one value per client"
            )
        given.setdefault("client", np.arange(next(iter(lengths.values()), 0)))
        self._clients = build(given, CLIENT_COLUMNS)

    def append(self, folder: str | Path) -> None:
        """Append the rounds recorded since the last call to the journal of a run that goes on, and forget them.

        Raises:
            CheckpointError: where they cannot be written.
        """
        self._rounds.move_to(Path(folder) / JOURNAL)

    def save(self, folder: str | Path) -> None:
        """Write rounds.parquet, clients.parquet and participation.parquet into `folder`, each whole or not at all.

        Raises:
            CheckpointError: where they cannot be written (a full disk); what was saved before is then still there.
        """
        rounds, participation = self._rounds.schema, self._rounds.participation_schema
        # The table of rounds comes last: load() goes by it, so a crash in between leaves nothing that misleads.
        tables = {
            "participation.parquet": lambda path: write(
                path, (part.participation for part in self._rounds.parts()), participation
            ),
            "clients.parquet": lambda path: write(path, [self._clients], self._clients.schema),
            "rounds.parquet": lambda path: write(path, (part.table for part in self._rounds.parts()), rounds),
        }
        storage.save(Path(folder), tables)

    def in_memory(self) -> History:
        """Return the same history, none of it in a journal."""
        history = History(RecordedRounds.of([whole] if len((whole := self._rounds.whole()).table) else []))
        history._clients = self._clients
        return history

    def close(self, folder: str | Path) -> None:
        """Give up the journal in `folder`, whose rounds `save` has written."""
        self._rounds = self.in_memory()._rounds
        (Path(folder) / JOURNAL).unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: str | Path, last: int | None = None) -> History:
        """Read the tables that `save` wrote, or the rounds that `append` has written since, ready to be continued.

        Args:
            folder: of a run.
            last: the round of its checkpoint: rounds after it do not count. None reads all rounds.

        Raises:
            CheckpointError: where a file is missing, damaged or something else, or ends before the round `last`.
        """
        folder = Path(folder)
        tables = (folder / "rounds.parquet").exists()
        if last is None:
            going_on = RecordedRounds.of(read_journal(folder / JOURNAL))
            if len(going_on) and not tables:
                return cls(going_on)
            finished = cls._of_tables(folder)
            return finished if finished.last_round >= going_on.last else cls(going_on)
        if tables and (finished := cls._of_tables(folder)).last_round == last:
            return finished
        return cls.resume(folder, last)

    @classmethod
    def resume(cls, folder: Path, last: int) -> History:
        """Read the rounds up to the round `last` of a run that goes on in `folder`, without the table of clients.

        Raises:
            CheckpointError: where they are not there.
        """
        damage = damaged(folder / JOURNAL, f"it ends before round {last}, which the checkpoint is of")
        try:
            if (found := RecordedRounds.in_journal(folder / JOURNAL, last)).last >= last:
                return cls(found)
        except CheckpointError as error:
            damage = error
        if not (folder / "rounds.parquet").exists():
            raise damage
        if (history := cls._of_tables(folder)).last_round < last:
            raise damage
        return cls(history._rounds.up_to(last))

    @classmethod
    def _of_tables(cls, folder: Path) -> History:
        """Read what `save` wrote."""
        rounds = read(folder / "rounds.parquet", ROUND_COLUMNS)
        clients = read(folder / "clients.parquet", CLIENT_COLUMNS)
        participation = read(folder / "participation.parquet", PARTICIPATION)
        if (np.diff(rounds["round"]) <= 0).any() or (np.diff(participation["round"]) < 0).any():
            raise damaged(folder, "its rounds do not ascend")
        # Participation is replaced first: a process that was killed while it saved leaves rows of later rounds.
        found = Rounds(rounds, participation)
        history = cls(RecordedRounds.of([found.up_to(found.last)] if len(rounds) else []))
        history._clients = clients
        return history


def _scalar(name: str, value: Any) -> int | float | None:
    """One recorded value as a plain number (a NumPy or torch scalar is taken too); None stays None."""
    if value is None:
        return None
    if not isinstance(value, int | float):
        if getattr(value, "ndim", None) != 0:
            raise refuse(f"history column {name!r}", given=value, needed="one number, or None")
        value = value.item()
    if ROUND_COLUMNS.get(name) == _INT:
        if not math.isfinite(value) or value != int(value):
            raise refuse(f"history column {name!r}", given=value, needed="a whole number")
        return int(value)
    return float(value)
