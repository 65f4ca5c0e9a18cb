"""``turnout query``: ask the clients of a server for counts, means, variances and quantiles of their data."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from turnout.cli import flags
from turnout.cli.errors import RunFailed, guarded
from turnout.core.checks import refuse

EPILOG = r"""[bold]Examples[/bold]

turnout query runs/served label_histogram

turnout query runs/served variance --of features --column 3

turnout query runs/served quantiles --of income --edges 0,1000,2000,5000,10000"""


@guarded
def query(
    run: Annotated[
        str, typer.Argument(metavar="RUN|URL", help="The folder of a server on this machine, or where a server is.")
    ],
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="count, mean, variance, histogram, quantiles or label_histogram.")
    ],
    of: Annotated[
        str, typer.Option(metavar="NAME", help="features, targets, or a function that clients offer (join --function).")
    ] = "features",
    column: Annotated[int | None, typer.Option(metavar="I", help="One of these numbers (default: each).")] = None,
    edges: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Edges of the bins of a histogram or of quantiles.")
    ] = None,
    center: Annotated[
        float, typer.Option(metavar="X", help="A number near the mean, for a variance of large numbers.")
    ] = 0.0,
    share: flags.Share = 1.0,
    seconds: flags.Stays = None,
    token: flags.AdminToken = None,
    ca: flags.Ca = None,
    certificate: flags.Certificate = None,
    key: flags.Key = None,
    plain: Annotated[bool, typer.Option("--json", help="What the server answers, as JSON.")] = False,
) -> None:
    """Ask clients of a server about their training examples, before, during and after training; they answer with sums."""
    from turnout.cli.administrator import administrator
    from turnout.cli.output import show
    from turnout.cli.surveys import outcome, shown
    from turnout.evaluation.queries import Question

    try:
        bins = tuple(float(edge) for edge in edges.split(",")) if edges else ()
    except ValueError:
        raise refuse("edges", given=edges, needed="numbers with commas in between, such as 0,10,20") from None
    question = Question(kind, of, column, bins, center)  # type: ignore[arg-type]
    who = administrator(run, token, ca, certificate, key)
    from turnout.deployment.client.administrator import AdministrationFailed

    body = {"phase": "query", "share": share, "seconds": seconds, "question": question.table()}
    try:
        found = outcome(who, body)
    except AdministrationFailed as failed:
        raise RunFailed(str(failed)) from None
    if plain:
        typer.echo(json.dumps(found))
    else:
        show(shown(found))
