"""Check the claims of a paper against runs: each check has margins, by which it is true or false, for every seed.

Runs with the same seed share their data, initial model and participation, so that their differences are paired.
"""

from __future__ import annotations

import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise, product
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, ValidationError, field_validator, model_validator

from turnout.core.checks import ConfigurationError, refuse
from turnout.results.measure import Measure

Figures = Mapping[str, Mapping[int, float]]
"""The figures of one measure in one panel by algorithm and seed; infinite if a run has none."""


class Check(BaseModel, ABC):
    """A claim about figures, with the options of a declaration as fields.

    Attributes:
        needed: the form of its value in a declaration, for errors.
        named: the fields that name an algorithm.
        only: the field that is the whole value; None if the value is a table of the fields.
        across: it compares panels, not algorithms within a panel.
        closed: a margin of 0 is enough.
        of_figures: margins are differences of figures, in their unit.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    needed: ClassVar[str]
    named: ClassVar[tuple[str, ...]] = ("of",)
    only: ClassVar[str | None] = None
    across: ClassVar[bool] = False
    closed: ClassVar[bool] = False
    of_figures: ClassVar[bool] = False

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The algorithms whose figures it needs."""
        return tuple(getattr(self, field) for field in self.named)

    def detail(self, panels: Sequence[Figures]) -> str:
        """Return a note beside the verdict; empty by default."""
        return ""

    @abstractmethod
    def margins(self, figures: Sequence[Mapping[str, float]], measure: Measure) -> list[float]:
        """Return by how much each part of the claim is true for one seed, from its figures by algorithm in each panel.

        A part is true for a positive margin, false for a negative one, and unknown for NaN.
        """

    def holds(self, figures: Sequence[Mapping[str, float]], measure: Measure) -> bool | None:
        """Return whether the claim is true for one seed; None where no part is false and some are unknown."""
        margins = self.margins(figures, measure)
        if any(each < 0.0 or (each == 0.0 and not self.closed) for each in margins):
            return False
        return None if any(map(math.isnan, margins)) else True

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

    needed = 'a list of names or lists of names, as in ["a", ["b", "c"]]'
    only, of_figures = "groups", True

    groups: Annotated[list[str | Annotated[list[str], Field(min_length=1)]], Field(min_length=2)]

    @model_validator(mode="after")
    def _check_distinct(self) -> Self:
        if len(set(self.algorithms)) < len(self.algorithms):
            raise ValueError("needed each name once")
        return self

    @property
    def _lists(self) -> list[list[str]]:
        return [[group] if isinstance(group, str) else group for group in self.groups]

    @property
    def algorithms(self) -> tuple[str, ...]:
        """All names."""
        return tuple(chain.from_iterable(self._lists))

    def margins(self, figures: Sequence[Mapping[str, float]], measure: Measure) -> list[float]:
        """Compare all pairs of neighboring groups."""
        (panel,) = figures
        pairs = [pair for first, second in pairwise(self._lists) for pair in product(first, second)]
        return [lead(panel[one], panel[other], measure) for one, other in pairs]


class _Limited(Check):
    """A check of a number of one algorithm, by a lower limit, an upper limit, or both."""

    of: str
    least: float | None = None
    most: float | None = None

    closed = True

    @model_validator(mode="after")
    def _check_limited(self) -> Self:
        if self.least is None and self.most is None:
            raise ValueError("needed least, most or both")
        return self

    def within(self, value: float) -> list[float]:
        """Return by how much a number is within each limit."""
        return [
            *([] if self.least is None else [value - self.least]),
            *([] if self.most is None else [self.most - value]),
        ]


class Ratio(_Limited):
    """Check that the ratio of two figures is within limits: ``ratio = {of = "folb", to = "fedprox", most = 0.5}``."""

    needed = '{of = "NAME", to = "NAME", most = 0.5}, or least, or both'
    named = ("of", "to")

    to: str

    def margins(self, figures: Sequence[Mapping[str, float]], measure: Measure) -> list[float]:
        """Return the distances of the ratio from its limits; NaN where both are infinite or the divisor is 0."""
        one, other = figures[0][self.of], figures[0][self.to]
        if (math.isinf(one) and math.isinf(other)) or other == 0:
            return [math.nan]
        return self.within(one / other)


class Bound(_Limited):
    """Check that a figure is within limits: ``bound = {of = "fedau", least = 0.7}``."""

    needed = '{of = "NAME", most = 0.5}, or least, or both'
    of_figures = True

    def margins(self, figures: Sequence[Mapping[str, float]], measure: Measure) -> list[float]:
        """Return the distances of the figure from its limits."""
        return self.within(figures[0][self.of])


class Improves(Check):
    """Check that an algorithm improves from each panel to the next: ``improves = "scaffold_p"``."""

    needed = "the name of an algorithm"
    only, across, of_figures = "of", True, True

    of: str

    def margins(self, figures: Sequence[Mapping[str, float]], measure: Measure) -> list[float]:
        """Compare every panel with the previous one."""
        return [lead(after[self.of], before[self.of], measure) for before, after in pairwise(figures)]


class Gains(Check):
    """Check that a lead grows from each panel to the next: ``gains = {of = "folb", over = "fedprox"}``.

    The lead is a ratio for costs of reaching a target, and a difference for other figures.
    """

    needed = '{of = "NAME", over = "NAME"}'
    named = ("of", "over")
    across = True

    of: str
    over: str

    def margins(self, figures: Sequence[Mapping[str, float]], measure: Measure) -> list[float]:
        """Compare every lead with the previous one; NaN if one is unknown."""
        leads = [self._lead(panel[self.of], panel[self.over], measure) for panel in figures]
        if any(math.isnan(each) for each in leads):
            return [math.nan]
        return [after - before for before, after in pairwise(leads)]

    def _lead(self, of: float, over: float, measure: Measure) -> float:
        if math.isinf(of) or math.isinf(over):
            return math.nan
        return over / of if measure.metric is None else lead(of, over, measure)


class Slope(_Limited):
    """Check the exponent of a power law: ``slope = {of = "fedau", over = [50, 100, 200], most = -0.5}``.

    In the panels a quantity x, such as the number of rounds, takes the values `over`. The exponent is the least-squares
    slope of ln(figure) over ln(x).
    """

    needed = '{of = "NAME", over = [50, 100, 200], most = -0.5}, or least, or both'
    across = True

    over: list[PositiveFloat]

    @field_validator("over")
    @classmethod
    def _check_distinct(cls, over: list[float]) -> list[float]:
        if len(set(over)) < 2:
            raise ValueError("needed two different numbers")
        return over

    def margins(self, figures: Sequence[Mapping[str, float]], measure: Measure) -> list[float]:
        """Fit the exponent, and return its distances from the limits."""
        return self.within(self.exponent(figures))

    def detail(self, panels: Sequence[Figures]) -> str:
        """Return the exponent of every seed."""
        fitted = [f"{self.exponent(figures):.2f}" for figures in self.by_seed(panels).values()]
        return f"exponents {', '.join(fitted)}" if fitted else ""

    def exponent(self, figures: Sequence[Mapping[str, float]]) -> float:
        """Return the exponent of the figures at `over`; NaN if one is not positive and finite.

        Raises:
            ConfigurationError: if the number of panels is not that of `over`.
        """
        values = [panel[self.of] for panel in figures]
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
        ConfigurationError: if a claim has not exactly one key of `CHECKS`, or its value is of another form.
    """
    keys = [key for key in table if key in CHECKS]
    if len(keys) != 1:
        raise ConfigurationError(
            f"a claim needs exactly one of {', '.join(CHECKS)}; got {' and '.join(keys) or 'none'}"
        )
    kind, value = CHECKS[keys[0]], table[keys[0]]
    try:
        return kind.model_validate(value if kind.only is None else {kind.only: value})
    except ValidationError:
        raise refuse(keys[0], given=value, needed=kind.needed) from None


def lead(one: float, other: float, measure: Measure) -> float:
    """Return by how much one figure is better than another; NaN where neither run has a figure."""
    return other - one if measure.less_is_better else one - other
