"""``turnout replay``: recompute the model of a server from its journal."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from turnout.cli.command import argument, command, option, options
from turnout.cli.errors import RunFailed
from turnout.cli.groups import CodeOption
from turnout.core.checks import ConfigurationError

if TYPE_CHECKING:
    from turnout.cli.options import Table
    from turnout.data import FederatedData
    from turnout_serve.server.journal.replay import Replayed


@options
class ReplayOptions(CodeOption):
    """Options of ``turnout replay``."""

    folder: Path = argument("The folder of a server.", "RUN")
    as_trace: Path | None = option(
        "Also write the availability of clients and the durations of tasks, for simulations.", "FOLDER"
    )
    receipts: int | None = option("Also list the reports of this client, and the steps that used them.", "CLIENT")
    head: str | None = option("Verify the head of the journal, which the server prints when it ends.", "DIGEST")
    seconds_per_round: float | None = option("Length of a round of --as-trace, if the pace has no rounds.", "SECONDS")
    database: str | None = option("Database of the journal, if it is not in the folder.", "URL")
    store: str | None = option("Object store of the models and reports, if they are not in the folder.", "URL")


@command(ReplayOptions)
def replay(options: ReplayOptions) -> None:
    """Recompute the model of a server from its journal, and compare it with the saved one bit for bit.

    Every entry of the journal is chained to the one before and to the report that it names. An entry or a report that was
    changed, removed or added is an error that names the entry.

    Examples:
        turnout replay runs/fedau-digits-served
        turnout replay runs/fedau-digits-served --receipts 3
        turnout replay runs/fedau-digits-served --as-trace traces/served
    """
    from turnout_serve.cli.deployed import settings_in
    from turnout_serve.server.journal.replay import replay as replay_journal
    from turnout_serve.server.run.served_experiment import ServedExperiment

    folder = options.folder
    experiment, settings = settings_in(folder, options.code or ())
    setting, whole = ServedExperiment.of(experiment).setting, options.as_trace is not None
    again = replay_journal(setting, folder, options.database, options.store, whole, options.receipts)
    version, digest = again.driver.version, again.driver.publication.digest
    if again.begins:
        typer.echo(f"from step {again.begins} on, the oldest that the server has kept (--keep-reports)")
    typer.echo(f"{again.entries:,} entries, {version} steps, {again.seconds:,.1f} seconds, model {digest}")
    if options.as_trace is not None:
        table = {} if settings is None else settings.table
        _write_trace(again, options.as_trace, options.seconds_per_round, table, experiment.data)
    if options.receipts is not None:
        _tell_receipts(again, options.receipts)
    if again.same is False:
        raise RunFailed(f"the journal leads to another model than the one that {folder} holds after step {version}")
    _tell_chain(again, options.head)
    typer.echo(
        "there is no checkpoint to compare with"
        if again.same is None
        else "the same model as in the checkpoint, bit for bit"
    )


def _tell_chain(again: Replayed, head: str | None) -> None:
    """Print the head of the journal and the entries that it is evidence for.

    Args:
        again: the replayed run.
        head: head that the server printed; None where it is not known.

    Raises:
        RunFailed: if it is not the head of this journal.
    """
    if head is not None and head != again.head:
        last, found = again.driver.applied, again.head or "none"
        raise RunFailed(
            f"head: got {head}, but that of this journal is {found}, after entry {last:,}: it is another journal"
        )
    if again.chained is None:
        typer.echo("the entries are not chained: an earlier version wrote them, and a change of one can stay unnoticed")
        return
    since = f" from entry {again.chained:,} on, the first of this version" if again.chained > again.first else ""
    typer.echo(f"every entry and report is as the server wrote it{since}; head {again.head}")


def _tell_receipts(again: Replayed, client: int) -> None:
    """Print what became of the reports of a client."""
    if not 0 <= client < again.driver.roster.num_clients:
        raise ConfigurationError(f"receipts: got {client}, needed a client below {again.driver.roster.num_clients}")
    counted = sum(receipt.step is not None for receipt in again.receipts)
    typer.echo(f"client {client}: {len(again.receipts)} reports, {counted} of them in a server step")
    for receipt in again.receipts:
        typer.echo(f"  {receipt}")


def _write_trace(
    again: Replayed, folder: Path, seconds_per_round: float | None, table: Table, data: FederatedData
) -> None:
    """Write the recorded availability and speed of clients to a folder, with settings for a simulation.

    Args:
        again: the replayed run.
        folder: folder of the files.
        seconds_per_round: length of a round of availability; see `write_trace`.
        table: settings of the run.
        data: data of the server.
    """
    from turnout.record.storage import replace_files
    from turnout_serve.server.journal.trace import write_trace

    # Beside the shape of declared data, settings may name a data set, which a simulation can load.
    names_data = table.get("data", {}).get("name", "declared") != "declared"
    here = data.num_clients
    if data.is_declared:
        here = table["data"].get("num_clients", 0) if names_data else 0
    paths, recorded = write_trace(again, folder, seconds_per_round, here)
    config = folder / "simulation.json"
    simulated = table | recorded | {"population": table.get("population", {}) | recorded["population"]}
    lacks_data = not here and not names_data
    number = again.driver.roster.num_clients
    if lacks_data:
        simulated.pop("data", None)
    elif 0 < here < number:
        simulated["data"] = simulated.get("data", {}) | {"num_clients": number}
    text = json.dumps(simulated, indent=2) + "\n"
    replace_files({config: partial(Path.write_text, data=text, encoding="utf-8")})
    for path in (*paths, config):
        typer.echo(str(path))
    command = f"turnout run --config {config}"
    if lacks_data:
        typer.echo(f"the server had no data: simulate it with others: {command} --data NAME data.num_clients={number}")
    else:
        typer.echo(f"simulate it: {command}")
