"""``turnout protocol``: what the author of a client needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.errors import guarded

VECTORS_EPILOG = r"""[bold]Examples[/bold]

turnout protocol vectors vectors"""

EPILOG = VECTORS_EPILOG


@guarded
def vectors(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write; made where it is missing.")],
) -> None:
    """Write test vectors of the protocol: exchanges, random numbers, minibatches, updates, and messages of a secure sum."""
    from turnout.cli.deployed import needs

    needs("serve", "starlette", "uvicorn", "sqlalchemy", "httptools")
    needs("secure", "cryptography")
    from turnout.cli.conform import models_of, secure_of
    from turnout.deployment.conform.vectors import write

    for path in write(folder, models_of(), secure_of()):
        typer.echo(path)
