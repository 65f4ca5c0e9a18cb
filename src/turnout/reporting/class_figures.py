"""Plot the predictions of classifiers: labels against predicted classes, and accuracy against confidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from turnout.record.predictions import calibration, confusion
from turnout.record.tables import numbers
from turnout.reporting import style
from turnout.reporting.curves import styles
from turnout.results.records import RunRecord
from turnout.results.scored import class_names, predictions_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_PANELS = 4
_WRITTEN = 12  # classes whose shares are written into the cells
_NAME = 12  # letters of a class name


def confusion_figure(records: Sequence[RunRecord]) -> Figure:
    """Plot for each algorithm which share of the examples of each label is predicted as each class, over all seeds.

    Of more than four algorithms, the first four are shown.

    Raises:
        DataError: if no run counted predictions.
    """
    tables = dict(list(predictions_of(records).items())[:_MOST_PANELS])
    names = class_names(records[0].config)
    columns = min(2, len(tables))
    figure, panels = style.new_panels(len(tables), columns, 4.2 if columns == 1 else 3.6, 3.6)
    for axes, (algorithm, found) in zip(panels, tables.items(), strict=True):
        matrix = confusion(found)
        shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
        axes.imshow(shares, cmap=style.ramp(most="80"), vmin=0.0, vmax=1.0, interpolation="nearest")
        style.dress(axes, "predicted class", "label", title=algorithm if len(tables) > 1 else "")
        axes.grid(visible=False)
        _class_ticks(axes, len(matrix), names, ["NaN"] * (matrix.shape[1] - len(matrix)))
        if len(matrix) <= _WRITTEN:
            _write_shares(axes, shares)
    return figure


def _class_ticks(axes: Axes, num_classes: int, names: Sequence[str] | None, more: Sequence[str]) -> None:
    """Set at most about 15 names or numbers of classes on both axes, and the name of a further column."""
    step = -(-num_classes // 15)
    shown = range(0, num_classes, step)
    texts = [(str(k) if names is None else names[k])[:_NAME] for k in shown]
    turned = max(map(len, texts)) > 3
    columns, texts_of_columns = [*shown, num_classes][: len(texts) + len(more)], [*texts, *more]
    alignment = "right" if turned else "center"
    axes.set_xticks(columns, texts_of_columns, rotation=60 if turned else 0, ha=alignment, parse_math=False)
    axes.set_yticks(shown, texts, parse_math=False)


def _write_shares(axes: Axes, shares: np.ndarray) -> None:
    """Write the shares above half a percent into the cells, in percent."""
    for label, predicted in np.argwhere(shares >= 0.005).tolist():
        axes.text(
            predicted, label, f"{100 * shares[label, predicted]:.0f}", ha="center", va="center", fontsize=7,
            color=style.STRONG,
        )  # fmt: skip


def calibration_figure(records: Sequence[RunRecord]) -> Figure:
    """Plot the accuracy of predictions against their confidence, a line for each algorithm, over all seeds.

    Raises:
        DataError: if no run counted predictions.
    """
    tables, looks = predictions_of(records), styles(records)
    figure = style.new_figure()
    axes = figure.subplots()
    axes.plot([0, 100], [0, 100], color=style.INK, linewidth=1, linestyle=(0, (4, 3)), zorder=0.9)
    for algorithm, found in tables.items():
        table = calibration(found)
        look: style.Look = {"marker": style.MARKERS[0], "markersize": 4} | looks[algorithm] | {"markevery": None}
        axes.plot(100 * numbers(table["confidence"]), 100 * numbers(table["accuracy"]), linewidth=1.6, **look)
    style.dress(axes, "confidence (%)", "accuracy (%)")
    style.legend(figure, {name: looks[name] for name in tables})
    return figure
