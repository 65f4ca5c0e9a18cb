"""Plan the runs of each panel of a reproduction, and list differences from the declaration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from turnout.cli.layers import refuse_keys
from turnout.cli.run_plan import Plan
from turnout.cli.variants import Layers, seeds_of
from turnout.comparison.folders import save_order
from turnout.comparison.run import Run
from turnout.core.checks import ConfigurationError, DataError
from turnout.results.measure import check_accuracy
from turnout.workbench.reproduction.declaration import Panel, Reproduction


@dataclass(frozen=True, eq=False)
class PanelPlan(Plan):
    """The runs of one panel.

    Attributes:
        panel: as declared, except for the target accuracy.
    """

    panel: Panel = field(kw_only=True)

    def runs(self, checkpoint_every: int | None = None) -> list[Run]:
        """Save settings and the order of the runs, for reports of the panel, and return the runs."""
        runs = super().runs(checkpoint_every)
        save_order(self.folder, [run.folder for run in runs])
        return runs


def plans(
    reproduction: Reproduction, names: list[str] | None, over: Sequence[dict[str, Any]], folder: Path
) -> list[PanelPlan]:
    """Return the plans of panels, whose settings the layers `over` override, in subfolders of `folder`.

    Raises:
        ConfigurationError: if panels are unknown, or settings are invalid.
    """
    instead = {"name": "NAME.OPTION=VALUE", "seed": "--seeds", "algorithm": "NAME.OPTION=VALUE"}
    refuse_keys(over, "reproductions", instead)
    return [_plan(reproduction, panel, over, folder) for panel in reproduction.chosen(names)]


def changes(reproduction: Reproduction, planned: Sequence[PanelPlan], overrides: Sequence[str]) -> tuple[str, ...]:
    """Describe each difference from the declaration in words."""
    different = dict.fromkeys(
        text
        for plan in planned
        for text in _differences(plan, _plan(reproduction, reproduction.panels[plan.panel.name], (), plan.folder))
    )
    settings = [text for text in overrides if text.partition("=")[0].strip() not in ("seeds", "rounds")]
    run = {plan.panel.name for plan in planned}
    left_out = [name for name in reproduction.default if name not in run]
    return (*different, *settings, *([f"without {', '.join(left_out)}"] if left_out else ()))


def _differences(plan: Plan, declared: Plan) -> Iterator[str]:
    """Describe differences in seeds and rounds from the declaration of a panel."""
    if plan.seeds != declared.seeds:
        yield f"{_counted(plan.seeds)} instead of {_counted(declared.seeds)}"
    for name, settings in plan.settings.items():
        rounds, declared_rounds = (table.numbers().get("rounds", 100) for table in (settings, declared.settings[name]))
        if rounds != declared_rounds:
            yield f"{rounds} round{'s' * (rounds != 1)} instead of {declared_rounds}"


def check(planned: Sequence[PanelPlan]) -> None:
    """Check all panels, and raise one error for those that cannot run.

    Raises:
        ConfigurationError: if not, with the reason for each panel, and the names of the others.
        CheckpointError: if the folder holds other runs.
    """
    refused: dict[str, str] = {}
    for plan in planned:
        try:
            plan.check()
            plan.check_folder()
        except (ConfigurationError, DataError) as error:
            refused[plan.panel.name] = f"panel {plan.panel.name}: {error}"
    left = [plan.panel.name for plan in planned if plan.panel.name not in refused]
    if refused:
        others = [f"The others can run: --panels {','.join(left)}"] if left else []
        raise ConfigurationError("\n".join([*refused.values(), *others]))


def _plan(reproduction: Reproduction, panel: Panel, over: Sequence[dict[str, Any]], folder: Path) -> PanelPlan:
    whole = Layers.of([reproduction.common, panel.settings, *over], reproduction.algorithms)
    if whole.to_accuracy is not None:
        check_accuracy(whole.to_accuracy)
        panel = replace(panel, to_accuracy=whole.to_accuracy)
    seeds = next(seeds for seeds in (whole.seeds, panel.seeds, reproduction.seeds) if seeds is not None)
    settings = whole.plan(reproduction.of(panel))
    group = panel.name if len(reproduction.panels) > 1 else ""
    return PanelPlan(settings, seeds_of(seeds), folder / group, group, panel=panel)


def _counted(seeds: list[int]) -> str:
    if seeds == list(range(len(seeds))):
        return f"{len(seeds)} seed{'s' * (len(seeds) != 1)}"
    return f"seeds {','.join(map(str, seeds))}"
