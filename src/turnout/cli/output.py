"""Where the command line writes: results to standard output, everything else beside it."""

from __future__ import annotations

import sys

from rich.console import Console, RenderableType

from turnout.cli.settings import Settings
from turnout.data.federated import FederatedData

_WIDE = 120
"""Columns of tables that go to a file or a pipe."""


def say(text: str, style: str = "") -> None:
    """Write a line for whoever watches."""
    console().print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def show(result: RenderableType) -> None:
    """Write a result."""
    wide = None if sys.stdout.isatty() else _WIDE
    Console(width=wide, highlight=False).print(result)


def console() -> Console:
    """The console beside standard output, for progress and notices."""
    return Console(stderr=True)


def introduce(what: str, settings: Settings, data: FederatedData) -> None:
    """Say what is about to run, and which clients were asked for but have nothing to train on."""
    names = {section: settings.table[section]["name"] for section in ("model", "availability", "pace")}
    say(
        f"{what} on {data.name}: {data.num_clients:,} clients, {len(data.train.x):,} training examples, "
        f"model {names['model']}, availability {names['availability']}, pace {names['pace']}"
    )
    if dropped := data.recipe.get("dropped_clients"):
        say(f"{dropped} more got no examples and are left out; data.empty=refuse refuses them instead")
