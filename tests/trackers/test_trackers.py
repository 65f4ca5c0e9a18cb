"""Trackers with their own packages: what is written is read back. Trackers without an installed package are skipped."""

import importlib
import json
import struct
import sys
from pathlib import Path

import pytest
import torch

from turnout import AfterRound, ConfigurationError, Experiment, models
from turnout.core.checks import CheckpointError
from turnout.trackers import TRACKERS, MLflow, TensorBoard, Tracker, Trackio, WeightsAndBiases

from ..tiny import classification

ROUNDS = 4
RUN = Experiment(classification(), models.Logistic(), rounds=ROUNDS, evaluate_every=2)


class Memory(Tracker):
    """Tracks in lists, as any tracker is used."""

    package = "json"

    def __init__(self):
        super().__init__()
        self.config, self.rounds, self.ended, self.known = {}, {}, None, None

    def begin(self, config, known, name):
        self.config, self.known, self.name = config, known, name
        self.remember("the run")

    def log(self, round, figures):
        self.rounds[round] = figures

    def end(self, status, figures):
        self.ended = status, figures


def cut_short(folder, tracker, after):
    """Run beyond a checkpoint, and die."""

    def stop(row):
        if row["round"] == after:
            raise RuntimeError("a power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        RUN.run(folder, checkpoint_every=2, callbacks=[tracker, AfterRound(stop)])


def test_tracker_receives_settings_rounds_and_the_summary(tmp_path):
    memory = Memory()
    result = RUN.run(tmp_path / "mine", callbacks=[memory])
    assert memory.config["rounds"] == ROUNDS
    assert memory.config["algorithm.name"] == "fedavg"
    assert memory.name == "mine"
    assert sorted(memory.rounds) == [1, 2, 3, 4]
    assert memory.rounds[4]["test_accuracy"] == result.rounds["test_accuracy"][-1].as_py()
    assert "test_accuracy" not in memory.rounds[1]
    assert "round" not in memory.rounds[1]
    assert memory.ended is not None
    status, figures = memory.ended
    assert status == "finished"
    assert figures["test_accuracy"] == result.summary()["test_accuracy"]


def test_resumed_run_is_the_same_tracked_run(tmp_path):
    cut_short(tmp_path, Memory(), after=3)
    again = Memory()
    RUN.run(tmp_path, resume=True, callbacks=[again])
    assert again.known == "the run"
    assert sorted(again.rounds) == [3, 4]


def test_damaged_run_identifier_is_refused(tmp_path):
    (tmp_path / "json.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"json.json names no run: delete it"):
        RUN.run(tmp_path, callbacks=[Memory()])


@pytest.mark.parametrize("name", TRACKERS)
def test_missing_package_names_its_extra(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigurationError, match=rf"pip install '\.\[{name}\]'"):
        TRACKERS[name]()


def test_tensorboard(tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason=".[tensorboard]")
    with pytest.raises(ConfigurationError, match="TensorBoard writes files, and this run has no folder"):
        RUN.run(callbacks=[TensorBoard()])
    cut_short(tmp_path, TensorBoard(), after=3)
    result = RUN.run(tmp_path, resume=True, callbacks=[TensorBoard()])
    found = events.EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    scalars = found.Scalars("test_accuracy")
    assert [each.step for each in scalars] == [2, 4]
    assert scalars[-1].value == pytest.approx(result.rounds["test_accuracy"][-1].as_py())
    assert [each.step for each in found.Scalars("local_loss")] == [1, 2, 3, 4]


@pytest.mark.filterwarnings(
    "ignore:The ``noload`` loader strategy:DeprecationWarning"
)  # of MLflow's queries, by SQLAlchemy 2.1
def test_mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason=".[mlflow]")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / "mine"
    cut_short(folder, MLflow(), after=3)
    result = RUN.run(folder, resume=True, callbacks=[MLflow()])
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    (experiment,) = [each for each in client.search_experiments() if each.name == "turnout"]
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "mine"
    assert run.info.status == "FINISHED"
    assert run.data.params["rounds"] == str(ROUNDS)
    history = client.get_metric_history(run.info.run_id, "test_accuracy")
    assert [each.step for each in history] == [2, 4]
    assert history[-1].value == result.rounds["test_accuracy"][-1].as_py()
    assert {each.step for each in client.get_metric_history(run.info.run_id, "local_loss")} == {1, 2, 3, 4}
    assert float(run.data.tags["final.test_accuracy"]) == result.summary()["test_accuracy"]


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_mlflow_logs_the_trained_model(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason=".[mlflow]")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    result = RUN.run(tmp_path / "mine", callbacks=[MLflow(log_model=True)])
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("turnout").experiment_id])
    path = client.download_artifacts(run.info.run_id, "model", str(tmp_path))
    loaded = importlib.import_module("mlflow.pytorch").load_model(path)
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in result.state_dict().items())


def test_wandb(tmp_path):
    wandb = pytest.importorskip("wandb", reason=".[wandb]")
    cut_short(tmp_path, WeightsAndBiases(mode="offline"), after=3)
    result = RUN.run(tmp_path, resume=True, callbacks=[WeightsAndBiases(mode="offline")])
    wandb.teardown()  # its service may write after `finish` has returned
    folders = sorted(tmp_path.glob("wandb/offline-run-*"))
    assert len({folder.name.rpartition("-")[2] for folder in folders}) == 1  # one run, begun twice
    history, summary = wandb_records(next(folders[-1].glob("*.wandb")))
    assert [row["_step"] for row in history] == [3, 4]
    assert history[-1]["test_accuracy"] == result.rounds["test_accuracy"][-1].as_py()
    assert summary["status"] == "finished"
    assert summary["test_accuracy"] == result.summary()["test_accuracy"]


def wandb_records(path):
    """The rows and the summary in a file that waits for `wandb sync`: LevelDB's log format behind seven bytes."""
    kinds = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    data, at, parts, history, summary = path.read_bytes(), 7, b"", [], {}
    while at < len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        parts, at = parts + data[at + 7 : at + 7 + length], at + 7 + length
        if kind not in (1, 4):  # whole, or the last part
            continue
        record, parts = kinds.Record.FromString(parts), b""
        what = record.WhichOneof("record_type")
        items = {"history": record.history.item, "summary": record.summary.update}.get(what, ())
        table = {".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}
        if what == "history":
            history.append(table)
        elif what == "summary":
            summary |= table
    return history, summary


def test_trackio(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    storage = pytest.importorskip("trackio.sqlite_storage", reason=".[trackio]")
    result = RUN.run(tmp_path / "mine", callbacks=[Trackio()])
    rows = storage.SQLiteStorage.get_logs("turnout", "mine")
    assert [row["step"] for row in rows if "local_loss" in row] == [1, 2, 3, 4]
    assert [row["test_accuracy"] for row in rows if "test_accuracy" in row][-1] == pytest.approx(
        result.rounds["test_accuracy"][-1].as_py()
    )
    assert Path(tmp_path / "mine" / "trackio.json").exists()
