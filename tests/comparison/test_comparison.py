"""Comparisons from Python: the same whatever the number of jobs, robust to what fails, resumable."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

import turnout
from turnout import sweep
from turnout.cli.settings import Settings
from turnout.comparison import planned, processes
from turnout.comparison.compare import RunsFailed, Stopped, compare
from turnout.comparison.display import display
from turnout.comparison.folders import is_finished, load_record, load_records, save_order
from turnout.comparison.planned import check_experiments, columns_of
from turnout.comparison.run import Run
from turnout.comparison.update import Update
from turnout.core.checks import CheckpointError, ConfigurationError, DataError
from turnout.engine.loss import squared_error
from turnout.experiment import Experiment
from turnout.record import checkpoint
from turnout.results.records import RunRecord


def make(algorithm: str = "fedau", rounds: int = 6, **settings: Any) -> Settings:
    return Settings.of(
        {
            "algorithm": algorithm,
            "rounds": rounds,
            "data": {"num_clients": 10, "alpha": 1.0},
            "model": "logistic",
            "evaluate_every": 3,
        },
        settings,
    )


def what_was_computed(record: RunRecord) -> tuple[Any, ...]:
    history = record.history
    tables = (history.rounds.drop_columns("seconds"), history.clients, history.participation)
    return record.algorithm, record.seed, *(json.dumps(table.to_pydict()) for table in tables)


def test_results_do_not_depend_on_the_number_of_jobs(tmp_path: Path) -> None:
    experiments = {"fedau": make("fedau"), "mine": make("mifa")}
    alone = compare(experiments, 2, tmp_path / "one", jobs=1)
    together = compare(experiments, 2, tmp_path / "two", jobs=2)
    assert [what_was_computed(record) for record in together] == [what_was_computed(record) for record in alone]
    assert [(r.algorithm, r.seed) for r in alone] == [("fedau", 0), ("fedau", 1), ("mine", 0), ("mine", 1)]
    for name in experiments:
        for seed in (0, 1):
            one, two = (checkpoint.load(tmp_path / side / name / f"seed-{seed}")[0] for side in ("one", "two"))
            assert all(torch.equal(one[key], two[key]) for key in one.keys() | two.keys())


def test_results_do_not_depend_on_runs_in_lockstep(tmp_path: Path) -> None:
    experiments = {"fedau": make("fedau"), "mine": make("scaffold")}
    alone = compare(experiments, 3, tmp_path / "one", jobs=1)
    together = compare(experiments, 3, tmp_path / "two", jobs=2, lockstep=2)
    assert [what_was_computed(record) for record in together] == [what_was_computed(record) for record in alone]
    for path in (tmp_path / "one").rglob(checkpoint.FILE):
        run = path.parent.relative_to(tmp_path / "one")
        one, two = (checkpoint.load(tmp_path / side / run)[0] for side in ("one", "two"))
        assert all(torch.equal(one[key], two[key]) for key in one.keys() | two.keys())


def test_runs_in_lockstep_begin_stop_and_resume_together(tmp_path: Path) -> None:
    """The first two seeds of an algorithm begin together, and Ctrl-C saves both."""
    updates, experiments = list[Update](), {"a": make(rounds=100_000), "b": make("mifa", rounds=100_000)}

    def stop_once(update: Update) -> None:
        if update.status == "running" and updates[-1].status == "started":
            signal.raise_signal(signal.SIGINT)
        updates.append(update)

    with pytest.raises(Stopped, match="stopped with 0 of 6 runs finished"):
        compare(experiments, 3, tmp_path, jobs=1, lockstep=2, progress=stop_once)
    assert [str(update) for update in updates if update.status == "started"] == ["a, seed 0", "a, seed 1"]
    done = [checkpoint.load(tmp_path / "a" / f"seed-{seed}")[1]["version"] for seed in (0, 1)]
    assert min(done) >= 1
    records = compare({"a": make(rounds=max(done) + 1)}, 2, tmp_path, jobs=1, lockstep=2)
    assert [record.history.last_round for record in records] == [max(done) + 1] * 2


def test_one_failure_leaves_the_other_run_in_lockstep(tmp_path: Path) -> None:
    def experiment(seed: int) -> Experiment:
        if seed:
            raise DataError("no data of seed 1")
        return make().experiment()

    with pytest.raises(RunsFailed, match="no data of seed 1") as failed:
        compare({"a": experiment}, 2, tmp_path, jobs=1, lockstep=2)
    assert [record.seed for record in failed.value.records] == [0]


def test_runs_in_lockstep_use_one_thread(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="lockstep: got 2 with threads=2, needed threads=1: use processors by"):
        compare({"a": make()}, 2, tmp_path, threads=2, lockstep=2)


def test_an_algorithm_that_cannot_run_ends_a_comparison_before_the_first_round(tmp_path: Path) -> None:
    experiments = {
        "fedau": make("fedau"),
        "moon": make("moon"),
    }
    with pytest.raises(ConfigurationError, match=r"moon: representations: .* has one layer with trainable parameters"):
        compare(experiments, 2, tmp_path, jobs=1)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_records_are_in_the_order_of_the_comparison(tmp_path: Path) -> None:
    records = compare({"mifa": make("mifa"), "fedau": make("fedau")}, [3, 1], tmp_path, jobs=1)
    again = load_records([tmp_path])
    assert [what_was_computed(record) for record in again] == [what_was_computed(record) for record in records]
    assert [(record.algorithm, record.seed) for record in again] == [
        ("mifa", 3),
        ("mifa", 1),
        ("fedau", 3),
        ("fedau", 1),
    ]
    assert again[0].known_rates is not None


def test_any_function_of_the_seed_can_be_compared_in_this_process(tmp_path: Path) -> None:
    data = make().data()
    records = compare({"shared": lambda seed: make(seed=seed).experiment(data)}, 2, tmp_path, jobs=1)
    assert [record.seed for record in records] == [0, 1]


def test_number_of_threads_is_restored(tmp_path: Path) -> None:
    before, seen = torch.get_num_threads(), []
    compare({"a": make()}, 1, tmp_path, jobs=1, threads=2, progress=lambda _: seen.append(torch.get_num_threads()))
    assert set(seen) == {2}
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("threads", "processes"), [(1, 5), (2, 2), (3, 1), (9, 1)])
def test_parallel_runs_times_threads_fit_the_processors(
    threads: int, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("turnout.comparison.compare")  # the package has a function of this name
    seen: list[tuple[int, int]] = []

    monkeypatch.setattr(planned, "num_processors", lambda: 5)
    monkeypatch.setattr(module, "Processes", lambda processes, resources: seen.append((processes, resources.threads)))
    monkeypatch.setattr(module, "perform_in", lambda *_: None)
    monkeypatch.setattr(module, "perform_in_sequence", lambda _, resources, *__: seen.append((1, resources.threads)))
    with pytest.raises(Stopped):
        compare({"a": make()}, 8, tmp_path, threads=threads)
    assert seen == [(processes, threads)]


def test_updates_report_progress_of_runs(tmp_path: Path) -> None:
    updates: list[Update] = []
    compare({"a": make()}, 1, tmp_path, jobs=1, progress=updates.append)
    assert [update.status for update in updates][:2] == ["started", "running"]
    assert updates[-1] == Update("a", 0, "done", done=6, rounds=6, note=updates[-1].note)
    assert updates[-1].note.startswith("test accuracy ")
    compare({"a": make()}, 1, tmp_path, jobs=1, progress=updates.append)
    assert updates[-1].note == "was finished"


def late(ends: Callable[..., Any]) -> Callable[[int], Experiment]:
    """Runs that end so with their second seed, which nobody tries before. Made of code, for processes have no tests."""
    names: dict[str, Any] = {"__name__": "__main__", "ends": ends, "first": make()}
    exec("make = lambda seed: first(seed) if seed == 0 else ends(seed)", names)
    return names["make"]


def test_failed_run_does_not_stop_the_others(tmp_path: Path) -> None:
    # os._exit(1) is what a process does that is killed: it says nothing any more. divmod(0, 0) raises.
    ends = {"dies": os._exit, "raises": partial(divmod, 0, 0), "wrong": int}
    with pytest.raises(RunsFailed) as caught:
        compare({name: late(end) for name, end in ends.items()} | {"lives": make()}, 2, tmp_path, jobs=2)
    message = str(caught.value)
    assert message.startswith("3 runs failed:\n")
    assert "dies, seed 1: its process died (exit code 1). The same command resumes it" in message
    assert "raises, seed 1: " in message
    assert "wrong, seed 1: wrong(1) gave 1, needed an Experiment" in message
    assert [(r.algorithm, r.seed) for r in caught.value.records][-2:] == [("lives", 0), ("lives", 1)]
    raised = next(failure for failure in caught.value.failures if failure.name == "raises")
    assert "Traceback" in raised.trace


def test_invalid_runs_are_refused_before_training(tmp_path: Path) -> None:
    too_many = make("folb", selection={"name": "uniform", "cohort_size": 99})
    for experiments, options, message in (
        ({"good": make(), "bad": too_many}, {}, r"bad: cohort_size: got 99"),
        ({"good": make(), "bad": int}, {}, "bad: got 0, needed an Experiment"),
        (
            {"good": make(), "bad": turnout.fedau()},
            {},
            r"experiments\['bad'\]: got Algorithm.*needed a function of the seed",
        ),
    ):
        told: list[Update] = []
        with pytest.raises(ConfigurationError, match=message):
            compare(experiments, 1, tmp_path, jobs=1, progress=told.append, **options)
        assert not told
        assert not list(tmp_path.iterdir())


def top(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.argmax(dim=1) == targets).double()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "test_acuracy"}, "lr-0.1: unknown column 'test_acuracy': did you mean 'test_accuracy'"),
        ({"metric": "appeal_test"}, "lr-0.1: unknown column 'appeal_test'"),
        ({"metric": "test_top"}, "test_top: its name does not say whether less or more is better"),
        ({"metric": "simulated_seconds", "to_accuracy": 0.5}, "simulated_seconds will not be recorded"),
    ],
)
def test_unrecorded_columns_are_refused_before_training(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        sweep(
            lambda seed, lr: replace(make(local={"lr": lr})(seed), metrics=(top,)), {"lr": [0.1]}, 1, tmp_path, jobs=1,
            **options,
        )  # fmt: skip
    assert not list(tmp_path.iterdir())


def test_to_accuracy_without_recorded_accuracy_is_refused() -> None:
    tested = make()
    untested = make(data={"num_clients": 10, "alpha": 1.0, "test_fraction": 0.0})
    message = "to_accuracy: one will record test_accuracy, and other will not"
    with pytest.raises(ConfigurationError, match=message):
        check_experiments({"one": tested.experiment, "other": untested.experiment}, target=True)
    check_experiments({"one": untested.experiment}, target=True)


def test_to_accuracy_of_numbers_is_refused() -> None:
    table = {"x": np.arange(40.0), "y": np.arange(40.0) / 3, "site": np.arange(40) % 4}
    data = turnout.data.from_table(table, label="y", client="site").split(client_test_fraction=0.25)
    regression = turnout.Experiment(data, turnout.models.Logistic(), turnout.fedavg(), loss=squared_error)
    with pytest.raises(ConfigurationError, match="to_accuracy: no accuracy will be recorded, as targets are no labels"):
        check_experiments({"regression": lambda: regression}, target=True)


def test_tests_on_different_examples_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """A table gave them one column and one p-value."""
    both = {"num_clients": 10, "alpha": 1.0, "client_test_fraction": 0.2, "test_fraction": 0.2}
    shared, personal = make(data=both).experiment, make("ditto", data=both).experiment
    check_experiments({"shared": shared, "other": shared})
    check_experiments({"personal": personal})
    alike = make(data={**both, "test_fraction": 0.0}).experiment
    check_experiments({"alike": alike, "ditto": make("ditto").experiment})
    assert not caplog.records
    check_experiments({"shared": shared, "ditto": personal})
    assert "ditto: tested on the clients' own test examples, and shared on the pooled test" in caplog.text


def test_runs_record_the_predicted_columns() -> None:
    made = make("fedbuff", gradients={}, rounds=1).experiment()
    recorded = made.run().history.column_names
    assert set(recorded) <= columns_of(made) | {"train_loss", "test_loss", "train_accuracy", "test_accuracy"}


NOTEBOOK = """
class Own(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x)


def experiment(seed, lr=0.1):
    torch.manual_seed(seed)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 4)).astype("float32")
    data = to.data.from_arrays(x, (x[:, 0] > 0).astype(int)).split(to.partition.Iid(), num_clients=4, seed=seed)
    return to.Experiment(data, Own(), to.fedavg(local=to.Sgd(lr=lr)), rounds=2, seed=seed)


records = to.compare({"one": experiment, "other": lambda seed: experiment(seed, 0.2)}, 1, folder, jobs=2)
"""
SCRIPT = (
    f"import numpy as np, sys, torch\nimport turnout as to\nfolder = sys.argv[1]\n{NOTEBOOK}\nprint(len(records))\n"
)


def test_functions_and_classes_of_a_notebook_run_in_several_processes(tmp_path: Path) -> None:
    names = {"__name__": "__main__", "np": np, "torch": torch, "to": turnout, "folder": tmp_path}
    exec(NOTEBOOK, names)
    assert [record.algorithm for record in names["records"]] == ["one", "other"]  # type: ignore[union-attr]


def test_a_script_without_a_guard_runs_in_several_processes(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ended = subprocess.run([sys.executable, script, tmp_path / "runs"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "2\n", "")


def test_processes_inherit_the_present_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = late(partial(os.getenv, "TURNOUT_TOLD"))  # of a seed: what the environment says, or the seed
    for value in ("one", "two"):
        monkeypatch.setenv("TURNOUT_TOLD", value)
        with pytest.raises(RunsFailed, match=rf"told, seed 1: .* gave '{value}', needed an Experiment"):
            compare({"told": told}, 2, tmp_path / value, jobs=2)  # type: ignore[dict-item]
    monkeypatch.delenv("TURNOUT_TOLD")
    with pytest.raises(RunsFailed, match=r"told, seed 1: .* gave 1, needed an Experiment"):
        compare({"told": told}, 2, tmp_path / "none", jobs=2)  # type: ignore[dict-item]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes are not forked")
def test_processes_are_spawned_if_the_fork_server_cannot_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    method = processes._context.__wrapped__
    assert method().get_start_method() == "forkserver"
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/" + 80 * "x")
    assert method().get_start_method() == "spawn"


def test_an_experiment_that_ignores_its_seed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunsFailed, match=r"a, seed 1: a\(1\) gave an experiment with seed 0: pass the seed on to it"):
        compare({"a": lambda _: make().experiment()}, [1], tmp_path, jobs=1)


@pytest.mark.parametrize(("jobs", "number"), [(1, signal.SIGINT), (2, signal.SIGINT), (2, signal.SIGHUP)])
def test_signal_saves_all_runs_and_repeating_the_call_resumes(
    jobs: int, number: signal.Signals, tmp_path: Path
) -> None:
    def stop_once(update: Update, stopped: list[bool] = [False]) -> None:  # noqa: B006 - the list remembers
        if update.status == "running" and update.done > 1 and not stopped[0]:
            stopped[0] = True
            signal.raise_signal(number)

    experiments = {name: make(name, rounds=100_000) for name in ("fedau", "mifa", "fedavg")}
    with pytest.raises(Stopped, match=rf"stopped with 0 of 3 runs finished, all saved in {tmp_path}"):
        compare(experiments, 1, tmp_path, jobs=jobs, progress=stop_once)
    saved = [path.parent.parent.name for path in tmp_path.rglob(checkpoint.FILE)]
    assert 1 <= len(saved) <= jobs
    done = {name: checkpoint.load(tmp_path / name / "seed-0")[1]["version"] for name in saved}
    assert min(done.values()) >= 1
    rounds = max(done.values()) + 1
    records = compare({name: make(name, rounds=rounds) for name in experiments}, 1, tmp_path, jobs=1)
    assert [record.history.last_round for record in records] == [rounds] * 3


def test_finished_runs_are_recognized(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "seed-0"
    assert not is_finished(folder, make().experiment())
    compare({"fedau": make()}, 1, tmp_path, jobs=1)
    folder = tmp_path / "fedau" / "seed-0"
    assert is_finished(folder, make().experiment())
    assert not is_finished(folder, make(rounds=7).experiment())
    with pytest.raises(CheckpointError, match=r"holds 6 rounds, more than the 5 asked for: ask for 6 or more"):
        is_finished(folder, make(rounds=5).experiment())
    with pytest.raises(
        CheckpointError, match=r"another experiment \(there, and here\): algorithm.local.lr: 0.1 and 0.2"
    ):
        is_finished(folder, make(local={"lr": 0.2}).experiment())


def test_damaged_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no run: give the folder of a run or of a comparison"):
        load_records([tmp_path])
    with pytest.raises(CheckpointError, match=r"holds no config.json: give the folder of a run"):
        load_record(tmp_path)
    for text in ("{", "[]", "{}"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"config.json is damaged"):
            load_record(tmp_path)


@pytest.mark.parametrize(
    ("experiments", "options", "message"),
    [
        ({}, {}, r"experiments: got \{\}, needed a function of the seed for each name"),
        ({"a/b": make()}, {}, "name: got 'a/b', needed letters, digits"),
        (
            {"fedau": make(), "FedAU": make()},
            {},
            "names: 'fedau' and 'FedAU' are one folder on file systems that ignore case",
        ),
        ({"a\u00c5": make(), "a\u212b": make()}, {}, r"names: 'a\\xc5' and 'a\\u212b' are one folder"),
        ({"a": make()}, {"seeds": 0}, "seeds: got 0, needed a whole number >= 1"),
        ({"a": make()}, {"seeds": 10**8}, "seeds: got 100000000, needed at most 10,000"),
        ({"a": make()}, {"seeds": range(10**8)}, "seeds: got .*, needed at most 10,000"),
        ({"a": make()}, {"seeds": []}, r"seeds: got \[\], needed at least one seed, each once"),
        ({"a": make()}, {"seeds": [1, 1]}, r"seeds: got \[1, 1\], needed at least one seed, each once"),
        ({"a": make()}, {"seeds": [-1]}, "seed: got -1, needed a whole number >= 0"),
        ({"a": make()}, {"jobs": 0}, "jobs: got 0, needed a whole number >= 1"),
        ({"a": make()}, {"threads": 0}, "threads: got 0, needed a whole number >= 1"),
        (
            {"a": late(Lock().acquire)},
            {"jobs": 2},
            r"a: .* cannot be sent to another process .*: make what it needs inside of it, or write jobs=1",
        ),
    ],
)
def test_invalid_arguments_are_refused(
    experiments: dict[str, Any], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        compare(experiments, **{"seeds": 2, "folder": tmp_path, "jobs": 1} | options)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write"):
        compare({"a": make()}, 1, tmp_path / "file", jobs=1)


def test_bars_show_running_and_failed_runs() -> None:
    console = Console(width=120, record=True, force_terminal=True)
    with display(2, True, console) as tell:
        tell(Update("a", 0, "started"))
        tell(Update("a", 0, "running", done=3, rounds=9, note="test accuracy 50.0%"))
        console.print(tell.drawing.shown)  # type: ignore[attr-defined]
        tell(Update("a", 0, "done", done=9, rounds=9))
        tell(Update("b", 0, "failed", note="no room"))
    shown = console.export_text()
    assert "a, seed 0" in shown
    assert "3/9" in shown
    assert "test accuracy 50.0%" in shown
    assert "b, seed 0 failed: no room" in shown
    assert "2/2" in shown


def test_each_run_prints_a_line_without_a_terminal() -> None:
    console = Console(width=120, record=True, force_terminal=False)
    with display(1, True, console) as tell:
        tell(Update("a", 0, "done", done=9, rounds=9, note="test accuracy 50.0%"))
    assert "a, seed 0: done, test accuracy 50.0%" in console.export_text()


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two GPUs, as far as one can tell without using them."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(("jobs", "processes"), [(None, 2), (5, 5), (1, 1)])
def test_processes_share_gpus(
    jobs: int | None, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many processes as GPUs by default, and each GPU has as many processes as any other, or one more or less."""
    module, devices = import_module("turnout.comparison.processes"), list[str]()

    class Process:
        def __init__(self, *arguments: Any) -> None:
            self.connection, self.device, self.runs = object(), arguments[-1], list[Run]()
            devices.append(self.device)

        def begin(self, runs: list[Run]) -> None:
            self.runs = runs

        def next_updates(self) -> list[Update]:
            runs, self.runs = self.runs, []
            return [Update(run.label, run.seed, "stopped") for run in runs]

        def is_alive(self) -> bool:
            return True

        def close(self) -> None:
            return

    monkeypatch.setattr(module, "_Process", Process)
    monkeypatch.setattr(module, "wait", lambda connections, **_: connections)
    monkeypatch.setattr(
        import_module("turnout.comparison.compare"), "perform_in_sequence", lambda *_: devices.append("cuda")
    )
    with pytest.raises(Stopped):
        compare({"a": make()}, 8, tmp_path, jobs=jobs, devices=("cuda:0", "cuda:1"))
    assert devices == {2: ["cuda:0", "cuda:1"], 5: ["cuda:0", "cuda:1"] * 2 + ["cuda:0"], 1: ["cuda"]}[processes]


def test_missing_gpus_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ConfigurationError, match="devices: got 'cuda:2', needed one of cuda:0, cuda:1"):
        compare({"a": make()}, 8, tmp_path, devices=("cuda:0", "cuda:2"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ConfigurationError, match="devices: got 'cuda:0', needed a GPU, of which this machine has none"):
        compare({"a": make()}, 8, tmp_path, devices=("cuda:0",))


def test_folder_of_another_comparison_or_sweep_is_refused(tmp_path):
    """Its tables would be overwritten. More runs, or fewer, of the same comparison are no other one."""
    first, second = tmp_path / "fedau" / "seed-0", tmp_path / "fedavg" / "seed-0"
    save_order(tmp_path, [first, second])
    save_order(tmp_path, [first, second, tmp_path / "fedavg" / "seed-1"])
    save_order(tmp_path, [second])
    written = (tmp_path / "comparison.json").read_text()
    with pytest.raises(
        CheckpointError, match=r"holds another comparison or sweep, of 1 run such as fedavg.seed-0, whose"
    ):
        save_order(tmp_path, [tmp_path / "local.lr=0.1" / "seed-0"])
    assert (tmp_path / "comparison.json").read_text() == written
