"""Check the claims of a paper against runs: each check has margins, by which it is true or false, for every seed.

Runs with the same seed share their data, initial model and participation, so that their differences are paired.
"""

from __future__ import annotations

import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise, product
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, TypeAdapter, ValidationError, model_validator

from turnout.core.checks import ConfigurationError, refuse
from turnout.results.measure import Measure

Read = TypeVar("Read")

Figures = Mapping[str, Mapping[int, float]]
"""The figures of one measure in one panel by algorithm and seed; infinite if a run has none."""


class Check(ABC):
    """A claim about figures.

    Attributes:
        across: it compares panels, not algorithms within a panel.
        closed: a margin of 0 is enough.
        of_figures: margins are differences of figures, in their unit.
        algorithms: algorithms whose figures it needs.
    """

    across: ClassVar[bool] = False
    closed: ClassVar[bool] = False
    of_figures: ClassVar[bool] = False
    algorithms: tuple[str, ...]

    def detail(self, panels: Sequence[Figures]) -> str:
        """Return a note beside the verdict; empty by default."""
        return ""

    @abstractmethod
    def margins(self, figures: Sequence[Mapping[str, float]], measure: Measure) -> list[float]:
        """Return by how much each part of the claim is true for one seed, from its figures by algorithm in each panel.

        A part is true for a positive margin, false for a negative one, and unknown for NaN.
        """

    def holds(self, figures: Sequence[Mapping[str, float]], measure: Measure) -> bool | None:
        """Return whether the claim is true for one seed; None if undecided."""
        margins = self.margins(figures, measure)
        return _all_of(None if math.isnan(each) else each > 0.0 or (self.closed and each == 0.0) for each in margins)

    def truths(self, panels: Sequence[Figures], measure: Measure) -> list[bool | None]:
        """Return whether the claim is true, for every seed with all necessary figures."""
        return [self.holds(figures, measure) for figures in self.by_seed(panels).values()]

    def by_seed(self, panels: Sequence[Figures]) -> dict[int, list[dict[str, float]]]:
        """Return the necessary figures of each seed that has all of them."""
        shared = [set(panel.get(name, {})) for panel in panels for name in self.algorithms]
        return {
            seed: [{name: panel[name][seed] for name in self.algorithms} for panel in panels]
            for seed in sorted(set.intersection(*shared))
        }


class Order(Check):
    """Check a ranking: ``order = ["folb", ["fedprox", "fedavg"]]``, where all of a group are better than all of the next."""

    def __init__(self, order: Any) -> None:
        needed = 'a list of names or lists of names, as in ["a", ["b", "c"]]'
        groups = _read("order", _GROUPS, order, needed)
        self.groups = [[group] if isinstance(group, str) else group for group in groups]
        self.algorithms = tuple(chain.from_iterable(self.groups))
        if len(set(self.algorithms)) < len(self.algorithms):
            raise refuse("order", given=order, needed=needed)

    of_figures = True

    def margins(self, figures: Sequence[Mapping[str, float]], measure: Measure) -> list[float]:
        """Compare all pairs of neighboring groups."""
        (panel,) = figures
        pairs = [pair for first, second in pairwise(self.groups) for pair in product(first, second)]
        return [lead(panel[one], panel[other], measure) for one, other in pairs]


class _Form(BaseModel):
    """The options of a check."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _Limits(_Form):
    """A closed interval with a lower limit, an upper limit, or both."""

    of: str
    least: float | None = None
    most: float | None = None

    @model_validator(mode="after")
    def _check_limited(self) -> Self:
        if self.least is None and self.most is None:
            raise ValueError("needed least, most or both")
        return self

    def margins(self, value: float) -> list[float]:
        """Return by how much a number is within each limit."""
        return [
            *([] if self.least is None else [value - self.least]),
            *([] if self.most is None else [self.most - value]),
        ]


class _RatioLimits(_Limits):
    """The limits of a ratio."""

    to: str


class _SlopeLimits(_Limits):
    """The limits of an exponent, and the values of the quantity x by panel."""

    over: list[PositiveFloat]


class _Pair(_Form):
    """Two algorithms."""

    of: str
    over: str


_GROUPS = TypeAdapter(Annotated[list[str | Annotated[list[str], Field(min_length=1)]], Field(min_length=2)])


def _read(kind: str, form: TypeAdapter[Read], value: Any, needed: str) -> Read:
    """Validate the value of a check.

    Raises:
        ConfigurationError: if the value is another one, with the one that is needed.
    """
    try:
        return form.validate_python(value, strict=True)
    except ValidationError:
        raise refuse(kind, given=value, needed=needed) from None


class Ratio(Check):
    """Check that the ratio of two figures is within limits: ``ratio = {of = "folb", to = "fedprox", most = 0.5}``."""

    def __init__(self, ratio: Any) -> None:
        needed = '{of = "NAME", to = "NAME", most = 0.5}, or least, or both'
        self.limits = _read("ratio", TypeAdapter(_RatioLimits), ratio, needed)
        self.algorithms = (self.limits.of, self.limits.to)

    closed = True

    def margins(self, figures: Sequence[Mapping[str, float]], measure: Measure) -> list[float]:
        """Return the distances of the ratio from its limits; NaN where both are infinite or the divisor is 0."""
        one, other = (figures[0][name] for name in self.algorithms)
        if (math.isinf(one) and math.isinf(other)) or other == 0:
            return [math.nan]
        return self.limits.margins(one / other)


class Bound(Check):
    """Check that a figure is within limits: ``bound = {of = "fedau", least = 0.7}``."""

    def __init__(self, bound: Any) -> None:
        self.limits = _read("bound", TypeAdapter(_Limits), bound, '{of = "NAME", most = 0.5}, or least, or both')
        self.algorithms = (self.limits.of,)

    closed = of_figures = True

    def margins(self, figures: Sequence[Mapping[str, float]], measure: Measure) -> list[float]:
        """Return the distances of the figure from its limits."""
        return self.limits.margins(figures[0][self.algorithms[0]])


class Improves(Check):
    """Check that an algorithm improves from each panel to the next: ``improves = "scaffold_p"``."""

    across = of_figures = True

    def __init__(self, improves: Any) -> None:
        if not isinstance(improves, str):
            raise refuse("improves", given=improves, needed="the name of an algorithm")
        self.algorithms = (improves,)

    def margins(self, figures: Sequence[Mapping[str, float]], measure: Measure) -> list[float]:
        """Compare every panel with the previous one."""
        values = [panel[self.algorithms[0]] for panel in figures]
        return [lead(after, before, measure) for before, after in pairwise(values)]


class Gains(Check):
    """Check that a lead grows from each panel to the next: ``gains = {of = "folb", over = "fedprox"}``.

    The lead is a ratio for costs of reaching a target, and a difference for other figures.
    """

    across = True

    def __init__(self, gains: Any) -> None:
        pair = _read("gains", TypeAdapter(_Pair), gains, '{of = "NAME", over = "NAME"}')
        self.algorithms = (pair.of, pair.over)

    def margins(self, figures: Sequence[Mapping[str, float]], measure: Measure) -> list[float]:
        """Compare every lead with the previous one; NaN if one is unknown."""
        leads = [self._lead(panel, measure) for panel in figures]
        if any(math.isnan(each) for each in leads):
            return [math.nan]
        return [after - before for before, after in pairwise(leads)]

    def _lead(self, panel: Mapping[str, float], measure: Measure) -> float:
        of, over = (panel[name] for name in self.algorithms)
        if math.isinf(of) or math.isinf(over):
            return math.nan
        if measure.metric is None:
            return over / of
        return over - of if measure.less_is_better else of - over


class Slope(Check):
    """Check the exponent of a power law: ``slope = {of = "fedau", over = [50, 100, 200], most = -0.5}``.

    In the panels a quantity x, such as the number of rounds, takes the values `over`. The exponent is the least-squares
    slope of ln(figure) over ln(x).
    """

    across = closed = True

    def __init__(self, slope: Any) -> None:
        needed = '{of = "NAME", over = [50, 100, 200], most = -0.5}, or least, or both'
        self.limits = _read("slope", TypeAdapter(_SlopeLimits), slope, needed)
        if len(set(self.limits.over)) < 2:
            raise refuse("slope", given=slope, needed=needed)
        self.algorithms, self.over = (self.limits.of,), tuple(self.limits.over)

    def margins(self, figures: Sequence[Mapping[str, float]], measure: Measure) -> list[float]:
        """Fit the exponent, and return its distances from the limits."""
        return self.limits.margins(self.exponent([panel[self.algorithms[0]] for panel in figures]))

    def detail(self, panels: Sequence[Figures]) -> str:
        """Return the exponent of every seed."""
        (name,) = self.algorithms
        seeds = sorted(set.intersection(*(set(panel.get(name, {})) for panel in panels)))
        fitted = [self.exponent([panel[name][seed] for panel in panels]) for seed in seeds]
        return f"exponents {', '.join(f'{exponent:.2f}' for exponent in fitted)}" if fitted else ""

    def exponent(self, values: Sequence[float]) -> float:
        """Return the exponent of the values at `over`; NaN if a value is not positive and finite.

        Raises:
            ConfigurationError: if the number of values is not that of `over`.
        """
        if len(values) != len(self.over):
            raise ConfigurationError(f"slope: got {len(values)} panels for {len(self.over)} numbers in over")
        if not all(math.isfinite(value) and value > 0 for value in values):
            return math.nan
        return statistics.linear_regression([*map(math.log, self.over)], [*map(math.log, values)]).slope


CHECKS: Mapping[str, type[Check]] = {
    "order": Order, "ratio": Ratio, "bound": Bound, "improves": Improves, "gains": Gains, "slope": Slope,
}  # fmt: skip
"""The checks by their key in a claim."""


def check_of(table: Mapping[str, Any]) -> Check:
    """Return the check of a claim.

    Raises:
        ConfigurationError: if a claim has not exactly one key of `CHECKS`.
    """
    keys = [key for key in table if key in CHECKS]
    if len(keys) != 1:
        raise ConfigurationError(
            f"a claim needs exactly one of {', '.join(CHECKS)}; got {' and '.join(keys) or 'none'}"
        )
    return CHECKS[keys[0]](table[keys[0]])  # type: ignore[call-arg]


def _all_of(truths: Iterable[bool | None]) -> bool | None:
    """Return whether all are true; None where none is false and some are unknown."""
    values = set(truths)
    return False if False in values else None if None in values else True


def lead(one: float, other: float, measure: Measure) -> float:
    """Return by how much one figure is better than another; NaN where neither run has a figure."""
    return other - one if measure.less_is_better else one - other
