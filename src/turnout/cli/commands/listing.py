"""``turnout list``: everything that has a name, and the options it takes."""

from __future__ import annotations

from typing import Annotated

import typer

from turnout.cli.errors import guarded
from turnout.core.checks import known_name

KINDS = (
    "algorithms",
    "data",
    "models",
    "availability",
    "paces",
    "partitions",
    "selections",
    "aggregations",
    "mixings",
    "server_optimizers",
    "local",
    "personalizations",
    "guards",
    "weightings",
    "solvers",
    "schedules",
    "requirements",
    "behaviours",
    "speeds",
    "delays",
    "correlations",
    "losses",
    "trackers",
    "work",
    "settings",
)
"""What can be listed; `turnout.cli.listing.CATALOGUE` holds the members of all but the last."""

EPILOG = r"""[bold]Examples[/bold]

turnout list

turnout list algorithms"""


@guarded
def listing(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help=f"{', '.join(KINDS[:-1])} or {KINDS[-1]}.",
            autocompletion=lambda incomplete: [kind for kind in KINDS if kind.startswith(incomplete)],
        ),
    ] = None,
) -> None:
    """List what can be named, what it is, and its options with their defaults."""
    from turnout.cli.listing import settings_table, table_of
    from turnout.cli.output import show

    kinds = KINDS if kind is None else [known_name("kind", kind, KINDS)]
    for each in kinds:
        show(settings_table() if each == "settings" else table_of(each))
