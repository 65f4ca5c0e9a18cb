"""``turnout serve``: a federation of real clients, over HTTP."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

from rich.table import Table as RichTable

from turnout.cli.output import say, show
from turnout.cli.run import save
from turnout.core.checks import refuse
from turnout.protocol.pace import Pace
from turnout.record import storage
from turnout.record.describe import describe
from turnout.record.environment import environment


def note(folder: Path, source: str | None, experiment: object, settings: object) -> None:
    """Keep in the folder what is run, so that other commands find it."""
    storage.save(
        folder,
        {
            "config.json": storage.json_writer(describe(experiment)),
            "environment.json": storage.json_writer(environment()),
        },
    )
    if settings is not None:
        save(settings, folder)  # type: ignore[arg-type]
    elif source is not None:
        file, _, name = source.rpartition(":")
        text = f"{Path(file).resolve()}:{name}\n"
        storage.save(folder, {"experiment.txt": lambda path: path.write_text(text, encoding="utf-8")})


def norm_bound(text: str) -> float | Literal["auto"] | None:
    """Read ``--max-norm``.

    Raises:
        ConfigurationError: for what is neither a number > 0 nor ``auto`` or ``none``.
    """
    if text in ("auto", "none"):
        return "auto" if text == "auto" else None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0.0 < number < math.inf:
        raise refuse("max_norm", given=text, needed="a number > 0, or auto, or none for no bound")
    return number


def task_seconds(given: float | None, pace: Pace) -> float | None:
    """Return the greatest age of a task: as given, where 0 is any; by default 600 seconds, or as long as a round may take."""
    if given is None:
        return max(600.0, getattr(pace, "deadline", None) or 0.0)
    return given or None


def introduce(server: object, folder: Path) -> None:
    """Say what is served, and what the server will see of clients."""
    from turnout.deployment.server.process import Server

    assert isinstance(server, Server)
    setting, driver = server.setting, server.driver
    table = RichTable("what the server sees of a client", "kind", "because of")
    for each in setting.visible:
        table.add_row(each.what, each.kind, each.piece)
    show(table)
    if server.experiment.data.is_declared and server.experiment.data.test is None and not setting.evaluate_share:
        say(
            "this server has no examples, so losses and accuracies of the model are not recorded; --test FILE.py:FUNCTION "
            "names some, and with --evaluate-share 1 clients judge the model by their own"
        )
    if driver.applied:
        say(f"going on with {folder}: step {driver.version} of {setting.rounds}, {driver.presence.num_clients} clients")
    if driver.over is not None:
        say(
            f"{driver.over}; a larger number of rounds goes on with it"
            if driver.version == setting.rounds
            else driver.over
        )
    if codes := server.new_codes:
        say(f"{len(codes)} one-time codes for clients are in {folder / 'codes.txt'}")
    if server.options.certificate is None and server.options.host not in ("127.0.0.1", "::1", "localhost"):
        say(
            "no certificate: tokens and models travel unencrypted, unless a proxy with TLS is before this",
            style="yellow",
        )
