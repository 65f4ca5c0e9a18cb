"""``turnout export``: the trained model of a run as named tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.errors import guarded
from turnout.core.checks import counted

EPILOG = r"""[bold]Examples[/bold]

turnout export runs/fedau-digits-0 model.safetensors

turnout export runs/fedavg_p-digits-0 client-3.safetensors --client 3

[bold]In Python, without turnout[/bold]

from safetensors.torch import load_file

model.load_state_dict(load_file("model.safetensors"))"""


@guarded
def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, finished or not.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write, e.g. model.safetensors.")],
    client: Annotated[
        int | None,
        typer.Option(metavar="K", help="The model that serves client K, of an algorithm with a personal part."),
    ] = None,
) -> None:
    """Write the model of a run to a safetensors file that torch loads."""
    from turnout.result import load

    result = load(folder)
    number = sum(tensor.numel() for tensor in result.state_dict(client).values())
    when = counted(result.history.last_round, "round")
    typer.echo(
        f"{result.export(file, client)}: {len(result.state_dict(client))} tensors, {number:,} numbers, after {when}"
    )
