"""``turnout sweep``: search over settings by a grid or by trials."""

from __future__ import annotations

import typer

from turnout.cli.command import command
from turnout.cli.runs_options import SweepOptions


@command(SweepOptions)
def sweep(options: SweepOptions) -> None:
    """Run combinations of settings over several seeds, all of them or as many as --trials, and report the best.

    For each seed, all combinations have the same clients, data, initial model and participation.

    Examples:
        turnout sweep --algorithm fedau --grid local.lr=0.05,0.1,0.2 --grid algorithm.server_lr=1,3 --rounds 300
        turnout sweep --algorithm folb --grid local.lr=0.01,0.03 --grid also.prox.mu=0.001,0.1 --to-accuracy 0.7
        turnout sweep --grid algorithm=fedau,mifa --grid local.lr=0.05,0.1 --metric train_loss --seeds 100,101
        turnout sweep --algorithm fedavg --grid 'model.hidden=[64],[64,30]' model.dropout=0.1
        turnout sweep --algorithm fedau --grid local.lr=0.001..1:log --grid local.steps=1..20 --trials 30

    Commas separate the values of an axis; a value that is a list needs brackets. LOW..HIGH is a range for --trials, of
    integers if both ends are, and with the suffix :log on a logarithmic scale. In a file: [grid] local.lr = [0.05, 0.1]
    or "0.001..1:log". The same command resumes where it was stopped, and adds trials for a larger --trials.
    """
    from turnout.cli.print_config import toml
    from turnout.cli.sweep import SweepPlan

    plan = SweepPlan.of(options)
    if options.print_config:
        typer.echo(toml(plan.file()), nl=False)
    elif options.dry_run:
        plan.foresee()
    elif options.trials is None:
        plan.run_grid()
    else:
        plan.run_trials(options.trials)
