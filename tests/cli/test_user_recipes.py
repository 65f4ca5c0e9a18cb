"""Recipes from user files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from turnout import load
from turnout.cli import user_code
from turnout.cli.app import app
from turnout.cli.compare import planned
from turnout.cli.settings import Settings
from turnout.comparison.folders import load_record
from turnout.core.checks import ConfigurationError
from turnout.pieces.weighting import DivideBySum
from turnout.protocol.pace import Buffered
from turnout.record import storage

EXAMPLE = f"{Path(__file__).parents[2] / 'examples' / 'patient.py'}:patient"


def test_recipe_from_a_file_has_options_and_a_short_name() -> None:
    made = Settings.of({"algorithm": {"name": EXAMPLE, "power": 2, "local": {"lr": 0.3}}})
    algorithm = made.algorithm()
    assert made.name == algorithm.name == "patient"
    assert repr(algorithm.weighting[0]) == "Patience(power=2.0)"
    assert isinstance(algorithm.weighting[1], DivideBySum)
    assert getattr(algorithm.local, "lr", None) == 0.3
    with pytest.raises(ConfigurationError, match=r"unknown option 'algorithm.powr' of patient: did you mean 'power'"):
        Settings.of({"algorithm": {"name": EXAMPLE, "powr": 2}})


def test_recipe_from_a_file_is_compared_with_built_in_ones(
    turnout: Callable[..., Any], small: tuple[str, ...], tmp_path: Path
) -> None:
    call = ("compare", EXAMPLE, "fedbuff", "patient.power=3", *small, "--seeds", "1", "--rounds", "8", "--jobs", "1")
    call = (*call, "--pace", "buffered", "pace.buffer_size=3", "--folder", tmp_path / "out", "--quiet", "--no-report")
    result = turnout(*call)
    assert result.exit_code == 0, result.output
    assert "patient" in result.stdout
    weights = [
        pq.read_table(tmp_path / "out" / name / "seed-0" / "clients.parquet")["influence"].to_pylist()
        for name in ("patient", "fedbuff")
    ]
    assert weights[0] != weights[1]
    again = turnout(*call)
    assert again.stdout == result.stdout


def test_file_that_changes_the_working_directory_does_not_move_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack: a script that changes to its own folder when it is imported."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "own.py").write_text("import os\nos.chdir(os.path.dirname(__file__))\nmine = None\n")
    monkeypatch.chdir(tmp_path)
    assert user_code.loaded("code/own.py:mine") is None
    assert Path.cwd() == tmp_path


def test_run_with_a_recipe_from_a_file_resumes(
    turnout: Callable[..., Any], small: tuple[str, ...], tmp_path: Path
) -> None:
    options = ("--algorithm", EXAMPLE, "--pace", "buffered", "pace.buffer_size=3", *small, "--quiet")
    result = turnout("run", *options, "--rounds", "3", "--folder", tmp_path / "half")
    assert result.exit_code == 0, result.output
    assert turnout("run", *options, "--rounds", "5", "--folder", tmp_path / "whole").exit_code == 0
    file = EXAMPLE.rpartition(":")[0]
    result = turnout("run", "--resume", tmp_path / "half", "--rounds", "5", "--quiet", "--code", file)
    assert result.exit_code == 0, result.output
    half, whole = (pq.read_table(tmp_path / name / "rounds.parquet")["update_norm"] for name in ("half", "whole"))
    assert half.to_pylist() == whole.to_pylist()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, small: tuple[str, ...]) -> Path:
    """Return the folder of a finished run of the command line."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    ran = CliRunner().invoke(app, ["run", "--rounds", "2", *small, "--quiet", "--folder", str(folder)])
    assert ran.exit_code == 0, ran.output
    return folder


@pytest.fixture(params=["algorithm", "data"])
def sent(request: pytest.FixtureRequest, finished: Path, tmp_path: Path) -> Path:
    """Return a run folder from another source that names a file, which leaves a mark if it is executed."""
    folder = tmp_path / "sent"
    shutil.copytree(finished, folder)
    (folder / "evil.py").write_text(
        f"from pathlib import Path\nPath({str(tmp_path / 'mark')!r}).touch()\n"
        "from turnout import fedau as recipe, Experiment\n"
    )
    settings = json.loads((folder / "settings.json").read_text())
    settings[request.param]["name"] = f"{folder / 'evil.py'}:recipe"
    storage.save(folder, {"settings.json": storage.json_writer(settings)})
    return folder


@pytest.mark.parametrize(
    "door",
    [
        ("run", "--resume", "sent"),
        ("run", "--resume", "sent", "--rounds", "3"),
        ("run", "--resume", "sent", "--dry-run"),
        ("run", "--resume", "sent", "--print-config"),
        ("run", "--resume", "sent", "--code", "other.py"),
        ("replay", "sent"),
        ("report", "sent"),
        ("export", "sent", "model.safetensors"),
        ("plot", "sent", "--output", "x.svg"),
        ("table", "sent"),
    ],
)
def test_reading_a_folder_runs_no_code(door: tuple[str, ...], sent: Path, turnout: Callable[..., Any]) -> None:
    result = turnout(*door)
    assert not sent.with_name("mark").exists()
    if door[0] in ("run", "replay"):
        assert result.exit_code == 2
        message = f"names code, '{sent}/evil.py:recipe', which can run anything on this machine: read the file"
        assert message in result.stderr.replace("\n", " ")
        assert f"add --code {sent}/evil.py" in result.stderr
    else:
        assert result.exit_code == 0, result.output
    if door[0] == "report" and "evil" in json.loads((sent / "settings.json").read_text())["data"]["name"]:
        assert "no plot of the clients' data: sent names code" in result.stderr.replace("\n", " ")
    load(sent)
    load_record(sent)
    assert not sent.with_name("mark").exists()


def test_reading_a_server_folder_runs_no_code(sent: Path, turnout: Callable[..., Any]) -> None:
    (sent / "experiment.txt").write_text(f"{sent / 'evil.py'}:recipe\n")
    assert "names code" in turnout("replay", sent).stderr
    (sent / "experiment.txt").write_text(f"{sent / 'evil.toml'}\n")
    (sent / "evil.toml").write_text(f"[algorithm]\nname = '{sent / 'evil.py'}:recipe'\n")
    assert "experiment.txt is damaged: needed FILE.py:EXPERIMENT" in turnout("replay", sent).stderr
    assert not sent.with_name("mark").exists()


@pytest.mark.parametrize("answer", [True, False])
def test_terminal_asks_before_running_code(answer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def confirm(question: str, **_: Any) -> bool:
        asked.append(question)
        return answer

    monkeypatch.setattr(user_code.typer, "confirm", confirm)
    monkeypatch.setattr(user_code.sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(user_code.sys.stderr, "isatty", lambda: True)
    found = {"algorithm": {"name": "a.py:f"}, "also": ["a.py:g"]}
    with nullcontext() if answer else pytest.raises(ConfigurationError, match=r"runs/x names code, 'a.py:f'"):
        user_code.refuse_code(found, Path("runs/x"), ())
    assert asked == ["runs/x names code: run a.py?"]


def test_comparison_with_an_asynchronous_recipe_uses_a_clock() -> None:
    names, layer = user_code.named([EXAMPLE, "fedbuff"])
    assert names == ["patient", "fedbuff"]
    assert layer == {"algorithms": {"patient": {"algorithm": EXAMPLE}}}
    assert Settings.of({"algorithm": EXAMPLE}, pace="buffered").pace() == Buffered()


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (None, "own.py:mine", "own.py:mine: there is no file own.py: needed FILE.py:NAME, as seen from"),
        ("1 / 0", "own.py:mine", "own.py cannot be run: ZeroDivisionError: division by zero"),
        ("", "own.py:mine", "own.py has no function or class 'mine': it has no functions and no classes"),
        ("def mean(local, also): pass", "own.py:maen", "own.py has no function or class 'maen': did you mean 'mean'"),
        (
            "def mine(): pass",
            "own.py:mine",
            r"own.py:mine is not a recipe: write def mine\(local: Sgd \| None = None, also=\(\)\)",
        ),
        (
            "import turnout as to\ndef mine(local: to.Sgd | None = None, also=()): return to.weighting.DivideBySum()",
            "own.py:mine",
            r"own.py:mine: got DivideBySum\(\), needed an algorithm. return what to.compose\(...\) makes",
        ),
    ],
)
def test_invalid_recipe_is_refused(
    text: str | None, name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "own.py").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=f"(?i){message}"):
        Settings.of({"algorithm": name}).algorithm()


def test_short_names_are_distinct() -> None:
    with pytest.raises(ConfigurationError, match=r"a\.py:fedbuff: there is another algorithm called fedbuff"):
        user_code.named(["a.py:fedbuff"])
    with pytest.raises(ConfigurationError, match=r"b\.py:mine: there is another algorithm called mine"):
        user_code.named(["a.py:mine", "b.py:mine"])


def test_settings_of_a_recipe_have_the_name_that_it_is_compared_by(
    turnout: Callable[..., Any], small: tuple[str, ...]
) -> None:
    """Also in a sweep and as an axis, beside algorithms to which they do not apply."""
    words = (EXAMPLE, "fedbuff", f"{EXAMPLE}.local.lr=0.03", f"{EXAMPLE}.power=3", "pace=buffered")
    _, plan = planned(words, [{}, {}])
    assert plan["patient"].algorithm().local.lr == 0.03  # type: ignore[attr-defined]
    assert repr(plan["patient"].algorithm().weighting[0]) == "Patience(power=3.0)"
    assert plan["fedbuff"].algorithm().local.lr != 0.03  # type: ignore[attr-defined]
    call = ("--grid", f"algorithm=fedbuff,{EXAMPLE}", "--grid", f"{EXAMPLE}.local.lr=0.03,0.07", f"{EXAMPLE}.power=3")
    found = turnout("sweep", *call, *small, "pace=buffered", "pace.buffer_size=3", "--rounds", 2, "--seeds", 1,
                    "--jobs", 1, "--folder", "swept", "--quiet")  # fmt: skip
    assert found.exit_code == 0, found.output
    settings = [json.loads(path.read_text("utf-8")) for path in Path("swept").glob("*/seed-0/settings.json")]
    lrs = {(user_code.short(table["algorithm"]["name"]), table["local"]["lr"]) for table in settings}
    assert {("patient", 0.03), ("patient", 0.07)} <= lrs
    assert {lr for name, lr in lrs if name == "fedbuff"}.isdisjoint({0.03, 0.07})
    assert all(table["algorithm"].get("power") == 3 for table in settings if "patient" in table["algorithm"]["name"])
