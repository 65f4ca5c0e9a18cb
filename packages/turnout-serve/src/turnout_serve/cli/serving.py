"""Serve an experiment to real clients, after waiting for the first one if it determines the shape of the data."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from turnout.base import Algorithm
from turnout.cli.console import say, show
from turnout.cli.errors import RunFailed
from turnout.cli.options import without
from turnout.cli.run_plan import save
from turnout.cli.settings import Settings
from turnout.core.checks import CheckpointError, Diverged, counted
from turnout.experiment import Experiment
from turnout.models import ModelSpec
from turnout.record import lock, storage
from turnout.record.describe import describe
from turnout.record.environment import environment, save_description
from turnout_serve.cli.deployed import announced, as_overrides, declared_beside, experiment_of, with_test
from turnout_serve.cli.serve_options import ServeOptions
from turnout_serve.server import address, process
from turnout_serve.server.first_client import first_shape
from turnout_serve.server.options import Options
from turnout_serve.server.run.served_experiment import ServedExperiment
from turnout_serve.wire.administrator import TOKEN_FILE, server_token
from turnout_serve.wire.data_shape import MOST_MODEL, DataShape, with_numbers_of_classes

STARTS = "environments.jsonl"
"""File in the folder of a run with a line for each start of its server."""


def serve_clients(options: ServeOptions) -> None:
    """Serve the experiment of a command line until it is finished or stopped."""
    options.write_log()
    file, settings = options.words()
    if (beside := declared_beside(file, settings)) is not None:
        if (shape := first_client_shape(options, file, settings, beside)) is None:
            typer.echo("stopped before the first client connected")
            return
        settings = [*settings, *shape]
    experiment, described = experiment_of(file, settings, loads=False, algorithm=options.algorithm)
    experiment = with_test(experiment, options.test)
    folder = options.folder or Path(f"runs/{experiment.algorithm.name}-{experiment.data.name}-served")
    server_options = options.server_options(experiment.algorithm, experiment.pace)
    try:
        server = process.Server(experiment, folder, None if described is None else announced(described), server_options)
    except OSError as error:
        raise CheckpointError(
            f"{folder} cannot be written: {error}. Free some space, or give another --folder"
        ) from error
    note(folder, file, experiment, described)
    step = server.driver.version
    show(visible(server))
    for text, style in notices(server, folder):
        say(text, style)
    browsers = "; browsers take part at {}/join" if options.page else ""

    def ready(url: str) -> None:
        note_start(folder, step)
        typer.echo(f"serving at {url}{browsers.format(url)}")
        typer.echo(status_at(url, folder, public=options.public_status))

    try:
        outcome = server.run(ready)
    except (CheckpointError, Diverged) as error:
        raise RunFailed(str(error)) from error
    typer.echo(f"{outcome} after {server.driver.version} of {experiment.rounds} steps; all of it is in {folder}")
    if server.driver.ledger is not None and (sums := server.driver.ledger.sums) is not None:
        typer.echo(f"{sums['opened']} of {counted(sums['steps'], 'secure sum')} opened")
    if server.head is not None:  # the journal of a run that never began may be empty
        typer.echo(f"head of the journal: {server.head}; with it, turnout replay --head shows that nothing was changed")


def first_client_shape(
    options: ServeOptions, file: str | None, settings: list[str], beside: Mapping[str, Any]
) -> list[str] | None:
    """Wait for the first client, and return the shape of its data as settings; None if the server was stopped.

    Args:
        options: options of the command.
        file, settings: file and settings of the experiment.
        beside: declared properties of the data other than the shape.
    """
    number = {} if beside.keys() & {"classes", "outputs"} else {"classes": 2}
    made = partial(experiment_of, loads=False, algorithm=options.algorithm)
    experiment, described = made(file, [*settings, *as_overrides({"inputs": 1, **number})])
    assert described is not None
    table = announced(described)
    table["data"] = without(table["data"], ("inputs", *number))

    def undeclared(shape: DataShape) -> dict[str, Any]:
        named = isinstance(beside.get("classes"), list)  # which a number would replace
        return without(shape.settings(), ("classes",) if named else ())

    def tried(shape: DataShape) -> DataShape:
        whole = shape.within(beside)
        run, _ = made(file, [*settings, *as_overrides(undeclared(whole))])
        if isinstance(run.model, ModelSpec):
            run.model.check_size(whole.inputs, run.data.num_outputs, MOST_MODEL)
        ServedExperiment.of(run)
        return whole

    def ready(url: str, codes: list[str]) -> None:
        if codes:
            say(f"{len(codes)} one-time codes for clients are in {folder / 'codes.txt'}")
        typer.echo(f"waiting at {url} for the first client, which determines the shape of the data")
        typer.echo(status_at(url, folder, public=options.public_status))

    folder = options.folder or Path(f"runs/{described.name}-{experiment.data.name}-served")
    server_options = options.server_options(experiment.algorithm, experiment.pace)
    announcement = _announcement(described.name, experiment, table, with_numbers_of_classes(beside))
    shape = first_shape(folder, server_options, announcement, tried, experiment.rounds, ready)
    if shape is None:
        return None
    say(f"the first client has {shape}")
    return as_overrides(undeclared(shape))


def _announcement(
    algorithm: str, experiment: Experiment, settings: dict[str, Any], data: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a server that waits for the first client tells clients of the run.

    Args:
        algorithm: name of the algorithm.
        experiment: the experiment with any shape.
        settings: settings of the experiment without the shape.
        data: declared properties of the data other than the shape.
    """
    return {
        "algorithm": algorithm, "pace": type(experiment.pace).__name__, "engine": None, "settings": settings,
        "describes": {}, "num_classes": data.get("classes"), "input_shape": None, "data": data, "sees": [],
        "evaluation": {}, "training": {"reason": "the server waits for the shape of the data"}, "secure": None,
    }  # fmt: skip


def status_at(url: str, folder: Path, *, public: bool) -> str:
    """Return where the status of a server is shown: on a terminal a link with the token, which no log shall contain.

    Args:
        url: address of the server.
        folder: folder of the run.
        public: True where no token is needed.
    """
    link = address.local(url)
    if public:
        return f"status for anyone: {link}"
    if sys.stdout.isatty():
        return f"status: {link}/#token={server_token(folder)}"
    return f"status: turnout status {folder}, or {link} with the token of the administrator ({folder / TOKEN_FILE})"


def note(folder: Path, source: str | None, experiment: Experiment, settings: Settings | None) -> None:
    """Save the experiment in the folder, for other commands."""
    save_description(folder, describe(experiment))
    if settings is not None:
        save(settings, folder)
    elif source is not None:
        file, _, name = source.rpartition(":")
        text = f"{Path(file).resolve()}:{name}\n"
        storage.save(folder, {"experiment.txt": storage.text_writer(text)})


def note_start(folder: Path, step: int) -> None:
    """Append the environment of this start to a file in the folder, so that each part of a run has its own.

    Args:
        folder: folder of the run.
        step: number of steps that were taken before.
    """
    line = json.dumps({"step": step, **environment()}) + "\n"
    with lock.open_file(folder / STARTS) as file:
        file.seek(0, os.SEEK_END)
        file.write(line.encode())


def visible(server: process.Server) -> Table:
    """Return a table of what the server will see of clients."""
    table = Table("what the server sees of a client", "kind", "because of")
    for figure in server.served.visible:
        table.add_row(figure.what, figure.kind, figure.piece)
    return table


def notices(server: process.Server, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield what the operator needs to know at the start, each with a color for warnings, or none."""
    setting, options, driver, rounds = server.setting, server.options, server.driver, server.setting.rounds
    for line in unlimited(setting.algorithm, options):
        yield line, ""
    if server.experiment.data.is_declared and server.experiment.data.test is None and not setting.evaluate_share:
        text = "this server has no examples, so losses and accuracies of the model are not recorded; --test FILE.py:FUNCTION"
        yield f"{text} names some, and with --evaluate-share 1 clients judge the model by their own", ""
    if driver.applied:
        yield f"going on with {folder}: step {driver.version} of {rounds}, {driver.roster.num_clients} clients", ""
    if driver.over is not None:
        more = "; a larger number of rounds goes on with it" if driver.version == rounds else ""
        yield f"{driver.over}{more}", ""
    if codes := server.new_codes:
        yield f"{len(codes)} one-time codes for clients are in {folder / 'codes.txt'}", ""
    if options.certificate is None and options.host not in ("127.0.0.1", "::1", "localhost"):
        yield "no certificate: tokens and models travel unencrypted, unless a proxy with TLS is before this", "yellow"


def unlimited(algorithm: Algorithm, options: Options) -> list[str]:
    """Return the harm that one dishonest client can do through each piece, where an option of the server can limit it."""
    harms = [(piece, *piece.trusts) for piece in algorithm.pieces().values() if piece.trusts is not None]
    return [
        f"{type(piece).__name__} {harm}: write --{option.replace('_', '-')} N against dishonest clients"
        for piece, option, harm in harms
        if getattr(options, option) in (None, "auto")
    ]
