"""``turnout status``: what a server is at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.errors import guarded
from turnout.core.checks import ConfigurationError

EPILOG = r"""[bold]Examples[/bold]

turnout status http://127.0.0.1:8470

turnout status https://federation.example --ca ca.pem --json"""


@guarded
def status(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where the server is.")],
    ca: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate of who signed the server's.")] = None,
    plain: Annotated[bool, typer.Option("--json", help="All figures as JSON.")] = False,
) -> None:
    """Show who is there, who works, what was dropped and why, and how good the model is."""
    from rich.table import Table

    from turnout.cli.deployed import needs
    from turnout.cli.output import show
    from turnout.cli.status import rows_of

    needs("join", "httpx2")
    import httpx2

    from turnout.deployment.join import Connection

    with Connection(url.rstrip("/"), ca, timeout=10.0).client() as http:
        try:
            figures = http.get("/v1/status").raise_for_status().json()
        except (httpx2.HTTPError, ValueError) as error:
            raise ConfigurationError(f"no status from {url}: {error or type(error).__name__}") from None
    if plain:
        typer.echo(json.dumps(figures))
        return
    table = Table("figure", "value")
    for name, value in rows_of(figures):
        table.add_row(name, value)
    show(table)
