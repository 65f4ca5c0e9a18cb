"""``turnout sweep``: a grid or a search over any settings, and the best point of it."""

from __future__ import annotations

import typer

from turnout.cli.command import command, examples
from turnout.cli.runs_options import SweepOptions

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


@command(SweepOptions, EPILOG)
def sweep(options: SweepOptions) -> None:
    """Run every combination of some settings, or as many as --trials says, over several seeds, and tell the best.

    With one seed, all combinations see the same clients, data, start and participation.
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
