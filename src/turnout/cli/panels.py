"""A reproduction's panels as they are about to run: their settings, their seeds, and what is not as declared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from turnout.cli.run import save
from turnout.cli.settings import Settings
from turnout.cli.variants import Layers, seeds_of
from turnout.comparison import is_finished
from turnout.comparison.checks import check_experiments
from turnout.comparison.folders import save_order
from turnout.comparison.reproduction import Panel, Reproduction
from turnout.comparison.run import Run
from turnout.core.checks import ConfigurationError, DataError
from turnout.experiment import Experiment
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
        """Where its runs are: right in the folder of the reproduction if it has one panel."""
        return root / self.group

    def runs(self, root: Path, checkpoint_every: int | None = None) -> list[Run]:
        """All its runs, by algorithm and seed."""
        place = self.folder(root)
        return [
            Run(name, seed, settings, place / name / f"seed-{seed}", checkpoint_every, self.group)
            for name, settings in self.settings.items()
            for seed in self.seeds
        ]

    def check(self, root: Path) -> None:
        """Build everything once, with the first seed, so that what cannot run is refused before anything runs.

        Raises:
            ConfigurationError, DataError: for what cannot run.
            CheckpointError: for a folder that holds other runs.
        """
        seed = self.seeds[0]
        data = next(iter(self.settings.values())).seeded(seed).data()
        made = {name: settings.seeded(seed).experiment(data) for name, settings in self.settings.items()}
        for name, experiment in made.items():
            is_finished(self.folder(root) / name / f"seed-{seed}", experiment)
        check_experiments({name: partial(_same, experiment) for name, experiment in made.items()})

    def keep(self, root: Path) -> None:
        """Keep the settings and the order of the runs in their folders, for `turnout run --resume` and reports."""
        runs = self.runs(root)
        for run in runs:
            save(self.settings[run.name].seeded(run.seed), run.folder)
        save_order(self.folder(root), [run.folder for run in runs])


def _same(experiment: Experiment) -> Experiment:
    return experiment


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
    found = dict.fromkeys(
        text
        for plan in planned
        for text in _differences(plan, _plan(reproduction, reproduction.panels[plan.panel.name], ()))
    )
    settings = [text for text in overrides if text.partition("=")[0].strip() not in ("seeds", "rounds")]
    run = {plan.panel.name for plan in planned}
    meant = [name for name, panel in reproduction.panels.items() if not panel.optional and reproduction.of(panel)]
    left_out = [name for name in meant if name not in run]
    return (*found, *settings, *([f"without {', '.join(left_out)}"] if left_out else ()))


def _differences(plan: Plan, declared: Plan) -> Iterator[str]:
    """Yield where seeds and rounds of a panel differ from those declared."""
    if plan.seeds != declared.seeds:
        yield f"{_counted(plan.seeds)} instead of {_counted(declared.seeds)}"
    for name, settings in plan.settings.items():
        ours, theirs = (each.numbers().get("rounds", 100) for each in (settings, declared.settings[name]))
        if ours != theirs:
            yield f"{ours} round{'s' * (ours != 1)} instead of {theirs}"


def check(planned: Sequence[Plan], root: Path) -> None:
    """Refuse panels that cannot run, all in one error that names those that can.

    Raises:
        ConfigurationError: saying for each panel why, and how to get the data where they are missing.
        CheckpointError: for a folder that holds other runs.
    """
    refused: dict[str, str] = {}
    for plan in planned:
        try:
            plan.check(root)
        except (ConfigurationError, DataError) as error:
            refused[plan.panel.name] = f"panel {plan.panel.name}: {error}"
    left = [plan.panel.name for plan in planned if plan.panel.name not in refused]
    if refused:
        others = [f"The others can run: --panels {','.join(left)}"] if left else []
        raise ConfigurationError("\n".join([*refused.values(), *others]))


def _plan(reproduction: Reproduction, panel: Panel, over: Sequence[dict[str, Any]]) -> Plan:
    found = Layers.of([reproduction.common, panel.settings, *over], reproduction.algorithms)
    if found.to_accuracy is not None:
        check_accuracy(found.to_accuracy)
        panel = replace(panel, to_accuracy=found.to_accuracy)
    seeds = next(each for each in (found.seeds, panel.seeds, reproduction.seeds) if each is not None)
    settings = found.plan(reproduction.of(panel))
    return Plan(panel, settings, seeds_of(seeds), panel.name if len(reproduction.panels) > 1 else "")


def _counted(seeds: list[int]) -> str:
    if seeds == list(range(len(seeds))):
        return f"{len(seeds)} seed{'s' * (len(seeds) != 1)}"
    return f"seeds {','.join(map(str, seeds))}"
