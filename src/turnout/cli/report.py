"""``turnout report``: a page with pictures from the folders of finished runs."""

from __future__ import annotations

import shlex
from pathlib import Path

from turnout.cli.output import say
from turnout.cli.run import saved
from turnout.cli.settings import Settings
from turnout.comparison.folders import run_folders
from turnout.core.checks import TurnoutError
from turnout.data.federated import FederatedData
from turnout.record import storage


def environment_of(folders: list[Path]) -> dict[str, str] | None:
    """Return what the first run ran on, as its folder says; None where it does not."""
    try:
        found = storage.read_json(run_folders(folders)[0] / "environment.json", instead="make the run anew")
    except TurnoutError:
        return None
    words = {name: shlex.join(value) if isinstance(value, list) else value for name, value in found.items()}
    return {name: str(value) for name, value in words.items() if value is not None}


def data_of(folders: list[Path]) -> FederatedData | None:
    """Return the data of the first run, for the picture of who holds what, where they can be had."""
    try:
        return Settings(saved(run_folders(folders)[0])).data()
    except TurnoutError as error:
        say(f"no picture of who holds what: {error}", style="yellow")
        return None
