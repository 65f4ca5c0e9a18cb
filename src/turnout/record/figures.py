"""Read the tables of a run, and compute figures: final metrics, costs, and when a target was reached."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from turnout.core.checks import count, known_name
from turnout.evaluation.fairness import fairness
from turnout.record.evaluations import Evaluations
from turnout.record.log import Log
from turnout.record.predictions import PREDICTION_COLUMNS
from turnout.record.schema import ANSWERED, CLIENT_COLUMNS, COSTS, METRICS, ROUND_COLUMNS, SPENT, less_is_better
from turnout.record.tables import build, concatenated, is_known, numbers, schema_of

_REDUCED: Mapping[str, Callable[[np.ndarray], np.number]] = {
    **dict.fromkeys(("seconds", "bytes_up", "bytes_down", "num_dropped"), np.sum),
    "num_participants": np.mean,
    "server_bytes": np.max,
    **dict.fromkeys(("epsilon", "poisson_rate", "fixed_size_rate", *ANSWERED), lambda values: values[-1]),
}
"""Functions that reduce the values of a column by round to one of the whole run."""
_EVALUATIONS = tuple(f"{split}_{figure}" for split in ("train", "validation", "test") for figure in ("loss", *METRICS))


@dataclass(frozen=True)
class Reached:
    """The round in which a run first reached a target, and the costs until then.

    Attributes:
        rounds: number of rounds up to and including the first evaluated one that reached it.
        bytes: bytes sent until then in both directions, including measurements; None if not recorded.
        simulated_seconds: simulated seconds until then; None if not recorded.
    """

    rounds: int
    bytes: float | None = None
    simulated_seconds: float | None = None


class Recorded:
    """Hold the tables that a run has recorded, and compute figures from them.

    Args:
        log: the rounds recorded so far; None is none.

    Attributes:
        clients: one row per client: `CLIENT_COLUMNS`, then other columns by name; no rows before `set_clients`.
        evaluations: evaluations by clients of a server. They end after their rounds were recorded, and fill missing values in
            columns of the table of rounds.
        predictions: the predictions of the final model on test examples, counted; see `turnout.record.predictions`. It has no
            rows before the end of a run, and of other tasks than classification.
        stopped_by: column whose values ended the run early; None for a run that ended otherwise.
    """

    stopped_by: str | None = None

    def __init__(self, log: Log | None = None) -> None:
        self._log, self.evaluations = Log() if log is None else log, Evaluations()
        self.clients = build({}, CLIENT_COLUMNS)
        self.predictions = build({}, PREDICTION_COLUMNS)

    def __len__(self) -> int:
        """Return the number of recorded rounds."""
        return len(self._log)

    @property
    def last_round(self) -> int:
        """The last recorded round; 0 if there is none."""
        return self._log.last

    @property
    def rounds(self) -> pa.Table:
        """One row per recorded round: `ROUND_COLUMNS`, then other columns by name."""
        return concatenated([self.evaluations.filled(self._log.whole().table)], self._schema)

    @property
    def _schema(self) -> pa.Schema:
        """The columns of the table of rounds."""
        names = {*self._log.schema.names, *self.evaluations.columns} - ROUND_COLUMNS.keys()
        return schema_of(ROUND_COLUMNS, names)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns of the table of rounds, without building it."""
        return tuple(self._schema.names)

    @property
    def is_private(self) -> bool:
        """True for a run with differential privacy."""
        return "epsilon" in self.column_names

    @property
    def participation(self) -> pa.Table:
        """One row (round, client) for each participant of each recorded round.

        If weights were recorded (`Experiment` with ``record_weights=True``), ``weight`` is the factor of the client's report
        in the server step, after normalization, summed over its reports if it had several; null if they were dropped.
        """
        return self._log.whole().participation

    def column(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the rounds in which a column was recorded, and its values: two arrays of equal length.

        Raises:
            ConfigurationError: if a column is unknown, with the most similar name.
        """
        known_name("column", name, self.column_names)
        values = self.rounds[name] if name in self.evaluations.columns else self._log.column(name)
        known = is_known(values)
        kind = np.int64 if values.type == pa.int64() else np.float64
        return numbers(self._log.column("round"))[known], numbers(values.drop_null()).astype(kind)

    def client_column(self, name: str) -> np.ndarray:
        """Return a numeric column of the table of clients as float64 ``[N]``, NaN where null."""
        numeric = [column for column in self.clients.column_names if column != "name"]
        column = self.clients[known_name("client column", name, numeric)].cast(pa.float64())
        values = np.full(len(column), np.nan)
        values[is_known(column)] = numbers(column.drop_null())
        return values

    def client_names(self) -> list[str]:
        """Return the names of the clients, or their numbers where they have none."""
        names, numbers = self.clients["name"].to_pylist(), self.clients["client"].to_pylist()
        return [name or str(number) for name, number in zip(names, numbers, strict=True)]

    def final(self, metric: str, window: int | None = None) -> float:
        """Return the mean of a metric over its evaluations in the last `window` rounds; NaN if it was never evaluated.

        FedAU reports accuracies with ``window=200`` (20 evaluations, one every 10 rounds). The default is the last 10 %
        of the rounds. If there is no evaluation in the window, the result is the last one.
        """
        if window is not None:
            count("window", window)
        rounds, values = self.column(metric)
        if not len(values):
            return math.nan
        first = self.last_round - (window or math.ceil(self.last_round / 10))
        return float(values[min(int(np.searchsorted(rounds, first, side="right")), len(values) - 1) :].mean())

    def spent(self, cost: str) -> np.ndarray | None:
        """Return the cumulative cost at the end of each recorded round, float64; None if unknown.

        Args:
            cost: one of `SPENT`: ``"bytes"``, ``"bytes_up"`` or ``"simulated_seconds"``.
        """
        names = SPENT[known_name("cost", cost, SPENT)]
        known = [self.column(name) for name in names if self.has_values(name)]
        rounds = self.column("round")[0]
        spent = np.zeros(len(rounds))
        for recorded, values in known:
            spent[np.searchsorted(rounds, recorded)] += values
        return np.cumsum(spent) if known else None

    def reached(self, metric: str, target: float) -> Reached | None:
        """Return the first evaluated round in which `metric` reached `target`, with its costs; None if none did.

        An accuracy reaches a target from below, a loss from above (`less_is_better`). NaN reaches none.

        Raises:
            ConfigurationError: if a column is unknown, with the most similar name.
        """
        rounds, values = self.column(metric)
        met = values <= target if less_is_better(metric) else values >= target
        if not met.any():
            return None
        first = int(rounds[met.argmax()])
        row = int(np.searchsorted(self.column("round")[0], first))
        spent = {cost: self.spent(cost) for cost in COSTS}
        return Reached(first, **{cost: float(sums[row]) for cost, sums in spent.items() if sums is not None})

    def total(self, name: str) -> int | float:
        """Return the sum of a column over all recorded rounds; 0 if it was never recorded."""
        return self.column(name)[1].sum().item()

    def evaluation_names(self) -> list[str]:
        """Return the columns of evaluations: those of the schema, and further metrics that were recorded."""
        prefixes = tuple(f"{split}_" for split in ("train", "validation", "test"))
        more = [name for name in self.column_names if name.startswith(prefixes) and "_of_" not in name]
        return list(dict.fromkeys([*_EVALUATIONS, *more]))

    def has_values(self, name: str) -> bool:
        """Return whether a column of the table of rounds exists and has a value."""
        return name in self.column_names and len(self.column(name)[1]) > 0

    def empty_rounds(self) -> dict[str, int]:
        """Return the number of rounds in which no client took part, and the first round with one; empty if there are none.

        The keys are ``empty_rounds`` and ``first_participation``, which is missing if no client ever took part.
        """
        if not self.has_values("num_participants"):
            return {}
        rounds, numbers = self.column("num_participants")
        if (numbers > 0).all():
            return {}
        figures = {"empty_rounds": int((numbers == 0).sum())}
        if (numbers > 0).any():
            figures["first_participation"] = int(rounds[numbers > 0][0])
        return figures

    def summary(self, window: int | None = None) -> dict[str, Any]:
        """Return final figures as plain numbers, without those that were never recorded.

        They are ``rounds``; if nobody took part in some, ``empty_rounds`` and ``first_participation`` (see `empty_rounds`);
        totals of ``seconds``, ``bytes_up``, ``bytes_down`` and ``num_dropped``; mean ``num_participants``; maximum
        ``server_bytes``; ``epsilon`` and the rate of the sampling that amplifies it (``poisson_rate`` or
        ``fixed_size_rate``); the clients in the last evaluation of a server (``evaluation_asked``, ``evaluation_answered``);
        final losses and accuracies (root-mean-square errors for regression); and ``fairness`` over
        clients, of their test accuracies or, if no client has any, of their training accuracies. ``stopped_by`` is the
        column whose values ended the run early: figures of test examples are biased if it is one of theirs.
        """
        figures: dict[str, Any] = {"rounds": self.last_round, **self.empty_rounds()}
        if self.stopped_by is not None:
            figures["stopped_by"] = self.stopped_by
        for name, reduce in _REDUCED.items():
            if self.has_values(name):
                figures[name] = reduce(self.column(name)[1]).item()
        figures |= {name: self.final(name, window) for name in self.evaluation_names() if self.has_values(name)}
        for name in ("test_accuracy", "train_accuracy"):
            if not np.isnan(values := self.client_column(name)).all():
                return {**figures, "fairness": {"of": name, **fairness(values)}}
        return figures
