"""Make outcomes of figures that are not those of runs, but of a recorded table or a function."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnout.core.checks import ConfigurationError, DataError, known_name
from turnout.record.contents import VALUE_ERRORS, parse
from turnout.results.measure import Measure
from turnout.workbench.reproduction.declaration import Reproduction
from turnout.workbench.reproduction.outcome import Outcome, Values


@dataclass(frozen=True)
class Quantity(Measure):
    """A measure that a function computes, such as an exponent or a bound.

    Args:
        kind: always ``"computed"``.
        metric: the name of the quantity.
        better: ``"more"`` or ``"less"``.
    """

    better: str = "more"

    def __post_init__(self) -> None:
        known_name("value of better", self.better, ("more", "less"))

    @classmethod
    def read(cls, text: Any) -> Quantity:
        """Read the quantity of a declaration: ``"GM-Appeal"`` or ``{name = "error", better = "less"}``.

        Raises:
            ConfigurationError: if the value is any other.
        """
        table = {"name": text} if isinstance(text, str) else text
        if (
            not isinstance(table, dict)
            or not isinstance(table.get("name"), str)
            or not table.keys() <= {"name", "better"}
        ):
            raise ConfigurationError(f'measures: got {text!r}, needed a name or {{name = "error", better = "less"}}')
        return cls("computed", table["name"], table.get("better", "more"))

    def __str__(self) -> str:
        return str(self.metric)

    @property
    def title(self) -> str:
        """The name of the quantity."""
        return str(self.metric)

    @property
    def scale(self) -> float:
        """1: quantities are printed unscaled."""
        return 1.0

    @property
    def less_is_better(self) -> bool:
        """True if a smaller figure is better."""
        return self.better == "less"


def tabulated(reproduction: Reproduction, values: Values, changes: tuple[str, ...] = ()) -> Outcome:
    """Make an outcome from figures without runs.

    Raises:
        ConfigurationError: if the reproduction does not declare the panel or algorithm.
    """
    for name, measures in values.items():
        panel = reproduction.panels[known_name("panel", name, reproduction.panels)]
        for figures in measures.values():
            for algorithm in figures:
                known_name(f"algorithm in panel {name}", algorithm, reproduction.of(panel))
    return Outcome(reproduction, dict.fromkeys(values, ()), changes, values)


def read_outcome(reproduction: Reproduction, path: Path) -> Outcome:
    """Read an outcome from the ``findings.json`` of a reproduction.

    Raises:
        DataError: if the file is of another kind or of another reproduction.
        ConfigurationError: if the reproduction does not declare the panel or algorithm.
    """
    try:
        plain = parse(path.read_bytes())
        values = {
            panel: {measure: _figures(reproduction, measure, table) for measure, table in measures.items()}
            for panel, measures in plain["values"].items()
        }
        name, changes = plain["reproduction"], tuple(plain["changes"])
    except (OSError, *VALUE_ERRORS) as error:
        raise DataError(f"{path}: needed findings.json of `turnout reproduce`: {error!r}") from error
    if name != reproduction.name:
        raise DataError(f"{path}: holds the figures of {name}, needed those of {reproduction.name}")
    return tabulated(reproduction, values, changes)


def _figures(
    reproduction: Reproduction, measure: str, table: Mapping[str, Mapping[str, float | None]]
) -> dict[str, dict[int, float]]:
    """Convert recorded figures: seeds become whole numbers, and a missing figure the worst one."""
    measures = [*reproduction.measures, *(claim.measure for claim in reproduction.claims if claim.measure)]
    known = {str(measured): measured for measured in measures}
    worst = known[measure].worst if measure in known else math.inf
    return {
        name: {int(seed): worst if value is None else float(value) for seed, value in values.items()}
        for name, values in table.items()
    }
