"""``turnout reproduce``: run the declaration of a paper's table or figure, and compare with the paper's figures."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from turnout.cli import flags
from turnout.cli.errors import guarded
from turnout.cli.groups import RunsOptions, takes

EPILOG = r"""[bold]Examples[/bold]

turnout reproduce

turnout reproduce fedau/digits

turnout reproduce folb/table-1 --panels synthetic_iid,synthetic_1_1 --jobs 2

turnout reproduce fedstaleweight/figure-2 --algorithms fedstaleweight,fedbuff

turnout reproduce folb/table-1 --seeds 3 --rounds 50 local.lr=0.03 fedprox.mu=0.1

turnout reproduce fedau/fashion-mnist --data-dir /data --rounds 2000 --seeds 5

The same command goes on where it was stopped, and does not repeat what is finished."""


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions(RunsOptions):
    """Options of ``turnout reproduce``."""

    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PAPER/NAME|KEY=VALUE",
            help="The declaration to run (without: a list of those there are), or a TOML file that declares one; and any "
            "settings: of all, local.lr=0.05, or of one algorithm, fedau.cutoff=10",
            show_default=False,
        ),
    ] = None
    only: Annotated[
        str | None,
        typer.Option(
            "--panels",
            metavar="NAME,NAME",
            help="Only these panels (default: all but the optional ones).",
            rich_help_panel=flags.SETTINGS,
        ),
    ] = None
    algorithms: Annotated[
        str | None,
        typer.Option(metavar="NAME,NAME", help="Only these algorithms.", rich_help_panel=flags.SETTINGS),
    ] = None
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="How many seeds, or which: 5 or 0,3,7 (default: as declared).",
            rich_help_panel=flags.SETTINGS,
        ),
    ] = None
    rounds: Annotated[
        int | None,
        typer.Option(metavar="N", help="Server steps to take (default: as declared).", rich_help_panel=flags.SETTINGS),
    ] = None
    declarations: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER",
            help="Where declarations lie, as PAPER/NAME.toml.",
            rich_help_panel=flags.SETTINGS,
        ),
    ] = Path("reproductions")
    device: flags.Device = None
    data_dir: Annotated[
        Path | None,
        typer.Option(
            envvar="TURNOUT_DATA",
            metavar="FOLDER",
            help="Where data sets lie: turnout data list.",
            rich_help_panel=flags.SETTINGS,
        ),
    ] = None
    folder: Annotated[
        Path | None,
        typer.Option(help="Where everything goes (default: runs/PAPER-NAME).", rich_help_panel=flags.OUTCOME),
    ] = None


@guarded
@takes(ReproduceOptions)
def reproduce(options: ReproduceOptions) -> None:
    """Run what a table or figure of a paper shows, and say which of the paper's claims hold.

    Prints the paper's figures beside medians and quartiles over seeds; writes report.html, results.csv and findings.json.
    Without a name, lists what can be reproduced.
    """
    from turnout.cli import layers, panels
    from turnout.cli.output import show, watched
    from turnout.cli.reproduce import (
        draw,
        introduce,
        listed,
        listed_all,
        name_among,
        outcome_of,
        prepared,
        report_outcome,
        with_algorithms,
    )
    from turnout.comparison import RunsFailed
    from turnout.comparison.compare import perform_all
    from turnout.comparison.reproduction import Drawing, load
    from turnout.comparison.run import Run
    from turnout.reporting import RunRecord

    if options.data_dir is not None:
        os.environ["TURNOUT_DATA"] = str(options.data_dir)  # so that processes that are started find them too
    if not options.names:
        show(listed_all(options.declarations))
        return
    overrides = [text for text in options.names if "=" in text]
    declared = load(name_among(options.names), options.declarations)
    if isinstance(declared, Drawing):
        settings = [*overrides, options.only, options.algorithms, options.seeds, options.rounds]
        draw(declared, settings, options.folder, options.quiet)
        return
    reproduction, some = with_algorithms(declared, options.algorithms)
    target = options.folder or Path("runs") / reproduction.name.replace("/", "-")
    given = flags.layer(seeds=options.seeds, rounds=options.rounds, device=options.device)
    over = [given, *map(layers.override, overrides)]
    plans = panels.plans(reproduction, None if options.only is None else listed(options.only), over)
    changes = panels.changes(reproduction, plans, overrides)
    changes += (f"only {', '.join(some)}",) if some else ()
    at_once = options.at_once(chain.from_iterable(plan.settings.values() for plan in plans))
    runs = prepared(plans, target, options.checkpoint_every)
    introduce(reproduction, plans, runs, options.quiet)

    def conclude(done: Mapping[Run, RunRecord], *failures: str) -> None:
        outcome = outcome_of(reproduction, plans, done, (*changes, *failures))
        report_outcome(outcome, list(done), target, options.report)

    try:
        with options.resources(at_once, target) as resources, watched(len(runs), options.quiet) as tell:
            conclude(perform_all(runs, target, resources, tell))
    except RunsFailed as failed:
        if failed.done:
            conclude(failed.done, f"{len(failed.failures)} of {len(runs)} runs failed")
        raise
