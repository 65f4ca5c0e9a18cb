"""``turnout run``."""

from __future__ import annotations

import errno
import json
import os
import pty
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch

import turnout_cli
from turnout.algorithms import ALGORITHMS
from turnout.algorithms.defaults import Defaults
from turnout.record import checkpoint
from turnout.record.query import History

from ..children import Child, command_line
from ..tiny import LOW_RANK

Turnout = Callable[..., Any]


def bits(folder: Path) -> dict[str, bytes]:
    """All that a run computed, to the last bit: everything but the time it took."""
    history = History.load(folder)
    tables = {
        "rounds": history.rounds.drop_columns("seconds"),
        "clients": history.clients,
        "participation": history.participation,
    }
    tensors, _ = checkpoint.load(folder)
    found = {name: json.dumps(table.to_pydict()).encode() for name, table in tables.items()}
    return found | {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


def threads_of(folder: str) -> int:
    """How many threads the run in a folder had."""
    return json.loads((Path(folder) / "environment.json").read_text())["threads"]


def test_threads_change_no_result(turnout: Turnout, small: Sequence[str]) -> None:
    for number in (1, 2):
        folder = f"with-{number}"
        result = turnout("run", *small, "--rounds", 4, "--threads", number, "--folder", folder)
        assert result.exit_code == 0, result.output
        assert threads_of(folder) == number
    assert bits(Path("with-2")) == bits(Path("with-1"))


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name not in LOW_RANK][::9])
def test_algorithms_run_with_defaults_and_print_their_accuracy(algorithm: str, turnout: Turnout) -> None:
    result = turnout("run", "--algorithm", algorithm, "--data", "digits", "--rounds", 3, "--seed", 0)
    assert result.exit_code == 0, result.output
    last = result.stdout.splitlines()[-1]
    assert last.startswith("test accuracy ")
    assert last.endswith("% after 3 rounds")
    shown = float(last.split()[2].rstrip("%"))
    history = History.load(f"runs/{algorithm}-digits-0")
    assert shown == pytest.approx(100 * history.final("test_accuracy"), abs=0.005)
    held = "1,438" if ALGORITHMS[algorithm]().personal is None else "1,442"  # beside tests of all, or of each
    when = "everyone, pace buffered" if Defaults.of(ALGORITHMS[algorithm]).pace else "markov, pace rounds"
    assert f"100 clients, {held} training examples, model mlp, availability {when}" in result.stderr


def test_accuracy_improves(turnout: Turnout, small: Sequence[str]) -> None:
    result = turnout("run", "--availability", "everyone", "--rounds", 30, *small)
    assert float(result.stdout.splitlines()[-1].split()[2].rstrip("%")) > 80


def test_run_folder_has_the_settings(turnout: Turnout, small: Sequence[str]) -> None:
    result = turnout("run", "--rounds", 3, "--every", 2, *small, "algorithm.cutoff=7", "name=seven")
    assert "tables and checkpoint: runs/seven-digits-0" in result.stdout
    settings = json.loads(Path("runs/seven-digits-0/settings.json").read_text())
    assert settings["algorithm"] == {"name": "fedau", "cutoff": 7}
    assert (settings["rounds"], settings["evaluate_every"], settings["name"]) == (3, 2, "seven")
    assert json.loads(Path("runs/seven-digits-0/config.json").read_text())["algorithm"]["weighting.0"]["cutoff"] == 7


def test_second_run_gets_a_numbered_folder_and_the_same_run_resumes(turnout: Turnout, small: Sequence[str]) -> None:
    for folder, lr in (("fedau-digits-0", 0.1), ("fedau-digits-0-2", 0.2)):
        assert f"runs/{folder}\n" in turnout("run", "--rounds", 1, *small, f"local.lr={lr}").stdout
    again = turnout("run", "--rounds", 1, *small, "local.lr=0.2")
    assert "runs/fedau-digits-0-2\n" in again.stdout
    assert "all 1 rounds are done already" in again.stderr
    longer = turnout("run", "--rounds", 2, *small, "local.lr=0.2")
    assert "going on with the run in runs/fedau-digits-0-2; another --folder starts anew" in longer.stderr
    assert History.load(Path("runs/fedau-digits-0-2")).last_round == 2


def test_flags_precede_files_and_overrides_precede_flags(turnout: Turnout, small: Sequence[str]) -> None:
    Path("a.toml").write_text('rounds = 5\nseed = 5\nevaluate_every = 5\n[algorithm]\nname = "fedau"\ncutoff = 5\n')
    turnout("run", "-c", "a.toml", "--rounds", 4, "--seed", 4, *small, "seed=3", "--folder", "a")
    made = json.loads(Path("a/settings.json").read_text())
    assert (made["rounds"], made["seed"], made["evaluate_every"], made["algorithm"]["cutoff"]) == (4, 3, 5, 5)
    turnout("run", "-c", "a.toml", "--algorithm", "mifa", "--rounds", 1, *small, "--folder", "b")
    assert json.loads(Path("b/settings.json").read_text())["algorithm"] == {"name": "mifa"}


def test_comparison_file_provides_settings_of_one_run(turnout: Turnout, small: Sequence[str]) -> None:
    Path("a.toml").write_text('rounds = 1\nseeds = 3\n[algorithms.inf]\nalgorithm = "fedau"\ncutoff = "none"\n')
    assert turnout("run", "-c", "a.toml", "--algorithm", "inf", *small).exit_code == 0
    made = json.loads(Path("runs/inf-digits-0/settings.json").read_text())
    assert made["algorithm"] == {"name": "fedau", "cutoff": "none"}
    result = turnout("run", "-c", "a.toml", *small)
    assert result.exit_code == 2
    assert "Error: the settings are for several algorithms: add --algorithm inf" in result.stderr


def test_quiet_prints_only_the_result(turnout: Turnout, small: Sequence[str]) -> None:
    assert "round 1 of 1, test accuracy" in turnout("run", "--rounds", 1, *small).stderr
    assert turnout("run", "--rounds", 1, "--quiet", *small).stderr == ""


def test_dropped_clients_are_reported(turnout: Turnout) -> None:
    result = turnout("run", "--rounds", 1, "--model", "logistic", "data.num_clients=1400", "data.alpha=0.01")
    assert "more have no examples and are left out; data.empty=refuse makes this an error" in result.stderr


def test_killed_run_resumes_bit_for_bit(tmp_path: Path, turnout: Turnout, small: Sequence[str]) -> None:
    settings = ("--checkpoint-every", "5", "--every", "10", "--algorithm", "fedvarp", *small)
    killed = tmp_path / "killed"
    process = command_line(tmp_path, "run", "--folder", killed, "--rounds", "100000", *settings)
    process.wait_for((killed / checkpoint.FILE).exists)
    process.signal(signal.SIGKILL)
    assert process.ended()[0] == -signal.SIGKILL
    rounds = checkpoint.load(killed)[1]["version"] + 3
    assert turnout("run", "--resume", killed, "--rounds", rounds).exit_code == 0
    assert turnout("run", "--folder", "whole", "--rounds", rounds, *settings).exit_code == 0
    assert bits(killed) == bits(tmp_path / "whole")


def test_ctrl_c_saves_and_explains_how_to_resume(tmp_path: Path, turnout: Turnout, small: Sequence[str]) -> None:
    folder = tmp_path / "stopped"
    process = command_line(tmp_path, "run", "--folder", folder, "--rounds", "100000", "--checkpoint-every", "1", *small)
    process.wait_for((folder / checkpoint.FILE).exists)  # so it is in the midst of its rounds
    process.signal(signal.SIGINT)
    code, _, told = process.ended()
    assert code == 130, told
    assert f"all saved. Go on with: turnout run --resume {folder}" in told
    assert "Traceback" not in told
    _, facts = checkpoint.load(folder)
    done = facts["version"]
    assert done > 0
    assert turnout("run", "--resume", folder, "--rounds", done + 2, "--quiet").exit_code == 0
    assert History.load(folder).last_round == done + 2


def on_terminal(terminal: str, arguments: Sequence[str]) -> None:
    """Run the command line on its own terminal, whose path a child process receives."""
    os.setsid()
    opened = os.open(terminal, os.O_RDWR)  # the first one that a session opens is its own
    for number in (0, 1, 2):
        os.dup2(opened, number)
    sys.argv = ["turnout", *arguments]
    turnout_cli.main()


def test_closed_terminal_saves(tmp_path: Path, turnout: Turnout, small: Sequence[str]) -> None:
    """SIGHUP is sent, and later writes to the terminal fail."""
    folder, (near, far) = tmp_path / "stopped", pty.openpty()
    arguments = ["run", "--folder", str(folder), "--rounds", "100000", "--checkpoint-every", "1", *small]
    process = Child(tmp_path, on_terminal, os.ttyname(far), arguments)
    process.wait_for((folder / checkpoint.FILE).exists)
    os.close(near)
    os.close(far)
    assert process.ended()[0] == 130
    done = checkpoint.load(folder)[1]["version"]
    assert turnout("run", "--resume", folder, "--rounds", done, "--dry-run").exit_code == 0
    assert History.load(folder).last_round == done
    assert turnout("run", "--resume", folder, "--rounds", done + 2, "--quiet").exit_code == 0


def test_more_rounds_extend_a_finished_run(tmp_path: Path, turnout: Turnout, small: Sequence[str]) -> None:
    turnout("run", "--rounds", 10, "--folder", "a", *small)
    result = turnout("run", "--resume", "a", "--rounds", 20)
    assert result.stdout.endswith("% after 20 rounds\n")
    turnout("run", "--rounds", 20, "--folder", "b", *small)
    assert bits(tmp_path / "a") == bits(tmp_path / "b")
    assert json.loads(Path("a/settings.json").read_text())["rounds"] == 20


def test_finished_run_is_not_repeated(turnout: Turnout, small: Sequence[str]) -> None:
    first = turnout("run", "--rounds", 3, "--folder", "a", *small)
    again = turnout("run", "--resume", "a")
    assert "all 3 rounds are done already; --rounds adds more" in again.stderr
    assert again.stdout.splitlines()[-1] == first.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--algorithm", "fedauu"), "Error: unknown algorithm 'fedauu': did you mean 'fedau'?"),
        (("local.lr",), "Error: override 'local.lr': needed key=value, such as local.lr=0.05"),
        (("algorithm.cutoff=ten",), "Error: algorithm.cutoff: got 'ten', needed a whole number, or none"),
        (("--rounds", "0"), "Error: rounds: got 0, needed a whole number >= 1"),
        (("--threads", "0"), "Error: threads: got 0, needed a whole number >= 1"),
        (("--device", "abacus"), "Error: device 'abacus' cannot be used here"),
        (("--config", "none.toml"), "Error: none.toml: no such file"),
        (("--resume", "nowhere"), "Error: nowhere holds no settings.json: give the folder of a run"),
        (("--resume", "a", "--folder", "b"), "Error: a has its settings: leave --config, --folder and --algorithm out"),
        (("--data", "mnist", "data.directory=nowhere"), "turnout data fetch mnist"),
        (("--rounds", "many"), "Invalid value for '--rounds'"),
        (("--roundz", "3"), "No such option: --roundz"),
        (("--batch-size", "3"), "No such option: --batch-size: did you mean local.batch_size=3?"),
        (("--metrics=f1",), "No such option: --metrics: did you mean metrics=f1?"),
        (("--epochs",), "No such option: --epochs: did you mean local.epochs=VALUE?"),
    ],
)
def test_invalid_usage_prints_one_line(arguments: tuple[str, ...], message: str, turnout: Turnout) -> None:
    result = turnout("run", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not Path("runs").exists()


def test_debug_shows_the_traceback(turnout: Turnout) -> None:
    result = turnout("--debug", "run", "--algorithm", "fedauu")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert "Traceback" not in turnout("run", "--algorithm", "fedauu").stderr


def test_folder_of_another_run_is_refused_and_unchanged(turnout: Turnout, small: Sequence[str]) -> None:
    turnout("run", "--rounds", 4, "--folder", "a", *small)
    before = {path: path.read_bytes() for path in Path("a").iterdir()}
    for arguments, message in {
        ("--folder", "a"): "a holds another experiment (there, and here)",
        (
            "--resume",
            "a",
            "local.lr=0.3",
        ): "holds another experiment (there, and here): algorithm.local.lr: 0.1 and 0.3",
        ("--resume", "a", "--rounds", "3"): "a holds 4 rounds, more than the 3 asked for",
    }.items():
        result = turnout("run", *arguments)
        assert result.exit_code == 2
        assert message in result.stderr
    assert {path: path.read_bytes() for path in Path("a").iterdir()} == before


def test_damaged_settings_file_is_refused(turnout: Turnout) -> None:
    Path("a").mkdir()
    Path("a/settings.json").write_text("{")
    assert "settings.json is damaged" in turnout("run", "--resume", "a").stderr


def test_unwritable_folder_is_refused(turnout: Turnout, small: Sequence[str]) -> None:
    Path("file").write_text("")
    result = turnout("run", "--rounds", 1, "--folder", "file/run", *small)
    assert result.exit_code == 2
    assert f"cannot write {Path.cwd() / 'file/run'}" in result.stderr


@pytest.mark.parametrize(
    "refused",
    [
        ("selection.name=uniform", "selection.cohort_size=99"),
        ("--algorithm", "scaffold", "aggregation=secure_sum"),
        ("--track", "nope"),
        ("--patience", "0"),
        ("local.batch_size=0",),
    ],
)
def test_refused_run_creates_no_folder(refused: Sequence[str], turnout: Turnout, small: Sequence[str]) -> None:
    result = turnout("run", "--rounds", 1, *small, *refused)
    assert result.exit_code == 2, result.output
    assert not list(Path().iterdir())
    if "--track" in refused:
        assert result.stderr.startswith("Error: unknown tracker 'nope'"), "before anything is said of the run"
    assert "tables and checkpoint: runs/fedau-digits-0\n" in turnout("run", "--rounds", 1, *small).stdout


LONG, DECLARATIONS = "x" * 300, str(Path(__file__).parents[2] / "reproductions")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--folder", LONG, "--rounds", "1"),
        ("run", "--resume", LONG),
        ("run", "--config", LONG),
        ("compare", "fedau", "--folder", LONG, "--rounds", "1", "--seeds", "1"),
        ("sweep", "--grid", "local.lr=0.1,0.2", "--folder", LONG, "--rounds", "1", "--seeds", "1"),
        ("serve", "--folder", LONG),
        ("report", LONG),
        ("export", LONG, "model.safetensors"),
        ("replay", LONG),
        ("data", "show", "digits", "--output", f"{LONG}.png"),
        (
            "reproduce",
            "fedau/digits",
            "--folder",
            LONG,
            "--rounds",
            "1",
            "--seeds",
            "1",
            "--declarations",
            DECLARATIONS,
        ),
    ],
)
def test_too_long_path_prints_one_line(arguments: Sequence[str], turnout: Turnout) -> None:
    result = turnout(*arguments)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.stderr.splitlines()[-1].startswith("Error: ")
    assert "too long" in result.stderr
    assert not list(Path().iterdir())


def test_run_without_final_checkpoint_is_unfinished(
    turnout: Turnout, small: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save_file, saved = safetensors.torch.save_file, []

    def full(*arguments: Any, **options: Any) -> None:
        saved.append(arguments)
        if len(saved) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        save_file(*arguments, **options)

    call = ("run", "--rounds", 3, "--checkpoint-every", 1, *small)
    with monkeypatch.context() as patch:
        patch.setattr(safetensors.torch, "save_file", full)
        ended = turnout(*call, "--folder", "full")
    assert ended.exit_code == 1
    assert "No space left on device" in ended.stderr
    assert "2 of 3 rounds): go on with" in turnout("report", "full").stderr
    assert "after 2 rounds" in turnout("export", "full", "model.safetensors").stdout
    again = turnout("run", "--resume", "full")
    assert again.exit_code == 0
    assert "going on with the run in full" in again.stderr
    assert turnout(*call, "--folder", "whole").exit_code == 0
    assert bits(Path("full")) == bits(Path("whole"))


def test_failing_run_exits_with_1(turnout: Turnout, small: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from turnout.core.checks import CheckpointError
    from turnout.simulation.simulation import Simulation

    def full(_: Simulation, folder: Path, *__: Any) -> None:
        raise CheckpointError(f"no room in {folder}")

    monkeypatch.setattr("turnout.simulation.running.save_simulation", full)
    result = turnout("run", "--rounds", 2, "--folder", "a", *small)
    assert result.exit_code == 1
    assert f"Error: no room in {Path.cwd() / 'a'}" in result.stderr


@pytest.mark.usefixtures("undrawn")
def test_run_that_reaches_its_target_stops_and_can_continue(turnout: Turnout) -> None:
    given = ["--algorithm", "average_participating", "--data", "digits", "--rounds", "30", "--every", "5"]
    result = turnout("run", *given, "--stop-at", "0.2", "--folder", "good")
    assert result.exit_code == 0, result.stderr
    ended = History.load(Path("good")).last_round
    assert f"after {ended} rounds" in result.stdout
    assert ended < 30
    assert turnout("report", "good").exit_code == 0
    assert turnout("run", "--resume", "good").exit_code == 0
    assert History.load(Path("good")).last_round == 30
    assert "needed" in turnout("run", *given, "--patience", "0").stderr


@pytest.mark.parametrize("algorithm", ["fedrep", "ditto"])
def test_private_run_of_personal_models_ends_without_an_accuracy(algorithm: str, turnout: Turnout) -> None:
    pytest.importorskip("dp_accounting", reason="an extra: pip install '.[privacy]'")
    private = ("aggregation=private_sum", "aggregation.cohort=3", "data.num_clients=10", "--folder", "private")
    result = turnout("run", "--algorithm", algorithm, "--data", "digits", "--rounds", 2, *private)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "no accuracy or error was recorded in 2 rounds"
