"""``turnout reproduce``: reproduce a table or figure of a paper, and compare with the paper's figures."""

from __future__ import annotations

import os

from turnout.cli.command import command
from turnout.cli.console import show
from turnout.workbench.reproduction.options import ReproduceOptions


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
    from turnout.workbench.reproduction.reading import load
    from turnout.workbench.reproduction.running import declarations_table, draw, name_among, run_panels

    if options.data_dir is not None:
        os.environ["TURNOUT_DATA"] = str(options.data_dir)  # also for child processes
    if not options.names:
        show(declarations_table(options.declarations))
        return
    overrides = [text for text in options.names if "=" in text]
    declared = load(name_among(options.names), options.declarations)
    if declared.is_computed:
        settings = [*overrides, options.only, options.algorithms, options.seeds, options.rounds]
        draw(declared, settings, options.folder, options.quiet)
    else:
        run_panels(declared, options, overrides)
