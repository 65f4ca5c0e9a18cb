"""``turnout report``, ``table`` and ``plot``: pages, tables and figures from the folders of finished runs."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from turnout.cli.output import say
from turnout.cli.run import saved
from turnout.cli.settings import Settings
from turnout.comparison.folders import load_records, run_folders
from turnout.core.checks import ConfigurationError, TurnoutError, known_name, refuse
from turnout.data.federated import FederatedData
from turnout.record import storage
from turnout.reporting import FORMATS, RunRecord, comparison, csv, plot
from turnout.reporting.column import GAP, RESULTS

FIGURES = (".pdf", ".svg", ".png")
"""How the name of a figure's file may end."""


def records_of(texts: Sequence[str]) -> list[RunRecord]:
    """Return the finished runs in folders, given as ``FOLDER`` or ``NAME=FOLDER``.

    Raises:
        ConfigurationError: where one name is given to runs of several algorithms.
    """
    records: list[RunRecord] = []
    for text in texts:
        name, _, path = text.rpartition("=")
        runs = load_records([path])
        if name and len({record.algorithm for record in runs}) > 1:
            raise ConfigurationError(f"{text}: {path} holds runs of several algorithms, which cannot all be {name}")
        records += [replace(record, algorithm=name) if name else record for record in runs]
    return records


def table_of(records: Sequence[RunRecord], format: str, columns: str | None, interval: bool, window: int | None) -> str:
    """Return the comparison of runs in a format; of ``csv`` every column at full precision, unless some are named.

    Raises:
        ConfigurationError: for a column that no run recorded.
    """
    rows = comparison(records, window)
    recorded = [key for key in dict.fromkeys(key for row in rows for key in row.figures) if not key.startswith(GAP)]
    keys = [known_name("column", name.strip(), recorded) for name in columns.split(",")] if columns else None
    if format == "csv":
        return csv(rows, keys=keys)
    return FORMATS[format](rows, RESULTS if keys is None else keys, interval)


def draw(records: Sequence[RunRecord], what: str | None, path: Path, dpi: int) -> None:
    """Draw runs, and write the figure in the format that the end of the file's name says.

    Raises:
        ConfigurationError: for another end, or what `plot` refuses.
        CheckpointError: where the file cannot be written.
    """
    if (kind := path.suffix.lower()) not in FIGURES:
        raise refuse("output", given=str(path), needed=f"a file that ends in {', '.join(FIGURES)}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        figure = plot(records, what)
    for warning in caught:
        say(str(warning.message), style="yellow")
    storage.replace_files({path: lambda part: figure.savefig(part, format=kind[1:], dpi=dpi)})


def environment_of(folders: list[Path]) -> dict[str, str] | None:
    """Return what the first run ran on, as its folder says; None where it does not."""
    try:
        values = storage.read_json(run_folders(folders)[0] / "environment.json", instead="make the run anew")
    except TurnoutError:
        return None
    words = {name: shlex.join(value) if isinstance(value, list) else value for name, value in values.items()}
    return {name: str(value) for name, value in words.items() if value is not None}


def data_of(folders: list[Path], code: Sequence[Path] = ()) -> FederatedData | None:
    """Return the data of the first run, for the picture of who holds what, where they can be had.

    Args:
        folders: of runs.
        code: files that their settings may name.
    """
    try:
        return Settings(saved(run_folders(folders)[0], code)).data()
    except TurnoutError as error:
        say(f"no picture of who holds what: {error}", style="yellow")
        return None
