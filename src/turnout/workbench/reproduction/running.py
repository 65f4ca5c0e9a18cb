"""Run and report declared tables and figures for ``turnout reproduce``."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Column, Table
from rich.text import Text

from turnout.cli import layers, user_code
from turnout.cli.console import say, show
from turnout.cli.groups import layer
from turnout.cli.runs import perform, warn_of_dropped, write_page, write_tables
from turnout.cli.variants import seeds_of
from turnout.comparison.run import Run
from turnout.core.checks import ConfigurationError, counted, refuse
from turnout.data.source import inventory
from turnout.record.contents import Environment
from turnout.record.environment import environment
from turnout.record.storage import read_json
from turnout.reporting.page import save_figure
from turnout.results.records import RunRecord
from turnout.workbench.reproduction import panels
from turnout.workbench.reproduction import table as tables
from turnout.workbench.reproduction.declaration import Reproduction
from turnout.workbench.reproduction.options import ReproduceOptions
from turnout.workbench.reproduction.outcome import Outcome
from turnout.workbench.reproduction.reading import load
from turnout.workbench.reproduction.reading import names as known
from turnout.workbench.reproduction.table import write_outcome
from turnout.workbench.reproduction.tabulated import tabulated

_WITH_VALUE = (
    "--folder",
    "--jobs",
    "--on",
    "--runs-per-job",
    "-j",
    "--threads",
    "--data-dir",
    "--checkpoint-every",
    "--declarations",
)
_ALONE = ("--quiet", "-q", "--report", "--no-report")
"""Options that do not affect results."""


def name_among(names: Sequence[str]) -> str:
    """Return the name of the reproduction, which is the only argument that is not a setting."""
    declared = [name for name in names if "=" not in name]
    if len(declared) != 1:
        words = f"got {' '.join(declared)}" if declared else "got settings only"
        raise ConfigurationError(f"name one reproduction, {words}: turnout reproduce folb/table-1")
    return declared[0]


def listed(text: str) -> list[str]:
    """Split names at commas."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def draw(drawing: Reproduction, settings: Sequence[object], folder: Path | None, quiet: bool) -> None:
    """Compute a figure that needs no runs and has no settings: print and write its numbers, and plot it."""
    name = drawing.name
    folder = folder or Path("runs") / name.replace("/", "-")
    if odd := [setting for setting in settings if setting is not None]:
        raise ConfigurationError(f"{name} is computed without runs and has no settings: leave {odd[0]} out")
    if not quiet:
        say(f"{drawing.title}. {drawing.reference}")
    if drawing.numbers is not None:
        begun = time.monotonic()
        outcome = tabulated(drawing, computed(drawing.numbers, seeds_of(drawing.seeds)))
        show_tables(outcome, folder, run_details(time.monotonic() - begun))
    if drawing.figure is not None:
        figure, path = user_code.loaded(drawing.figure)(), folder / f"{name.rpartition('/')[2]}.png"
        save_figure(figure, path)
        typer.echo(f"figure: {path}")


def computed(numbers: str, seeds: Sequence[int]) -> dict[str, dict[str, dict[str, dict[int, float]]]]:
    """Return the results of a function for all seeds, by panel, measure, algorithm and seed."""
    function, values = user_code.loaded(numbers), {}
    for seed in seeds:
        for panel, measures in function(seed).items():
            for measure, figures in measures.items():
                for algorithm, figure in figures.items():
                    table = values.setdefault(panel, {}).setdefault(measure, {})
                    table.setdefault(algorithm, {})[seed] = float(figure)
    return values


def run_details(seconds: float, folder: Path | None = None, rounds: Sequence[int] = ()) -> dict[str, Any]:
    """Return the origin of results: command, version, commit and sources, rounds, and seconds of all runs.

    Args:
        seconds: seconds of computation.
        folder: folder of a run, for its version and commit; None is those of this process.
        rounds: rounds of the runs.
    """
    noted = environment()
    if folder is not None:
        noted = read_json(folder / "environment.json", instead="make the run anew", form=Environment)
    return {
        "command": command(sys.argv[1:]),
        "turnout": noted["turnout"],
        "commit": noted["turnout_commit"],
        "sources": noted.get("sources"),
        "rounds": sorted(set(rounds)),
        "seconds": round(seconds, 1),
    }


def command(arguments: Sequence[str]) -> str:
    """Return the command line without options that do not affect results.

    Example:
        >>> command(["reproduce", "fedau/digits", "--seeds", "3", "--jobs", "1", "--quiet", "--folder=runs/x"])
        'turnout reproduce fedau/digits --seeds 3'
    """
    words, skip = ["turnout"], False
    for word in arguments:
        name, equals, _ = word.partition("=")
        if not skip and name not in (*_WITH_VALUE, *_ALONE):
            words.append(word)
        skip = not skip and name in _WITH_VALUE and not equals
    return shlex.join(words)


def run_panels(declared: Reproduction, options: ReproduceOptions, overrides: Sequence[str]) -> None:
    """Run the panels of a reproduction as the options say, and report the outcome."""
    chosen = listed(options.algorithms or "")
    if options.algorithms is not None and not chosen:
        needed = f"names: {','.join(declared.algorithms)}"
        raise refuse("algorithms", given=options.algorithms, needed=needed)
    reproduction = declared.narrowed(chosen) if chosen else declared
    target = options.folder or Path("runs") / reproduction.name.replace("/", "-")
    flags = layer(seeds=options.seeds, rounds=options.rounds, device=options.device_of_runs())
    over = [flags, *map(layers.override, overrides)]
    plans = panels.plans(reproduction, None if options.only is None else listed(options.only), over, target)
    changes = panels.changes(reproduction, plans, overrides)
    changes += (f"only {', '.join(chosen)}",) if chosen else ()
    resources = options.resources(chain.from_iterable(plan.settings.values() for plan in plans), options.device)
    panels.check(plans)
    runs = [run for plan in plans for run in plan.runs(options.checkpoint_every)]
    if not options.quiet:
        say(f"{reproduction.title}. {reproduction.reference}")
        say(f"{counted(len(plans), 'panel')}, {counted(len(runs), 'run')}")

    def conclude(done: Mapping[Run, RunRecord], *failures: str) -> None:
        records = {
            plan.panel.name: [record for run, record in done.items() if run.group == plan.group] for plan in plans
        }
        as_run = {plan.panel.name: plan.panel for plan in plans}
        outcome = Outcome(
            replace(reproduction, panels={**reproduction.panels, **as_run}), records, (*changes, *failures)
        )
        report_outcome(outcome, list(done), target, options.report)

    perform(options, runs, target, resources, conclude)


def report_outcome(outcome: Outcome, runs: Sequence[Run], folder: Path, report: bool) -> None:
    """Print results and findings, and write them to the folder."""
    records = [record for panel in outcome.records.values() for record in panel]
    seconds = sum(float(np.nansum(record.history.column("seconds")[1])) for record in records)
    warn_of_dropped(records)
    rounds = [record.history.last_round for record in records]
    show_tables(outcome, folder, run_details(seconds, runs[0].folder, rounds))
    if report:
        write_page(folder, lambda path: write_outcome(outcome, path))


def show_tables(outcome: Outcome, folder: Path, details: Mapping[str, Any]) -> None:
    """Print results and findings, and write results.csv and findings.json."""
    show(tables.rich_table(outcome))
    if findings := outcome.findings():
        show(tables.rich_findings(findings))
    if outcome.changes:
        typer.echo(f"not as declared: {'; '.join(outcome.changes)}")
    plain = json.dumps({**outcome.as_plain(), "run": details}, indent=2, ensure_ascii=False)
    write_tables(folder, {"results.csv": tables.csv(outcome), "findings.json": plain})


def declarations_table(folder: Path | None) -> Table:
    """Return a table of the declarations in a folder; None is that of a clone, or of the installed package."""
    table = Table(Column("name", no_wrap=True), "description", "data", box=SIMPLE_HEAD)
    entries = {entry.name: entry for entry in inventory()}
    for name in known(folder):
        reproduction = load(name, folder)
        if reproduction.is_computed:
            table.add_row(Text(name), Text(reproduction.title), Text("none"))
            continue
        sections = [layers.data_of([reproduction.common, panel.settings]) for panel in reproduction.chosen(None)]
        data_sets = dict.fromkeys(section.get("name", "digits") for section in sections)
        data = [name if entries[name].path else f"{name} ({entries[name].remedy})" for name in data_sets]
        table.add_row(
            Text(", ".join((reproduction.name, *reproduction.also))), Text(reproduction.title), Text(", ".join(data))
        )
    return table
