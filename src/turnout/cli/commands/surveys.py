"""``turnout evaluate`` and ``turnout query``: have a server ask its clients, wait, and show what they answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from turnout.cli.administrator import AdministratorOptions
from turnout.cli.command import argument, command, examples, option, options
from turnout.core.checks import refuse
from turnout.core.display import printable

if TYPE_CHECKING:
    from turnout.deployment.client.administrator import Administrator

_MOST = 20  # numbers of a figure that are shown


@options
class SurveyOptions(AdministratorOptions):
    """Options of commands by which an administrator has a server ask its clients."""

    share: float = option("Share of the clients who are asked, drawn at random.", "S", 1.0)
    seconds: float | None = option(
        "Also ask clients who come in so many seconds (default: until those who are there answered).", "SECONDS"
    )

    def survey(self, **body: Any) -> None:
        """Ask clients what the body of the request says, and show what they answer."""
        request = {**body, "share": self.share, "seconds": self.seconds}
        self.ask(lambda administrator: outcome(administrator, request), shown)


@options
class QueryOptions(SurveyOptions):
    """Options of ``turnout query``."""

    kind: str = argument("count, mean, variance, histogram, quantiles or label_histogram.", "KIND")
    of: str = option("features, targets, or a function that clients offer (join --function).", "NAME", "features")
    column: int | None = option("One of these numbers (default: each).", "I")
    edges: str | None = option("Edges of the bins of a histogram or of quantiles.", "A,B,...")
    center: float = option("A number near the mean, for a variance of large numbers.", "X", 0.0)
    bound: float | None = option("How far from the center a value counts at most; needed where a run adds noise.", "X")


EVALUATE_EPILOG = examples("""
turnout evaluate runs/served
turnout evaluate runs/served --share 0.1
turnout evaluate runs/served --seconds 3600
""")


@command(SurveyOptions, EVALUATE_EPILOG)
def evaluate(options: SurveyOptions) -> None:
    """Have clients judge the present model of a server by test examples of their own, and show the figures.

    Training goes on meanwhile. A run that is over is served again by its command, with --linger for as long as clients need.
    """
    options.survey(phase="evaluate")


QUERY_EPILOG = examples("""
turnout query runs/served label_histogram
turnout query runs/served variance --of features --column 3
turnout query runs/served quantiles --of income --edges 0,1000,2000,5000,10000
""")


@command(QueryOptions, QUERY_EPILOG)
def query(options: QueryOptions) -> None:
    """Ask clients of a server about their training examples, before, during and after training; they answer with sums."""
    from turnout.evaluation.queries import Question

    edges = options.edges
    try:
        bins = tuple(float(edge) for edge in edges.split(",")) if edges else ()
    except ValueError:
        raise refuse("edges", given=edges, needed="numbers with commas in between, such as 0,10,20") from None
    question = Question(options.kind, options.of, options.column, bins, options.center, options.bound)  # type: ignore[arg-type]
    options.survey(phase="query", question=question.table())


def outcome(administrator: Administrator, body: Mapping[str, Any], pause: float = 0.2) -> dict[str, Any]:
    """Begin an evaluation or query, wait for its end, and return its outcome.

    Args:
        administrator: of the server.
        body: what is asked.
        pause: seconds between two looks.

    Raises:
        AdministrationFailed: where the server does not answer, or refuses.
    """
    number = int(administrator.ask("POST", "/v1/admin/surveys", body)["survey"])
    while (survey := administrator.ask("GET", f"/v1/admin/surveys/{number}"))["state"] == "open":
        time.sleep(pause)
    return survey


def shown(survey: Mapping[str, Any]) -> Group:
    """Return the outcome of an evaluation or query as people read it."""
    lost = ", ".join(f"{number} {printable(reason, 40)}" for reason, number in survey["lost"].items())
    summary = f"{survey['answered']} of {survey['asked']} clients have answered" + (f"; others: {lost}" if lost else "")
    if "unopened" in survey:
        summary += f"; the sum was not opened: {printable(survey['unopened'], 200)}"
    if "epsilon" in survey:
        summary += f"; with this answer the run has spent epsilon {survey['epsilon']:.4g}"
    table = Table("figure", "value", title=f"version {survey['version']}", title_justify="left")
    for name, value in survey.get("figures", {}).items():
        for key, inner in value.items() if isinstance(value, dict) else [("", value)]:
            table.add_row(printable(f"{name} {key}".strip().replace("_", " "), 100), _number(inner))
    return Group(*[table] * bool(table.rows), Text(summary))


def _number(value: Any) -> str:
    """Return a figure as text: the first of many numbers."""
    if not isinstance(value, list):
        return f"{value:.6g}" if isinstance(value, float) else printable(value, 100)
    rest = f", ... ({len(value)})" if len(value) > _MOST else ""
    return ", ".join(map(_number, value[:_MOST])) + rest
