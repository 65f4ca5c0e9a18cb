"""One fast client throttles itself: does it gain influence? The experiment to `incentives` (FedStaleWeight, section 4.2.1).

The federation is that of the paper's experiments: ten fast clients, a task of whom takes 1 to 2 seconds, and five slow ones,
8 to 12 seconds, with a buffer of 5. Client 0 is fast and reports a fraction of its speed; all others are honest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from reproductions.fedstaleweight.influence import Weigh, shares, utilities

from turnout.algorithms import fedbuff, fedstaleweight
from turnout.base.algorithm import Algorithm
from turnout.core.checks import count, refuse
from turnout.population import Population, Speed, delay
from turnout.population.speed.groups import Group
from turnout.protocol.pace import Buffered
from turnout.reporting.style import INK, SIZE, dress, legend, looks_of, new_figure
from turnout.simulation.schedule import schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUM_FAST, NUM_SLOW, BUFFER_SIZE = 10, 5, 5
FAST, SLOW = (1.0, 2.0), (8.0, 12.0)
"""Seconds of a task, from and to."""


@dataclass(frozen=True)
class Rule:
    """A rule of weights, twice: as it runs, and as a formula.

    Attributes:
        algorithm: what runs.
        weigh: its weights before normalization, from staleness.
        by_mean: whether that is the mean staleness of a client, or that of a report.
    """

    algorithm: Algorithm
    weigh: Weigh
    by_mean: bool = False


RULES: Mapping[str, Rule] = {
    "fedstaleweight": Rule(fedstaleweight(), lambda tau: tau * BUFFER_SIZE + 1.0, by_mean=True),
    "fedbuff": Rule(fedbuff(), lambda tau: np.ones(len(tau))),
    "1 / sqrt(1 + tau)": Rule(fedbuff(discount="polynomial"), lambda tau: (1.0 + tau) ** -0.5),
    "favors_fresh": Rule(fedbuff(discount="exponential", base=0.5), lambda tau: np.exp2(-1.0 * tau)),
    "favors_stale": Rule(fedbuff(discount="exponential", base=2.0), lambda tau: np.exp2(np.minimum(1.0 * tau, 800.0))),
    "algorithm_1": Rule(fedstaleweight(rule="algorithm_1"), lambda tau: tau + 1.0, by_mean=True),
    "authors_code": Rule(
        fedstaleweight(rule="authors_code", average="authors_window"), lambda tau: 1.0 * tau, by_mean=True
    ),
}
"""The rules that are compared; fractions of a weight that all share cancel in its normalization."""


def _fraction(reported: float) -> float:
    if not 0.0 < reported <= 1.0:
        raise refuse("reported", given=reported, needed="a fraction of the client's own speed, > 0 and <= 1")
    return reported


def rates(reported: float) -> np.ndarray:
    """Tasks a second of each client where client 0 reports such a fraction of its speed; float64 ``[15]``.

    Raises:
        ConfigurationError: for a fraction that is not > 0 and <= 1.
    """
    seconds = np.repeat([sum(FAST) / 2, sum(SLOW) / 2], [NUM_FAST, NUM_SLOW])
    seconds[0] /= _fraction(reported)
    return 1.0 / seconds


def speed(reported: float, *, memoryless: bool = False) -> Speed:
    """How long tasks take: uniform times as in the paper, or exponential ones with the same means, as formulas have it.

    Raises:
        ConfigurationError: for a fraction that is not > 0 and <= 1.
    """

    def seconds(span: tuple[float, float], factor: float = 1.0) -> delay.Delay:
        low, high = factor * span[0], factor * span[1]
        return delay.Exponential((low + high) / 2) if memoryless else delay.Uniform(low, high)

    liar = Group(clients=(0,), compute=seconds(FAST, 1 / _fraction(reported)), name="the one that throttles")
    fast, slow = Group(NUM_FAST - 1, compute=seconds(FAST)), Group(NUM_SLOW, compute=seconds(SLOW))
    return Speed(per="task", groups=(liar, fast, slow))


def by_formula(reported: Sequence[float], rules: Mapping[str, Rule] = RULES) -> dict[str, np.ndarray]:
    """Client 0's utility at each reported speed, in fair shares (1 is its due), by rule; for memoryless clients."""

    def of(rule: Rule) -> Callable[[float], float]:
        return lambda each: utilities(rates(each), BUFFER_SIZE, rule.weigh, by_mean=rule.by_mean)[0]

    return {name: (NUM_FAST + NUM_SLOW) * np.array([*map(of(rule), reported)]) for name, rule in rules.items()}


def by_simulation(
    reported: Sequence[float],
    rules: Mapping[str, Rule] = RULES,
    *,
    memoryless: bool = False,
    steps: int = 1000,
    seeds: Sequence[int] = (0,),
) -> dict[str, np.ndarray]:
    """Estimate it from schedules in virtual time: weights as the server gives them, without the first tenth of the steps.

    Means over one schedule for each seed. What the server knows of a client can hang on few of its reports (the authors'
    window on the first four), and then one schedule says little.
    """
    found = {name: np.zeros((len(seeds), len(reported))) for name in rules}
    for (i, seed), (k, each) in product(enumerate(seeds), enumerate(reported)):
        population = Population(speed=speed(each, memoryless=memoryless))
        timeline = schedule(Buffered(BUFFER_SIZE), population, NUM_FAST + NUM_SLOW, steps=steps, seed=seed)
        for name, rule in rules.items():
            found[name][i, k] = timeline.num_clients * shares(rule.algorithm, timeline, warm_up=steps // 10)[0]
    return {name: values.mean(axis=0) for name, values in found.items()}


SPEEDS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Reported speeds, as fractions of the client's own, at which schedules are simulated."""


def throttling_figure(steps: int = 1000, seeds: Sequence[int] = (0,), speeds: Sequence[float] = SPEEDS) -> Figure:
    """Draw the utility of one fast client against the speed it reports; it gains from lying where a line rises to the left.

    Lines are formulas for memoryless clients, dots means over schedules in virtual time, one for each seed: on the left of
    such clients, on the right of clients whose tasks take about the same time each, as in the paper's experiments. The
    dashed line is the fair share, which the weights of equation (8) give at every speed before they are normalized.
    """
    count("steps", steps, least=10)
    figure, looks = new_figure(2 * SIZE[0], 1.2 * SIZE[1]), looks_of(RULES)
    places = np.linspace(min(speeds), 1.0, 40)
    formulas = by_formula(places.tolist())
    for axes, memoryless in zip(figure.subplots(1, 2, sharey=True), (True, False), strict=True):
        dots = by_simulation(speeds, memoryless=memoryless, steps=steps, seeds=seeds)
        for name, rule in RULES.items():
            if memoryless or rule.by_mean:
                axes.plot(100 * places, formulas[name], linewidth=1.6, **looks[name])
            else:  # of these the formula needs how staleness is distributed, and has it for memoryless clients only
                axes.plot([100 * each for each in speeds], dots[name], linewidth=1, alpha=0.6, **looks[name])
            axes.plot([100 * each for each in speeds], dots[name], "o", markersize=4, color=looks[name]["color"])
        axes.axhline(1.0, color=INK, linewidth=1, linestyle=(0, (4, 3)))
        title = "tasks of any length (exponential)" if memoryless else "tasks of similar length (uniform)"
        dress(axes, "reported speed (% of its own)", "influence (fair share = 1)", title=title)
        axes.label_outer()
    legend(figure, looks)
    return figure
