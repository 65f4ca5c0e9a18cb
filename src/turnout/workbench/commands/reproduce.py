"""``turnout reproduce``: reproduce a table or figure of a paper, and compare with the paper's figures."""

from __future__ import annotations

import os
from pathlib import Path

from turnout.cli.command import argument, command, option, options
from turnout.cli.console import show
from turnout.cli.groups import SETTINGS, DeviceOption, folder_option, seeds_option
from turnout.cli.runs_options import RunsOptions


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
    declarations: Path | None = option(
        "Folder of the declarations PAPER/NAME.toml (default: reproductions, or the package's).",
        "FOLDER",
        panel=SETTINGS,
    )
    data_dir: Path | None = option(
        "Data directory: turnout data list.", "FOLDER", panel=SETTINGS, envvar="TURNOUT_DATA"
    )
    folder: Path | None = folder_option("runs/PAPER-NAME")


@command(ReproduceOptions)
def reproduce(options: ReproduceOptions) -> None:
    """Reproduce a table or figure of a paper, and check the paper's claims.

    Prints the paper's figures beside medians and quartiles over seeds; writes report.html, results.csv and findings.json.
    Without a name, lists all declarations.

    Examples:
        turnout reproduce
        turnout reproduce fedau/digits
        turnout reproduce folb/table-1 --panels synthetic_iid,synthetic_1_1 --jobs 2
        turnout reproduce fedstaleweight/figure-2 --algorithms fedstaleweight,fedbuff
        turnout reproduce folb/table-1 --seeds 3 --rounds 50 local.lr=0.03 fedprox.mu=0.1
        turnout reproduce fedau/fashion-mnist --data-dir /data --rounds 2000 --seeds 5

    The same command resumes where it was stopped, and does not repeat finished runs.
    """
    from turnout.workbench.reproduction.declaration import Drawing
    from turnout.workbench.reproduction.reading import load
    from turnout.workbench.reproduction.running import declarations_table, draw, name_among, run_panels

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
    else:
        run_panels(declared, options, overrides)
