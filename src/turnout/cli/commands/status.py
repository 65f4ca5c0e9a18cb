"""``turnout status``: what a server is doing, or how far the runs of a comparison are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from turnout.cli import flags
from turnout.cli.errors import guarded
from turnout.core.checks import ConfigurationError
from turnout.core.display import printable

EPILOG = r"""[bold]Examples[/bold]

turnout status http://127.0.0.1:8470

turnout status runs/compare-digits

turnout status https://federation.example --ca ca.pem --certificate mine.pem --key mine.key --json"""


@guarded
def status(
    url: Annotated[
        str, typer.Argument(metavar="URL|FOLDER", help="Where the server is, or the folder of a comparison or sweep.")
    ],
    ca: flags.Ca = None,
    certificate: flags.Certificate = None,
    key: flags.Key = None,
    plain: Annotated[bool, typer.Option("--json", help="All figures as JSON.")] = False,
) -> None:
    """Show who is there, who works, who is heard, what was dropped and why, and how good the model is; or how far runs are.

    The runs of a folder may be shared by several workers: the same command, started several times or as jobs of a cluster.
    """
    from rich.table import Table

    from turnout.cli.deployed import needs
    from turnout.cli.output import show
    from turnout.cli.status import heard_table, rows_of, table_of

    if Path(url).is_dir():
        from turnout.comparison.sharing import standings

        found = standings(Path(url))
        if plain:
            typer.echo(json.dumps([each._asdict() for each in found]))
        else:
            show(table_of(found))
        return
    needs("join", "httpx2")
    from turnout.deployment.client.join import Connection, fetch

    with Connection(url.rstrip("/"), ca, certificate, key, timeout=10.0).client() as http:
        answer = fetch(http, "/v1/status")
    figures = answer.table() if answer.status == 200 else {}
    if not figures:
        raise ConfigurationError(f"no status from {url}: {answer.headers.get('error') or answer.reason}")
    if plain:
        typer.echo(json.dumps(figures))
        return
    table = Table("figure", "value")
    try:
        for name, value in rows_of(figures):
            table.add_row(printable(name, 200), printable(value, 200))
        heard = heard_table(figures)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError):
        raise ConfigurationError(f"no status from {url}: what answers there is no turnout server") from None
    show(table)
    if heard is not None:
        show(heard)
