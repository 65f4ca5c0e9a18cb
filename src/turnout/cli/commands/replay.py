"""``turnout replay``: recompute a deployment from its journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from turnout.cli.command import argument, command, examples, option, options
from turnout.cli.errors import RunFailed
from turnout.cli.groups import CodeOption, needs

if TYPE_CHECKING:
    from turnout.cli.settings import Settings
    from turnout.deployment.server.replay import Replayed

EPILOG = examples("""
turnout replay runs/fedau-digits-served
turnout replay runs/fedau-digits-served --as-trace traces/served
""")


@options
class ReplayOptions(CodeOption):
    """Options of ``turnout replay``."""

    folder: Path = argument("The folder of a server.", "RUN")
    as_trace: Path | None = option("Also write who was there when, and how long tasks took, for simulations.", "FOLDER")
    seconds_per_round: float | None = option(
        "Length of a round of that trace, where the pace has no rounds.", "SECONDS"
    )
    database: str | None = option("Where its journal is, if not in the folder.", "URL")


@command(ReplayOptions, EPILOG)
def replay(options: ReplayOptions) -> None:
    """Recompute a deployment's model from its journal, and hold it against the one that was saved, bit for bit."""
    from turnout.cli.deployed import settings_in

    needs("serve", "sqlalchemy")
    from turnout.deployment.server.replay import replay as replay_journal
    from turnout.deployment.server.setting import Setting

    folder = options.folder
    experiment, settings = settings_in(folder, options.code or ())
    again = replay_journal(Setting.of(experiment), folder, options.database, whole=options.as_trace is not None)
    version = again.driver.version
    if again.begins:
        typer.echo(f"from step {again.begins} on, the oldest that the server has kept (--keep-reports)")
    typer.echo(f"{again.entries:,} entries, {version} steps, {again.seconds:,.1f} seconds, model {again.driver.digest}")
    if options.as_trace is not None:
        _write_trace(again, options.as_trace, options.seconds_per_round, settings)
    if again.same is False:
        raise RunFailed(f"the journal leads to another model than the one that {folder} holds after step {version}")
    typer.echo(
        "the same model as in the checkpoint, bit for bit" if again.same else "there is no checkpoint to compare with"
    )


def _write_trace(again: Replayed, folder: Path, seconds_per_round: float | None, settings: Settings | None) -> None:
    """Write the recorded clients into a folder, with settings of a simulation in which they take part."""
    from turnout.deployment.server.replay import write_trace

    paths, recorded = write_trace(again, folder, seconds_per_round)
    table, config = {} if settings is None else settings.table, folder / "simulation.json"
    simulated = table | recorded | {"population": table.get("population", {}) | recorded["population"]}
    config.write_text(json.dumps(simulated, indent=2) + "\n")
    for path in (*paths, config):
        typer.echo(str(path))
    typer.echo(f"simulate it: turnout run --config {config}")
