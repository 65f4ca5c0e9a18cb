"""The figures of a report: curves, client-wise accuracy, weights against rates, who took part when.

All take finished runs and return a matplotlib `Figure`; an algorithm has the same colour in all figures of the same runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from turnout.core.checks import DataError, known_name
from turnout.reporting.bands import MOST_POINTS, band, window_of
from turnout.reporting.records import RunRecord, by_algorithm, client_split
from turnout.reporting.style import (
    INK,
    PALETTE,
    SIZE,
    draw_band,
    dress,
    evenly,
    few_ticks,
    label,
    legend,
    name_of,
    new_figure,
    new_panels,
    plain_ticks,
    ramp,
    scale_of,
    scatter,
    styles,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_DOTS = 2000  # of a scatter plot
MOST_CLIENTS = 200  # rows of a raster
MOST_BINS = 600  # columns of a raster


def curves(records: Sequence[RunRecord], metric: str, smooth: bool = False) -> Figure:
    """Return a recorded column against rounds: for each algorithm the mean over seeds, and a band of one standard deviation.

    With `smooth`, mean and standard deviation at a round are those of all samples, of all seeds, in the window that ends
    there and spans 3 % of the rounds, as in the figures of the FedAU paper (appendix D.2). A gap means that a run had
    no finite value there. A loss that spans more than a factor of 30 gets a logarithmic axis.

    Raises:
        ConfigurationError: for a column that no run has.
        DataError: where no run recorded a value.
    """
    known_name("column", metric, {name for record in records for name in record.history.column_names})
    figure, looks = new_figure(), styles(records)
    axes, drawn, highest, lowest = figure.subplots(), {}, -np.inf, np.inf
    window = window_of(records) if smooth else 1
    scale = scale_of(metric)
    for algorithm, group in by_algorithm(records).items():
        rounds, mean, std = band(_samples(group, metric), window)
        if not np.isfinite(mean).any():
            continue
        mean, std = scale * mean, scale * std
        drawn[algorithm] = looks[algorithm]
        draw_band(axes, rounds, mean - std, mean, mean + std, drawn[algorithm])
        highest, lowest = max(highest, np.nanmax(mean)), min(lowest, np.nanmin(mean))
    if not drawn:
        raise DataError(f"no run recorded {metric}")
    if metric.endswith("loss") and 0 < 30 * lowest < highest:
        axes.set_yscale("log")
    elif smooth:
        _look_closer(axes)
    if metric == "pool":
        few_ticks(axes.yaxis, whole=True)
    dress(axes, "round", label(metric))
    legend(figure, drawn)
    return figure


def _samples(records: Sequence[RunRecord], metric: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return a column of the runs that have it."""
    return [record.history.column(metric) for record in records if metric in record.history.column_names]


def _look_closer(axes: Axes) -> None:
    """Give the height to what the curves are after a quarter of the rounds, where that is less than half of all they were.

    Curves that have converged could not be told apart otherwise; how they began is in the figure of costs.
    """
    lines = [np.asarray(line.get_xydata(), dtype=np.float64) for line in axes.lines]
    quarter = max(line[:, 0].max() for line in lines) / 4
    values = np.concatenate(lines)
    late = values[values[:, 0] >= quarter, 1]
    low, high, whole = np.nanmin(late), np.nanmax(late), np.nanmax(values[:, 1]) - np.nanmin(values[:, 1])
    if 0 < high - low < 0.5 * whole:
        axes.set_ylim(low - 0.12 * (high - low), high + 0.12 * (high - low))


def client_cdf(records: Sequence[RunRecord]) -> Figure:
    """Draw the cumulative distribution of client-wise accuracy, the clients of all seeds together.

    A curve further to the right serves more clients well; a steeper one serves them more evenly.

    Raises:
        DataError: where no run has accuracies in its table of clients.
    """
    figure, looks, split = new_figure(), styles(records), client_split(records)
    axes, drawn = figure.subplots(), {}
    for algorithm, group in by_algorithm(records).items():
        values = np.concatenate([record.history.client_column(f"{split}_accuracy") for record in group])
        values = np.sort(values[~np.isnan(values)])
        if not len(values):
            continue
        share = np.arange(1, len(values) + 1) / len(values)
        shown = evenly(len(values), MOST_POINTS)
        x, y = 100 * values[shown], 100 * share[shown]
        axes.step(np.append(x[0], x), np.append(0.0, y), where="post", linewidth=1.6, **looks[algorithm])
        drawn[algorithm] = looks[algorithm]
    if not drawn:
        raise DataError("no run has client-wise accuracies")
    dress(axes, f"{name_of(f'{split}_accuracy')} of a client (%)", "clients (%)")
    legend(figure, drawn)
    return figure


def weights_against_rates(records: Sequence[RunRecord]) -> Figure:
    """Draw each client's weight against 1/p_n, one panel per algorithm that has weights, the clients of all seeds together.

    On the diagonal a weight is the inverse of the client's true participation rate, which makes rare clients count in full.

    Raises:
        DataError: where no run has both weights and known participation rates.
    """
    looks, points = styles(records), weight_points(records)
    columns = min(2, len(points))
    height = 3.4 if len(points) <= columns else 2.5
    figure, grid = new_panels(len(points), columns, SIZE[0] / columns, height, sharex=True, sharey=True)
    low, high = min(v.min() for p in points.values() for v in p), max(v.max() for p in points.values() for v in p)
    low, high = low / 1.15, high * 1.15
    for axes, (algorithm, (inverse, weights)) in zip(grid, points.items(), strict=True):
        axes.plot([low, high], [low, high], color=INK, linewidth=1, linestyle=(0, (4, 3)))
        scatter(axes, inverse, weights, 10, 0.5, looks[algorithm])
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
        plain_ticks(axes.xaxis, high / low)
        plain_ticks(axes.yaxis, high / low)
        dress(axes, "1 / participation rate", "weight", title=algorithm)
        axes.label_outer()
    return figure


def weight_points(records: Sequence[RunRecord]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return 1/p_n and the weights of clients, by algorithm; of weights that are all alike only where no others are."""
    points = {}
    for algorithm, group in by_algorithm(records).items():
        inverse, weights = np.concatenate([_inverse_rates_and_weights(record) for record in group], axis=1)
        if len(weights):
            order = np.argsort(inverse)[evenly(len(weights), MOST_DOTS)]
            points[algorithm] = (inverse[order], weights[order])
    if not points:
        raise DataError("no run has both weights of its clients and known participation rates")
    return {name: pair for name, pair in points.items() if np.ptp(pair[1])} or points


def participation_raster(record: RunRecord, colour: str = PALETTE[0]) -> Figure:
    """Draw who took part when: clients by known rate (by realised rate where none is known), the highest on top.

    Of more than 200 clients, 200 evenly spaced in that order are shown. Where there are more rounds than can be seen,
    a cell's shade is the share of its rounds in which the client took part.

    Raises:
        DataError: where the run did not record its participants.
    """
    figure, rates = new_figure(), record.known_rates
    participation = record.history.participation
    if not len(participation):
        raise DataError("no participants were recorded")
    when, who = participation["round"].to_numpy(), participation["client"].to_numpy()
    number = max(len(record.history.clients), 0 if rates is None else len(rates), int(who.max()) + 1)
    realised = np.bincount(who, minlength=number) / len(record.history)
    order = np.argsort(-(realised if rates is None else np.nan_to_num(rates)), kind="stable")
    shown = order[evenly(number, MOST_CLIENTS)]
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(4, 1))
    left.imshow(
        _shares(record, shown, when, who), aspect="auto", interpolation="none", vmin=0, vmax=1,
        cmap=ramp(colour),
        extent=(0.5, record.history.last_round + 0.5, len(shown), 0),
    )  # fmt: skip
    height = np.arange(len(shown)) + 0.5
    right.fill_betweenx(height, 0, 100 * realised[shown], color=colour, alpha=0.45, linewidth=0, step="mid")
    if rates is not None:
        right.plot(100 * rates[shown], height, color=INK, linewidth=1.2)
    amount = f"{len(shown)} of {number:,} clients" if len(shown) < number else f"{number} clients"
    dress(left, "round", f"{amount}, by rate")
    dress(right, "rate (%)", "")
    left.set_yticks([])
    left.grid(visible=False)
    right.set_xlim(left=0)
    return figure


def _inverse_rates_and_weights(record: RunRecord) -> np.ndarray:
    """Return rows 1/p_n and weight of the clients for which both are known and positive, ``[2, n]``."""
    rates, weights = record.known_rates, record.history.client_column("weight")
    if rates is None or len(rates) != len(weights):
        return np.empty((2, 0))
    known = (rates > 0) & (weights > 0) & np.isfinite(weights)
    return np.stack([1 / rates[known], weights[known]])


def _shares(record: RunRecord, shown: np.ndarray, when: np.ndarray, who: np.ndarray) -> np.ndarray:
    """Return the share of the recorded rounds of each bin in which each client of `shown` took part, ``[clients, bins]``."""
    last = record.history.last_round
    bins = min(last, MOST_BINS)
    row = np.full(max(int(who.max()), int(shown.max())) + 1, -1)
    row[shown] = np.arange(len(shown))
    drawn = row[who] >= 0
    cell = row[who[drawn]] * bins + (when[drawn] - 1) * bins // last
    counts = np.bincount(cell, minlength=len(shown) * bins).reshape(len(shown), bins)
    recorded = np.bincount((record.history.column("round")[0] - 1) * bins // last, minlength=bins)
    return counts / np.maximum(recorded, 1)
