"""Summarize the predictions of runs by class, and compare the clients of a result with those of baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from turnout.core.checks import ConfigurationError, DataError, known_name
from turnout.record.predictions import by_class, calibration, confusion
from turnout.record.query import History
from turnout.record.tables import array_of
from turnout.results.gains import BASELINES, gains_of
from turnout.results.influence import evenly
from turnout.results.records import RunRecord, by_algorithm

MOST_CLASSES = 30
"""The largest number of classes in a table."""


def class_names(config: Any) -> list[str] | None:
    """Return the names of the classes of a run on a table, from its configuration as plain values; None without names."""
    recipe = ((config or {}).get("data") or {}).get("recipe") or {}
    names = (recipe.get("preparation") or {}).get("classes")
    return None if names is None else list(names)


def predictions_of(records: Sequence[RunRecord]) -> dict[str, list[pa.Table]]:
    """Return the tables of predictions of each algorithm, one for each seed.

    Raises:
        DataError: if no run has one.
    """
    tables = {
        name: [record.history.predictions for record in group if len(record.history.predictions)]
        for name, group in by_algorithm(records).items()
    }
    if not any(tables.values()):
        raise DataError("no run counted predictions: they need test examples with class labels")
    return {name: found for name, found in tables.items() if found}


def class_table(records: Sequence[RunRecord]) -> tuple[list[str], list[list[str]]] | None:
    """Return the titles and rows of a table of precision and recall by class; None without predictions.

    Counts are summed over seeds. Of more than `MOST_CLASSES` classes, so many are shown, evenly spaced from the least to the
    largest recall of the first algorithm.
    """
    try:
        tables = predictions_of(records)
    except DataError:
        return None
    names = class_names(records[0].config)
    figures = {name: by_class(confusion(found), names) for name, found in tables.items()}
    first = next(iter(figures.values()))
    order = np.argsort([-1.0 if value is None else value for value in first["recall"].to_pylist()], kind="stable")
    shown = np.sort(order[evenly(len(order), MOST_CLASSES)])
    columns = {"class": first["class"], "examples": first["examples"]}
    for name, table in figures.items():
        columns |= {f"{name}, {figure} (%)": table[figure] for figure in ("precision", "recall")}
    cells = [[_cell(value) for value in column.take(pa.array(shown)).to_pylist()] for column in columns.values()]
    return list(columns), [list(row) for row in zip(*cells, strict=True)]


def _cell(value: str | float | None) -> str:
    """Return the text of a name, a count, or a share."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{100 * value:.1f}"


class Scored:
    """Base class of results, which have the tables of a run.

    Attributes:
        history: the tables.
        config: the experiment as plain values; None where it is not known.
    """

    history: History
    config: Mapping[str, Any] | None

    def confusion(self) -> np.ndarray:
        """Return the number of test examples by label (row) and predicted class (column), int64 ``[C, C]``.

        The predictions are those of the final model, or of each client's own one. Examples whose outputs are NaN, if there
        are any, are in a further column.

        Raises:
            ConfigurationError: if no predictions were counted: without test examples, class labels, or the end of the run;
                with differential privacy; and with personal models of more than a thousand clients.

        Example:
            >>> import turnout as to
            >>> data = to.data.digits().split(to.partition.Iid(), num_clients=10)
            >>> result = to.Experiment(data=data, model=to.models.Logistic(), rounds=30).run()
            >>> matrix = result.confusion()
            >>> matrix.shape, bool(matrix.trace() / matrix.sum() == result.rounds["test_accuracy"][-1].as_py())
            ((10, 10), True)
        """
        return confusion([self._predictions()])

    def by_class(self) -> pa.Table:
        """Return precision, recall and F1 score of each class on test examples; null where they are undefined.

        Columns are ``class`` (its name in the table, or its number), ``examples``, ``predicted``, ``precision``, ``recall``
        and ``f1``.

        Raises:
            ConfigurationError: as `confusion`.
        """
        return by_class(self.confusion(), class_names(self.config))

    def calibration(self) -> pa.Table:
        """Return how often predictions are right by their confidence, in 15 bins of equal width of which those without
        examples are left out.

        The confidence is the probability of the predicted class. Columns are ``low`` and ``high``, the limits of a bin,
        ``examples``, ``confidence`` and ``accuracy``, the means over its test examples. ``plot("calibration")`` draws it.

        Raises:
            ConfigurationError: as `confusion`.
        """
        return calibration([self._predictions()])

    def _predictions(self) -> pa.Table:
        """Return the table of predictions."""
        if not len(table := self.history.predictions):
            raise ConfigurationError(
                "no predictions were counted: needed a finished run without differential privacy on class labels with test "
                "examples: write test_fraction=0.2 or client_test_fraction=0.2 in split()"
            )
        return table

    def gains(self, **baselines: Scored) -> pa.Table:
        """Return the scores of clients in this run and with baselines on the same data, and what clients gain.

        Args:
            **baselines: the results of `turnout.algorithms.local` as ``local``, of `turnout.centralized` as ``centralized``,
                or of both.

        Returns:
            One row per client: ``client``, ``name``, ``num_examples``, the score in this run (``test_accuracy`` or another
            figure that all runs have), with each baseline (``local``, ``centralized``), and the difference
            (``gain_over_local``, ``gain_over_centralized``), positive where this run is better.

        Raises:
            ConfigurationError: if a baseline has another name, or the runs have other clients or no figure in common.

        Example:
            >>> from dataclasses import replace
            >>> import turnout as to
            >>> data = to.data.digits().split(to.partition.Dirichlet(0.1), num_clients=5, client_test_fraction=0.2)
            >>> experiment = to.Experiment(data=data, model=to.models.Logistic(), rounds=5)
            >>> alone = replace(experiment, algorithm=to.algorithms.local()).run()
            >>> experiment.run().gains(local=alone).column_names
            ['client', 'name', 'num_examples', 'test_accuracy', 'local', 'gain_over_local']
        """
        for name in baselines:
            known_name("baseline", name, BASELINES)
        if not baselines:
            raise ConfigurationError("gains: write the results of baselines, such as gains(local=result)")
        found = gains_of({"run": self.history} | {name: result.history for name, result in baselines.items()})
        table = self.history.clients.select(["client", "name", "num_examples"])
        columns = {found.column: found.scores["run"]} | {name: found.scores[name] for name in baselines}
        columns |= {f"gain_over_{name}": found.gain("run", name) for name in baselines}
        for name, values in columns.items():
            table = table.append_column(name, array_of(values, pa.float64(), nan_is_null=True))
        return table
