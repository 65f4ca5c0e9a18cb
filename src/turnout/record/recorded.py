"""What can be asked of what a run recorded: its tables, columns, final figures, and when a target was reached."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from turnout.core.checks import count, known_name
from turnout.evaluation.fairness import fairness
from turnout.record.columns import CLIENT_COLUMNS, COSTS, METRICS, SPENT, less_is_better
from turnout.record.recorded_rounds import RecordedRounds
from turnout.record.tables import build

_LAST = ("epsilon", "poisson_rate", "fixed_size_rate")
"""Columns whose last value is that of all rounds."""
_EVALUATIONS = tuple(f"{split}_{figure}" for split in ("train", "test") for figure in ("loss", *METRICS))


@dataclass(frozen=True)
class Reached:
    """When a run first met a target, and what it had spent until then.

    Attributes:
        rounds: up to the first evaluated one that met it, that one included.
        bytes: sent until then, both ways, measurements included; None if that was not recorded.
        simulated_seconds: gone by until then; None if that was not recorded.
    """

    rounds: int
    bytes: float | None = None
    simulated_seconds: float | None = None


class Recorded:
    """Recorded rounds and the table of clients; `History` adds to them, saves and loads them.

    Args:
        rounds: what was recorded of each round.
    """

    def __init__(self, rounds: RecordedRounds) -> None:
        self._rounds = rounds
        self._clients = build({}, CLIENT_COLUMNS)

    def __len__(self) -> int:
        """How many rounds are recorded."""
        return len(self._rounds)

    @property
    def last_round(self) -> int:
        """The last recorded round, 0 if there is none."""
        return self._rounds.last

    @property
    def rounds(self) -> pa.Table:
        """One row per recorded round: `ROUND_COLUMNS`, then other columns by name."""
        return self._rounds.whole().table

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns of the table of rounds, without making the table."""
        return tuple(self._rounds.schema.names)

    @property
    def clients(self) -> pa.Table:
        """One row per client: `CLIENT_COLUMNS`, then other columns by name; no rows before `set_clients`."""
        return self._clients

    @property
    def participation(self) -> pa.Table:
        """Who took part when: one row (round, client) for each participant of each recorded round.

        Where weights were recorded (`Experiment` with ``record_weights=True``), ``weight`` is by what the client's report
        was multiplied in the server step, after normalisation: the sum over its reports, if it had several; null where
        they were dropped.
        """
        return self._rounds.whole().participation

    def column(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the rounds in which `name` was recorded, and its values there: two arrays of one length.

        Raises:
            ConfigurationError: for a column that does not exist; names the nearest one.
        """
        values = self._rounds.column(known_name("column", name, self.column_names))
        known = values.is_valid().to_numpy()
        kind = np.int64 if values.type == pa.int64() else np.float64
        return self._rounds.column("round").to_numpy()[known], values.drop_null().to_numpy().astype(kind)

    def client_column(self, name: str) -> np.ndarray:
        """Return a numeric column of the table of clients as float64 ``[N]``, NaN where null."""
        numeric = [column for column in self._clients.column_names if column != "name"]
        return self._clients[known_name("client column", name, numeric)].to_numpy().astype(np.float64)

    def final(self, metric: str, window: int | None = None) -> float:
        """Mean of a metric over its last evaluations, those in the last `window` rounds; NaN if it was never evaluated.

        FedAU reports accuracies with ``window=200`` (20 evaluations, one every 10 rounds). The default is the last 10 %
        of the rounds. Where no evaluation falls into the window, the last one counts.
        """
        if window is not None:
            count("window", window)
        rounds, values = self.column(metric)
        if not len(values):
            return math.nan
        first = self.last_round - (window or math.ceil(self.last_round / 10))
        return float(values[min(int(np.searchsorted(rounds, first, side="right")), len(values) - 1) :].mean())

    def spent(self, cost: str) -> np.ndarray | None:
        """Return what was spent from the start to the end of each recorded round, float64 ``[len(self)]``; None if unknown.

        Args:
            cost: one of `SPENT`: ``"bytes"``, ``"bytes_up"`` or ``"simulated_seconds"``.
        """
        names = SPENT[known_name("cost", cost, SPENT)]
        columns = [self._rounds.column(name) for name in names if name in self.column_names]
        known = [
            column.cast(pa.float64()).fill_null(0.0).to_numpy() for column in columns if column.null_count < len(self)
        ]
        return np.cumsum(np.sum(known, axis=0)) if known else None

    def reached(self, metric: str, target: float) -> Reached | None:
        """Return the first evaluated round at which `metric` met `target`, with what was spent until then; None if none did.

        An accuracy meets a target from below, a loss from above (`less_is_better`). NaN meets none.

        Raises:
            ConfigurationError: for a column that does not exist; names the nearest one.
        """
        rounds, values = self.column(metric)
        met = values <= target if less_is_better(metric) else values >= target
        if not met.any():
            return None
        first = int(rounds[met.argmax()])
        row = int(np.searchsorted(self._rounds.column("round").to_numpy(), first))
        spent = {cost: self.spent(cost) for cost in COSTS}
        return Reached(first, **{cost: float(sums[row]) for cost, sums in spent.items() if sums is not None})

    def total(self, name: str) -> int | float:
        """Sum of a column over all recorded rounds; 0 if it was never recorded."""
        return self.column(name)[1].sum().item()

    def _recorded(self, names: Iterable[str]) -> list[str]:
        """Return those of some columns that have values."""
        return [name for name in names if name in self.column_names and len(self.column(name)[1])]

    def summary(self, window: int | None = None) -> dict[str, Any]:
        """Return final figures as plain numbers; what was never recorded is left out.

        ``rounds``, totals of ``seconds``, ``bytes_up``, ``bytes_down`` and ``num_dropped``, mean ``num_participants``, the
        most that the server kept (``server_bytes``), the ``epsilon`` of all rounds and by which sampling it was counted
        (``poisson_rate`` or ``fixed_size_rate``),
        final losses and accuracies (of numbers to predict root-mean-square errors), and ``fairness`` over clients, of
        their test accuracy or, if no client has any, of
        their training accuracy.
        """
        figures: dict[str, Any] = {"rounds": self.last_round}
        for name in ("seconds", "bytes_up", "bytes_down", "num_dropped"):
            if len(self.column(name)[1]):
                figures[name] = self.total(name)
        if len(sizes := self.column("num_participants")[1]):
            figures["num_participants"] = float(sizes.mean())
        if "server_bytes" in self.column_names:
            figures["server_bytes"] = float(self.column("server_bytes")[1].max())
        last = {name: float(self.column(name)[1][-1]) for name in self._recorded(_LAST)}
        figures |= last | {name: self.final(name, window) for name in self._recorded(_EVALUATIONS)}
        for name in ("test_accuracy", "train_accuracy"):
            if not np.isnan(values := self.client_column(name)).all():
                return {**figures, "fairness": {"of": name, **fairness(values)}}
        return figures
