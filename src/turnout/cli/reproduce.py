"""``turnout reproduce``: a table or figure of a paper, with the paper's figures beside ours."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from turnout.cli import flags, layers, panels
from turnout.cli.errors import guarded
from turnout.cli.output import announce, jobs_of, say, show, warn_of_dropped, watched
from turnout.cli.sections import as_table
from turnout.comparison import RunsFailed
from turnout.comparison.compare import perform_all
from turnout.comparison.run import Run
from turnout.core.checks import ConfigurationError, counted
from turnout.data.catalogue import inventory
from turnout.reporting import RunRecord
from turnout.reproduce import Outcome, Panel, Reproduction, load
from turnout.reproduce import names as known
from turnout.reproduce import table as tables
from turnout.reproduce.drawn import DRAWN
from turnout.reproduce.page import write_outcome
from turnout.storage import replace_files

EPILOG = r"""[bold]Examples[/bold]

turnout reproduce

turnout reproduce fedau/digits

turnout reproduce folb/table-1 --panels synthetic_iid,synthetic_1_1 --jobs 2

turnout reproduce fedstaleweight/figure-2 --algorithms fedstaleweight,fedbuff

turnout reproduce folb/table-1 --seeds 3 --rounds 50 local.lr=0.03 fedprox.mu=0.1

turnout reproduce fedau/fashion-mnist --data-dir /data --rounds 2000 --seeds 5

The same command goes on where it was stopped, and does not repeat what is finished."""


@guarded
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PAPER/NAME|KEY=VALUE",
            help="What to reproduce (without: a list of what there is), or a TOML file that declares one; and any "
            "settings: of all, local.lr=0.05, or of one algorithm, fedau.cutoff=10",
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--panels",
            metavar="NAME,NAME",
            help="Only these panels (default: all but the optional ones).",
            rich_help_panel=flags.SETTINGS,
        ),
    ] = None,
    algorithms: Annotated[
        str | None,
        typer.Option(metavar="NAME,NAME", help="Only these algorithms.", rich_help_panel=flags.SETTINGS),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="How many seeds, or which: 5 or 0,3,7 (default: as declared).",
            rich_help_panel=flags.SETTINGS,
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(metavar="N", help="Server steps to take (default: as declared).", rich_help_panel=flags.SETTINGS),
    ] = None,
    device: flags.Device = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            envvar="TURNOUT_DATA",
            metavar="FOLDER",
            help="Where data sets lie: turnout data list.",
            rich_help_panel=flags.SETTINGS,
        ),
    ] = None,
    jobs: flags.Jobs = None,
    threads: flags.ThreadsOfEach = 1,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where everything goes (default: runs/PAPER-NAME).", rich_help_panel=flags.OUTCOME),
    ] = None,
    report: flags.Report = True,
    checkpoint_every: flags.CheckpointEvery = None,
    quiet: flags.Quiet = False,
) -> None:
    """Run what a table or figure of a paper shows, and say which of the paper's claims hold.

    Prints the paper's figures beside medians and quartiles over seeds; writes report.html, results.csv and findings.json.
    Without a name, lists what can be reproduced.
    """
    if data_dir is not None:
        os.environ["TURNOUT_DATA"] = str(data_dir)  # so that processes that are started find them too
    if not names:
        show(_listing())
        return
    name, overrides = _name(names), [text for text in names if "=" in text]
    if name in DRAWN:
        _draw(name, [*overrides, only, algorithms, seeds, rounds], folder, quiet)
        return
    reproduction, some = _with(load(name), algorithms)
    target = folder or Path("runs") / reproduction.name.replace("/", "-")
    over = [flags.layer(seeds=seeds, rounds=rounds, device=device), *map(layers.override, overrides)]
    plans = panels.plans(reproduction, None if only is None else _listed(only), over)
    changes = panels.changes(reproduction, plans, overrides)
    changes += (f"only {', '.join(some)}",) if some else ()
    side_by_side = jobs_of(jobs, threads, [*chain.from_iterable(plan.settings.values() for plan in plans)])
    runs = _prepared(plans, target, checkpoint_every)
    _introduce(reproduction, plans, runs, quiet)

    def conclude(done: Mapping[Run, RunRecord], *failures: str) -> None:
        _conclude(_outcome(reproduction, plans, done, (*changes, *failures)), target, report)

    try:
        with watched(len(runs), quiet) as tell:
            conclude(perform_all(runs, target, jobs=side_by_side, threads=threads, progress=tell))
    except RunsFailed as failed:
        if failed.done:
            conclude(failed.done, f"{len(failed.failures)} of {len(runs)} runs failed")
        raise


def _with(reproduction: Reproduction, algorithms: str | None) -> tuple[Reproduction, list[str]]:
    """Return the reproduction with those algorithms alone that are asked for, and which these are; none is all."""
    if algorithms is None:
        return reproduction, []
    some = _listed(algorithms)
    if not some:
        raise ConfigurationError(f"algorithms: got {algorithms!r}, needed names: {','.join(reproduction.algorithms)}")
    return reproduction.narrowed(some), some


def _prepared(plans: Sequence[panels.Plan], folder: Path, checkpoint_every: int | None) -> list[Run]:
    """All runs, once nothing was refused and their folders have their settings."""
    panels.check(plans, folder)
    for plan in plans:
        plan.keep(folder)
    return [run for plan in plans for run in plan.runs(folder, checkpoint_every)]


def _introduce(reproduction: Reproduction, plans: Sequence[panels.Plan], runs: Sequence[Run], quiet: bool) -> None:
    """Say what is about to run."""
    if not quiet:
        say(f"{reproduction.title}. {reproduction.reference}")
        say(f"{counted(len(plans), 'panel')}, {counted(len(runs), 'run')}")


def _name(names: Sequence[str]) -> str:
    """Return the one thing to reproduce."""
    wanted = [name for name in names if "=" not in name]
    if len(wanted) != 1:
        said = f"got {' '.join(wanted)}" if wanted else "got settings only"
        raise ConfigurationError(f"name one reproduction, {said}: turnout reproduce {known()[0]}")
    return wanted[0]


def _listed(text: str) -> list[str]:
    """Names between commas."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _draw(name: str, settings: Sequence[object], folder: Path | None, quiet: bool) -> None:
    """Draw a figure that needs no runs, and takes no settings."""
    folder = folder or Path("runs") / name.replace("/", "-")
    if given := [setting for setting in settings if setting is not None]:
        raise ConfigurationError(f"{name} is computed without runs and has no settings: leave {given[0]} out")
    drawn = DRAWN[name]
    if not quiet:
        say(f"{drawn.title}. {drawn.reference}")
    figure, path = drawn.draw(), folder / f"{name.rpartition('/')[2]}.png"
    replace_files({path: lambda part: figure.savefig(part, dpi=150, format="png")})
    typer.echo(f"figure: {path}")


def _outcome(
    reproduction: Reproduction, plans: Sequence[panels.Plan], done: Mapping[Run, RunRecord], changes: tuple[str, ...]
) -> Outcome:
    """Return the runs that are finished, panel by panel."""
    as_run = {plan.panel.name: plan.panel for plan in plans}
    records = {plan.panel.name: [record for run, record in done.items() if run.group == plan.group] for plan in plans}
    return Outcome(replace(reproduction, panels={**reproduction.panels, **as_run}), records, changes)


def _conclude(outcome: Outcome, folder: Path, report: bool) -> None:
    """Print figures and findings, and write them into the folder."""
    show(tables.rich_table(outcome))
    warn_of_dropped(record for records in outcome.records.values() for record in records)
    if findings := outcome.findings():
        show(tables.rich_findings(findings))
    if outcome.changes:
        typer.echo(f"not as declared: {'; '.join(outcome.changes)}")
    results, plain = tables.csv(outcome), json.dumps(outcome.as_plain(), indent=2, ensure_ascii=False)
    replace_files(
        {
            folder / "results.csv": lambda part: part.write_text(results, encoding="utf-8"),
            folder / "findings.json": lambda part: part.write_text(plain, encoding="utf-8"),
        }
    )
    typer.echo(f"runs and tables: {folder}")
    if report:
        announce(lambda: write_outcome(outcome, folder / "report.html"))


def _listing() -> Table:
    """Return what can be reproduced, a line each."""
    table = Table(box=SIMPLE_HEAD)
    for column in ("name", "what it shows", "data"):
        table.add_column(column, no_wrap=column == "name")
    entries = {entry.name: entry for entry in inventory()}
    for name in known():
        reproduction = load(name)
        used = dict.fromkeys(_data_of(reproduction, panel) for panel in reproduction.chosen(None))
        data = [each if entries[each].path else f"{each} ({entries[each].remedy})" for each in used]
        table.add_row(Text(", ".join((name, *reproduction.also))), Text(reproduction.title), Text(", ".join(data)))
    for name, drawn in DRAWN.items():
        table.add_row(Text(name), Text(drawn.title), Text("none"))
    return table


def _data_of(reproduction: Reproduction, panel: Panel) -> str:
    """Return the data set of a panel."""
    given = [as_table("data", layer["data"]) for layer in (reproduction.common, panel.settings) if "data" in layer]
    return next((table["name"] for table in reversed(given) if "name" in table), "digits")
