"""Compute the realized participation of clients, and statistics of availability patterns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turnout.core.checks import DataError, count, refuse
from turnout.population.availability.base import BoundAvailability


def participation_table(
    rounds: Sequence[np.ndarray] | tuple[np.ndarray, np.ndarray], num_clients: int, num_rounds: int
) -> dict[str, np.ndarray]:
    """Return the realized participation of each of N clients over R rounds.

    Args:
        rounds: the participants, a list of R arrays of client numbers; or a tuple (ids, offsets), where round t is
            ``ids[offsets[t]:offsets[t + 1]]``. Duplicates within a round count once.
        num_clients: N.
        num_rounds: R.

    Returns:
        Columns ``[N]``: `client`; `participations` (number of rounds); `rate` (participations / R); `mean_interval` (mean
        number of rounds between consecutive participations, NaN below two participations); `first` and `last` (round, -1
        without participation).

    Raises:
        ConfigurationError: if `num_rounds` is not the number of rounds in the record.
        DataError: if a client number is outside 0..N-1.
    """
    count("num_clients", num_clients)
    count("num_rounds", num_rounds)
    if isinstance(rounds, tuple):
        ids, sizes = np.asarray(rounds[0], dtype=np.int64), np.diff(rounds[1])  # empty columns are floats
    else:
        ids, sizes = np.concatenate([*rounds, np.empty(0, np.int64)]), np.array([len(cohort) for cohort in rounds])
    if len(sizes) != num_rounds:
        raise refuse("num_rounds", given=num_rounds, needed=f"{len(sizes)}, the number of rounds in the record")
    if len(ids) and (ids.min() < 0 or ids.max() >= num_clients):
        raise DataError(f"clients from {ids.min()} to {ids.max()} took part, but there are {num_clients}, from 0 on")
    when, who = np.divmod(np.unique(np.repeat(np.arange(num_rounds), sizes) * num_clients + ids), num_clients)
    participations = np.bincount(who, minlength=num_clients)
    first = np.full(num_clients, num_rounds)
    last = np.full(num_clients, -1)
    np.minimum.at(first, who, when)
    np.maximum.at(last, who, when)
    first[participations == 0] = -1
    intervals = np.where(participations > 1, participations - 1, np.nan)
    return {
        "client": np.arange(num_clients),
        "participations": participations,
        "rate": participations / num_rounds,
        "mean_interval": (last - first) / intervals,
        "first": first,
        "last": last,
    }


def presence(bound: BoundAvailability, num_rounds: int) -> np.ndarray:
    """Return the availability of all clients in the first R rounds, bool ``[N, R]``."""
    count("num_rounds", num_rounds)
    clients = np.arange(bound.num_clients)
    return np.stack([bound.available(clients, round) for round in range(num_rounds)], axis=1)


def run_lengths(here: np.ndarray) -> np.ndarray:
    """Return the lengths of all runs of True in the rows of ``[N, R]``; a single 0 if there are none."""
    edges = np.diff(np.pad(here.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    lengths = np.nonzero(edges == -1)[1] - np.nonzero(edges == 1)[1]
    return lengths if len(lengths) else np.zeros(1, dtype=np.int64)


def autocorrelation(values: np.ndarray, lag: int) -> float:
    """Return the autocorrelation at `lag` along the last axis of values with mean zero; 0 if all are zero."""
    square = np.square(values).mean()
    return float((values[..., lag:] * values[..., :-lag]).mean() / square) if square > 0 else 0.0
