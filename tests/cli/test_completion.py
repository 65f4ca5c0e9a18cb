"""Help and completion do not import PyTorch."""

import subprocess
import sys

import pytest

import turnout as to
from turnout import _MODULES, algorithms
from turnout.cli.commands.listing import USAGE
from turnout.cli.names import LISTED

HELP = """
import os, sys
from typer.main import get_command
from turnout.cli import app
def show(words, command):
    app([*words, "--help"], standalone_mode=False)
    for name, inner in getattr(command, "commands", {}).items():
        show([*words, name], inner)
show([], get_command(app))
os.environ["_TURNOUT_COMPLETE"] = "complete_bash"
for line in ("turnout run --algorithm fedav", "turnout compare fedau fedav"):
    os.environ |= {"COMP_WORDS": line, "COMP_CWORD": "3"}
    try:
        app([], prog_name="turnout")
    except SystemExit:
        pass
heavy = {"torch", "numpy", "pyarrow"} & set(sys.modules)
print("heavy:", sorted(heavy))
"""


def test_help_and_completion_import_nothing_heavy() -> None:
    shown = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True).stdout
    assert "turnout compare fedau average_participating --seeds 3" in shown
    assert "turnout list algorithms" in shown
    assert shown.endswith(2 * "fedavg\nfedavg_p\nfedavgm\n" + "heavy: []\n")


def test_every_completed_kind_can_be_listed() -> None:
    assert list(USAGE) == [*LISTED, "settings"]


def test_package_exports_exactly_its_names() -> None:
    assert {*_MODULES, "Experiment", "Sgd", "compose", "fedau", "__version__"} <= {*to.__all__}
    helpers = {"averages", "defaults", "exports", "step_sizes"}
    assert helpers <= vars(algorithms).keys() | {"exports"}
    assert not helpers & {*to.__all__}
    assert all(hasattr(to, name) for name in to.__all__)
    assert set(to.__all__) <= set(dir(to))
    with pytest.raises(AttributeError, match="has no attribute 'fedavgg'"):
        to.fedavgg  # noqa: B018
