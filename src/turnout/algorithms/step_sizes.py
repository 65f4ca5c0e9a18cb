"""Check the conditions on step sizes of the theorems on FedAvg-P and Scaffold-P."""

from __future__ import annotations

import math
import warnings
from typing import Any

from turnout.base.algorithm import Algorithm
from turnout.core.checks import positive
from turnout.pieces.local import Scaffold
from turnout.pieces.personalization.partial import Personal
from turnout.pieces.selection import AllAvailable, Uniform
from turnout.pieces.weighting import DivideByParticipants

_SLACK = 1e-6  # relative tolerance, so that roots may be written with seven digits


class StepSizeWarning(UserWarning):
    """Step sizes do not satisfy the assumptions of a theorem; the run continues."""


def unmet_conditions(algorithm: Algorithm, num_clients: int, rounds: int, smoothness: float) -> list[str]:
    """Return the assumptions of Chen et al. on step sizes that do not hold, as sentences with both numbers.

    With n clients, m of them in a round, K local steps, T rounds, ``gamma = gamma_u eta_u = gamma_v eta_v`` and
    L-smooth losses, the theorems assume::

        FedAvg-P    m < n   eta_u >= sqrt(m), eta_v >= sqrt(n/m), gamma <= 1 / (32 L K)              theorem 3.11
                    m = n   eta_u >= max(T, sqrt(n)), eta_v >= 1, gamma <= 1 / (84 L K)              theorem 3.16
        Scaffold-P          eta_u >= sqrt(m), eta_v >= sqrt(n/m), gamma <= min(m/n^(2/3), 1) / (72 L K)   theorem 4.6

    Theorem 3.16 also assumes ``eta_u >= sqrt(B_0 T / (n L F_0))`` with two unknown numbers, which is not checked. The
    list is empty for algorithms that the theorems do not cover: other weights or selections, schedules, varying numbers
    of steps.

    Args:
        algorithm: the algorithm.
        num_clients: number of clients n.
        rounds: number of rounds T.
        smoothness: smoothness L of the losses, > 0.
    """
    positive("smoothness", smoothness)
    if not _is_covered(algorithm):
        return []
    local: Any = algorithm.local
    server: Any = algorithm.server
    personal: Any = algorithm.personal
    n, m = num_clients, min(getattr(algorithm.selection, "cohort_size", num_clients), num_clients)
    eta_u, eta_v, gamma = server.lr, personal.outer_lr, local.lr * server.lr
    gamma_of_v, limit = local.lr * personal.lr_factor * eta_v, 1 / (smoothness * local.steps)
    corrected = any(isinstance(piece, Scaffold) for piece in algorithm.corrections)
    least_u, least_v, most = _bounds(corrected, n, m, rounds)
    unmet = []
    if eta_u < least_u[1] * (1 - _SLACK):
        unmet.append(f"eta_u (server_lr) is {eta_u:.4g}, needed at least {least_u[0]} = {least_u[1]:.4g}")
    if eta_v < least_v[1] * (1 - _SLACK):
        unmet.append(f"eta_v (outer_lr) is {eta_v:.4g}, needed at least {least_v[0]} = {least_v[1]:.4g}")
    if gamma > limit * most * (1 + _SLACK):
        unmet.append(f"gamma = gamma_u eta_u is {gamma:.4g}, needed at most {most:.4g} / (L K) = {limit * most:.4g}")
    if not math.isclose(gamma, gamma_of_v, rel_tol=_SLACK):
        unmet.append(f"gamma_u eta_u is {gamma:.4g} and gamma_v eta_v is {gamma_of_v:.4g}, needed the same")
    return unmet


def _is_covered(algorithm: Algorithm) -> bool:
    """Return whether the theorems cover an algorithm: constant steps on both parts, and the mean over a uniform sample."""
    local, personal = algorithm.local, algorithm.personal
    plain = isinstance(personal, Personal) and not personal.alternate and not local.traits.adapts
    mean = len(algorithm.weighting) == 1 and isinstance(algorithm.weighting[0], DivideByParticipants)
    sampled = isinstance(algorithm.selection, Uniform | AllAvailable)
    lrs = (getattr(local, "lr", None), getattr(algorithm.server, "lr", None))
    constant = all(isinstance(lr, float | int) for lr in lrs) and isinstance(getattr(local, "steps", None), int)
    return plain and mean and sampled and constant


def _bounds(corrected: bool, n: int, m: int, rounds: int) -> tuple[tuple[str, float], tuple[str, float], float]:
    """Return the smallest eta_u and eta_v, as texts and numbers, and the largest ``gamma L K``."""
    if m == n and not corrected:
        return ("max(T, sqrt(n))", max(rounds, math.sqrt(n))), ("1", 1.0), 1 / 84
    most = min(m / n ** (2 / 3), 1) / 72 if corrected else 1 / 32
    return ("sqrt(m)", math.sqrt(m)), ("sqrt(n/m)", math.sqrt(n / m)), most


def warn_of_step_sizes(algorithm: Algorithm, num_clients: int, rounds: int, smoothness: float) -> None:
    """Warn of step sizes that do not satisfy the assumptions of the theorems, with both numbers."""
    if unmet := unmet_conditions(algorithm, num_clients, rounds, smoothness):
        warnings.warn(
            f"the theorems on {algorithm.name} do not cover these step sizes (L = {smoothness:.4g}): {'; '.join(unmet)}",
            StepSizeWarning,
            stacklevel=2,
        )
