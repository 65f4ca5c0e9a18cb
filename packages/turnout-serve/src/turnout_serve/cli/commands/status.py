"""``turnout status``: show the status of a server, or the progress of a comparison."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from turnout.cli.command import argument, command, options, switch
from turnout.cli.console import show
from turnout.core.checks import CheckpointError, ConfigurationError
from turnout.core.display import printable
from turnout_serve.cli.administrator import AdministratorOptions
from turnout_serve.wire.words import WORDS

if TYPE_CHECKING:
    from turnout.comparison.sharing import Standing


_TITLES = {
    "participation": "contributions per step",
    "staleness": "mean staleness (steps)",
    "influence": "influence (fair share = 1)",
}
SHOWN = {0: "min", 1: "10 %", 5: "median", 9: "90 %", 10: "max"}
"""The deciles in `participation_table`."""


@options
class StatusOptions(AdministratorOptions):
    """Options of ``turnout status``."""

    run: str = argument("Folder of a server, comparison or sweep, or the address of a server.", "FOLDER|URL")
    plain: bool = switch("Print all figures as JSON.", "--json")


@command(StatusOptions, computes=False)
def status(options: StatusOptions) -> None:
    """Show connected and working clients, participation, dropped reports and metrics of a server; or the progress of runs.

    The runs of a folder may be divided among several workers: instances of the same command, or jobs of a cluster. A server
    needs the administrator's token, unless it was started with --public-status.

    Examples:
        turnout status runs/served
        turnout status runs/compare-digits
        turnout status https://federation.example --token admin.token --ca ca.pem --json
    """
    folder = Path(options.run)
    if folder.is_dir() and not _is_served(folder):
        from turnout.comparison.sharing import standings

        # The folder of a single run has no name in itself.
        runs = [_after_kill(run, folder / run.name) for run in standings(folder)]
        runs = [run._replace(name=folder.resolve().name) if run.name == "." else run for run in runs]
        if options.plain:
            typer.echo(json.dumps([run._asdict() for run in runs]))
        else:
            show(runs_table(runs))
        return
    figures = _fetched(options)
    if options.plain:
        typer.echo(json.dumps(figures))
        return
    table = Table("figure", "value")
    try:
        for name, value in rows_of(figures):
            table.add_row(printable(name, 200), printable(value, 200))
        participation = participation_table(figures)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError):
        raise ConfigurationError(f"no status from {options.run}: what answers there is no turnout server") from None
    show(table)
    show(participation)


def _is_served(folder: Path) -> bool:
    """Return whether a server is running in a folder."""
    from turnout.record import lock
    from turnout_serve.wire.administrator import ADDRESS_FILE

    return (folder / ADDRESS_FILE).is_file() and lock.in_use(folder)


def _after_kill(run: Standing, folder: Path) -> Standing:
    """Mark a run whose server was killed: its journal has entries behind the last checkpoint."""
    from turnout.comparison.folders import rounds_of

    if run.state not in ("stopped", "not begun") or not _is_behind(folder):
        return run
    return run._replace(state="stopped", rounds=rounds_of(folder), at_least=True)


def _is_behind(folder: Path) -> bool:
    """Return whether the journal in the folder of a server has entries behind the last checkpoint."""
    from turnout.record import checkpoint, contents
    from turnout_serve.wire.administrator import ADDRESS_FILE, JOURNAL_FILE

    path = folder / JOURNAL_FILE
    if not (folder / ADDRESS_FILE).is_file():
        return False
    contents.check_regular(path)
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as journal:
            (last,) = journal.execute("SELECT MAX(number) FROM journal").fetchone()
        return (last or 0) > (checkpoint.facts(folder)["journal"] if checkpoint.exists(folder) else 0)
    except (sqlite3.Error, CheckpointError):  # it is in PostgreSQL, or damaged
        return True


def _fetched(options: StatusOptions) -> dict[str, Any]:
    """Fetch the figures of a server."""
    from turnout_serve.client.calls import Call, bearer
    from turnout_serve.client.exchange import send

    connection, token = options.server(timeout=10.0)
    with connection.client() as http:
        answer = send(http, Call("GET", "/v1/status", headers={} if token is None else bearer(token)))
    figures = answer.table() if answer.status == 200 else {}
    if not figures:
        why = answer.reason
        if answer.status in (401, 403):
            why += ": give the folder of the server, or --token FILE with the token in its admin.token"
        raise ConfigurationError(f"no status from {options.run}: {why}")
    return figures


def runs_table(runs: Sequence[Standing]) -> Table:
    """Return a table with a row for each run, and the number of runs in each state in its title."""
    states = Counter(run.state for run in runs)
    title = f"{len(runs)} runs: " + ", ".join(f"{number} {state}" for state, number in states.items())
    table = Table("run", "state", "rounds", "where", title=title, title_justify="left")
    for run in runs:
        rounds = f"{run.done} of {run.rounds}" if run.rounds else ""
        if run.at_least:
            rounds = f"at least {rounds}, as of the last checkpoint"
        table.add_row(run.name, run.state, rounds, run.where)
    return table


def rows_of(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the titles and formatted values of a server's figures."""
    rows = [
        ("run", f"{figures['run']}: {figures['algorithm']}, {figures['pace']}, {figures['state']}"),
        ("steps", f"{figures['version']} of {figures['rounds']}"),
        ("clients", f"{figures['enrolled']} enrolled, {figures['there']} connected, {figures['at_work']} working"),
    ]
    rows += [(f"dropped: {WORDS.get(why, why)}", str(number)) for why, number in figures["dropped"].items()]
    rows += [(f"in no secure sum: client {client}", why) for client, why in figures.get("barred", {}).items()]
    if (unusual := figures.get("unusual")) is not None:
        norm = "infinite" if unusual["norm"] is None else f"{unusual['norm']:.3g}"
        rows.append((f"unusual: step {unusual['step']}", f"its update has norm {norm}, others {unusual['usual']:.3g}"))
    if (sums := figures.get("sums")) is not None:
        rows.append(("secure sums", f"{sums['opened']} of {sums['steps']} opened"))
    rows += _privacy(figures.get("privacy"))
    last = {name: points[-1][1] for name, points in figures["curves"].items() if points}
    rows += [
        (name.replace("_", " "), f"{value:.4g}" if isinstance(value, float) else str(value))
        for name, value in last.items()
    ]
    if (evaluation := figures.get("evaluation")) is not None:
        answered = f"{evaluation['answered']} of {evaluation['asked']} answered at {evaluation['version']}"
        rows.append(("evaluation", answered))
        for name, value in evaluation["figures"].items():
            rows.append((f"evaluation: {name.replace('_', ' ')}", f"{value:.4g}"))
    return rows if figures["healthy"] else [*rows, ("journal", "cannot be written")]


def _privacy(privacy: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return the privacy budget that a run with noise has spent."""
    if privacy is None:
        return []
    spent = "infinite" if privacy["epsilon"] is None else f"{privacy['epsilon']:.4g}"
    budget = "" if privacy.get("budget") is None else f", of {privacy['budget']:g}"
    rows = [("privacy", f"epsilon {spent} at delta {privacy['delta']:g}{budget}")]
    if "answers" in privacy:
        rows.append(("noised answers", f"{privacy['answers']} of {privacy['most_answers']}"))
    return rows


def participation_table(figures: dict[str, Any]) -> Table | None:
    """Return a table of distributions of participation over clients; None if the server does not publish any."""
    heard = figures.get("heard") or {}
    if not heard.get("deciles"):
        return None
    never = f"; {heard['never']:.1%} of clients never contributed" if "never" in heard else ""
    title = f"Participation of clients after {heard['version']:,d} steps{never}"
    table = Table("over clients", *SHOWN.values(), title=title, title_justify="left")
    for name, values in heard["deciles"].items():
        table.add_row(_TITLES[name], *(f"{values[level]:.3g}" for level in SHOWN))
    return table
