"""``turnout conform`` and ``turnout protocol vectors``: test clients in other languages."""

from __future__ import annotations

from pathlib import Path

import typer

from turnout.cli.command import argument, command, option, options, switch
from turnout.cli.errors import RunFailed
from turnout.core.extras import imported


@options
class ConformOptions:
    """Options of ``turnout conform``."""

    command: str = argument(
        "Client command; placeholders: {url}, {data} (a JSON file), {python} (FILE.py:FUNCTION) and {state} (a path).",
        "COMMAND",
    )
    free: bool = switch("The client draws its own minibatches.", "--free")
    seconds: float = option("Stop the client after this time without progress.", "SECONDS", 120.0)


@options
class VectorsOptions:
    """Options of ``turnout protocol vectors``."""

    folder: Path = argument("Output folder; it is created.", "DIR")


@command(ConformOptions)
def conform(options: ConformOptions) -> None:
    """Test a client against a server that injects faults, and print the rules of docs/protocol.md that it violates.

    The server drops requests and responses, damages models, repeats reports, responds with 409, 410, 422, 426, 429, 500 and
    503, and restarts; the client is killed. The exit code is 1 if a rule is violated.

    Examples:
        turnout conform 'node turnout.js {url} --data {data} --state {state}'
        turnout conform 'turnout join {url} --data {python} --state {state}'
        turnout conform --free './client {url} {data}'
    """
    from turnout.core.checks import positive
    from turnout_serve.cli.conform import trial_of
    from turnout_serve.conform.trial import tried

    positive("seconds", options.seconds)
    experiment, settings = trial_of()
    violated = 0
    for rule, wrong in tried(
        experiment, settings, options.command, specified=not options.free, seconds=options.seconds
    ):
        typer.echo(f"{'ok' if wrong is None else 'VIOLATED':9} {rule}{'' if wrong is None else f': {wrong}'}")
        violated += wrong is not None
    if violated:
        raise RunFailed(f"{violated} rules of the protocol are violated")


@command(VectorsOptions)
def vectors(options: VectorsOptions) -> None:
    """Write test vectors of the protocol: exchanges, random numbers, minibatches, updates, and messages of a secure sum.

    Examples:
        turnout protocol vectors vectors
    """
    imported("cryptography", "turnout protocol vectors", ".[secure]")
    from turnout_serve.cli.conform import models_of, secure_of, surveys_of
    from turnout_serve.conform.vectors import write

    for path in write(options.folder, models_of(), secure_of(), surveys_of()):
        typer.echo(path)
