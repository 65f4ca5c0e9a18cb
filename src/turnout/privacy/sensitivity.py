"""Compute the sensitivity of a matrix mechanism to one client, and the error that its noise causes in prefix sums."""

from __future__ import annotations

import numpy as np


def most_participations(rounds: int, separation: int, most: int | None) -> int:
    """Return the maximum number of participations of a client in a number of rounds.

    Args:
        rounds: number of rounds.
        separation: minimum number of rounds from one participation to the next, >= 1.
        most: maximum number of participations; None is unlimited.
    """
    spaced = -(-rounds // separation)
    return spaced if most is None else min(most, spaced)


def sensitivity(coefficients: np.ndarray, separation: int, most: int | None = None) -> float:
    """Return the sensitivity of a matrix mechanism: the maximum change of ``C g`` by one client with updates of norm 1.

    C is the lower triangular Toeplitz matrix with these coefficients as its first column, g are the sums of all rounds,
    and pi is a set of rounds in which the client may participate. The sensitivity is
    ``max_pi ||sum_{t in pi} C[:, t]||``. If the coefficients are positive and not increasing, the maximum is at the
    earliest rounds that are `separation` apart (Kalinin and Lampert, Theorem 2), for updates of all directions, because
    no entry is negative.

    Args:
        coefficients: ``[n]``, one for each round.
        separation: b, the minimum number of rounds from one participation of a client to the next; 1 is no restriction.
        most: k, the maximum number of participations of a client; None is unlimited.

    Raises:
        ValueError: if coefficients are negative or increasing, so that this would not be the maximum.

    Example:
        >>> sensitivity(np.array([1.0, 0.0, 0.0, 0.0]), separation=2)  # two orthogonal rounds: the square root of 2
        1.4142135623730951

    Reference: Kalinin and Lampert, "Banded square root matrix factorization for differentially private model training",
    NeurIPS 2024.
    """
    if (coefficients < 0).any() or (np.diff(coefficients) > 1e-12).any():
        raise ValueError("coefficients must be positive and must not grow: this is no upper bound for others")
    rounds = len(coefficients)
    total = np.zeros(rounds)
    for i in range(most_participations(rounds, separation, most)):
        total[i * separation :] += coefficients[: rounds - i * separation]
    return float(np.linalg.norm(total))


def inverse(coefficients: np.ndarray) -> np.ndarray:
    """Return the first column of the inverse of the lower triangular Toeplitz matrix with this first column."""
    column = np.zeros_like(coefficients)
    column[0] = 1.0 / coefficients[0]
    for i in range(1, len(coefficients)):
        column[i] = -column[0] * (coefficients[1 : i + 1] @ column[i - 1 :: -1])
    return column


def prefix_sum_error(coefficients: np.ndarray, separation: int, most: int | None = None) -> float:
    """Return the root mean square error of the sums of the first 1, 2, ..., n releases, at a noise multiplier of 1.

    It is ``sens(C) sqrt(mean_t ||row_t(A C^-1)||^2)``, where A is the matrix of prefix sums: the distance by which
    noise moves the model, over the rounds, for equal privacy of all mechanisms. Use it to compare correlations.

    Args:
        coefficients: first column of C, ``[n]``, positive and not increasing.
        separation: b, see `sensitivity`.
        most: k, see `sensitivity`.

    Example:
        >>> round(prefix_sum_error(np.array([1.0, 0.0, 0.0, 0.0]), separation=1), 3)
        3.162
    """
    column = np.cumsum(inverse(coefficients))
    rows = np.cumsum(column**2)
    return sensitivity(coefficients, separation, most) * float(np.sqrt(rows.mean()))
