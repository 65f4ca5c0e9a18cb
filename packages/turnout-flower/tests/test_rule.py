"""Algorithms of turnout over a grid of Flower: the model of the coordinator alone, through restarts and failures."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

import turnout as to
from turnout.comparison.folders import load_records
from turnout.core.candidates import Candidates
from turnout.core.checks import CheckpointError, ConfigurationError, Diverged
from turnout.core.types import Federation, Report
from turnout.protocol.batch import Batch
from turnout.protocol.choice import Choice
from turnout.protocol.cohorts import SelectedCohorts
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.federated_server import FederatedServer
from turnout.protocol.loop import carry_out, use
from turnout.protocol.scheduler import Scheduler
from turnout.results.table import comparison
from turnout_flower import Rule

pytest.importorskip("flwr", reason="flwr is not installed: sh scripts/extras.sh flower")
from flwr.app import Array, ArrayRecord, MetricRecord  # pyright: ignore

from .grids import SHAPES, SIZES, Killed, OneProcess, app, first, trained

NODES = {11: 0, 22: 1, 33: 2, 44: 3}  # sorted, so that the number of a client is that of its partition


class Presence:
    """Everyone is there."""

    num_clients = 4

    def there(self) -> np.ndarray:
        return np.arange(4)

    def available(self, clients: np.ndarray, round: int) -> np.ndarray:
        del round
        return np.ones(len(clients), dtype=bool)


class Alone:
    """Drive a coordinator without Flower: clients answer in the order in which they are asked."""

    def __init__(self, algorithm: to.Algorithm, pace: to.pace.Pace, rounds: int) -> None:
        self.names, vector = list(SHAPES), torch.full((8,), 0.5)
        bound, everyone = pace.bind(4, algorithm), np.arange(4)

        def candidates(version: int) -> Candidates:
            return Candidates(lambda clients: np.ones(len(clients), dtype=bool), 4, version, 0)

        cohorts = SelectedCohorts(algorithm.selection, candidates, lambda: everyone)
        scheduler = Scheduler(bound, cohorts, Choice(Presence(), bound, 0), patient=True)
        server = FederatedServer(algorithm, vector, Federation(4, 8), cohorts, rounds=rounds)
        self.coordinator = Coordinator(server, scheduler)
        self.waiting, self.reports = list[tuple[int, int, int]](), dict[int, Report]()

    def run(self) -> torch.Tensor:
        """Return the last model."""
        self.coordinator.scheduler.start(0.0)
        while self.coordinator.server.over is None:
            if (action := carry_out(self.coordinator, self, 0.0)) is not None:
                use(self.coordinator, self, action)
                continue
            task, client, version = self.waiting.pop(0)
            self.reports[task] = self.report(client, version)
            self.coordinator.scheduler.reported(0.0, client, task, version)
        return self.coordinator.server.state.params

    def report(self, client: int, version: int) -> Report:
        """Return what a client reports."""
        model = self.coordinator.server.models[version]
        arrays = {
            name: part.numpy().reshape(SHAPES[name]) for name, part in zip(SHAPES, model.split([6, 2]), strict=True)
        }
        after = torch.cat(
            [torch.from_numpy(trained(array, client, name)).reshape(-1) for name, array in arrays.items()]
        )
        loss = float(np.square(arrays["weight"] - client).mean())
        numbers = (client, version, SIZES[client], 1 + client)
        who, of, examples, steps = (np.array([number], dtype=np.int64) for number in numbers)
        seen = {"start_loss": torch.tensor([loss]).double(), "appeal_gap": torch.tensor([loss - 0.1 * client]).double()}
        return Report(who, of, examples, steps, (after - model)[None], seen=seen)

    def ask(self, ask) -> None:
        self.waiting += zip(ask.tasks, ask.clients, [ask.version] * len(ask.tasks), strict=True)

    def reports_of(self, coordinator: Coordinator, batch: Batch) -> Report:
        del coordinator
        return Report.cat([self.reports[task] for task in batch.tasks.tolist()])

    def dropped(self, drop) -> None: ...
    def timer(self, timer) -> None: ...
    def stepped(self, action, stepped) -> None: ...
    def unusable(self, error, action):
        del error, action


def vector(arrays: ArrayRecord) -> torch.Tensor:
    return torch.cat([torch.from_numpy(np.array(arrays[name].numpy())).reshape(-1) for name in SHAPES])


def rule(tmp_path, algorithm, **options) -> Rule:
    return Rule(algorithm, folder=tmp_path / "run", **{"min_nodes": 4, "poll": 0.01, "retry": 0.1} | options)


CASES = {
    "fedau": (to.fedau(cutoff=50), to.pace.Rounds()),
    "fedstaleweight": (to.fedstaleweight(), to.pace.Buffered(3)),
    "fedbuff": (to.fedbuff(), to.pace.Buffered(2, concurrency=3)),
    "maxfl": (to.maxfl(cohort_size=3), to.pace.Rounds()),
    "qffl": (to.qffl(cohort_size=3), to.pace.Rounds()),
    "fednova": (to.fednova(cohort_size=3), to.pace.Rounds()),
    "median": (to.fedavg(also=(to.aggregation.Median(),)), to.pace.Rounds()),
    "krum": (to.fedavg(also=(to.aggregation.Krum(0.25),)), to.pace.Rounds()),
    "adam": (to.fedadam(), to.pace.Rounds()),
    "mifa": (to.mifa(), to.pace.Rounds()),
}


@pytest.mark.parametrize("name", CASES)
def test_model_equals_that_of_the_coordinator(name, tmp_path):
    algorithm, pace = CASES[name]
    run = rule(tmp_path, algorithm, pace=pace, requirement="required")
    result = run.start(OneProcess(NODES, app()), first(), num_rounds=6)
    assert torch.equal(vector(result.arrays), Alone(algorithm, pace, 6).run())
    assert result.arrays["batches"].numpy() == 7
    assert list(result.train_metrics_clientapp) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("name", ["fedau", "fedstaleweight"])
@pytest.mark.parametrize("after", [1, 2, 5])
def test_killed_server_app_continues(name, after, tmp_path):
    algorithm, pace = CASES[name]
    run, grid = rule(tmp_path, algorithm, pace=pace), OneProcess(NODES, app())
    grid.kill_at(after)
    with pytest.raises(Killed):
        run.start(grid, first(), num_rounds=6)
    other = ArrayRecord({name: Array(np.zeros_like(array.numpy())) for name, array in first().items()})
    result = run.start(OneProcess(NODES, app()), other, num_rounds=6)
    assert torch.equal(vector(result.arrays), Alone(algorithm, pace, 6).run())


_CHILD = """
import os, signal, sys
import turnout as to
from turnout.comparison.folders import load_records
from turnout_flower import Rule
from grids import OneProcess, app, first

looks, grid = [], OneProcess({11: 0, 22: 1, 33: 2, 44: 3}, app())
def kill():
    looks.append(1)
    if len(looks) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
grid.pulls = kill
Rule(to.fedau(), folder=sys.argv[1], min_nodes=4, poll=0.01).start(grid, first(), num_rounds=6)
"""


def test_killed_process_continues(tmp_path):
    place = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    died = subprocess.run([sys.executable, "-c", _CHILD, str(tmp_path / "run")], env=place, check=False)
    assert died.returncode == -signal.SIGKILL
    result = rule(tmp_path, to.fedau()).start(OneProcess(NODES, app()), first(), num_rounds=6)
    assert torch.equal(vector(result.arrays), Alone(to.fedau(), to.pace.Rounds(), 6).run())


def test_finished_run_does_not_continue(tmp_path):
    grid, run = OneProcess(NODES, app()), rule(tmp_path, to.fedau())
    result = run.start(grid, first(), num_rounds=2)
    asked = len(grid.sent)
    assert torch.equal(vector(run.start(grid, first(), num_rounds=2).arrays), vector(result.arrays))
    assert len(grid.sent) == asked
    more = run.start(grid, first(), num_rounds=4)
    assert torch.equal(vector(more.arrays), Alone(to.fedau(), to.pace.Rounds(), 4).run())


def test_failed_node_is_skipped_and_the_round_continues(tmp_path, caplog):
    grid = OneProcess(NODES, app())
    grid.broken = {22}
    rule(tmp_path, to.fedau(), retry=3600).start(grid, first(), num_rounds=5)
    assert [node for _, node in grid.sent].count(22) == 1
    assert [node for _, node in grid.sent].count(11) == 5
    assert "node 22: task 1 is lost: out of memory" in caplog.text


def test_failed_node_is_retried_later(tmp_path):
    grid = OneProcess(NODES, app())
    grid.broken = {22}
    looks = []

    def mend() -> None:
        looks.append(1)
        if len(looks) == 3:
            grid.broken = set()

    grid.pulls = mend
    run = rule(tmp_path, to.fedau(), retry=0.01)
    run.start(grid, first(), num_rounds=30)
    assert [node for _, node in grid.sent].count(22) > 2


def test_lost_task_is_not_sent_again(tmp_path):
    grid = OneProcess(NODES, app())
    grid.broken = {22}
    rule(tmp_path, to.fedau(), retry=1e-9).start(grid, first(), num_rounds=5)
    with closing(sqlite3.connect(tmp_path / "run" / "journal.sqlite")) as journal:
        (tasks,) = journal.execute("SELECT COUNT(*) FROM tasks WHERE client = 1").fetchone()
    assert 1 <= [node for _, node in grid.sent].count(22) <= tasks


def test_silent_node_does_not_delay_a_round_with_a_deadline(tmp_path, monkeypatch):
    grid = OneProcess(NODES, app())
    grid.silent, looks = {44}, []
    grid.pulls = lambda: looks.append(1)
    monkeypatch.setattr("turnout_serve.server.service.RunClock", lambda before: lambda: before + len(looks))
    run = rule(tmp_path, to.fedau(), pace=to.pace.Rounds(deadline=5))  # looks for replies
    run.start(grid, first(), num_rounds=3)
    rows = to.load(tmp_path / "run").rounds
    assert rows["num_participants"].to_pylist() == [3, 3, 3]


def test_silent_node_loses_its_task_in_a_buffer(tmp_path, caplog):
    grid = OneProcess(NODES, app())
    grid.silent = {44}
    run = rule(tmp_path, to.fedstaleweight(), pace=to.pace.Buffered(3), retry=3600)
    run.start(grid, first(), num_rounds=40, timeout=0.05)
    assert "node 44: task 3 is lost: it may have expired" in caplog.text


def test_reconnected_node_is_the_same_client(tmp_path):
    grid = OneProcess(NODES, app())
    looks = []

    def move() -> None:
        looks.append(1)
        grid.there = set(NODES) - ({33} if 2 <= len(looks) < 6 else set())

    grid.pulls = move
    rule(tmp_path, to.fedau(cutoff=50)).start(grid, first(), num_rounds=12)
    loaded = to.load(tmp_path / "run")
    assert loaded.clients["name"].to_pylist() == ["11", "22", "33", "44"]
    times = loaded.clients["participations"].to_pylist()
    assert times[0] == 12
    assert 6 <= times[2] < 12


def test_later_nodes_are_new_clients(tmp_path):
    grid = OneProcess(NODES, app())
    grid.there = {11, 22}
    grid.pulls = lambda: grid.there.add(44) if len(grid.sent) > 6 else None
    rule(tmp_path, to.fedau(), min_nodes=2).start(grid, first(), num_rounds=8)
    assert to.load(tmp_path / "run").clients["name"].to_pylist() == ["11", "22", "44"]


def test_first_task_waits_for_min_nodes(tmp_path):
    grid = OneProcess(NODES, app())
    grid.there, looks = {11}, []

    class Late(OneProcess):
        def get_node_ids(self):
            looks.append(1)
            return list(NODES)[: min(len(looks), 3)]

    late = Late(NODES, app())
    rule(tmp_path, to.fedau(), min_nodes=3).start(late, first(), num_rounds=1)
    assert [node for _, node in late.sent] == [11, 22, 33]


def test_evaluations_are_called_and_recorded(tmp_path):
    def score(version: int, arrays: ArrayRecord) -> MetricRecord:
        del arrays
        return MetricRecord({"accuracy": version / 10, "by_class": [0.1, 0.2]})

    run = rule(tmp_path, to.fedau(), evaluate_every=2)
    result = run.start(OneProcess(NODES, app()), first(), num_rounds=5, evaluate_fn=score)
    assert list(result.evaluate_metrics_serverapp) == [0, 2, 4, 5]
    assert to.load(tmp_path / "run").rounds["test_accuracy"].to_pylist() == [None, 0.2, None, 0.4, 0.5]


def test_reports_can_read_the_folder(tmp_path):
    def score(version: int, arrays: ArrayRecord) -> MetricRecord:
        del arrays
        return MetricRecord({"accuracy": version / 10})

    for seed in (0, 1):
        run = rule(tmp_path / str(seed), to.fedau(), seed=seed, evaluate_every=1)
        run.start(OneProcess(NODES, app()), first(), num_rounds=2 + seed, evaluate_fn=score)
    records = load_records([tmp_path])
    assert [(record.algorithm, record.seed, record.history.last_round) for record in records] == [
        ("fedau", 0, 2), ("fedau", 1, 3),
    ]  # fmt: skip
    (row,) = comparison(records)
    assert row.figures["test_accuracy"].mean == pytest.approx(0.25)
    assert set(row.figures) >= {"num_participants", "seconds"}


def test_training_metrics_are_averaged_by_examples(tmp_path):
    result = rule(tmp_path, to.fedau()).start(OneProcess(NODES, app()), first(), num_rounds=1)
    assert dict(result.train_metrics_clientapp[1]) == {"num-steps": 3.0, "train_loss": 2.0}


def test_config_has_the_round(tmp_path):
    seen, made = [], app()

    def mod(message, context, call_next):
        seen.append(dict(message.content["config"]))
        return call_next(message, context)

    made = app(mods=[mod])
    run = rule(tmp_path, to.qffl(cohort_size=1), min_nodes=1)
    run.start(OneProcess({11: 0}, made), first(), 2, train_config={"lr": 0.1}, evaluate_config={"deep": True})
    assert seen == [
        {"deep": True, "server-round": 1},
        {"lr": 0.1, "server-round": 1},
        {"deep": True, "server-round": 2},
        {"lr": 0.1, "server-round": 2},
    ]


def test_private_sums_use_a_secret_and_respect_the_budget(tmp_path):
    private = to.aggregation.PrivateSum(norm=1.0, noise_multiplier=1.0, cohort=4)
    algorithm = to.average_participating(also=(private,))
    one = rule(tmp_path / "one", algorithm).start(OneProcess(NODES, app()), first(), num_rounds=2)
    two = rule(tmp_path / "two", algorithm).start(OneProcess(NODES, app()), first(), num_rounds=2)
    assert not torch.equal(vector(one.arrays), vector(two.arrays))
    assert to.load(tmp_path / "one" / "run").rounds["epsilon"].to_pylist()[-1] > 0
    assert not one.train_metrics_clientapp  # means of clients' losses, without noise
    small = to.average_participating(
        also=(to.aggregation.PrivateSum(norm=1.0, noise_multiplier=1.0, cohort=4, budget=0.1),)
    )
    with pytest.raises(ConfigurationError, match=r"budget: 5 rounds would spend epsilon"):
        rule(tmp_path / "three", small).start(OneProcess(NODES, app()), first(), num_rounds=5)


def test_model_can_be_loaded_from_the_folder(tmp_path):
    result = rule(tmp_path, to.fedau()).start(OneProcess(NODES, app()), first(), num_rounds=2)
    named = to.load(tmp_path / "run").state_dict()
    assert list(named) == ["weight", "bias", "batches"]
    assert torch.equal(vector(result.arrays), torch.cat([named[name].reshape(-1) for name in SHAPES]))


def test_invalid_replies_end_the_run_with_the_reason(tmp_path, caplog):
    run = rule(tmp_path, to.fedau(), examples="size", retry=0.001)
    with pytest.raises(Diverged, match="no report could be used"):
        run.start(OneProcess(NODES, app()), first(), num_rounds=20)
    assert (
        "the metrics of the reply hold train_loss, num-examples, num-steps, and the rule reads the number 'size'"
        in caplog.text
    )


def test_arrays_of_another_model_are_refused(tmp_path):
    run = rule(tmp_path, to.fedau())
    run.start(OneProcess(NODES, app()), first(), num_rounds=1)
    other = ArrayRecord({"weight": Array(np.zeros((3, 3), dtype=np.float32))})
    with pytest.raises(
        ConfigurationError, match=r"holds a run of another model \(the arrays are not those that were sent"
    ):
        run.start(OneProcess(NODES, app()), other, num_rounds=1)
    with pytest.raises(ConfigurationError, match="initial_arrays: got count, needed floating-point numbers"):
        rule(tmp_path / "other", to.fedau()).start(
            OneProcess(NODES, app()), ArrayRecord({"count": Array(np.array(1))}), num_rounds=1
        )
    waves = ArrayRecord({"waves": Array(np.zeros(3, dtype=np.complex64)), **first()})
    with pytest.raises(ConfigurationError, match="initial_arrays: waves holds complex numbers, which would never"):
        rule(tmp_path / "waves", to.fedau()).start(OneProcess(NODES, app()), waves)


def test_folder_of_another_algorithm_is_refused(tmp_path):
    rule(tmp_path, to.fedau()).start(OneProcess(NODES, app()), first(), num_rounds=1)
    with pytest.raises(CheckpointError, match="holds another experiment"):
        rule(tmp_path, to.fedavg()).start(OneProcess(NODES, app()), first(), num_rounds=1)
