"""Test a claim over paired seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from turnout.results.measure import Measure
from turnout.results.significance import FEWEST
from turnout.results.statistics import Gap, gap
from turnout.workbench.reproduction.checks import Check, Figures


def paired_test(check: Check, panels: Sequence[Figures], measure: Measure) -> Gap | None:
    """Test a claim by a paired t-test, and return the mean margin of the deciding part, with its p-value.

    A claim of several parts, such as a ranking of three algorithms, holds if all of its parts do, so that its p-value is the
    largest one of its parts (an intersection-union test). It does not hold if one part is false: the p-value is the smallest
    one of the parts with a negative mean margin, times their number. The test is of the claim if the margin is positive, and
    else of its opposite. None with fewer than three seeds with known margins, or if a part has equal figures with all seeds.

    A run that did not reach its target counts with the largest figure in these panels, which understates its cost. If that
    is so on one side with every seed, nothing but signs is known, and the test is a sign test: p = 2^(1 - n) for n seeds.

    Reference: Berger, "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24, 1982.
    """
    raw = {
        seed: figures for seed, figures in check.by_seed(panels).items() if check.holds(figures, measure) is not None
    }
    known = {seed: check.margins(_finite(figures, panels), measure) for seed, figures in raw.items()}
    if len(known) < FEWEST:
        return None
    unbounded = zip(*(check.margins(figures, measure) for figures in raw.values()), strict=True)
    parts = [
        _signs(signs) or _gap(dict(zip(known, column, strict=True)))
        for signs, column in zip(unbounded, zip(*known.values(), strict=True), strict=True)
    ]
    false = [part for part in parts if part.mean < 0.0]
    if false:
        least = min(false, key=lambda part: part.p)
        return replace(least, p=min(1.0, len(false) * least.p))
    if any(math.isnan(part.p) for part in parts):
        return None
    return max(parts, key=lambda part: part.p)


def _gap(margins: Mapping[int, float]) -> Gap:
    """Return the mean margin over seeds and its p-value."""
    found = gap(margins, dict.fromkeys(margins, 0.0))
    assert found is not None
    return found


def _signs(margins: Sequence[float]) -> Gap | None:
    """Return the sign test of margins that are all infinite and of one sign; None of others."""
    if set(margins) not in ({math.inf}, {-math.inf}):
        return None
    return Gap(margins[0], None, None, 2.0 ** (1 - len(margins)), len(margins))


def _finite(figures: Iterable[Mapping[str, float]], panels: Sequence[Figures]) -> list[dict[str, float]]:
    """Return figures with the largest or smallest finite one of their panel in place of infinite ones."""
    bounded = []
    for own, panel in zip(figures, panels, strict=True):
        values = [value for by_seed in panel.values() for value in by_seed.values() if math.isfinite(value)]
        low, high = min(values, default=math.nan), max(values, default=math.nan)
        bounded.append({name: low if v == -math.inf else high if v == math.inf else v for name, v in own.items()})
    return bounded
