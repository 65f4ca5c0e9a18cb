"""Help and completion answer before PyTorch could have been imported."""

import subprocess
import sys

import pytest

import turnout as to
from turnout import exports
from turnout.cli.commands.listing import KINDS
from turnout.cli.listing import CATALOGUE

HELP = """
import os, sys
from turnout.cli import app
for words in (["--help"], ["run", "--help"], ["list", "--help"]):
    app(words, standalone_mode=False)
os.environ |= {"_TURNOUT_COMPLETE": "complete_bash", "COMP_WORDS": "turnout run --algorithm fedav", "COMP_CWORD": "3"}
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
    assert shown.endswith("fedavg\nfedavg_p\nfedavgm\nheavy: []\n")


def test_every_kind_that_is_completed_can_be_listed() -> None:
    assert list(KINDS) == [*CATALOGUE, "settings"]


def test_the_package_has_what_it_names_and_nothing_else() -> None:
    assert set(to.__all__) == {name for name in vars(exports) if not name.startswith("__")} | {"__version__"}
    assert all(hasattr(to, name) for name in to.__all__)
    assert set(to.__all__) <= set(dir(to))
    with pytest.raises(AttributeError, match="has no attribute 'fedavgg'"):
        to.fedavgg  # noqa: B018
