"""The command line as a whole: help, examples, version."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command

import turnout as package
import turnout_serve.cli.commands as network
from turnout.cli import layers
from turnout.cli.app import OF_SERVE, app
from turnout.cli.commands import compare, run, sweep
from turnout.cli.settings import Settings
from turnout.cli.sweep import grid_of
from turnout.cli.variants import Layers
from turnout.comparison.study import corners, space_of
from turnout.comparison.sweep import points
from turnout.workbench.commands import reproduce
from turnout.workbench.reproduction import panels
from turnout.workbench.reproduction.declaration import Reproduction
from turnout.workbench.reproduction.reading import load

ROOT = Path(__file__).parents[2]

Turnout = Callable[..., Any]


@pytest.mark.parametrize(
    ("command", "example"),
    [
        ((), "turnout compare fedau average_participating --seeds 3"),
        (("run",), "turnout run --algorithm fedau --data digits --rounds 500"),
        (("compare",), "turnout compare fedau average_all --seeds 0,3,7 local.lr=0.1 average_all.server_lr=10"),
        (("reproduce",), "turnout reproduce folb/table-1 --panels synthetic_iid,synthetic_1_1 --jobs 2"),
        (("sweep",), "turnout sweep --grid algorithm=fedau,mifa --grid local.lr=0.05,0.1 --metric train_loss"),
        (("report",), "turnout report runs/demo"),
        (("table",), "turnout table runs/demo"),
        (("plot",), "turnout plot runs/demo --output accuracy.pdf"),
        (("speed",), "turnout speed W2 W3 --rounds 200"),
        (("list",), "turnout list algorithms"),
        (("data",), "turnout data fetch mnist"),
        (("data", "list"), "turnout data list --directory /data"),
        (("data", "fetch"), "turnout data fetch cifar10 --directory /data"),
        (("data", "show"), "turnout data show digits"),
    ],
)
def test_help_shows_examples(command: tuple[str, ...], example: str, turnout: Turnout) -> None:
    result = turnout(*command, "--help")
    assert result.exit_code == 0
    assert example in result.stdout


def test_help_shows_defaults(turnout: Turnout) -> None:
    shown = " ".join(turnout("run", "--help").stdout.split())
    for text in ("(default: fedau)", "(default: 100)", "(default: 10)", "(default: runs/ALGORITHM-DATA-SEED)"):
        assert text in shown


def examples(epilog: str) -> list[list[str]]:
    return [shlex.split(line) for line in epilog.splitlines() if line.startswith("turnout ")]


def test_example_settings_are_valid() -> None:
    for words in examples(run.run.epilog):
        Settings.of(*(layers.override(word) for word in words if re.match(r"[a-z_.]+=", word)))
    for words in examples(compare.compare.epilog):
        names = [w for w in words[2:] if re.fullmatch(r"[a-z_]+", w)]
        found = Layers.of([layers.override(w) for w in words if re.match(r"[a-z_.]+=", w)] or [{}], names)
        assert [found.settings(name).name for name in names] == names


def test_example_reproductions_exist() -> None:
    named = [words for words in examples(reproduce.reproduce.epilog) if words[2:]]
    assert named
    for words in named:
        made = load(words[2], ROOT / "reproductions")
        assert isinstance(made, Reproduction)
        only = words[words.index("--panels") + 1].split(",") if "--panels" in words else None
        over = [layers.override(w) for w in words if re.match(r"[a-z_.]+=", w)]
        assert panels.plans(made, only, over, Path("runs"))


def test_example_grids_are_valid() -> None:
    for words in examples(sweep.sweep.epilog):
        axes = [words[i + 1] for i, word in enumerate(words) if word == "--grid"]
        found = grid_of([], axes)
        assert corners(space_of(found)) if "--trials" in words else points(found)


def test_version_is_that_of_the_package(turnout: Turnout) -> None:
    assert turnout("--version").stdout == f"turnout {package.__version__}\n"


def test_no_command_shows_help(turnout: Turnout) -> None:
    assert "Usage: turnout" in turnout().output


def test_missing_command_of_the_network_says_what_to_install(turnout: Turnout, monkeypatch: pytest.MonkeyPatch) -> None:
    group = cast(TyperGroup, get_command(app))
    monkeypatch.setattr(group, "commands", {k: v for k, v in group.commands.items() if k not in OF_SERVE})
    monkeypatch.setattr("typer.testing._get_command", lambda _: group)
    ended = turnout("serve", "run.toml")
    assert ended.exit_code == 2
    message = " ".join(ended.output.replace("│", " ").split())
    assert "turnout serve belongs to the distribution turnout-serve, which is not installed" in message
    assert "pip install ./packages/turnout-serve in a clone of turnout" in message


def test_commands_of_the_network_are_those_that_its_distribution_adds() -> None:
    alone = typer.Typer()
    network.add_to(alone)
    assert set(cast(TyperGroup, get_command(alone)).commands) == set(OF_SERVE)
