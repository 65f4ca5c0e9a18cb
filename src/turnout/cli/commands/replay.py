"""``turnout replay``: a deployment once more, from its journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from turnout.cli import flags
from turnout.cli.errors import RunFailed, guarded

EPILOG = r"""[bold]Examples[/bold]

turnout replay runs/fedau-digits-served

turnout replay runs/fedau-digits-served --as-trace traces/served"""


@guarded
def replay(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a server.")],
    as_trace: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Also write who was there when, and how long tasks took, for simulations."),
    ] = None,
    seconds_per_round: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Length of a round of that trace, where the pace has no rounds."),
    ] = None,
    database: Annotated[
        str | None, typer.Option(metavar="URL", help="Where its journal is, if not in the folder.")
    ] = None,
    code: flags.Code = None,
) -> None:
    """Recompute a deployment's model from its journal, and hold it against the one that was saved, bit for bit."""
    from turnout.cli.deployed import needs, settings_in
    from turnout.cli.replay import with_recorded

    needs("serve", "sqlalchemy")
    from turnout.deployment.server.replay import replay as again
    from turnout.deployment.server.replay import write_trace
    from turnout.deployment.server.setting import Setting

    experiment, settings = settings_in(folder, code or ())
    found = again(Setting.of(experiment), folder, database, whole=as_trace is not None)
    version = found.driver.version
    if found.begins:
        typer.echo(f"from step {found.begins} on, the oldest that the server has kept (--keep-reports)")
    typer.echo(f"{found.entries:,} entries, {version} steps, {found.seconds:,.1f} seconds, model {found.driver.digest}")
    if as_trace is not None:
        tables, population = write_trace(found, as_trace, seconds_per_round)
        config = as_trace / "simulation.json"
        config.write_text(
            json.dumps(with_recorded({} if settings is None else settings.table, population), indent=2) + "\n"
        )
        for path in (*tables, config):
            typer.echo(str(path))
        typer.echo(f"simulate it: turnout run --config {config}")
    if found.same is False:
        raise RunFailed(f"the journal leads to another model than the one that {folder} holds after step {version}")
    typer.echo(
        "the same model as in the checkpoint, bit for bit" if found.same else "there is no checkpoint to compare with"
    )
