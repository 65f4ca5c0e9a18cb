"""``turnout evaluate``: have the clients of a server judge its model now."""

from __future__ import annotations

from turnout.cli.errors import guarded
from turnout.cli.groups import SurveyOptions, takes

EPILOG = r"""[bold]Examples[/bold]

turnout evaluate runs/served

turnout evaluate runs/served --share 0.1

turnout evaluate runs/served --seconds 3600"""


@guarded
@takes(SurveyOptions)
def evaluate(options: SurveyOptions) -> None:
    """Have clients judge the present model of a server by test examples of their own, and show the figures.

    Training goes on meanwhile. A run that is over is served again by its command, with --linger for as long as clients need.
    """
    from turnout.cli.administrator import ask
    from turnout.cli.surveys import outcome, shown

    body = {"phase": "evaluate", "share": options.share, "seconds": options.seconds}
    ask(options, lambda who: outcome(who, body), shown)
