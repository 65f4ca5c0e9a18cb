"""Tune the step sizes of the algorithms of ``turnout compare --tune``, and write the comparison that they make."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turnout.cli import layers
from turnout.cli.console import say, show
from turnout.cli.names import ALGORITHMS
from turnout.cli.options import options_of
from turnout.cli.print_config import completed, file_of, toml
from turnout.cli.run_plan import Plan
from turnout.cli.settings import Settings
from turnout.cli.user_code import member
from turnout.cli.variants import Layers
from turnout.comparison.run import Resources
from turnout.comparison.tune import FILE as CHOICES
from turnout.comparison.tune import Tune
from turnout.comparison.tuning import Tuned
from turnout.comparison.update import Listener
from turnout.core.checks import ConfigurationError, is_finite
from turnout.experiment import Experiment
from turnout.record import storage
from turnout.record.contents import damaged
from turnout.results.terminal import TextTable

STEPS = ("server_lr", "gamma", "global_lr")
"""Options that scale the server's step; the first that a rule has is searched."""

RATIO = 2.0
"""The ratio of neighboring values."""

FILE = "tuned.toml"
"""The comparison with the chosen values, in the folder of a comparison."""


@dataclass(frozen=True)
class Candidate:
    """Settings of an algorithm whose step sizes are searched: a function of the seed and of the axes.

    Attributes:
        settings: the settings of the comparison. A fifth of each client's examples is held out for the search, unless they
            hold out others.
    """

    settings: Settings

    def __call__(self, seed: int, **values: float) -> Experiment:
        """Return the experiment of a trial."""
        table = self.settings.table
        return Settings.of(table, held_out(table["data"]), *_layers(values))(seed)

    @property
    def axes(self) -> dict[str, tuple[float, ...]]:
        """The first values of the step sizes of clients and of the server: half, once and twice those of the settings.

        Raises:
            ConfigurationError: if there is no step size.
        """
        table = self.settings.table
        recipe = member(ALGORITHMS, table["algorithm"]["name"])
        options = {name: option.default for name, option in options_of(recipe).items()} | table["algorithm"]
        named = {"local.lr": completed(table)["local"].get("lr")} if "local" in options else {}
        step = next((name for name in STEPS if _is_positive(options.get(name))), None)
        named |= {f"algorithm.{step}": options[step]} if step else {}
        axes = {axis: (value / RATIO, value, value * RATIO) for axis, value in named.items() if _is_positive(value)}
        if not axes:
            raise ConfigurationError(
                f"{self.settings.name}: there is no step size to tune: write local.lr=0.1, a number above 0"
            )
        return axes

    def chosen(self, values: Mapping[str, float]) -> Settings:
        """Return the settings with chosen values."""
        return Settings.of(self.settings.table, *_layers(values))


def held_out(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a layer that holds out a fifth of each client's examples for the search, unless data hold out others."""
    return {} if layers.is_validated(data) else {"data": {"validation_fraction": 0.2}}


def tuned_plan(
    plan: Plan, budget: int, resources: Resources, listener: bool | Listener
) -> tuple[Plan, dict[str, Tuned]]:
    """Tune each algorithm of a plan with the same budget; return the plan with the chosen values, and the searches.

    Raises:
        ConfigurationError: if an algorithm cannot be tuned.
    """
    candidates = {name: Candidate(settings) for name, settings in plan.settings.items()}
    seeds = [seed for seed in range(100, 104 + len(plan.seeds)) if seed not in plan.seeds][:3]
    tune = Tune(budget, {name: candidate.axes for name, candidate in candidates.items()}, seeds)
    tuned = tune.choose(candidates, plan.seeds, plan.folder, resources, listener)
    settings = {name: candidate.chosen(tuned[name].values) for name, candidate in candidates.items()}
    return replace(plan, settings=settings), tuned


def tell(plan: Plan, tuned: Mapping[str, Tuned], whole: Layers) -> None:
    """Print the searches, and write the comparison that runs without them."""
    show(table_of(tuned))
    if edges := [name for name, search in tuned.items() if search.edges]:
        say(f"{', '.join(edges)}: the budget ended before all neighbors of the best point were tried: write a larger --tune",
            style="yellow")  # fmt: skip
    text = toml(file_of(plan.settings, replace(whole, seeds=plan.seeds)))
    path = plan.folder / FILE
    storage.replace_files({path: storage.text_writer(text)})
    say(f"without the search: turnout compare --config {path}")


def table_of(tuned: Mapping[str, Tuned]) -> TextTable:
    """Return the chosen values and the costs of searches as a table."""
    rows = [[(text, False) for text in line] for line in lines_of(tuned)]
    return TextTable(HEADINGS, rows, title="Tuning", names=len(HEADINGS) - 1)


HEADINGS = ("algorithm", "chosen (searched range)", "validation", "client updates")
"""The columns of the table of searches."""


def lines_in(folders: Iterable[Path], names: Collection[str]) -> list[list[str]]:
    """Return the lines of the tables of searches in folders of comparisons, of the algorithms of these names."""
    lines = []
    for path in (folder / CHOICES for folder in folders):
        if path.exists():
            content = storage.read_json(path, instead="run turnout compare --tune again")
            try:
                lines += lines_of({name: Tuned(**values) for name, values in content.items() if name in names})
            except (TypeError, KeyError, ValueError, AttributeError) as error:
                raise damaged(path, error) from error
    return lines


def lines_of(tuned: Mapping[str, Tuned]) -> list[list[str]]:
    """Return the lines of the table of searches."""
    return [
        [
            name,
            ", ".join(
                f"{axis}={value:g} ({search.tried[axis][0]:g} to {search.tried[axis][-1]:g}"
                f"{', at the edge' if axis in search.edges else ''})"
                for axis, value in search.values.items()
            ),
            f"{search.figure:.4g}",
            f"{search.updates:,}",
        ]
        for name, search in tuned.items()
    ]


def _layers(values: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the values of axes as layers of settings."""
    return [layers.nested(axis.split("."), value) for axis, value in values.items()]


def _is_positive(value: Any) -> bool:
    return is_finite(value) and value > 0
