"""``turnout export`` and ``predict``: write the trained model of a run to a file, and apply it to the rows of a table."""

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


@options
class PredictOptions:
    """Options of ``turnout predict``."""

    folder: Path = argument("The folder of a run on a table (data.name=table).", "RUN")
    table: Path = argument("Table with the input columns: CSV, TSV, Parquet, Feather, Arrow or JSON lines.", "FILE")
    client: int | None = option("Use the model of client K, for personalized algorithms.", "K")
    probabilities: bool = switch("Write the probability of each class as well.", "--probabilities")
    output: Path | None = option("Output file (default: standard output).", "FILE", None, "--output", "-o")


@command(PredictOptions)
def predict(options: PredictOptions) -> None:
    """Predict the class or value of each row of a table with the model of a run, and write CSV.

    Examples:
        turnout predict runs/fedavg-patients-0 new.csv
        turnout predict runs/fedavg-patients-0 new.csv --probabilities -o predicted.csv
    """
    from turnout.result import load
    from turnout.results.formats import csv_of

    result = load(options.folder)
    name = "prediction" if result.preparation is None else result.preparation.label
    columns = {name: result.predict(options.table, options.client).tolist()}
    if options.probabilities:
        shares = result.predict_proba(options.table, options.client)
        known = None if result.preparation is None else result.preparation.classes
        labels = known or tuple(map(str, range(shares.shape[1])))
        columns |= {f"p({label})": shares[:, i].tolist() for i, label in enumerate(labels)}
    text = csv_of(list(columns), zip(*columns.values(), strict=True))
    if options.output is None:
        typer.echo(text, nl=False)
    else:
        options.output.write_text(text, encoding="utf-8")
        typer.echo(f"{options.output}: {len(columns[name])} rows")
