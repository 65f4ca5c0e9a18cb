"""Compute the sensitivity of a matrix mechanism to one client, and the error that its noise causes in prefix sums."""

from __future__ import annotations

import numpy as np


def most_participations(rounds: int, separation: int, most: int | None) -> int:
    """Return how often a client can take part in so many rounds, at least `separation` apart and at most `most` times."""
    spaced = -(-rounds // separation)
    return spaced if most is None else min(most, spaced)


def sensitivity(coefficients: np.ndarray, separation: int, most: int | None = None) -> float:
    """Return ``max_pi ||sum_{t in pi} C[:, t]||``: how far one client with updates of length 1 moves ``C g`` at most.

    C is the lower triangular Toeplitz matrix with these coefficients as its first column. Where they are positive and do not
    grow, the maximum is at the earliest rounds that are `separation` apart (Kalinin and Lampert, Theorem 2), for vectors
    of every direction, since no entry is negative.

    Args:
        coefficients: ``[n]``, of so many rounds.
        separation: least number of rounds from one participation of a client to its next (b); 1 is none.
        most: participations of a client at most (k); None is as many as the rounds have room for.

    Raises:
        ValueError: for coefficients that are negative or grow, of which this would not be the maximum.

    Example:
        >>> sensitivity(np.array([1.0, 0.0, 0.0, 0.0]), separation=2)  # two rounds, orthogonal: the square root of 2
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
    """Return the root mean square error of the sums of the first 1, 2, ..., n releases, for the noise of one client's length.

    With noise of the size of the sensitivity, ``sens(C) sqrt(mean_t ||row_t(A C^-1)||^2)``, A the matrix of prefix sums: how
    far noise moves the model, over the rounds, at a privacy that is the same for all mechanisms.
    """
    of_sums = np.cumsum(inverse(coefficients))
    rows = np.cumsum(of_sums**2)
    return sensitivity(coefficients, separation, most) * float(np.sqrt(rows.mean()))
