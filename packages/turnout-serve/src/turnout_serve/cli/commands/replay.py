"""``turnout replay``: recompute the model of a server from its journal."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from turnout.cli.command import argument, command, examples, option, options
from turnout.cli.errors import RunFailed
from turnout.cli.groups import CodeOption

if TYPE_CHECKING:
    from turnout.cli.options import Table
    from turnout_serve.server.journal.replay import Replayed

EPILOG = examples("""
turnout replay runs/fedau-digits-served
turnout replay runs/fedau-digits-served --as-trace traces/served
""")


@options
class ReplayOptions(CodeOption):
    """Options of ``turnout replay``."""

    folder: Path = argument("The folder of a server.", "RUN")
    as_trace: Path | None = option(
        "Also write the availability of clients and the durations of tasks, for simulations.", "FOLDER"
    )
    seconds_per_round: float | None = option("Length of a round of that trace, if the pace has no rounds.", "SECONDS")
    database: str | None = option("Database of the journal, if it is not in the folder.", "URL")
    store: str | None = option("Object store of the models and reports, if they are not in the folder.", "URL")


@command(ReplayOptions, EPILOG)
def replay(options: ReplayOptions) -> None:
    """Recompute the model of a server from its journal, and compare it with the saved one bit for bit."""
    from turnout_serve.cli.deployed import settings_in
    from turnout_serve.server.journal.replay import replay as replay_journal
    from turnout_serve.server.run.served_experiment import ServedExperiment

    folder = options.folder
    experiment, settings = settings_in(folder, options.code or ())
    again = replay_journal(
        ServedExperiment.of(experiment).setting, folder, options.database, options.store, options.as_trace is not None
    )
    version, digest = again.driver.version, again.driver.publication.digest
    if again.begins:
        typer.echo(f"from step {again.begins} on, the oldest that the server has kept (--keep-reports)")
    typer.echo(f"{again.entries:,} entries, {version} steps, {again.seconds:,.1f} seconds, model {digest}")
    if options.as_trace is not None:
        table = {} if settings is None else settings.table
        _write_trace(again, options.as_trace, options.seconds_per_round, table, experiment.data.is_declared)
    if again.same is False:
        raise RunFailed(f"the journal leads to another model than the one that {folder} holds after step {version}")
    typer.echo(
        "the same model as in the checkpoint, bit for bit" if again.same else "there is no checkpoint to compare with"
    )


def _write_trace(
    again: Replayed, folder: Path, seconds_per_round: float | None, table: Table, is_declared: bool
) -> None:
    """Write the recorded availability and speed of clients to a folder, with settings for a simulation.

    Args:
        again: the replayed run.
        folder: folder of the files.
        seconds_per_round: length of a round of availability; see `write_trace`.
        table: settings of the run.
        is_declared: True if the server had no data and knew their shape.
    """
    from turnout.record.storage import replace_files
    from turnout_serve.server.journal.replay import write_trace

    paths, recorded = write_trace(again, folder, seconds_per_round)
    config = folder / "simulation.json"
    simulated = table | recorded | {"population": table.get("population", {}) | recorded["population"]}
    # Beside the shape, settings may name a data set, which a simulation can load.
    lacks_data = is_declared and table.get("data", {}).get("name", "declared") == "declared"
    if lacks_data:
        simulated.pop("data", None)
    text = json.dumps(simulated, indent=2) + "\n"
    replace_files({config: partial(Path.write_text, data=text, encoding="utf-8")})
    for path in (*paths, config):
        typer.echo(str(path))
    command = f"turnout run --config {config}"
    if lacks_data:
        number = again.driver.roster.num_clients
        typer.echo(f"the server had no data: simulate it with others: {command} --data NAME data.num_clients={number}")
    else:
        typer.echo(f"simulate it: {command}")
