"""Fit the constants of `Diurnal` to the recorded phones of `Flash`, and compare the two.

    python reproductions/availability/fit.py                 # the table of README.md, with the constants as they are
    python reproductions/availability/fit.py --search        # search constants anew (about five minutes)
    python reproductions/availability/fit.py --figure availability.png

Needs the recording in the data directory (``TURNOUT_DATA``), and scipy (with ``.[digits]``).
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np

from turnout.core.checks import refuse
from turnout.population import Diurnal, Flash
from turnout.population.diagnostics import autocorrelation, presence, run_lengths

NAMES = ("median", "spread", "renewal", "renewal_spread", "amplitude", "peak_hour", "peak_concentration")
ROUNDS = 864  # six days of ten minutes
QUANTILES = ("rate", "visit", "gap")


def presence_figures(here: np.ndarray, rounds_per_day: int) -> dict[str, Any]:
    """Return what characterizes a pattern of availability.

    Args:
        here: who is there when, bool ``[N, R]``.
        rounds_per_day: how many rounds a day has; R must be more.

    Returns:
        `mean` of the clients' rates; `rate`, their quantiles at 5, 25, 50, 75 and 95 %; `never`, the fraction without any
        round; `staying`, the probability of being there in the next round of those who are; `visit` and `gap`, quantiles at
        10, 25, 50, 75 and 90 % of the rounds for which clients stay and are away; `correlation`, autocorrelations of a client
        around its own rate at lags of 1, 6, 12, 36 and a day's rounds; `correlation_of_number`, that of how many are
        there, at a day's rounds.
    """
    if here.shape[1] <= rounds_per_day:
        raise refuse("rounds", given=here.shape[1], needed=f"more than a day of {rounds_per_day}")
    rates = here.mean(axis=1)
    around, number = here - rates[:, None], here.sum(axis=0) - here.sum() / here.shape[1]
    quantiles = (0.1, 0.25, 0.5, 0.75, 0.9)
    return {
        "mean": rates.mean(),
        "rate": np.quantile(rates, (0.05, 0.25, 0.5, 0.75, 0.95)),
        "never": np.mean(rates == 0),
        "staying": (here[:, 1:] & here[:, :-1]).sum() / max(here[:, :-1].sum(), 1),
        "visit": np.quantile(run_lengths(here), quantiles),
        "gap": np.quantile(run_lengths(~here), quantiles),
        "correlation": np.array([autocorrelation(around, lag) for lag in (1, 6, 12, 36, rounds_per_day)]),
        "correlation_of_number": autocorrelation(number, rounds_per_day),
    }


def measured(availability: Flash | Diurnal, num_clients: int, seed: int) -> dict[str, Any]:
    """Return what characterizes N clients over six days."""
    return presence_figures(presence(availability.bind(num_clients, None, seed), ROUNDS), rounds_per_day=144)


def distance(found: dict[str, Any], wanted: dict[str, Any]) -> float:
    """Return how far two sets of figures are apart: durations by their logarithms, all others by tenths."""
    total = 0.0
    for name, target in wanted.items():
        if name in ("visit", "gap"):
            total += np.square(np.log(found[name] / target)).mean()
        elif name != "never":
            total += np.square((found[name] - target) / 0.1).mean()
    return float(total)


def search(wanted: dict[str, Any]) -> Diurnal:
    """Return the constants with the least distance, averaged over two seeds of 1,200 clients."""
    from scipy.optimize import minimize

    def of(values: np.ndarray) -> Diurnal:
        median, spread, renewal, renewal_spread, amplitude, hour, alike = values
        return Diurnal(
            median=float(np.clip(median, 0.01, 0.9)),
            spread=float(np.clip(spread, 0.1, 3)),
            renewal=float(np.clip(renewal, 0.005, 0.9)),
            renewal_spread=float(np.clip(renewal_spread, 0, 2)),
            amplitude=float(np.clip(amplitude, 0, 1)),
            peak_hour=float(hour % 24),
            peak_concentration=float(np.clip(alike, 0, 10)),
        )

    def loss(values: np.ndarray) -> float:
        return sum(distance(measured(of(values), 1200, seed), wanted) for seed in (101, 102))

    start = [getattr(Diurnal(), name) for name in NAMES]
    return of(minimize(loss, start, method="Nelder-Mead", options={"maxfev": 250, "xatol": 1e-3, "fatol": 1e-3}).x)


def main() -> None:
    """Search, compare, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--search", action="store_true", help="search the constants anew")
    parser.add_argument("--figure", help="a file for the picture")
    args = parser.parse_args()
    wanted = measured(Flash(), 300, 0)
    fitted = search(wanted) if args.search else Diurnal()
    fitted = replace(fitted, **{name: round(getattr(fitted, name), 3) for name in NAMES})
    print(fitted, "\n")
    # Other seeds than those of the search.
    found = [measured(fitted, 300, seed) for seed in range(5)]
    print("| figure | phones | generator (mean of 5 seeds) |\n|---|---|---|")
    for name, target in wanted.items():
        mean = np.mean([one[name] for one in found], axis=0)
        print(f"| {name} | {' '.join(f'{x:.3g}' for x in np.atleast_1d(target))} "
              f"| {' '.join(f'{x:.3g}' for x in np.atleast_1d(mean))} |")  # fmt: skip
    if args.figure:
        from turnout.reporting.availability_figure import availability_figure

        figure = availability_figure(
            {"300 phones": Flash().bind(300), "generator": fitted.bind(300)}, ROUNDS, seconds_per_round=600
        )
        figure.savefig(args.figure, dpi=150)


if __name__ == "__main__":
    main()
