"""Declare the reproduction of a table or figure: panels, measures, curves, and the figures and claims of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import StrictBool

from turnout.core.checks import known_name, refuse
from turnout.results.measure import Measure
from turnout.workbench.reproduction.checks import Check

_AGAINST = ("rounds", "bytes", "bytes_up", "simulated_seconds")


@dataclass(frozen=True)
class Curve:
    """A plot of a recorded column, with one set of axes per panel.

    Attributes:
        metric: the column.
        against: ``"rounds"``, ``"bytes"``, ``"bytes_up"`` or ``"simulated_seconds"``.
        log: logarithmic axes: ``""``, ``"x"``, ``"y"`` or ``"xy"``.
        band: plot the median and the quartiles over seeds; False plots only the first seed, whose fluctuations are then
            visible.
    """

    metric: str
    against: str = "rounds"
    log: str = ""
    band: StrictBool = True

    def __post_init__(self) -> None:
        known_name("value of against", self.against, _AGAINST)
        known_name("value of log", self.log, ("", "x", "y", "xy"))


@dataclass(frozen=True, eq=False)
class Panel:
    """One setting in which all algorithms are compared, such as a data set, a value of mu, or a cohort size.

    Attributes:
        name: name in folders and on the command line.
        title: title in tables and figures.
        settings: a layer of settings over the common ones, with options of single algorithms under ``algorithms``.
        to_accuracy: the target of measures that count until it is reached.
        seeds: None for those of the reproduction.
        paper: the paper's figures by algorithm, in the order of the measures; the last ones may be missing; numbers or text.
        only: the algorithms of the panel; None for all.
        optional: it runs only if it is named, because it has unusual requirements.
    """

    name: str
    title: str
    settings: dict[str, Any]
    to_accuracy: float | None = None
    seeds: Any = None
    paper: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    only: tuple[str, ...] | None = None
    optional: bool = False

    def titled(self, until: bool) -> str:
        """Return the title, with the target accuracy if `until` is set, for measures that count until it is reached."""
        return f"{self.title}, {100 * self.to_accuracy:g} %" if until and self.to_accuracy is not None else self.title


@dataclass(frozen=True, eq=False)
class Claim:
    """A claim of the paper.

    Attributes:
        text: claim in words.
        check: decides whether the claim is true.
        measure: measure of the figures; None for the first measure of the reproduction.
        panels: panels in which it is checked, or which it compares; None for all.
    """

    text: str
    check: Check
    measure: Measure | None = None
    panels: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False)
class Reproduction:
    """A table or figure of a paper, of runs or computed by functions without runs.

    Attributes:
        name: ``"folb/table-1"``.
        title: its content in one line.
        reference: the paper and the number of the table or figure.
        about: what the paper leaves open, and the choices that were made.
        seeds: their number, or the seeds themselves.
        measures: the most important first.
        curves: the plots.
        common: settings of all panels, with those of single algorithms under ``algorithms``.
        panels: panels by name.
        claims: claims of the paper.
        also: other tables and figures that the same runs reproduce, ``("figure-4",)``; aliases of the name.
        figure: ``"FILE.py:FUNCTION"`` without parameters, which returns a figure of matplotlib; or None.
        numbers: ``"FILE.py:FUNCTION"`` of a seed, which returns ``{panel: {measure: {algorithm: number}}}``; or None.
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
    figure: str | None = None
    numbers: str | None = None

    @property
    def is_computed(self) -> bool:
        """True if functions compute it without runs."""
        return self.figure is not None or self.numbers is not None

    @property
    def algorithms(self) -> list[str]:
        """The names of all algorithms, in order."""
        return list(self.common["algorithms"])

    @property
    def runnable(self) -> dict[str, Panel]:
        """The panels with algorithms, by name."""
        return {name: panel for name, panel in self.panels.items() if self.of(panel)}

    @property
    def default(self) -> list[str]:
        """The names of the panels that run unless others are named."""
        return [name for name, panel in self.runnable.items() if not panel.optional]

    def of(self, panel: Panel) -> list[str]:
        """Return the names of the algorithms in a panel."""
        return [name for name in self.algorithms if panel.only is None or name in panel.only]

    def chosen(self, names: list[str] | None) -> list[Panel]:
        """Return the panels with these names, by default all that are not optional.

        Raises:
            ConfigurationError: if a panel is unknown or has no algorithms.
        """
        chosen = self.default if names is None else list(dict.fromkeys(names))
        for name in chosen:
            known_name("panel", name, self.panels)
        runnable = self.runnable
        if not chosen or not runnable.keys() >= set(chosen):
            given = chosen or [name for name, panel in self.panels.items() if not panel.optional]
            raise refuse("panels", given=given, needed=f"some of those with these algorithms: {', '.join(runnable)}")
        return [runnable[name] for name in chosen]

    def narrowed(self, names: list[str]) -> Reproduction:
        """Return the reproduction with a subset of its algorithms.

        Raises:
            ConfigurationError: if an algorithm is unknown.
        """
        chosen = [known_name("algorithm", name, self.algorithms) for name in names]
        only = {key: tuple(name for name in self.of(panel) if name in chosen) for key, panel in self.panels.items()}
        return replace(self, panels={key: replace(panel, only=only[key]) for key, panel in self.panels.items()})
