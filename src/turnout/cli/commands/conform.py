"""``turnout conform``: whether a client in any language keeps to the protocol."""

from __future__ import annotations

from typing import Annotated

import typer

from turnout.cli.errors import RunFailed, guarded

EPILOG = r"""[bold]Examples[/bold]

turnout conform 'node turnout.js {url} --data {data} --state {state}'

turnout conform 'turnout join {url} --data {python} --state {state}'

turnout conform --free './client {url} {data}'"""


@guarded
def conform(
    command: Annotated[
        str,
        typer.Argument(
            metavar="COMMAND",
            help="Starts the client. Filled in: {url}, {data} (a JSON file), {python} (FILE.py:FUNCTION), {state} (a path).",
        ),
    ],
    free: Annotated[bool, typer.Option("--free", help="The client draws minibatches of its own.")] = False,
    seconds: Annotated[float, typer.Option(metavar="SECONDS", help="End the client after so long.")] = 120.0,
) -> None:
    """Run a client against a server that misbehaves on purpose, and print what it does against docs/protocol.md.

    The server drops requests and answers, damages models, repeats reports, answers with 409, 410, 422, 426, 429, 500 and 503,
    restarts, and the client is killed. The exit code is 1 where a rule was violated.
    """
    from turnout.cli.conform import trial_of
    from turnout.cli.deployed import needs
    from turnout.core.checks import positive

    needs("serve", "starlette", "uvicorn", "sqlalchemy", "httptools")
    from turnout.deployment.conform.trial import tried

    positive("seconds", seconds)
    experiment, settings = trial_of()
    violated = 0
    for rule, wrong in tried(experiment, settings, command, specified=not free, seconds=seconds):
        typer.echo(f"{'ok' if wrong is None else 'VIOLATED':9} {rule}{'' if wrong is None else f': {wrong}'}")
        violated += wrong is not None
    if violated:
        raise RunFailed(f"{violated} rules of the protocol are violated")
