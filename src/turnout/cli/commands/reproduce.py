"""``turnout reproduce``: reproduce a table or figure of a paper, and compare with the paper's figures."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from turnout.cli.command import argument, command, examples, option, options
from turnout.cli.console import say, show
from turnout.cli.groups import SETTINGS, DeviceOption, folder_option, layer, seeds_option
from turnout.cli.runs_options import RunsOptions
from turnout.core.checks import counted

if TYPE_CHECKING:
    from turnout.comparison.run import Run
    from turnout.reporting.records import RunRecord

EPILOG = examples(
    """
turnout reproduce
turnout reproduce fedau/digits
turnout reproduce folb/table-1 --panels synthetic_iid,synthetic_1_1 --jobs 2
turnout reproduce fedstaleweight/figure-2 --algorithms fedstaleweight,fedbuff
turnout reproduce folb/table-1 --seeds 3 --rounds 50 local.lr=0.03 fedprox.mu=0.1
turnout reproduce fedau/fashion-mnist --data-dir /data --rounds 2000 --seeds 5
""",
    "The same command resumes where it was stopped, and does not repeat finished runs.",
)


@options
class ReproduceOptions(DeviceOption, RunsOptions):
    """Options of ``turnout reproduce``."""

    names: list[str] | None = argument(
        "A declaration by its name or TOML file (default: list all), and settings of all algorithms, local.lr=0.05, or of "
        "one, fedau.cutoff=10",
        "PAPER/NAME|KEY=VALUE", None,
    )  # fmt: skip
    only: str | None = option(
        "Run only these panels (default: all but the optional ones).", "NAME,NAME", None, "--panels", panel=SETTINGS
    )
    algorithms: str | None = option("Run only these algorithms.", "NAME,NAME", panel=SETTINGS)
    seeds: str | None = seeds_option("as declared")
    rounds: int | None = option("Number of server steps (default: as declared).", "N", panel=SETTINGS)
    declarations: Path = option(
        "Folder of the declarations PAPER/NAME.toml.", "FOLDER", Path("reproductions"), panel=SETTINGS
    )
    data_dir: Path | None = option(
        "Data directory: turnout data list.", "FOLDER", panel=SETTINGS, envvar="TURNOUT_DATA"
    )
    folder: Path | None = folder_option("runs/PAPER-NAME")


@command(ReproduceOptions, EPILOG)
def reproduce(options: ReproduceOptions) -> None:
    """Reproduce a table or figure of a paper, and check the paper's claims.

    Prints the paper's figures beside medians and quartiles over seeds; writes report.html, results.csv and findings.json.
    Without a name, lists all declarations.
    """
    from turnout.cli import layers, panels
    from turnout.cli.reproduce import (
        declarations_table,
        draw,
        listed,
        name_among,
        outcome_of,
        report_outcome,
        with_algorithms,
    )
    from turnout.cli.runs import perform
    from turnout.comparison.reproduction.declaration import Drawing
    from turnout.comparison.reproduction.reading import load

    if options.data_dir is not None:
        os.environ["TURNOUT_DATA"] = str(options.data_dir)  # also for child processes
    if not options.names:
        show(declarations_table(options.declarations))
        return
    overrides = [text for text in options.names if "=" in text]
    declared = load(name_among(options.names), options.declarations)
    if isinstance(declared, Drawing):
        settings = [*overrides, options.only, options.algorithms, options.seeds, options.rounds]
        draw(declared, settings, options.folder, options.quiet)
        return
    reproduction, chosen = with_algorithms(declared, options.algorithms)
    target = options.folder or Path("runs") / reproduction.name.replace("/", "-")
    flags = layer(seeds=options.seeds, rounds=options.rounds, device=options.device_of_runs())
    over = [flags, *map(layers.override, overrides)]
    plans = panels.plans(reproduction, None if options.only is None else listed(options.only), over, target)
    changes = panels.changes(reproduction, plans, overrides)
    changes += (f"only {', '.join(chosen)}",) if chosen else ()
    settings = chain.from_iterable(plan.settings.values() for plan in plans)
    resources = options.resources(settings, options.device)
    panels.check(plans)
    runs = [run for plan in plans for run in plan.runs(options.checkpoint_every)]
    if not options.quiet:
        say(f"{reproduction.title}. {reproduction.reference}")
        say(f"{counted(len(plans), 'panel')}, {counted(len(runs), 'run')}")

    def conclude(done: Mapping[Run, RunRecord], *failures: str) -> None:
        outcome = outcome_of(reproduction, plans, done, (*changes, *failures))
        report_outcome(outcome, list(done), target, options.report)

    perform(options, runs, target, resources, conclude)
