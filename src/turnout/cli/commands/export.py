"""``turnout export``: the trained model of a run as a safetensors or ONNX file or an adapter, with a model card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.errors import guarded
from turnout.core.checks import counted

EPILOG = r"""[bold]Examples[/bold]

turnout export runs/fedau-digits-0 model.safetensors

turnout export runs/fedavg_p-digits-0 client-3.safetensors --client 3

turnout export runs/fedau-digits-0 model.onnx --card

turnout export runs/fedex_lora-instructions-0 adapter --format peft

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
    format: Annotated[
        str | None,
        typer.Option(
            "--format", "-f", metavar="safetensors|onnx|peft", help="(default: by the end of the file's name)"
        ),
    ] = None,
    card: Annotated[bool, typer.Option("--card", help="Write model-card.md beside the file.")] = False,
) -> None:
    """Write the model of a run to a safetensors file that torch loads, a checked ONNX file, or an adapter for peft."""
    from turnout.result import load

    result = load(folder)
    number = sum(tensor.numel() for tensor in result.state_dict(client).values())
    when = counted(result.history.last_round, "round")
    path = result.export(file, client, format=format, card=card)
    typer.echo(f"{path}: {len(result.state_dict(client))} tensors, {number:,} numbers, after {when}")
