"""MaxFL on mean estimation: a few clients, one number each, and all minima known (MaxFL, appendix A).

Client k estimates its mean theta_k by ``e_k ~ N(theta_k, gamma^2)``. Its true loss is ``f_k(w) = (w - theta_k)^2``, its
empirical one ``F_k(w) = (w - e_k)^2 + (e_k - theta_k)^2``, and it requires what its own model e_k reaches, ``rho_k = F_k(e_k)
= f_k(e_k)``. So ``F_k(w) - rho_k = (w - e_k)^2``: averaging ends at the mean of the estimates, and so does any convex and
increasing function of the gaps (lemma A.2), while MaxFL minimizes ``(1/K) sum_k sigmoid((w - e_k)^2)``, which has several
minima where the estimates lie apart.

Minima are found as distances from an estimate, because where estimates are far apart they are closer to one than floating
point can tell, and whether a client is content hangs on which side of its estimate they lie.

Reference: Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from turnout.core.checks import ConfigurationError, count, known_name, positive
from turnout.core.random import generator
from turnout.reporting.style import INK, SIZE, dress, legend, looks_of, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = ("maxfl", "fedavg")

_SMALLEST, _STEPS = 1e-300, 60


def estimates(means: tuple[float, ...], runs: int, gamma: float = 1.0, seed: int = 0) -> np.ndarray:
    """Return what clients with these true means estimate in so many runs, float64 ``[R, K]``."""
    if len(means) < 1:
        raise ConfigurationError("means: got none, needed the true mean of each client")
    count("runs", runs)
    positive("gamma", gamma)
    return np.asarray(means) + gamma * generator("mean estimation", seed).standard_normal((runs, len(means)))


def objective(w: np.ndarray, estimated: np.ndarray) -> np.ndarray:
    """MaxFL's objective ``(1/K) sum_k sigmoid((w - e_k)^2)`` at numbers ``[...]``, for estimates ``[K]``."""
    return (1.0 / (1.0 + np.exp(-((np.asarray(w)[..., None] - estimated) ** 2)))).mean(axis=-1)


def minima(estimated: np.ndarray) -> np.ndarray:
    """For every client the local minimum to which MaxFL's objective falls from that client's estimate.

    Args:
        estimated: estimates of R runs, ``[R, K]``.

    Returns:
        Distances from the client's estimate to the minimum, with sign, ``[R, K]``.
    """
    far = estimated[:, None, :] - estimated[:, :, None]  # [R, from, to]
    # Downhill, from slopes relative to the largest, because that one itself may be too small for floating point.
    squared = np.where(far != 0, far**2, np.inf)
    near = np.minimum(squared.min(axis=-1, keepdims=True), np.finfo(np.float64).max)
    toward = np.sign((np.exp(near - squared) / (1.0 + np.exp(-squared)) ** 2 * far).sum(axis=-1))
    # As a rule no minimum is nearer than the others' pull, because q <= 1/4; one that is is found below all the same.
    low, high = np.zeros_like(estimated), np.maximum(np.abs(_slope(np.zeros_like(estimated), far)), _SMALLEST)
    ends = np.abs(far).max(axis=-1)
    # The slope has one sign until the minimum: find a factor of 10 in which it changes, then the place.
    while (going := (high < ends) & (toward * _slope(toward * high, far) < 0)).any():
        low = np.where(going, high, low)
        high = np.where(going, 10.0 * high, high)
    high = np.minimum(high, ends)
    for _ in range(_STEPS):
        middle = np.where(low > 0, np.sqrt(np.maximum(low, _SMALLEST)) * np.sqrt(high), high / 2)
        going = toward * _slope(toward * middle, far) < 0
        low, high = np.where(going, middle, low), np.where(going, high, middle)
    return toward * high


def _slope(offset: np.ndarray, far: np.ndarray) -> np.ndarray:
    """Return what the objective's derivative is proportional to, at `offset` from each estimate, ``[R, K]``."""
    distance = offset[..., None] - far
    small = np.exp(-(distance**2))
    return (small / (1.0 + small) ** 2 * distance).sum(axis=-1)


def appeal(means: tuple[float, ...], estimated: np.ndarray, method: str = "maxfl") -> np.ndarray:
    """GM-Appeal (definition 1) of the model that a method ends with in each run, float64 ``[R]``.

    Args:
        means: the true means.
        estimated: the estimates, ``[R, K]``.
        method: ``"fedavg"``: the mean of the estimates. ``"maxfl"``: of the minima to which the objective falls from clients'
            estimates, the lowest; of equal ones, as two clients always have, that of the first client.

    Raises:
        ConfigurationError: for another method.
    """
    known_name("method", method, METHODS)
    if method == "fedavg":
        start, offset = np.zeros(len(estimated), dtype=np.int64), estimated.mean(axis=1) - estimated[:, 0]
    else:
        offsets = minima(estimated)
        far = offsets[:, :, None] + (estimated[:, :, None] - estimated[:, None, :])
        value = (1.0 / (1.0 + np.exp(-(far**2)))).sum(axis=-1)
        start = (value <= value.min(axis=1, keepdims=True) + 1e-12).argmax(axis=1)
        offset = np.take_along_axis(offsets, start[:, None], axis=1)[:, 0]
    begin = np.take_along_axis(estimated, start[:, None], axis=1)
    beside = begin - estimated + offset[:, None]  # w - e_k; exactly the offset at the client that it is measured from
    # f_k(w) < rho_k without the difference of two large squares: (w - e_k) (w + e_k - 2 theta_k) < 0.
    content = np.sign(beside) * np.sign(beside + 2.0 * (estimated - np.asarray(means))) < 0
    return content.mean(axis=1)


def separation() -> float:
    """From where on two clients are better served one by one: the ``((e_1 - e_2)/2)^2`` at which their mean is no minimum.

    The second derivative at the mean is zero where ``2 x tanh(x/2) = 1``; the paper shows it to lie between 1 and 2.
    """
    low, high = 1.0, 2.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if 2 * middle * math.tanh(middle / 2) < 1 else (low, middle)
    return high


def most_appeal_of_averaging(heterogeneity: float, gamma: float = 1.0) -> float:
    """Return what the mean of two estimates can expect at most: ``2 exp(-gamma_G^2 / (5 gamma^2))`` (lemma A.1).

    Args:
        heterogeneity: gamma_G, half the distance of the true means.
        gamma: standard deviation of an estimate.
    """
    return 2.0 * math.exp(-((heterogeneity / gamma) ** 2) / 5)


def least_appeal_of_maxfl(gamma: float = 1.0) -> float:
    """Return what a local minimum of MaxFL's objective can expect at least: ``exp(-1/gamma^2) / 16`` (theorem A.1)."""
    return math.exp(-1 / gamma**2) / 16


FARTHEST = 20**0.5
"""The largest gamma_G of the paper's figure 5 (a)."""

CASES = {
    "alike": (0.2, 0.0, -0.2),
    "all different": (-4.0, 1.0, 4.5),
    "two alike": (-2.2, -1.8, 3.0),
}
"""Estimates of three clients, as in the paper's figure 6."""


def appeal_figure(runs: int = 10_000, points: int = 23, seed: int = 0) -> Figure:
    """GM-Appeal of two clients against their heterogeneity, and MaxFL's objective for near and far ones (figure 5).

    On the left means over runs, and the bounds of lemma A.1 and theorem A.1 (dashed, in the color of what they bound). On
    the right the dots are minima. MaxFL with a convex function in place of the sigmoid ends where averaging does (lemma A.2).
    """
    count("points", points, least=2)
    figure, looks = new_figure(2 * SIZE[0]), looks_of(METHODS)
    left, right = figure.subplots(1, 2)
    at = np.linspace(0.0, FARTHEST, points)
    bounds = {"maxfl": lambda _: least_appeal_of_maxfl(), "fedavg": most_appeal_of_averaging}
    for method in METHODS:
        found = [appeal((0.0, 2 * g), estimates((0.0, 2 * g), runs, seed=seed), method).mean() for g in at]
        left.plot(at, found, linewidth=1.6, **looks[method])
        bound = [bounds[method](g) for g in at]
        left.plot(at, bound, linewidth=1, color=looks[method]["color"], linestyle=(0, (4, 3)))
    left.set_ylim(0.0, 1.0)
    dress(left, "half the distance of the true means", "GM-Appeal")
    for half, alpha in ((0.5, 0.5), (2.5, 1.0)):
        _objective(right, (-half, half), looks["maxfl"]["color"], alpha)
    dress(right, "model", "MaxFL's objective", title="near (faint) and far apart")
    legend(figure, looks)
    return figure


def appeal_numbers(seed: int, runs: int = 10_000) -> dict[str, dict[str, dict[str, float]]]:
    """Return GM-Appeal of two clients at the distances of the declaration's panels, with the bounds of appendix A."""
    numbers = {}
    for panel, half in {"g_0": 0.0, "g_1": 1.0, "g_2": 2.0, "g_3": 3.0, "g_sqrt_20": FARTHEST}.items():
        means = (0.0, 2 * half)
        estimated = estimates(means, runs, seed=seed)
        appeals = {method: float(appeal(means, estimated, method).mean()) for method in METHODS}
        bounds = {"maxfl_bound": least_appeal_of_maxfl(), "fedavg_bound": most_appeal_of_averaging(half)}
        numbers[panel] = {"GM-Appeal": appeals | bounds}
    return numbers


def three_clients_numbers(seed: int, spread: float = 0.05) -> dict[str, dict[str, dict[str, float]]]:
    """Return the model of each method for three clients, whose estimates are those of figure 6 with normal noise.

    Args:
        seed: draws the noise.
        spread: its standard deviation.
    """
    numbers = {}
    for row, (case, estimated) in enumerate(CASES.items()):
        noisy = np.array(estimated) + spread * generator("three clients", seed, row).standard_normal(len(estimated))
        low = np.unique((noisy + minima(noisy[None])[0]).round(6))
        models = {"maxfl": float(low[objective(low, noisy).argmin()]), "fedavg": float(noisy.mean())}
        served = {name: float((np.abs(noisy - model) < 0.5).sum()) for name, model in models.items()}
        numbers[case.replace(" ", "_")] = {
            "model": models,
            "clients within 0.5 of the model": served,
            "minima": {"maxfl": float(len(low)), "fedavg": 1.0},
        }
    return numbers


def three_clients_figure() -> Figure:
    """MaxFL's objective for three clients who are alike, all different, or two of them alike (figure 6).

    Dots are minima; the dashed line is where averaging ends, and the ticks on the axis are the clients' estimates.
    """
    figure, looks = new_figure(2 * SIZE[0]), looks_of(METHODS)
    for axes, (name, estimated) in zip(figure.subplots(1, len(CASES), sharey=True), CASES.items(), strict=True):
        _objective(axes, estimated, looks["maxfl"]["color"])
        axes.axvline(float(np.mean(estimated)), color=INK, linewidth=1, linestyle=(0, (4, 3)))
        axes.plot(
            estimated, np.zeros(len(estimated)), "|", color=INK, markersize=9, transform=axes.get_xaxis_transform()
        )
        dress(axes, "model", "MaxFL's objective", title=name)
        axes.label_outer()
    return figure


def _objective(axes: Axes, estimated: Sequence[float], color: str, alpha: float = 1.0) -> None:
    """Draw the objective's curve and its minima."""
    places = np.array(estimated)
    w = np.linspace(places.min() - 2.5, places.max() + 2.5, 600)
    axes.plot(w, objective(w, places), linewidth=1.6, color=color, alpha=alpha)
    low = np.unique((places + minima(places[None])[0]).round(6))
    axes.plot(low, objective(low, places), "o", markersize=6, color=color, alpha=alpha)


def learning_rate(w: np.ndarray, estimated: np.ndarray) -> np.ndarray:
    """Return the adaptive step of MaxFL up to a constant, ``1 / sum_k q_k(w)`` (appendix D.2), at numbers ``[...]``."""
    small = np.exp(-((np.asarray(w)[..., None] - estimated) ** 2))
    return 1.0 / (small / (1.0 + small) ** 2).sum(axis=-1)


def learning_rate_numbers(seed: int, runs: int = 100, points: int = 2001) -> dict[str, dict[str, dict[str, float]]]:
    """Return the rank correlation of the adaptive step with the objective's curvature and slope, means over runs.

    Args:
        seed: draws the estimates.
        runs: number of draws.
        points: numbers w from two below the lower estimate to two above the upper one.
    """
    numbers = {}
    for panel, half in {"g_1": 1.0, "g_2": 2.0, "g_sqrt_20": FARTHEST}.items():
        found = []
        for estimated in estimates((0.0, 2 * half), runs, seed=seed):
            w = np.linspace(estimated.min() - 2.0, estimated.max() + 2.0, points)
            slope = np.gradient(objective(w, estimated), w)
            flatness = (np.abs(np.gradient(slope, w)), np.abs(slope))
            ranks = [_ranks(each) for each in (learning_rate(w, estimated), *flatness)]
            found.append([float(np.corrcoef(ranks[0], each)[0, 1]) for each in ranks[1:]])
        curvature, slope = np.mean(found, axis=0)
        numbers[panel] = {
            "rank correlation of step and curvature": {"maxfl": float(curvature)},
            "rank correlation of step and slope": {"maxfl": float(slope)},
        }
    return numbers


def _ranks(values: np.ndarray) -> np.ndarray:
    return values.argsort().argsort()
