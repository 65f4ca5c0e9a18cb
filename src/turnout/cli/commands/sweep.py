"""``turnout sweep``: a grid or a search over any settings, and the best point of it."""

from __future__ import annotations

from pathlib import Path

import typer

from turnout.cli.command import command, examples, option, options
from turnout.cli.groups import (
    AlgorithmOption,
    ExperimentOptions,
    PreviewOptions,
    RunsOptions,
    folder_option,
    seeds_option,
    settings_argument,
)

SEARCH = "Search"
EPILOG = examples(
    """
turnout sweep --algorithm fedau --grid local.lr=0.05,0.1,0.2 --grid algorithm.server_lr=1,3 --rounds 300
turnout sweep --algorithm folb --grid local.lr=0.01,0.03 --grid also.prox.mu=0.001,0.1 --to-accuracy 0.7
turnout sweep --grid algorithm=fedau,mifa --grid local.lr=0.05,0.1 --metric train_loss --seeds 100,101
turnout sweep --algorithm fedavg --grid 'model.hidden=[64],[64,30]' model.dropout=0.1
turnout sweep --algorithm fedau --grid local.lr=0.001..1:log --grid local.steps=1..20 --trials 30
""",
    "A comma separates values of the grid; a value that is a list has brackets. Without --grid, model.hidden=64,30 is one "
    "list, as everywhere. LOW..HIGH is a range, for --trials: whole numbers where both ends are, and with :log behind it as "
    'many from 0.01 to 0.1 as from 0.1 to 1. In a file: [grid] local.lr = [0.05, 0.1] or "0.001..1:log". The same command '
    "goes on where it was stopped, and with more --trials it adds to them.",
)


@options
class SearchOptions:
    """Options that say what is tried, and what decides."""

    grid: list[str] | None = option(
        "A setting, and the values to try or, with --trials, a range LOW..HIGH; once for each axis.",
        "KEY=VALUE,VALUE", None, "--grid", "-g",
    )  # fmt: skip
    metric: str | None = option(
        "What decides: the mean over seeds of where this ends, validation_accuracy (default with data.validation_fraction), "
        "test_accuracy (otherwise) or train_loss, or a measure such as 'average train_loss'. Choosing by test accuracy "
        "spends the test on it.",
        "NAME",
    )
    to_accuracy: float | None = option("Let the rounds until this accuracy decide (their median), e.g. 0.8.", "SHARE")
    trials: int | None = option("Try so many combinations, which Optuna proposes (default: all).", "N", panel=SEARCH)
    sampler: str = option("tpe learns from the trials before; random does not.", "NAME", "tpe", panel=SEARCH)
    sampler_seed: int = option("Of the sampler.", "SEED", 0, panel=SEARCH)
    trials_at_once: int = option(
        "Trials that are proposed together and run side by side. Which they are depends on it, not on --jobs.",
        "N", 4, panel=SEARCH,
    )  # fmt: skip


@options
class SweepOptions(SearchOptions, PreviewOptions, RunsOptions, ExperimentOptions, AlgorithmOption):
    """Options of ``turnout sweep``."""

    overrides: list[str] | None = settings_argument()
    seeds: str | None = seeds_option()
    folder: Path | None = folder_option("runs/CONFIG, or runs/sweep-DATA")


@command(SweepOptions, EPILOG)
def sweep(options: SweepOptions) -> None:
    """Run every combination of some settings, or as many as --trials says, over several seeds, and tell the best.

    With one seed, all combinations see the same clients, data, start and participation.
    """
    from turnout.cli.sweep import Plan
    from turnout.cli.toml import toml

    plan = Plan.of(options)
    if options.print_config:
        typer.echo(toml(plan.file()), nl=False)
    elif options.dry_run:
        plan.foresee()
    elif options.trials is None:
        plan.run_grid()
    else:
        plan.run_trials(options.trials)
