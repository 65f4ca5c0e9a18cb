"""Plot the availability of clients: visits, the share by hour of the day, and the lengths of visits and absences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from turnout.core.checks import refuse
from turnout.population.availability import BoundAvailability
from turnout.population.diagnostics import autocorrelation, presence, run_lengths
from turnout.reporting.style import INK, dress, legend, looks_of, new_figure, plain_ticks, ramp

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PATTERNS = 4
"""The largest number of patterns in one figure."""

_ROWS, _COLUMNS, _LAGS = 300, 600, 60
_DAY = 86_400


def availability_figure(
    patterns: Mapping[str, BoundAvailability], num_rounds: int, seconds_per_round: int | None = None
) -> Figure:
    """Plot the availability of clients over time, for one or more patterns.

    Top: the visits of every client, the most available at the top. Bottom: the share of available clients by hour of the day
    (by round, if rounds have no length); the fraction of visits (solid) and absences (dashed) that last longer than a
    duration; and the autocorrelation of the availability of a client.

    Args:
        patterns: bound patterns by name.
        num_rounds: rounds from the first on.
        seconds_per_round: length of a round; None uses rounds instead of hours and days.

    Raises:
        ConfigurationError: if there is no pattern or more than four, there are fewer than 10 rounds, or matplotlib is
            not installed.
    """
    if not 1 <= len(patterns) <= MOST_PATTERNS:
        raise refuse("patterns", given=len(patterns), needed=f"1 to {MOST_PATTERNS}")
    if num_rounds < 10:
        raise refuse("num_rounds", given=num_rounds, needed="at least 10")
    figure, looks = new_figure(9.6, 6.4), looks_of(patterns)
    above, below = np.asarray(figure.subfigures(2, 1, height_ratios=(1.2, 1.0)))
    rasters = np.atleast_1d(above.subplots(1, len(patterns), sharey=False))
    hours, lengths, correlations = below.subplots(1, 3)
    span = num_rounds * seconds_per_round / _DAY if seconds_per_round else num_rounds
    unit = "days" if seconds_per_round else "rounds"
    for axes, (name, bound) in zip(rasters, patterns.items(), strict=True):
        here = presence(bound, num_rounds)
        _raster(axes, here, span)
        rates = here.mean(axis=1)
        dress(axes, unit, "clients, by rate", f"{name}\nmean {rates.mean():.1%}, median {np.median(rates):.1%}")
        axes.set_yticks([])
        axes.grid(visible=False)
        _by_hour(hours, here, seconds_per_round, looks[name])
        _draw_lengths(lengths, here, seconds_per_round, looks[name]["color"])
        _draw_autocorrelation(correlations, here, seconds_per_round, looks[name])
    dress(hours, "hour of the recording's day" if seconds_per_round else "round", "available clients (%)")
    hours.set_ylim(bottom=0)
    dress(lengths, "hours" if seconds_per_round else "rounds", "visits (solid), absences (dashed) that last longer (%)")
    dress(correlations, "lag (hours)" if seconds_per_round else "lag (rounds)", "autocorrelation of a client")
    correlations.axhline(0, color=INK, linewidth=0.6)
    legend(figure, looks)
    return figure


def _raster(axes: Axes, here: np.ndarray, span: float) -> None:
    """Shade the share of each time interval in which each client (or group of neighbors by rate) is available."""
    here = here[np.argsort(here.mean(axis=1), kind="stable")]
    limits = zip(here.shape, (_ROWS, _COLUMNS), strict=True)
    rows, columns = (np.arange(min(n, most)) * n // min(n, most) for n, most in limits)
    share = np.add.reduceat(np.add.reduceat(here.astype(np.float64), rows, axis=0), columns, axis=1)
    share /= np.outer(np.diff(rows, append=here.shape[0]), np.diff(columns, append=here.shape[1]))
    axes.imshow(
        share, aspect="auto", origin="lower", cmap=ramp(), vmin=0.0, vmax=1.0, interpolation="nearest",
        extent=(0.0, span, 0.0, float(here.shape[0])),
    )  # fmt: skip


def _by_hour(axes: Axes, here: np.ndarray, seconds: int | None, look: dict) -> None:
    """Plot the share of available clients by hour of the day, or by round."""
    number = 100 * here.mean(axis=0)
    if seconds is None or here.shape[1] * seconds < _DAY:
        axes.plot(np.arange(len(number)), number, linewidth=1.2, **look)
        return
    hour = np.arange(len(number)) * seconds % _DAY // 3600
    rounds = np.bincount(hour, minlength=24)
    known = rounds > 0
    axes.plot(np.arange(24)[known], np.bincount(hour, number, 24)[known] / rounds[known], linewidth=1.8, **look)
    axes.set_xticks(range(0, 25, 6))


def _draw_lengths(axes: Axes, here: np.ndarray, seconds: int | None, color: str) -> None:
    """Plot the share of visits, and of absences, that last longer than a duration."""
    unit = seconds / 3600 if seconds else 1.0
    for lengths, dashes in ((run_lengths(here), "-"), (run_lengths(~here), (0, (4, 1.5)))):
        longer = 100 * (1 - np.arange(1, len(lengths) + 1) / len(lengths))
        axes.plot(np.sort(lengths) * unit, longer, color=color, linestyle=dashes, linewidth=1.6, drawstyle="steps-post")
    axes.set_xscale("log")
    plain_ticks(axes.xaxis, 1e3)
    axes.set_ylim(0, 100)


def _draw_autocorrelation(axes: Axes, here: np.ndarray, seconds: int | None, look: dict) -> None:
    """Plot the autocorrelation of the availability of clients, minus their rates."""
    around = here - here.mean(axis=1, keepdims=True)
    most = here.shape[1] // 2
    if seconds:
        most = min(most, 2 * _DAY // seconds)
    lags = np.unique(np.linspace(1, max(most, 2), _LAGS).round().astype(int))
    values = [autocorrelation(around, int(lag)) for lag in lags]
    axes.plot(lags * (seconds / 3600 if seconds else 1.0), values, linewidth=1.6, **look)
    if seconds:
        axes.set_xticks(range(0, int(lags[-1] * seconds / 3600) + 1, 12))
