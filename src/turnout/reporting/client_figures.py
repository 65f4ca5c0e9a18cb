"""Plot figures of clients: their accuracy, gains, weights, influence, and participation.

All functions take finished runs and return a matplotlib `Figure`; an algorithm has the same color in all figures of the same
runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from turnout.core.checks import DataError
from turnout.reporting import style
from turnout.reporting.curves import MOST_POINTS, draw_each, styles
from turnout.reporting.style import Look
from turnout.results.gains import needed
from turnout.results.influence import evenly, records_influence
from turnout.results.names import label, name_of, scale_of
from turnout.results.records import RunRecord, by_algorithm, client_split

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST_DOTS = 2000  # of an algorithm
MOST_CLIENTS = 200  # rows of a raster
MOST_BINS = 600  # columns of a raster


def client_cdf(records: Sequence[RunRecord]) -> Figure:
    """Plot the cumulative distribution of client-wise accuracy, over the clients of all seeds.

    A curve further to the right has more clients with a high accuracy; a steeper one has smaller differences among them.

    Raises:
        DataError: if no run has accuracies in its table of clients.
    """
    figure, split = style.new_figure(), client_split(records)
    axes = figure.subplots()

    def draw(runs: Sequence[RunRecord], look: Look) -> bool:
        values = np.concatenate([record.history.client_column(f"{split}_accuracy") for record in runs])
        values = np.sort(values[~np.isnan(values)])
        if len(values):
            share = np.arange(1, len(values) + 1) / len(values)
            shown = evenly(len(values), MOST_POINTS)
            x, y = 100 * values[shown], 100 * share[shown]
            axes.step(np.append(x[0], x), np.append(0.0, y), where="post", linewidth=1.6, **look)
        return len(values) > 0

    if not (drawn := draw_each(records, draw)):
        raise DataError("no run has client-wise accuracies")
    style.dress(axes, f"{name_of(f'{split}_accuracy')} of a client (%)", "clients (%)")
    style.legend(figure, drawn)
    return figure


def weights_against_rates(records: Sequence[RunRecord]) -> Figure:
    """Plot the weight of each client against 1/p_n, one panel per algorithm with weights, for the clients of all seeds.

    On the diagonal a weight is the inverse of the true participation rate, so that all clients contribute equally.

    Raises:
        DataError: if no run has both weights and known participation rates.
    """
    looks, points = styles(records), weight_points(records)
    columns = min(2, len(points))
    height = 3.4 if len(points) <= columns else 2.5
    figure, grid = style.new_panels(len(points), columns, style.SIZE[0] / columns, height, sharex=True, sharey=True)
    values = np.concatenate([value for pair in points.values() for value in pair])
    for axes, (algorithm, (inverse, weights)) in zip(grid, points.items(), strict=True):
        style.scatter(axes, inverse, weights, 10, 0.5, looks[algorithm])
        _compare(axes, values.min() / 1.15, values.max() * 1.15, (4, 3))
        style.dress(axes, "1 / participation rate", "weight", title=algorithm)
        axes.label_outer()
    return figure


def influence_figure(records: Sequence[RunRecord]) -> Figure:
    """Plot each client's share of the weights against its share of the reports, for the clients of all seeds.

    Both are in units of the fair share, 1 / N. On the diagonal the influence of clients is proportional to their reports, on
    the horizontal line it is equal. Clients that never contributed are not shown.

    Raises:
        DataError: if no run recorded influence.
    """
    figure, shown = style.new_figure(), list[np.ndarray]()
    axes = figure.subplots()

    def draw(runs: Sequence[RunRecord], look: Look) -> bool:
        pairs = [_shares_of_clients(record) for record in runs if records_influence(record)]
        if pairs:
            reports, influence = np.concatenate(pairs, axis=1)
            order = np.argsort(reports, kind="stable")[evenly(len(reports), MOST_DOTS)]
            style.scatter(axes, reports[order], influence[order], 14, 0.6, look)
            shown.extend(pairs)
        return bool(pairs)

    if not (drawn := draw_each(records, draw)):
        raise DataError("no run was asynchronous, so there is no influence")
    values = np.concatenate(shown, axis=1)
    style.draw_target(axes, 1.0)
    _compare(axes, values.min() / 1.3, values.max() * 1.3, (1, 2))
    style.dress(axes, "share of the reports (fair share = 1)", "influence (fair share = 1)")
    style.legend(figure, drawn)
    return figure


def _compare(axes: Axes, low: float, high: float, dashes: tuple[int, int]) -> None:
    """Draw the diagonal, and set the same logarithmic scale on both axes."""
    axes.plot([low, high], [low, high], color=style.INK, linewidth=1, linestyle=(0, dashes), zorder=0.9)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    for axis in (axes.xaxis, axes.yaxis):
        style.plain_ticks(axis, high / low)


def _shares_of_clients(record: RunRecord) -> np.ndarray:
    """Return the shares of reports and of weights, in fair shares, of clients that contributed, ``[2, n]``."""
    contributions, influence = (record.history.client_column(name) for name in ("contributions", "influence"))
    contributed = (contributions > 0) & (influence > 0)
    n = len(contributions)
    return np.stack([n * contributions[contributed] / contributions.sum(), n * influence[contributed]])


def weight_points(records: Sequence[RunRecord]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return 1/p_n and the weights of clients by algorithm; algorithms with equal weights only if there are no others."""
    points = {}
    for algorithm, group in by_algorithm(records).items():
        inverse, weights = np.concatenate([_inverse_rates_and_weights(record) for record in group], axis=1)
        if len(weights):
            order = np.argsort(inverse)[evenly(len(weights), MOST_DOTS)]
            points[algorithm] = (inverse[order], weights[order])
    if not points:
        raise DataError("no run has both weights of its clients and known participation rates")
    return {name: pair for name, pair in points.items() if np.ptp(pair[1])} or points


def participation_raster(record: RunRecord, color: str = style.PALETTE[0]) -> Figure:
    """Plot the participation of clients over rounds, ordered by known rate (else by realized rate), the highest on top.

    Up to 30 clients with names are named. Of more than 200 clients, 200 evenly spaced in that order are shown. With more than
    600 rounds, the shade of a cell is the share of its rounds in which the client took part.

    Raises:
        DataError: if the run did not record its participants.
    """
    figure, rates = style.new_figure(), record.known_rates
    participation = record.history.participation
    if not len(participation):
        raise DataError("no participants were recorded")
    when, who = participation["round"].to_numpy(), participation["client"].to_numpy()
    number = max(len(record.history.clients), int(who.max()) + 1)
    realized = np.bincount(who, minlength=number) / len(record.history)
    order = np.argsort(-(realized if rates is None else np.nan_to_num(rates)), kind="stable")
    shown = order[evenly(number, MOST_CLIENTS)]
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(4, 1))
    left.imshow(
        _shares(record, shown, when, who), aspect="auto", interpolation="none", vmin=0, vmax=1,
        cmap=style.ramp(color),
        extent=(0.5, record.history.last_round + 0.5, len(shown), 0),
    )  # fmt: skip
    height = np.arange(len(shown)) + 0.5
    right.fill_betweenx(height, 0, 100 * realized[shown], color=color, alpha=0.45, linewidth=0, step="mid")
    if rates is not None:
        right.plot(100 * rates[shown], height, color=style.INK, linewidth=1.2)
    amount = f"{len(shown)} of {number:,} clients" if len(shown) < number else f"{number} clients"
    style.dress(left, "round", f"{amount}, by rate")
    style.dress(right, "rate (%)", "")
    left.set_yticks([])
    if number <= style.MOST_NAMES and any(record.history.clients["name"].to_pylist()):
        style.name_rows(left.yaxis, height, np.array(record.history.client_names())[shown].tolist())
    left.grid(visible=False)
    right.set_xlim(left=0)
    return figure


def _inverse_rates_and_weights(record: RunRecord) -> np.ndarray:
    """Return 1/p_n and the weight of clients for which both are known and positive, ``[2, n]``."""
    rates, weights = record.known_rates, record.history.client_column("weight")
    if rates is None:
        return np.empty((2, 0))
    known = (rates > 0) & (weights > 0) & np.isfinite(weights)
    return np.stack([1 / rates[known], weights[known]])


def _shares(record: RunRecord, shown: np.ndarray, when: np.ndarray, who: np.ndarray) -> np.ndarray:
    """Return the share of the rounds of each bin in which each client of `shown` took part, ``[clients, bins]``."""
    last = record.history.last_round
    bins = min(last, MOST_BINS)
    row = np.full(max(int(who.max()), int(shown.max())) + 1, -1)
    row[shown] = np.arange(len(shown))
    drawn = row[who] >= 0
    cell = row[who[drawn]] * bins + (when[drawn] - 1) * bins // last
    counts = np.bincount(cell, minlength=len(shown) * bins).reshape(len(shown), bins)
    recorded = np.bincount((record.history.column("round")[0] - 1) * bins // last, minlength=bins)
    return counts / np.maximum(recorded, 1)


def gains_figure(records: Sequence[RunRecord]) -> Figure:
    """Plot a row of dots for each client, one for each algorithm, from the client that gains most to the one that loses most.

    Raises:
        DataError: if no run of a baseline is among the records.
    """
    found, looks = needed(records), styles(records)
    shown = found.shown
    figure = style.new_figure(height=max(style.SIZE[1], 1.0 + 0.19 * len(shown)))
    axes, height = figure.subplots(), np.arange(len(shown), 0, -1)
    scores = {name: scale_of(found.column) * values[shown] for name, values in found.scores.items()}
    together = np.stack(list(scores.values()))
    axes.hlines(height, together.min(0), together.max(0), color=style.INK, alpha=0.35, linewidth=1)
    for name, values in scores.items():
        style.scatter(axes, values, height, 26, 0.9, looks[name])
    style.dress(axes, label(found.column), "")
    style.name_rows(axes.yaxis, height, [found.clients[client] for client in shown])
    style.legend(figure, {name: looks[name] for name in scores})
    return figure
