"""Documentation is runnable: Python with small sizes, and command lines up to parsing."""

import importlib.util
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main
from typer.testing import CliRunner

import turnout as to
from turnout.cli.app import app
from turnout.cli.names import AGGREGATIONS, ALGORITHMS, AVAILABILITY
from turnout.cli.sweep import SweepPlan
from turnout.trackers.tracker import Tracker

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("docs/tutorials/*.md"), *ROOT.glob("docs/guides/*.md")])
COMMANDS = sorted(
    {
        line.partition("#")[0].strip()
        for page in (ROOT / "README.md", *PAGES)
        for language, block in re.findall(
            r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE
        )
        for line in ([] if language else re.sub(r"\\\n *", " ", block).splitlines())
        if line.startswith("turnout ")
    }
)


def small(code):
    """The same code with four rounds, few own steps and few clients, where it says how many."""
    for pattern, number in {
        r"(?<![\w])rounds=\d+": "rounds=4", r"runs=[\d_]+": "runs=20", r"WarmUp\(steps=\d+\)": "WarmUp(steps=2)",
        r"num_clients=(40|50|100)": "num_clients=12",
    }.items():  # fmt: skip
        code = re.sub(pattern, number, code)
    return code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.usefixtures("undrawn")
def test_python_of_a_page_runs(page, tmp_path, monkeypatch):
    pytest.importorskip("sklearn", reason="digits come with scikit-learn, an extra")
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    if "import datasets" in text:
        pytest.importorskip("datasets")
    if "turnout_serve." in text:
        pytest.importorskip("turnout_serve", reason="a distribution of its own: pip install ./packages/turnout-serve")
    if ".to_pandas(" in text:
        pytest.importorskip("pandas")
    if "HuggingFace(" in text:
        for package in ("transformers", "peft"):
            pytest.importorskip(package, reason="an extra of 170 MB: pip install '.[transformers]'")
    monkeypatch.setattr("turnout.comparison.planned.num_processors", lambda: 1)  # no processes of its own
    names = {"__name__": f"docs_{page.stem}"}
    monkeypatch.setitem(sys.modules, names["__name__"], type(sys)(names["__name__"]))  # where dataclasses look up names
    if "savefig(" in text or ".svg" in text:
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda _, path, **__: Path(path).write_text("drawn"))
    for block in blocks:
        exec(compile(small(block), page.name, "exec"), names)
    for picture in re.findall(r"!\[[^\]]+\]\((\w+\.svg)\)", text):
        made = picture == "front.svg" or (tmp_path / picture).is_file()  # front.svg is of the runs of `make demo`
        assert made, f"no block of {page.name} makes {picture}"
        assert (page.parent / picture).is_file(), f"write {picture} with: python scripts/pictures.py"


def test_slurm_script_starts_and_resumes_a_run(tmp_path, monkeypatch):
    (script,) = re.findall(
        r"```sh\n(#!/bin/bash\n#SBATCH.*?)```", (ROOT / "docs/guides/clusters.md").read_text(), flags=re.DOTALL
    )
    (tmp_path / "script").write_text(script)
    for name, body in {"scontrol": "echo host-1; echo host-2", "srun": 'printf "%s\\n" "$@" > arguments'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    path = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_NNODES": "2",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "host-[1-2]",
    }
    subprocess.run(["bash", "-eu", "script"], check=True, env=path)
    torchrun, _, command = Path("arguments").read_text().partition("-m\nturnout\n")
    assert torchrun.splitlines()[-1] == "host-1:29500"
    (tmp_path / "run.toml").write_text(
        'rounds = 2\ndata = {num_clients = 10, alpha = 1.0}\nmodel = {name = "logistic"}\n'
    )
    begun = CliRunner().invoke(app, command.split())
    assert begun.exit_code == 0, begun.output
    (tmp_path / "run.toml").write_text((tmp_path / "run.toml").read_text().replace("rounds = 2", "rounds = 4"))
    again = CliRunner().invoke(app, command.split())
    assert again.exit_code == 0, again.output
    assert "going on with the run in runs/large" in again.output
    assert to.load("runs/large").history.last_round == 4


@pytest.mark.parametrize("page", [page for page in PAGES if "```toml" in page.read_text("utf-8")], ids=lambda p: p.stem)
def test_settings_of_a_page_are_valid(page, tmp_path):
    for block in re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL):
        (tmp_path / "run.toml").write_text(block, encoding="utf-8")
        outcome = CliRunner().invoke(app, ["run", "--config", str(tmp_path / "run.toml"), "--print-config"])
        assert outcome.exit_code == 0, outcome.output


@pytest.mark.parametrize("line", COMMANDS)
def test_command_line_is_valid(line):
    """Check commands, options and types without running anything."""
    command: Any = typer.main.get_command(app)
    words = shlex.split(line)[1:]
    while hasattr(command, "get_command"):
        name = words.pop(0)
        command = command.get_command(typer.Context(command), name)
        assert command is not None, name
    command.make_context("turnout", words)


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.split()[1] in ("run", "compare", "sweep")])
def test_settings_on_a_command_line_are_valid(line, tmp_path, monkeypatch):
    """Check names and values without loading data."""
    words, seen = shlex.split(line)[1:], []
    given = [words[i + 1] for i, word in enumerate(words) if word in ("--config", "--resume")]
    if any(not (ROOT / path).exists() for path in given):
        pytest.skip(f"{' '.join(given)} stands for a file of the reader's")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    guide = (ROOT / "docs/guides/pieces.md").read_text("utf-8")
    blocks = re.findall(
        r"```python\n(.*?)```", guide, flags=re.DOTALL
    )  # mine.py has what the guide defines, and runs nothing
    (tmp_path / "mine.py").write_text("\n".join(block for block in blocks if ".run(" not in block), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("run_grid", "run_trials"):
        monkeypatch.setattr(SweepPlan, name, lambda plan, *_: seen.append(plan.plan(plan.ends()).settings))
    monkeypatch.setattr(Tracker, "_module", staticmethod(lambda *_: None))  # trackers' packages are no part of dev
    monkeypatch.setattr("torch.set_num_threads", lambda _: None)
    outcome = CliRunner().invoke(app, words if words[0] == "sweep" else [*words, "--print-config"])
    assert outcome.exit_code == 0, outcome.output
    assert seen or "[algorithm" in outcome.output


def test_list_of_features_has_every_algorithm_and_no_other():
    section = (ROOT / "docs/features.md").read_text("utf-8").partition("## Algorithms")[2].partition("\n\nMethods")[0]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("| ")][1:]
    named = re.findall(r"`(\w+)`", " ".join(re.sub(r"`--[^`]*`|server=\w+", "", row) for row in rows))
    assert sorted(named) == sorted(ALGORITHMS)


@pytest.mark.parametrize("family", ["availability", "robust aggregation"])
def test_lists_of_pieces_name_existing_ones(family):
    text = (ROOT / "docs/features.md").read_text("utf-8")
    row = next(line for line in text.splitlines() if line.startswith(f"| {family} |"))
    known = {**AVAILABILITY, **AGGREGATIONS}
    assert set(re.findall(r"`(\w+)`", row)) <= set(known)


def test_navigation_names_existing_pages():
    nav = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    named = re.findall(r"'((?:tutorials|guides|decisions)/[^']*\.md)'", str(nav))
    assert len(named) > 20
    assert not [page for page in named if not (ROOT / "docs" / page).is_file()]


def _check_outputs(notebook):
    scripts = runpy.run_path(str(ROOT / "scripts/notebooks.py"))
    stale = "outputs are of other code: python scripts/notebooks.py"
    assert notebook["metadata"].get("outputs_of") == scripts["digest"](notebook), stale
    shown = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in shown)
    assert str(ROOT) not in json.dumps(shown)


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/notebooks/*.ipynb")), ids=lambda path: path.stem)
def test_notebook_runs(path, monkeypatch):
    pytest.importorskip("sklearn", reason="digits come with scikit-learn, an extra")
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    _check_outputs(notebook)
    if any("HuggingFace(" in each for each in code):
        for package in ("transformers", "peft"):
            pytest.importorskip(package, reason="an extra of 170 MB: pip install '.[transformers]'")
    names = {"__name__": f"notebook_{path.stem}"}
    monkeypatch.setitem(sys.modules, names["__name__"], type(sys)(names["__name__"]))
    for each in code:
        exec(compile(small(each), path.name, "exec"), names)


def test_first_notebook_is_the_example_of_the_readme():
    first = json.loads((ROOT / "examples/notebooks/first.ipynb").read_text(encoding="utf-8"))["cells"][1]["source"]
    shown = re.search(
        r"```python\n(import turnout as to\n.*?^\)\n)", (ROOT / "README.md").read_text("utf-8"), re.S | re.M
    )
    assert shown
    assert "".join(first).startswith(shown[1])


@pytest.fixture(scope="module")
def site():
    """What builds the site, as a module."""
    spec = importlib.util.spec_from_file_location("docs_script", ROOT / "scripts/docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_diagram_of_folders_is_that_of_the_imports():
    pytest.importorskip("grimp", reason="comes with import-linter, of the extra dev")
    place = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path)
    }  # that of this process, which finds all distributions
    command = [sys.executable, "scripts/imports.py"]
    drawn = subprocess.run(command, cwd=ROOT, env=place, capture_output=True, text=True, check=True).stdout
    assert drawn in (ROOT / "docs/architecture.md").read_text("utf-8"), "write what scripts/imports.py prints"


def test_reference_has_every_public_name(site):
    shown = [name for names in site.reference().values() for name in names]
    assert len(shown) == len(set(shown))
    things = [getattr(to, name) for name in to.__all__]
    public = {
        f"{each.__module__}.{each.__qualname__}" for each in things if isinstance(each, type | types.FunctionType)
    }
    assert public <= set(shown)
    pages = {name: page for page, names in site.reference().items() for name in names}
    assert pages["turnout.pieces.selection.uniform.Uniform"] == "selection"
    assert pages["turnout.population.availability.markov.Markov"] == "population"
    assert pages["turnout.pieces.server_optimizer.adaptive.ServerAdam"] == "server_optimizer"
    assert pages["turnout.protocol.pace.buffered.Buffered"] == "pace"
    assert {"turnout.result.Result", "turnout.base.weighting.Weighting", "turnout.core.types.Report"} <= set(shown)


def test_no_page_of_the_reference_is_empty(site):
    sizes = {page: len(names) for page, names in site.reference().items()}
    assert min(sizes.values()) >= 1, sizes
    assert sizes["weighting"] > 15
    assert sizes["pieces"] < 40, "pieces are on the pages of their slots"


def test_options_do_not_break_at_their_hyphens(site):
    short, long = "Write `--seeds 3`.", "Write `--algorithm fedau server=adam --rounds 500 & more`."
    assert site.adapted(short, "docs/guides/a.md", {}) == "Write `--seeds 3`{.option}."
    option = '<span class="option">{}</span>'
    assert site.adapted(long, "docs/guides/a.md", {}) == (
        f"Write <code>{option.format('--algorithm')} fedau server=adam {option.format('--rounds')} 500 &amp; more</code>."
    )


def test_links_are_adapted_to_the_site(site):
    places = {"docs/guides/a.md": "guides/a.md", "benchmarks/README.md": "benchmarks.md", "docs/b.md": "b.md"}
    text = "[one](../../benchmarks/README.md#there) [two](../b.md) [three](../../own.py) [four](https://x.org) [five](#here)"
    assert site.adapted(text, "docs/guides/a.md", places) == (
        "[one](../benchmarks.md#there) [two](../b.md) three [four](https://x.org) [five](#here)"
    )
    made = {"docs/index.md": "index.md"} | site.of_reference()
    front = (ROOT / "docs/index.md").read_text("utf-8")
    assert "[Reference](reference/experiment.md)" in site.adapted(front, "docs/index.md", made)
    drawing = "```mermaid\nflowchart TD\n    cli --> data\n    cli --> core\n```"
    assert site.adapted(drawing, "docs/b.md", places) == "| folder | imports |\n|---|---|\n| cli | data, core |\n"
