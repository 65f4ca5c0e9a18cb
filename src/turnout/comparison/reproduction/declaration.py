"""Declare a reproduction: its panels, measures and curves, and the figures and claims of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from turnout.comparison.reproduction.checks import Check
from turnout.core.checks import known_name, refuse
from turnout.reporting.measure import Measure

_AGAINST = ("rounds", "bytes", "bytes_up", "simulated_seconds")


@dataclass(frozen=True)
class Curve:
    """A picture: one recorded column, one set of axes for each panel.

    Attributes:
        metric: the column.
        against: ``"rounds"``, ``"bytes"``, ``"bytes_up"`` or ``"simulated_seconds"``.
        log: logarithmic axes: ``""``, ``"x"``, ``"y"`` or ``"xy"``.
        band: the median and the quartiles over seeds; without, the first seed as it is, so that its jumps can be seen.
    """

    metric: str
    against: str = "rounds"
    log: str = ""
    band: bool = True

    def __post_init__(self) -> None:
        known_name("against", self.against, _AGAINST)
        known_name("log", self.log, ("", "x", "y", "xy"))


@dataclass(frozen=True, eq=False)
class Panel:
    """One setting in which all algorithms are compared: a data set, a value of mu, a size of cohorts.

    Attributes:
        name, title: in folders and on the command line, and where people read it.
        settings: a layer of settings over the common ones, with options of single algorithms under ``algorithms``.
        to_accuracy: the accuracy to reach, if rounds until then are looked at.
        seeds: which, if others than the reproduction's.
        paper: the paper's figures by algorithm, in the order of the measures and perhaps fewer; numbers or text.
        only: the algorithms that take part, if not all.
        optional: whether it runs only when asked for by name, because it needs something that few have.
    """

    name: str
    title: str
    settings: dict[str, Any]
    to_accuracy: float | None = None
    seeds: Any = None
    paper: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    only: tuple[str, ...] | None = None
    optional: bool = False


@dataclass(frozen=True, eq=False)
class Claim:
    """A claim of the paper.

    Attributes:
        text: in words.
        check: what is to be true.
        measure: of which figure; None means the first measure of the reproduction.
        panels: where, or between which; None means in every one.
    """

    text: str
    check: Check
    measure: Measure | None = None
    panels: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False)
class Reproduction:
    """A table or figure of a paper.

    Attributes:
        name: ``"folb/table-1"``.
        title: what it shows, in a line.
        reference: the paper, and which table or figure of it.
        about: what the paper leaves open, and what was taken.
        seeds: how many, or which.
        measures: what is looked at, the most important first.
        curves: the pictures.
        common: settings of all panels, with those of single algorithms under ``algorithms``.
        panels: by name.
        claims: what the paper says.
        also: other tables and figures that the same runs show, ``("figure-4",)``; names of it as good as its own.
    """

    name: str
    title: str
    reference: str
    common: dict[str, Any]
    panels: Mapping[str, Panel]
    about: str = ""
    seeds: Any = 3
    measures: tuple[Measure, ...] = (Measure("final", "test_accuracy"),)
    curves: tuple[Curve, ...] = (Curve("test_accuracy"),)
    claims: tuple[Claim, ...] = ()
    also: tuple[str, ...] = ()

    @property
    def algorithms(self) -> list[str]:
        """The names of all algorithms, in order."""
        return list(self.common["algorithms"])

    def of(self, panel: Panel) -> list[str]:
        """Return the names of the algorithms in a panel."""
        return [name for name in self.algorithms if panel.only is None or name in panel.only]

    def chosen(self, names: list[str] | None) -> list[Panel]:
        """Return the panels to run: those named, or all that are not optional.

        Raises:
            ConfigurationError: for a panel that does not exist, or in which no algorithm is left.
        """
        with_algorithms = {name: panel for name, panel in self.panels.items() if self.of(panel)}
        if names is None:
            asked_for = [name for name, panel in self.panels.items() if not panel.optional]
            panels = [name for name in asked_for if name in with_algorithms]
        else:
            asked_for = panels = list(dict.fromkeys(known_name("panel", name, self.panels) for name in names))
        if not panels or not with_algorithms.keys() >= set(panels):
            raise refuse(
                "panels", given=asked_for, needed=f"some of those with these algorithms: {', '.join(with_algorithms)}"
            )
        return [with_algorithms[name] for name in panels]

    def narrowed(self, names: list[str]) -> Reproduction:
        """Return the same with these algorithms alone.

        Raises:
            ConfigurationError: for an algorithm that does not exist.
        """
        chosen = [known_name("algorithm", name, self.algorithms) for name in names]
        left = {key: tuple(name for name in self.of(panel) if name in chosen) for key, panel in self.panels.items()}
        return replace(self, panels={key: replace(panel, only=left[key]) for key, panel in self.panels.items()})


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure or table that functions compute without runs.

    Attributes:
        name: ``"maxfl/figure-5"``.
        title: what it shows, in a line.
        reference: the paper, and which figure of it.
        function: the picture: ``"FILE.py:FUNCTION"``, which takes nothing and returns a figure of matplotlib; or None.
        numbers: the figures: ``"FILE.py:FUNCTION"``, which takes a seed and returns ``{panel: {measure: {algorithm:
            number}}}``; or None.
        declared: the panels, measures, claims and seeds of the numbers; None without numbers.
    """

    name: str
    title: str
    reference: str
    function: str | None = None
    numbers: str | None = None
    declared: Reproduction | None = None
