"""``turnout sweep``: a grid or a search over any settings, and the best point of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from turnout.cli import flags
from turnout.cli.errors import guarded
from turnout.cli.groups import VariantsOptions, takes

SEARCH = "Search"
EPILOG = r"""[bold]Examples[/bold]

turnout sweep --algorithm fedau --grid local.lr=0.05,0.1,0.2 --grid algorithm.server_lr=1,3 --rounds 300

turnout sweep --algorithm folb --grid local.lr=0.01,0.03 --grid also.prox.mu=0.001,0.1 --to-accuracy 0.7

turnout sweep --grid algorithm=fedau,mifa --grid local.lr=0.05,0.1 --metric train_loss --seeds 100,101

turnout sweep --algorithm fedavg --grid 'model.hidden=[64],[64,30]' model.dropout=0.1

turnout sweep --algorithm fedau --grid local.lr=0.001..1:log --grid local.steps=1..20 --trials 30

A comma separates values of the grid; a value that is a list has brackets. Without --grid, model.hidden=64,30 is one list,
as everywhere. LOW..HIGH is a range, for --trials: whole numbers where both ends are, and with :log behind it as many from
0.01 to 0.1 as from 0.1 to 1. In a file: [grid] local.lr = [0.05, 0.1] or "0.001..1:log". The same command goes on where it
was stopped, and with more --trials it adds to them."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options that say what is tried, and what decides."""

    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            "-g",
            metavar="KEY=VALUE,VALUE",
            help="A setting, and the values to try or, with --trials, a range LOW..HIGH; once for each axis.",
        ),
    ] = None
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What decides: the mean over seeds of where this ends, validation_accuracy (default with "
            "data.validation_fraction), test_accuracy (otherwise) or train_loss, or a measure such as 'average train_loss'. "
            "Choosing by test accuracy spends the test on it.",
        ),
    ] = None
    to_accuracy: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Let the rounds until this accuracy decide (their median), e.g. 0.8."),
    ] = None
    trials: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Try so many combinations, which Optuna proposes (default: all).", rich_help_panel=SEARCH
        ),
    ] = None
    sampler: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="tpe learns from the trials before; random does not.", rich_help_panel=SEARCH
        ),
    ] = "tpe"
    sampler_seed: Annotated[int, typer.Option(metavar="SEED", help="Of the sampler.", rich_help_panel=SEARCH)] = 0
    trials_at_once: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Trials that are proposed together and run side by side. Which they are depends on it, not on --jobs.",
            rich_help_panel=SEARCH,
        ),
    ] = 4


@dataclass(frozen=True, kw_only=True)
class SweepOptions(VariantsOptions, SearchOptions):
    """Options of ``turnout sweep``."""

    overrides: flags.Overrides = None
    seeds: flags.Seeds = None
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Where everything goes (default: runs/CONFIG, or runs/sweep-DATA).", rich_help_panel=flags.OUTCOME
        ),
    ] = None
    print_config: flags.PrintConfig = False
    dry_run: flags.DryRun = False


@guarded
@takes(SweepOptions)
def sweep(options: SweepOptions) -> None:
    """Run every combination of some settings, or as many as --trials says, over several seeds, and tell the best.

    With one seed, all combinations see the same clients, data, start and participation.
    """
    from turnout.cli import layers
    from turnout.cli.sweep import Asked, foresee, grid_of, is_validated, run_grid, run_trials
    from turnout.cli.toml import toml
    from turnout.cli.variants import Layers, seeds_of
    from turnout.comparison.sweep import measure_of

    under = options.layers(seeds=options.seeds, to_accuracy=options.to_accuracy)
    under += map(layers.override, options.overrides or ())
    axes = grid_of([layer.pop("grid", {}) for layer in under], options.grid or ())
    found = Layers.of(under)
    seeds = seeds_of(3 if found.seeds is None else found.seeds)
    measure = measure_of(options.metric, found.to_accuracy, is_validated(under))
    asked = Asked(options, under, axes, seeds, measure, found.to_accuracy)
    if options.print_config:
        typer.echo(toml(asked.file()), nl=False)
    elif options.dry_run:
        foresee(asked, options.trials)
    elif options.trials is None:
        run_grid(asked)
    else:
        run_trials(asked, options.trials, options.sampler, options.sampler_seed, options.trials_at_once)
