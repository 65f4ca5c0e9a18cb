"""Folders of runs that people send each other may hold anything: each reader names the file and the field."""

import hashlib
import json
import math
import os
import re
import shutil
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tests.tiny import classification

import turnout as to
from turnout import CheckpointError
from turnout.comparison.folders import is_finished, load_record, ordered_names
from turnout.comparison.sharing import running, standings
from turnout.record import checkpoint, contents, storage, tables
from turnout.record.checkpoint import FILE
from turnout.record.log import FILE as LOG
from turnout.record.log import _packed
from turnout.record.query import History
from turnout.results.formats import markdown
from turnout.results.table import comparison


def experiment(rounds):
    return to.Experiment(
        classification(), to.models.Logistic(), to.ditto(to.Sgd(steps=1), cohort_size=4), rounds=rounds
    )


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sent") / "run"
    experiment(2).run(folder)
    (folder / "SHA256SUMS").unlink()
    (folder / "checkpoint.previous.safetensors").unlink(missing_ok=True)
    return folder


@pytest.fixture
def copy(sent, tmp_path):
    return shutil.copytree(sent, tmp_path / "run")


def put(values, path, value):
    """Set a value below dotted keys, or delete it for None."""
    *parents, last = path.split(".")
    for key in parents:
        values = values[key]
    if value is None:
        del values[last]
    else:
        values[last] = value


def load(folder):
    result = to.load(folder)
    for show in (repr, to.Result.summary, to.Result._repr_html_, lambda it: it.model, lambda it: it.personal_model(0)):
        show(result)
    result.export(folder / "model.safetensors", card=True)


FACTS = {
    "version": ["x", -1, 2.5, True, None, 10**30],
    "model": [[], 3, "x"],
    "model.names": [[1], "x", None, ["a", "a"]],
    "model.shapes": [[[-1]], [["x"]], [[2**62, 2**62]], None],
    "model.num_shared": [7, "x", None],
    "model.num_clients": [2**62, -1, 3, None],
    "model.tensors": [{"output.weight": "nothing"}, {"output.weight": 3}, [], None],
    "model.adapters": [[["layer", 0]], 5, [["layer", -1, 0, 1, 1, 1, "x"]]],
    "model.spec": [[], 5],
    "model.spec.name": ["nothing", 5, None],
    "model.spec.options": [{"hidden": "x"}, {"nothing": 1}, 5],
    "model.spec.input_shape": [[], ["x"], [0], [3, 3], None],
    "model.spec.num_outputs": [0, -1, 2**62, "x"],
}


@pytest.mark.parametrize("path", FACTS)
def test_invalid_values_of_a_checkpoint_are_refused_by_name(copy, path):
    tensors = load_file(copy / FILE)
    with safe_open(copy / FILE, framework="pt") as file:
        text = file.metadata()["facts"]
    for value in FACTS[path]:
        facts = json.loads(text)
        put(facts, path, value)
        save_file(tensors, copy / FILE, metadata={"facts": json.dumps(facts)})
        field = path.split(".")[0]
        with pytest.raises(CheckpointError, match=rf"{re.escape(str(copy / FILE))} is damaged \(.*({field}|memory)"):
            load(copy)


EARLIER = ("coordinator/clients", "schedule.pace/reports", "schedule.scheduler/of")
ALLOWED = {("schedule.scheduler/cohort", "empty"), *((name, "missing") for name in (*EARLIER, "model.first/row"))}
"""A cohort of nobody, what earlier versions did not save, and personal parameters, which other runs lack."""


def other(tensor, form):
    """A tensor in place of another one, None for no tensor."""
    return {
        "shape": torch.zeros(3, 3),
        "empty": tensor.new_zeros(0),
        "whole": torch.full(tensor.shape, -7),
        "missing": None,
    }[form]


@pytest.mark.parametrize("form", ["shape", "empty", "whole", "missing"])
def test_invalid_tensors_of_a_checkpoint_are_refused_by_name(sent, tmp_path, form):
    with safe_open(sent / FILE, framework="pt") as file:
        metadata = file.metadata()
    tensors, refused = load_file(sent / FILE), set()
    for number, (name, tensor) in enumerate(tensors.items()):
        value = other(tensor, form)
        if value is not None and (value.shape, value.dtype) == (tensor.shape, tensor.dtype):
            continue
        if (name, form) in ALLOWED:
            continue
        copy = shutil.copytree(sent, tmp_path / str(number))
        changed = {key: it for key, it in (tensors | {name: value}).items() if it is not None}
        save_file(changed, copy / FILE, metadata=metadata)
        group, _, leaf = name.replace("row", "personal").partition("/")
        part = group if group.startswith(("model", "memory")) else "coordinator"
        named = rf"{re.escape(str(copy / FILE))} is damaged \(.*({leaf}|{group}|{part})"
        with pytest.raises(CheckpointError, match=named):
            load(copy) if name.startswith("model.") else experiment(3).run(copy, resume=True)
        refused.add(name)
    assert len(refused) >= 5


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(
    "pieces",
    [(to.server.Adam(),), (to.weighting.Participation(3, average="exponential"), to.weighting.DivideByClients())],
    ids=["optimizer", "weighting"],
)
def test_server_state_with_nan_is_refused_by_name(tmp_path, pieces, value):
    """The attack: a checkpoint with its own digests, whose optimizer, controls or memory poison every later step."""

    def rounds(number):
        algorithm = to.scaffold(to.Sgd(steps=1, lr=0.1), cohort_size=4, also=pieces)
        return to.Experiment(classification(), to.models.Logistic(), algorithm, rounds=number)

    rounds(2).run(tmp_path)
    tensors, facts = checkpoint.load(tmp_path)
    groups = ("server.", "model/", "memory/")
    names = [name for name, it in tensors.items() if name.startswith(groups) and it.is_floating_point()]
    assert any(name.startswith("memory/") for name in names)
    assert len(names) > 2
    for name in names:
        changed = tensors[name].clone()
        changed.view(-1)[:1] = value
        checkpoint.save(tmp_path, tensors | {name: changed}, facts)
        with pytest.raises(
            CheckpointError, match=rf"is damaged \((coordinator|memory): {name.split('/')[1]}: got NaN or infinity"
        ):
            rounds(3).run(tmp_path, resume=True)
    checkpoint.save(tmp_path, tensors, facts)
    rounds(3).run(tmp_path, resume=True)


def test_tasks_of_unknown_clients_are_refused(copy):
    with safe_open(copy / FILE, framework="pt") as file:
        metadata = file.metadata()
    kept = load_file(copy / FILE)
    for name, value in {
        "schedule.scheduler/cohort": torch.tensor([-1, 99]),
        "schedule.pace/open": torch.tensor([[0, 99, 0]]),
        "memory/clients": torch.zeros(len(kept["memory/clients"]), dtype=torch.int64),
    }.items():
        save_file({**kept, name: value}, copy / FILE, metadata=metadata)
        with pytest.raises(CheckpointError, match=r"is damaged .*client"):
            experiment(3).run(copy, resume=True)


CONFIG = {
    "algorithm": [5, "x", None],
    "algorithm.name": [[1], None],
    "rounds": ["x", -1, 1e3, None, 10**30],
    "seed": [[], -1, None, 2**64],
    "data": [5, [1]],
    "data.num_clients": ["x", -3],
    "data.num_examples": [{}],
    "data.name": [["\ud800"]],
}


@pytest.mark.parametrize("path", CONFIG)
def test_invalid_configuration_is_refused_by_name(copy, path):
    text = (copy / "config.json").read_text()
    for value in CONFIG[path]:
        config = json.loads(text)
        put(config, path, value)
        (copy / "config.json").write_text(json.dumps(config))
        for read in (load, load_record, lambda it: is_finished(it, experiment(2)), lambda it: standings(it.parent)):
            with pytest.raises(CheckpointError, match=rf"config.json is damaged \((it|{path.split('.')[0]})"):
                read(copy)


def test_deeply_nested_json_and_lone_surrogates_are_refused(copy):
    deep = '{"a":' * 50_000, '{"a":' * 200 + "1" + "}" * 200
    for text in (*deep, '{"\\ud800": 1}', "[]", "", '{"a": 1' + "0" * 5000 + "}"):
        (copy / "config.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"config\.json is damaged"):
            load(copy)
        with pytest.raises(ValueError, match=r"."):
            contents.parse(text)


def test_comparison_lists_only_runs_below_its_folder(copy):
    for runs in (["/etc"], ["../other"], [5], "x", {"a": 1}):
        (copy.parent / "comparison.json").write_text(json.dumps({"runs": runs}))
        with pytest.raises(CheckpointError, match=r"comparison.json is damaged \(runs"):
            ordered_names(copy.parent)


def test_invalid_worker_files_are_skipped(tmp_path):
    (tmp_path / ".workers").mkdir()
    odd = [], {"running": 5}, {"host": [], "running": []}, {"host": "a", "running": [{"name": 1}]}
    for number, value in enumerate(odd):
        (tmp_path / ".workers" / f"{number}.json").write_text(json.dumps(value))
    assert list(running(tmp_path)) == []


def test_tables_with_invalid_numbers_are_refused_by_name(copy):
    for name, column, change in (
        ("rounds.parquet", "round", lambda it: it.set_column(0, "round", pa.array([None, 2], pa.int64()))),
        ("rounds.parquet", "round", lambda it: it.set_column(0, "round", pa.array([-2, -1], pa.int64()))),
        ("rounds.parquet", "round", lambda it: it.append_column("round", it["round"])),
        ("clients.parquet", "client", lambda it: it.set_column(0, "client", pa.nulls(len(it), pa.int64()))),
    ):
        kept = (copy / name).read_bytes()
        pq.write_table(change(pq.read_table(copy / name)), copy / name)
        with pytest.raises(CheckpointError, match=f"{name} is damaged .*{column}"):
            load(copy)
        (copy / name).write_bytes(kept)


def test_small_file_of_too_many_rows_is_refused(copy, monkeypatch):
    monkeypatch.setattr(tables, "memory_bytes", lambda: 100)
    with pytest.raises(CheckpointError, match=r"\.parquet is damaged .* rows, more than there is memory for"):
        load_record(copy)


def test_malformed_log_with_a_valid_digest_is_refused(tmp_path):
    history = History()
    history.record(round=1, participants=[0], train_loss=1.0)
    whole = history._log.whole()
    for table in (
        whole.table.set_column(0, "round", pa.array(["x"])),
        whole.table.set_column(0, "round", pa.nulls(1)),
        whole.table.drop_columns(["seconds"]),
        whole.table.slice(0, 0),
        pa.concat_tables([whole.table, whole.table]),
    ):
        (tmp_path / LOG).write_bytes(_packed(whole._replace(table=table)))
        with pytest.raises(CheckpointError, match=f"{LOG} is damaged"):
            History.load(tmp_path)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compressed_log_is_refused(tmp_path, compression):
    """The attack: an entry of a kilobyte whose zeros take all memory. Arrow has no limit for what it decompresses."""
    table = pa.table({"round": pa.array([0] * (1 << 20))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as stream:
        stream.write_table(table)
    content = 2 * sink.getvalue().to_pybytes()
    digest = hashlib.sha256(content).digest()
    (tmp_path / LOG).write_bytes(len(content).to_bytes(8, "little") + digest + content)
    before = pa.total_allocated_bytes()
    with pytest.raises(CheckpointError, match=f"{LOG} is damaged .*its tables are compressed"):
        History.load(tmp_path)
    assert pa.total_allocated_bytes() - before < 1 << 20


def test_message_that_is_no_table_is_not_read_as_one(tmp_path):
    """The attack: a tensor, whose fields, read as those of a table, lead anywhere."""
    sink = pa.BufferOutputStream()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(np.zeros((1, 1))), sink)
    content = sink.getvalue().to_pybytes()
    (tmp_path / LOG).write_bytes(len(content).to_bytes(8, "little") + hashlib.sha256(content).digest() + content)
    with pytest.raises(CheckpointError, match=f"{LOG} is damaged .*(?i:schema)"):
        History.load(tmp_path)


def test_text_in_a_numeric_column_is_refused_unread(copy):
    rounds = pq.read_table(copy / "rounds.parquet")
    text = pa.array(["x" * (1 << 24)] * len(rounds))
    pq.write_table(rounds.append_column("test_text", text), copy / "rounds.parquet", compression="zstd")
    del text
    before = pa.total_allocated_bytes()
    with pytest.raises(CheckpointError, match="its column 'test_text' is string, not double"):
        load_record(copy)
    assert pa.total_allocated_bytes() - before < 1 << 24


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_special_files_are_refused(copy, kind):
    """The attack: a folder from an archive with pipes and links to devices, which a reader would wait for for ever."""
    for path in [*copy.iterdir(), copy / "SHA256SUMS", copy / LOG]:
        content = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
        refusals = []
        for read in (load, load_record, lambda it: experiment(3).run(it, resume=True)):
            refusals.append("")
            with suppress(CheckpointError):  # not every reader needs every file
                read(copy)
                refusals.pop()
        assert path.name.endswith(("previous.safetensors", "environment.json")) or refusals, path
        path.unlink()
        if content is not None:
            path.write_bytes(content)


def test_columns_and_names_with_html_stay_text_in_tables_and_cards(copy):
    """The attack: a folder that was sent, whose columns and algorithm are named so that a page would run their script."""
    column = "test_<script>alert(1)</script>\n| x |_loss"
    rounds = pq.read_table(copy / "rounds.parquet")
    pq.write_table(rounds.append_column(column, pa.array([0.5] * len(rounds))), copy / "rounds.parquet")
    config = json.loads((copy / "config.json").read_text())
    config["algorithm"]["name"] = "a<script>alert(1)</script>|"
    (copy / "config.json").write_text(json.dumps(config))
    to.load(copy).export(copy / "model.safetensors", card=True)
    card = (copy / "model-card.md").read_text().partition("## Settings")[0]
    for text in (card, markdown(comparison([load_record(copy)]))):
        assert "alert" in text
        assert "<script>" not in text
        widths = [line.count("|") - line.count(r"\|") for line in text.splitlines() if line.startswith("|")]
        assert len(set(widths)) == 1


@pytest.mark.skipif(
    not hasattr(os.stat_result, "st_blocks"), reason="this system does not tell how much of a file is stored"
)
@pytest.mark.parametrize("name", ["config.json", "SHA256SUMS", "rounds.parquet", FILE])
def test_file_that_is_a_hole_is_not_read(tmp_path, name):
    """A file of a terabyte takes no space, and would be read for a quarter of an hour before its digest is wrong."""
    experiment(1).run(tmp_path)
    os.truncate(tmp_path / name, 1 << 40)
    with pytest.raises(CheckpointError, match="nearly all of its 1,099,511,627,776 bytes are a hole"):
        storage.check_all(tmp_path)


def test_text_of_more_bytes_than_a_run_writes_is_not_read(copy, monkeypatch):
    monkeypatch.setattr(contents, "_MOST_TEXT", 100)
    with pytest.raises(CheckpointError, match=r"is damaged \(it has more than 100 bytes\)"):
        load(copy)


def _name_twice(tensors, model):
    del tensors
    model["names"] = [model["names"][0]] * len(model["names"])


def _other_type(tensors, model):
    del model
    tensors["model/params"] = tensors["model/params"].double()


def _one_less(tensors, model):
    del model
    tensors["model/params"] = tensors["model/params"][1:]


def _unknown_name(tensors, model):
    del tensors
    model["tensors"]["extra"] = "no_such_parameter"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_name_twice, r"\d names, 1 of them distinct, for \d shapes"),
        (_other_type, "shared parameters are torch.float64, and personal parameters torch.float32"),
        (_one_less, r"\d+ shared and \d+ personal numbers, of \d+ parameters of which \d+ are shared"),
        (_unknown_name, "unknown parameter 'no_such_parameter'"),
    ],
)
def test_parameters_that_do_not_fit_their_layout_are_refused(copy, change, message):
    tensors, facts = checkpoint.load(copy)
    change(tensors, facts["model"])
    checkpoint.save(copy, tensors, facts)
    (copy / "SHA256SUMS").unlink(missing_ok=True)
    with pytest.raises(CheckpointError, match=rf"checkpoint.safetensors is damaged \(model: {message}"):
        to.load(copy)


@pytest.mark.parametrize("wrong", ["rows of client memory", "an offset"])
def test_tensors_that_do_not_fit_the_model_are_refused(copy, wrong):
    """The attack: whoever sends the folder changes the sizes of tensors that fit each other, but no model."""
    tensors, facts = checkpoint.load(copy)
    if wrong == "an offset":
        tensors["server.aggregation/base_offset"] = torch.zeros(3)
        message = "base_offset has 3 numbers, which does not match the adapters"
    else:
        for name in ("model.first/row", "memory/table.personal"):
            tensors[name] = torch.cat([tensors[name], tensors[name][..., :1]], dim=-1)
        message = r"rows of shape \(\d+,\) in client memory, and \d+ shared and \d+ personal numbers"
    checkpoint.save(copy, tensors, facts)
    (copy / "SHA256SUMS").unlink(missing_ok=True)
    with pytest.raises(CheckpointError, match=rf"checkpoint.safetensors is damaged \(model: {message}"):
        to.load(copy)
