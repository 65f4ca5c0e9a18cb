"""The console script with a slow import."""

import subprocess
import sys
from pathlib import Path

import turnout_cli

COMMAND = """
import signal

def main():
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    raise SystemExit(2)
"""
START = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where whoever runs the tests ignores Ctrl-C
sys.path[:0] = sys.argv[1:]
import turnout_cli
turnout_cli.main()
"""


def started(folder, package):
    (folder / "turnout").mkdir()
    (folder / "turnout" / "__init__.py").write_text(package)
    (folder / "turnout" / "cli.py").write_text(COMMAND)
    paths = [str(folder), str(Path(turnout_cli.__file__).parent)]
    return subprocess.run([sys.executable, "-I", "-c", START, *paths], capture_output=True, text=True, check=False)


def test_interruption_during_import_prints_one_line(tmp_path):
    """Also if a module converts exceptions."""
    interrupt = (
        "import signal\ntry:\n    signal.raise_signal(signal.SIGINT)\nexcept BaseException:\n    raise ImportError\n"
    )
    ended = started(tmp_path, interrupt)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "stopped before anything began\n")


def test_command_line_runs_and_handles_ctrl_c(tmp_path):
    ended = started(tmp_path, "")
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "True\n", "")
