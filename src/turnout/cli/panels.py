"""Plan the panels of a reproduction: their settings, their seeds, and what differs from the declaration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turnout.cli.runs import check as check_runs
from turnout.cli.runs import save_all
from turnout.cli.settings import Settings
from turnout.cli.variants import Layers, seeds_of
from turnout.comparison.compare import runs_of
from turnout.comparison.folders import save_order
from turnout.comparison.reproduction.declaration import Panel, Reproduction
from turnout.comparison.run import Run
from turnout.core.checks import ConfigurationError, DataError
from turnout.reporting.target import check_accuracy


@dataclass(frozen=True, eq=False)
class Plan:
    """One panel as it is about to run.

    Attributes:
        panel: as it was declared, but for the accuracy to reach.
        settings: of every algorithm, in order.
        seeds: which.
        group: what its runs are called beside their algorithm; empty where the reproduction has one panel.
    """

    panel: Panel
    settings: Mapping[str, Settings]
    seeds: list[int]
    group: str

    def folder(self, root: Path) -> Path:
        """Return the folder of its runs: that of the reproduction where it has one panel."""
        return root / self.group

    def runs(self, root: Path, checkpoint_every: int | None = None) -> list[Run]:
        """Return all its runs, by algorithm and seed."""
        return runs_of(self.settings, self.seeds, self.folder(root), checkpoint_every, self.group)

    def save(self, root: Path) -> None:
        """Save the settings and the order of the runs in their folders, for `turnout run --resume` and reports."""
        save_all(self.settings, self.seeds, self.folder(root))
        save_order(self.folder(root), [run.folder for run in self.runs(root)])


def plans(reproduction: Reproduction, names: list[str] | None, over: Sequence[dict[str, Any]]) -> list[Plan]:
    """Return the panels that are to run, with layers of settings over their own.

    Raises:
        ConfigurationError: for panels that do not exist, and settings that cannot be run.
    """
    for key, instead in {"name": "NAME.OPTION=VALUE", "seed": "--seeds", "algorithm": "NAME.OPTION=VALUE"}.items():
        if any(key in layer for layer in over):
            raise ConfigurationError(f"{key} is not for reproductions: write {instead}")
    return [_plan(reproduction, panel, over) for panel in reproduction.chosen(names)]


def changes(reproduction: Reproduction, planned: Sequence[Plan], overrides: Sequence[str]) -> tuple[str, ...]:
    """Return what differs from the reproduction as it is declared, one text each."""
    different = dict.fromkeys(
        text
        for plan in planned
        for text in _differences(plan, _plan(reproduction, reproduction.panels[plan.panel.name], ()))
    )
    settings = [text for text in overrides if text.partition("=")[0].strip() not in ("seeds", "rounds")]
    run = {plan.panel.name for plan in planned}
    declared = [name for name, panel in reproduction.panels.items() if not panel.optional and reproduction.of(panel)]
    left_out = [name for name in declared if name not in run]
    return (*different, *settings, *([f"without {', '.join(left_out)}"] if left_out else ()))


def _differences(plan: Plan, declared: Plan) -> Iterator[str]:
    """Yield where seeds and rounds of a panel differ from those declared."""
    if plan.seeds != declared.seeds:
        yield f"{_counted(plan.seeds)} instead of {_counted(declared.seeds)}"
    for name, settings in plan.settings.items():
        rounds, declared_rounds = (table.numbers().get("rounds", 100) for table in (settings, declared.settings[name]))
        if rounds != declared_rounds:
            yield f"{rounds} round{'s' * (rounds != 1)} instead of {declared_rounds}"


def check(planned: Sequence[Plan], root: Path) -> None:
    """Refuse panels that cannot run, all in one error that names those that can.

    Raises:
        ConfigurationError: saying for each panel why, and how to get the data where they are missing.
        CheckpointError: for a folder that holds other runs.
    """
    refused: dict[str, str] = {}
    for plan in planned:
        try:
            check_runs(plan.settings, plan.seeds, plan.folder(root))
        except (ConfigurationError, DataError) as error:
            refused[plan.panel.name] = f"panel {plan.panel.name}: {error}"
    left = [plan.panel.name for plan in planned if plan.panel.name not in refused]
    if refused:
        others = [f"The others can run: --panels {','.join(left)}"] if left else []
        raise ConfigurationError("\n".join([*refused.values(), *others]))


def _plan(reproduction: Reproduction, panel: Panel, over: Sequence[dict[str, Any]]) -> Plan:
    whole = Layers.of([reproduction.common, panel.settings, *over], reproduction.algorithms)
    if whole.to_accuracy is not None:
        check_accuracy(whole.to_accuracy)
        panel = replace(panel, to_accuracy=whole.to_accuracy)
    seeds = next(seeds for seeds in (whole.seeds, panel.seeds, reproduction.seeds) if seeds is not None)
    settings = whole.plan(reproduction.of(panel))
    return Plan(panel, settings, seeds_of(seeds), panel.name if len(reproduction.panels) > 1 else "")


def _counted(seeds: list[int]) -> str:
    if seeds == list(range(len(seeds))):
        return f"{len(seeds)} seed{'s' * (len(seeds) != 1)}"
    return f"seeds {','.join(map(str, seeds))}"
