"""The script that prints finished runs seed by seed."""

import importlib.util
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turnout.cli import app

ROOT = Path(__file__).parents[3]
PANEL = """
[panels.{name}]
title = "panel {name}"
"""
DECLARED = """
title = "Small"
reference = "none"
about = "Small."
seeds = 1
measures = ["final test_accuracy"]

[common]
rounds = 1
evaluate_every = 1
data = {{ name = "digits", num_clients = 4 }}
model = "logistic"

[algorithms.fedau]
{panels}
"""


def by_seed(monkeypatch, *arguments):
    """Run the script in this process."""
    spec = importlib.util.spec_from_file_location("by_seed", ROOT / "reproductions" / "by_seed.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", ["by_seed.py", *map(str, arguments)])
    module.main()


@pytest.mark.parametrize("names", [("one",), ("one", "two")])
@pytest.mark.usefixtures("undrawn")
def test_figures_of_all_panels_are_printed(tmp_path, monkeypatch, capsys, names):
    declared, folder = tmp_path / "small.toml", tmp_path / "runs"
    declared.write_text(DECLARED.format(panels="".join(PANEL.format(name=name) for name in names)))
    done = CliRunner().invoke(app, ["reproduce", str(declared), "--folder", str(folder), "--jobs", "1"])
    assert done.exit_code == 0, done.output
    by_seed(monkeypatch, declared, folder)
    said = capsys.readouterr().out
    for name in names:
        assert f"| panel {name} | test accuracy" in said
    assert said.count("| fedau | ") == len(names)


def test_a_folder_without_finished_runs_is_refused(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        by_seed(monkeypatch, "participation/phones", tmp_path)
    assert ended.value.code == 2
    assert "holds no finished run of participation/phones" in capsys.readouterr().err
