"""Workers on one folder share its runs: none is lost or trained twice, also where workers are killed or jobs fail."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from turnout import sweep
from turnout.comparison import sharing
from turnout.comparison.compare import RunsFailed, Stopped, compare
from turnout.comparison.executors import executor_on
from turnout.comparison.processes import _context
from turnout.comparison.sharing import WORKERS, running, standings
from turnout.comparison.update import Update
from turnout.core.checks import ConfigurationError, DataError
from turnout.record import checkpoint, lock

from ..children import Child, end_all
from .test_comparison import make, what_was_computed

KILLS = int(os.environ.get("TURNOUT_KILLS", "2"))
NAMES = ("fedau", "mifa")


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:
    yield
    end_all()


def worker(folder: str, rounds: int) -> None:
    """Compare, and print every update; in a process of a test."""
    compare(
        {name: make(name, rounds=rounds) for name in NAMES}, 2, folder, jobs=1, checkpoint_every=5,
        progress=lambda update: print(json.dumps([str(update), update.status, update.note]), flush=True),
    )  # fmt: skip


def trained(*children: Child) -> Counter[str]:
    """Count how often each run ended in a worker that had trained it."""
    updates = [json.loads(line) for child in children for line in child.output.splitlines()]
    seen = ("was finished", "finished by another worker")
    return Counter(name for name, status, note in updates if status == "done" and note not in seen)


def test_two_workers_perform_each_run_once(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    two = [Child(tmp_path / name, worker, str(tmp_path / "shared"), 40) for name in ("a", "b")]
    assert [child.ended()[0] for child in two] == [0, 0]
    assert trained(*two) == {f"{name}, seed {seed}": 1 for name in NAMES for seed in (0, 1)}
    assert all(trained(child) for child in two), "one worker did everything"
    alone = compare({name: make(name, rounds=40) for name in NAMES}, 2, tmp_path / "alone", jobs=1)
    shared = compare({name: make(name, rounds=40) for name in NAMES}, 2, tmp_path / "shared", jobs=1)
    assert list(map(what_was_computed, shared)) == list(map(what_was_computed, alone))
    assert not (tmp_path / "shared" / WORKERS).exists()


def test_runs_of_killed_workers_are_resumed(tmp_path: Path) -> None:
    chance, rounds = random.Random(KILLS), 20 * KILLS
    shared = tmp_path / "shared"
    children = [Child(tmp_path / f"0-{number}", worker, str(shared), rounds) for number in range(2)]
    for kill in range(1, KILLS + 1):
        number = chance.randrange(2)
        children[number].wait_for(lambda child=children[number]: "running" in child.output)
        time.sleep(chance.uniform(0.0, 0.1))
        children[number].signal(signal.SIGKILL)
        children[number].process.join()
        children[number] = Child(tmp_path / f"{kill}-{number}", worker, str(shared), rounds)
    assert [child.ended()[0] for child in children] == [0, 0]
    assert max(trained(*children).values(), default=1) == 1
    alone = compare({name: make(name, rounds=rounds) for name in NAMES}, 2, tmp_path / "alone", jobs=1)
    records = compare({name: make(name, rounds=rounds) for name in NAMES}, 2, shared, jobs=1)
    assert list(map(what_was_computed, records)) == list(map(what_was_computed, alone))


def test_worker_waits_for_a_run_of_another_and_resumes_it(tmp_path: Path) -> None:
    """Whoever holds the lock has the run; when that process dies, the run is free."""
    held = tmp_path / "fedau" / "seed-0"
    held.mkdir(parents=True)
    holder = Child(tmp_path / "holder", hold, str(held))
    holder.wait_for(lambda: "held" in holder.output)
    updates: list[Update] = []

    def let_go(update: Update) -> None:
        updates.append(update)
        if str(update) == "mifa, seed 0" and update.status == "done":
            holder.signal(signal.SIGKILL)

    records = compare({"fedau": make(), "mifa": make("mifa")}, 1, tmp_path, jobs=1, progress=let_go)
    assert [record.algorithm for record in records] == ["fedau", "mifa"]
    assert [str(update) for update in updates if update.status == "done"] == ["mifa, seed 0", "fedau, seed 0"]


def hold(folder: str) -> None:
    """Keep the lock of a folder until killed."""
    with lock.locked(Path(folder)):
        print("held", flush=True)
        time.sleep(600)


def trial(seed: int, lr: float) -> Any:
    """An experiment of a search."""
    return make(local={"lr": lr})(seed)


def searcher(folder: str) -> None:
    """Search in a folder that others search in, too."""
    found = sweep(trial, {"lr": [0.01, 0.03, 0.1, 0.3]}, 1, folder, trials=4, trials_at_once=2, jobs=1)
    print(json.dumps([list(found.points.values()), found.best]))


def test_searches_share_their_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna", reason="an extra: pip install '.[search]'")
    two = [Child(tmp_path / name, searcher, str(tmp_path / "shared")) for name in ("a", "b")]
    ended = [child.ended() for child in two]
    assert [code for code, _, _ in ended] == [0, 0], ended
    searcher(str(tmp_path / "alone"))
    assert two[0].output == two[1].output == capsys.readouterr().out


class Unreliable(Executor):
    """Fails the first jobs, as a cluster that preempts them does, and performs the others at once."""

    def __init__(self, failures: int) -> None:
        self.failures, self.jobs = failures, 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.jobs += 1
        future: Future[Any] = Future()
        if self.jobs <= self.failures:
            future.set_exception(RuntimeError("preempted"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def test_an_executor_gives_the_same_records(tmp_path: Path) -> None:
    experiments = {"fedau": make(), "mifa": make("mifa")}
    alone = compare(experiments, 2, tmp_path / "alone", jobs=1)
    with ProcessPoolExecutor(2, mp_context=_context()) as executor:
        records = compare(experiments, 2, tmp_path / "jobs", executor=executor, runs_per_job=2)
    assert list(map(what_was_computed, records)) == list(map(what_was_computed, alone))


def test_jobs_that_fail_are_submitted_again(tmp_path: Path) -> None:
    executor = Unreliable(2)
    assert len(compare({"fedau": make()}, 3, tmp_path, executor=executor, runs_per_job=2)) == 3
    assert executor.jobs == 4  # of two runs and of one, each twice


def test_a_run_whose_jobs_fail_three_times_has_failed(tmp_path: Path) -> None:
    with pytest.raises(
        RunsFailed, match=r"fedau, seed 0: its job failed \(RuntimeError: preempted\), 3 times. The same"
    ):
        compare({"fedau": make()}, 1, tmp_path, executor=Unreliable(99))


def test_stopping_ends_jobs_after_their_runs_were_saved(tmp_path: Path) -> None:
    def stop(update: Update) -> None:
        if update.status == "running" and update.done:
            signal.raise_signal(signal.SIGINT)

    with (
        ProcessPoolExecutor(1, mp_context=_context()) as executor,
        pytest.raises(Stopped, match="0 of 2 runs finished"),
    ):
        compare({"fedau": make(rounds=100_000)}, 2, tmp_path, executor=executor, progress=stop)
    assert (checkpoint.version(tmp_path / "fedau" / "seed-0") or 0) > 0
    assert not (tmp_path / WORKERS).exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cloud", r"--on: got 'cloud', needed one of processes, dask, ray, slurm, submitit-local, such as processes:4"),
        ("processes:0", r"--on processes: got '0', needed how many processes, such as processes:4"),
        ("slurm:gpu", r"--on slurm: got 'gpu', needed options such as partition=gpu,time=60,cpus=4,memory=8"),
        ("submitit-local:4", r"--on submitit-local: got '4', needed no options"),
    ],
)
def test_invalid_executors_are_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message), executor_on(text, tmp_path):
        pass


def test_missing_package_of_an_executor_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package, extra, text in (
        ("distributed", "dask", "dask"),
        ("ray", "ray", "ray:auto"),
        ("submitit", "slurm", "slurm"),
    ):
        monkeypatch.setitem(sys.modules, package, None)
        message = rf"{package}, which is not installed: pip install '\.\[{extra}\]'"
        with pytest.raises(ConfigurationError, match=message), executor_on(text, tmp_path):
            pass


def test_options_of_executors_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"runs_per_job: got 0"):
        compare({"a": make()}, 1, tmp_path, runs_per_job=0)
    with pytest.raises(ConfigurationError, match=r"executor: got 4, needed a concurrent.futures.Executor"):
        compare({"a": make()}, 1, tmp_path, executor=4)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "package"),
    [("dask", "distributed"), ("ray", "ray"), ("submitit-local", "submitit"), ("slurm:time=5", "submitit")],
)
def test_clusters_give_the_same_records(text: str, package: str, tmp_path: Path) -> None:
    pytest.importorskip(package, reason=f"scripts/extras.sh installs {package}")
    if text.startswith("slurm") and shutil.which("sinfo") is None:
        pytest.skip("scripts/slurm.sh starts SLURM")
    alone = compare({"fedau": make()}, 2, tmp_path / "alone", jobs=1)
    with executor_on(text, tmp_path / "jobs") as (executor, _):
        records = compare({"fedau": make()}, 2, tmp_path / "jobs", executor=executor)
    assert list(map(what_was_computed, records)) == list(map(what_was_computed, alone))


def test_results_of_jobs_go_to_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack: a folder that was sent holds results under the numbers of jobs to come, and results are pickles."""
    folders: list[Path] = []

    class AutoExecutor:
        def __init__(self, folder: str, cluster: str) -> None:
            del cluster
            folders.append(Path(folder))

        def update_parameters(self, **_: Any) -> None:
            pass

    monkeypatch.setitem(sys.modules, "submitit", SimpleNamespace(AutoExecutor=AutoExecutor))
    for _ in range(2):
        with executor_on("submitit-local", tmp_path):
            pass
    assert [folder.parent for folder in folders] == [tmp_path / ".jobs"] * 2
    assert folders[0] != folders[1]
    assert not any(folder.exists() for folder in folders)


def test_standings_report_progress_of_runs(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no run"):
        standings(tmp_path)
    seen: list[Any] = []

    with held_elsewhere(tmp_path / "fedau" / "seed-1", tmp_path) as holder:

        def stop(update: Update) -> None:
            if update.status == "done" and not seen:
                seen.extend(standings(tmp_path))
                holder.signal(signal.SIGKILL)

        compare({"fedau": make()}, 2, tmp_path, jobs=1, progress=stop)
    assert [(each.name, each.state) for each in seen[:2]] == [("fedau/seed-0", "finished"), ("fedau/seed-1", "running")]
    assert [(each.state, each.done, each.rounds) for each in standings(tmp_path)] == [("finished", 6, 6)] * 2


@contextmanager
def held_elsewhere(folder: Path, place: Path) -> Iterator[Child]:
    """Have another process hold the lock of a folder."""
    folder.mkdir(parents=True)
    holder = Child(place / ".holder", hold, str(folder))
    holder.wait_for(lambda: "held" in holder.output)
    yield holder
    holder.process.kill()


def test_silent_workers_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / WORKERS).mkdir()
    update = {"name": "fedau", "seed": 0, "status": "running", "done": 3, "rounds": 6, "note": "", "trace": ""}
    path = tmp_path / WORKERS / "one.json"
    path.write_text(json.dumps({"host": "here", "process": 1, "running": [update]}))
    (tmp_path / WORKERS / "two.json").write_text("{")
    assert [(host, update.done) for host, update in running(tmp_path)] == [("here", 3)]
    os.utime(path, (time.time() - 100, time.time() - 100))
    assert not list(running(tmp_path))


def test_run_of_a_server_is_shown_with_its_public_address(tmp_path):
    """The last line of the file in its folder; the first is that on the server's machine."""
    (tmp_path / "address.txt").write_text("http://127.0.0.1:8470\nhttps://federation.example\n")
    assert sharing._address(tmp_path) == "https://federation.example"
