"""``turnout export``: write the trained model of a run as a file or an adapter, with a model card."""

from __future__ import annotations

from pathlib import Path

import typer

from turnout.cli.command import argument, command, option, options, switch
from turnout.core.checks import counted


@options
class ExportOptions:
    """Options of ``turnout export``."""

    folder: Path = argument("The folder of a run, finished or not.", "RUN")
    file: Path = argument("Output file, e.g. model.safetensors.", "FILE")
    client: int | None = option("Export the model of client K, for personalized algorithms.", "K")
    format: str | None = option(
        "Output format (default: from the file name extension).",
        "safetensors|torch|onnx|executorch|peft",
        None,
        "--format",
        "-f",
    )
    card: bool = switch("Write model-card.md beside the file.", "--card")


@command(ExportOptions)
def export(options: ExportOptions) -> None:
    """Write the model of a run as safetensors or .pt for torch, as verified ONNX or ExecuTorch, or as an adapter for peft.

    Examples:
        turnout export runs/fedau-digits-0 model.safetensors
        turnout export runs/fedavg_p-digits-0 client-3.safetensors --client 3
        turnout export runs/fedau-digits-0 model.pt
        turnout export runs/fedau-digits-0 model.onnx --card
        turnout export runs/fedau-digits-0 model.pte
        turnout export runs/fedex_lora-instructions-0 adapter --format peft

    [bold]In Python, without turnout[/bold]

        from safetensors.torch import load_file
        model.load_state_dict(load_file("model.safetensors"))
    """
    from turnout.result import load

    result = load(options.folder)
    state = result.state_dict(options.client)
    number = sum(tensor.numel() for tensor in state.values())
    when = counted(result.history.last_round, "round")
    path = result.export(options.file, options.client, format=options.format, card=options.card)
    typer.echo(f"{path}: {len(state)} tensors, {number:,} numbers, after {when}")
