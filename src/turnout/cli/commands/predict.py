"""``turnout predict``: apply the model of a run to the rows of a table."""

from __future__ import annotations

from pathlib import Path

import typer

from turnout.cli.command import argument, command, option, options, switch


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
