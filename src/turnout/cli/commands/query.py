"""``turnout query``: ask the clients of a server for counts, means, variances and quantiles of their data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from turnout.cli.errors import guarded
from turnout.cli.groups import SurveyOptions, takes
from turnout.core.checks import refuse

EPILOG = r"""[bold]Examples[/bold]

turnout query runs/served label_histogram

turnout query runs/served variance --of features --column 3

turnout query runs/served quantiles --of income --edges 0,1000,2000,5000,10000"""


@dataclass(frozen=True, kw_only=True)
class QueryOptions(SurveyOptions):
    """Options of ``turnout query``."""

    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="count, mean, variance, histogram, quantiles or label_histogram.")
    ]
    of: Annotated[
        str, typer.Option(metavar="NAME", help="features, targets, or a function that clients offer (join --function).")
    ] = "features"
    column: Annotated[int | None, typer.Option(metavar="I", help="One of these numbers (default: each).")] = None
    edges: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Edges of the bins of a histogram or of quantiles.")
    ] = None
    center: Annotated[
        float, typer.Option(metavar="X", help="A number near the mean, for a variance of large numbers.")
    ] = 0.0


@guarded
@takes(QueryOptions)
def query(options: QueryOptions) -> None:
    """Ask clients of a server about their training examples, before, during and after training; they answer with sums."""
    from turnout.cli.administrator import ask
    from turnout.cli.surveys import outcome, shown
    from turnout.evaluation.queries import Question

    edges = options.edges
    try:
        bins = tuple(float(edge) for edge in edges.split(",")) if edges else ()
    except ValueError:
        raise refuse("edges", given=edges, needed="numbers with commas in between, such as 0,10,20") from None
    question = Question(options.kind, options.of, options.column, bins, options.center)  # type: ignore[arg-type]
    body = {"phase": "query", "share": options.share, "seconds": options.seconds, "question": question.table()}
    ask(options, lambda who: outcome(who, body), shown)
