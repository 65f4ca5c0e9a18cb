"""``turnout evaluate`` and ``turnout query``: run an evaluation or query on the clients of a server."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from turnout.cli.command import argument, command, option, options
from turnout.cli.console import say
from turnout.core.checks import refuse
from turnout.core.display import printable
from turnout_serve.cli.administrator import AdministratorOptions

if TYPE_CHECKING:
    from turnout_serve.client.administrator import Administrator

_MOST = 20  # numbers of a figure that are printed
_PATIENCE = 3.0  # seconds until a notice says what an evaluation or query waits for


@options
class SurveyOptions(AdministratorOptions):
    """Options of evaluations and queries."""

    share: float = option("Fraction of the clients to ask, drawn at random.", "S", 1.0)
    seconds: float | None = option(
        "Also include clients that connect within this time (default: only connected clients).", "SECONDS"
    )

    def survey(self, **body: Any) -> None:
        """Run the evaluation or query in the body of the request, and show its result."""
        request = {**body, "share": self.share, "seconds": self.seconds}
        self.ask(lambda administrator: outcome(administrator, request), shown)


@options
class QueryOptions(SurveyOptions):
    """Options of ``turnout query``."""

    kind: str = argument("Statistic: count, mean, variance, histogram, quantiles or label_histogram.", "KIND")
    of: str = option("Values: features, targets, or a function of clients (join --function).", "NAME", "features")
    column: int | None = option("Index of a feature or target (default: all).", "I")
    edges: str | None = option("Bin edges of a histogram or of quantiles.", "A,B,...")
    center: float = option("A number near the mean, for the variance of large numbers.", "X", 0.0)
    bound: float | None = option("Clip values to this distance from the center; required if answers have noise.", "X")


@command(SurveyOptions, computes=False)
def evaluate(options: SurveyOptions) -> None:
    """Evaluate the current model of a server on the clients' test examples.

    Training continues in the meantime. For a finished run, start the server again with a sufficient --linger.

    Examples:
        turnout evaluate runs/served
        turnout evaluate runs/served --share 0.1
        turnout evaluate runs/served --seconds 3600
    """
    options.survey(phase="evaluate")


@command(QueryOptions, computes=False)
def query(options: QueryOptions) -> None:
    """Compute statistics of the clients' training examples from sums, before, during or after training.

    Examples:
        turnout query runs/served label_histogram
        turnout query runs/served variance --of features --column 3
        turnout query runs/served quantiles --of income --edges 0,1000,2000,5000,10000
    """
    from turnout.evaluation.queries import Question

    edges = options.edges
    try:
        bins = tuple(float(edge) for edge in edges.split(",")) if edges else ()
    except ValueError:
        raise refuse("edges", given=edges, needed="numbers with commas in between, such as 0,10,20") from None
    question = Question(options.kind, options.of, options.column, bins, options.center, options.bound)  # type: ignore[arg-type]
    options.survey(phase="query", question=question.table())


def outcome(administrator: Administrator, body: Mapping[str, Any], pause: float = 0.2) -> dict[str, Any]:
    """Start an evaluation or query, wait for its end, and return its outcome.

    Args:
        administrator: administrator of the server.
        body: body of the request.
        pause: seconds between two polls.

    Raises:
        AdministrationFailed: if the server does not respond, or rejects the request.
    """
    from turnout_serve.wire.admin_bodies import SurveyNumber, SurveyState

    number = administrator.ask(SurveyNumber, "POST", "/v1/admin/surveys", body)["survey"]
    begun, told = time.monotonic(), False
    while (survey := administrator.ask(SurveyState, "GET", f"/v1/admin/surveys/{int(number)}"))["state"] == "open":
        if not told and time.monotonic() - begun > _PATIENCE:
            say(_waiting(survey))
            told = True
        time.sleep(pause)
    return survey


def _waiting(survey: Mapping[str, Any]) -> str:
    """Return what an open evaluation or query waits for."""
    if not survey["asked"]:
        return "no client is connected: the server asks those that connect within ten minutes, or within --seconds"
    return f"{survey['answered']} of {survey['asked']} clients have answered so far: waiting for the others"


def shown(survey: Mapping[str, Any]) -> Group:
    """Format the outcome of an evaluation or query."""
    lost = ", ".join(f"{printable(number, 20)} {printable(reason, 40)}" for reason, number in survey["lost"].items())
    summary = f"{survey['answered']} of {survey['asked']} clients have answered" + (f"; others: {lost}" if lost else "")
    if "unopened" in survey:
        summary += f"; no figures: {printable(survey['unopened'], 200)}"
    if "epsilon" in survey:
        summary += f"; with this answer the run has spent epsilon {survey['epsilon']:.4g}"
    table = Table("figure", "value", title=f"version {survey['version']}", title_justify="left")
    for name, value in survey.get("figures", {}).items():
        for key, inner in value.items() if isinstance(value, dict) else [("", value)]:
            table.add_row(printable(f"{name} {key}".strip().replace("_", " "), 100), _number(inner))
    return Group(*[table] * bool(table.rows), Text(summary))


def _number(value: Any) -> str:
    """Format a figure; of a long list only the first numbers."""
    if not isinstance(value, list):
        return f"{value:.6g}" if isinstance(value, float) else printable(value, 100)
    rest = f", ... ({len(value)})" if len(value) > _MOST else ""
    return ", ".join(map(_number, value[:_MOST])) + rest
