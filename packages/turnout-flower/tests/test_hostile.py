"""A malicious or broken node loses only its own report: the model of the others is equal, bit for bit."""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch

import turnout as to
from turnout_flower import Rule
from turnout_serve.server.service import Service
from turnout_serve.wire.format import encode

pytest.importorskip("flwr", reason="flwr is not installed: sh scripts/extras.sh flower")
from flwr.app import Array, Error, Message, Metadata, RecordDict

from turnout_flower import mod

from .grids import SHAPES, OneProcess, app, first

NODES = {11: 0, 22: 1, 33: 2, 44: 3}
ROUNDS = 3
Attack = Callable[[RecordDict], object]


def arrays(**changed: np.ndarray) -> Attack:
    """Return an attack that sends other arrays."""
    return lambda content: content["arrays"].update({name: Array(value) for name, value in changed.items()})


def raw(data: bytes, dtype: str = "float32") -> Attack:
    """Return an attack whose bias is these bytes."""
    bias = Array(dtype, (2,), "numpy.ndarray", data)
    return lambda content: content["arrays"].update({"bias": bias})


def metrics(**changed: float | list[float]) -> Attack:
    """Return an attack that sends other metrics."""
    return lambda content: content["metrics"].update({name.replace("_", "-"): value for name, value in changed.items()})


def header(shape: str) -> bytes:
    """Return the beginning of an array of NumPy, without its numbers."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


ATTACKS: dict[str, tuple[Attack, str]] = {
    "another shape": (arrays(bias=np.zeros((3, 1), np.float32)), "in name or shape: bias"),
    "another name": (arrays(scale=np.zeros(2, np.float32)), "in name or shape: scale"),
    "NaN": (arrays(bias=np.array([0, np.nan], np.float32)), "delta holds NaN or infinity"),
    "infinity": (arrays(bias=np.array([np.inf, 0], np.float32)), "delta holds NaN or infinity"),
    "the largest number": (arrays(bias=np.full(2, 3e38, np.float32)), "delta has norm 4.24e+38"),
    "texts": (arrays(bias=np.array(["a", "b"])), "the reply cannot be read: TypeError"),
    "no array": (raw(b"nothing"), "the reply cannot be read: ValueError"),
    "an object": (raw(b"\x80\x04N.", "object"), "the reply cannot be read: ValueError"),
    "more than there is memory": (raw(header("(10000000000000000,)")), "the reply cannot be read: "),
    "fewer numbers than its shape": (raw(header("(2,)")), "the reply cannot be read: ValueError"),
    "no arrays": (lambda content: content.pop("arrays"), "in name or shape: batches, bias, weight"),
    "no metrics": (lambda content: content.pop("metrics"), "the metrics of the reply hold nothing, and the rule reads"),
    "no number of examples": (
        lambda content: content["metrics"].pop("num-examples"),
        "reads the number 'num-examples'",
    ),
    "a negative number": (metrics(num_examples=-5), "num_examples is -5, needed 0 to 2^40"),
    "NaN examples": (metrics(num_examples=float("nan")), "the reply cannot be read: ValueError"),
    "infinitely many": (metrics(num_examples=float("inf")), "the reply cannot be read: OverflowError"),
    "very many": (metrics(num_examples=1e300), "the reply cannot be read: OverflowError"),
    "many numbers": (metrics(num_examples=[1.0, 2.0]), "reads the number 'num-examples'"),
    "no steps": (lambda content: content["metrics"].pop("num-steps"), "reads the number 'num-steps'"),
}


class Hostile(OneProcess):
    """A grid on which node 22 changes the content of its replies."""

    attack: Attack

    def _answer(self, message: Message, node: int) -> Message:
        reply = super()._answer(message, node)
        if node == 22:
            self.attack(reply.content)
        return reply


def model(grid: OneProcess, folder, **options) -> torch.Tensor:
    """Return the model of a run over a grid, in which nobody is asked again who lost a task."""
    algorithm = to.fednova(also=(to.selection.AllAvailable(),))
    rule = Rule(algorithm, folder=folder, **{"min_nodes": 4, "poll": 0.01, "retry": 3600} | options)
    result = rule.start(grid, first(), num_rounds=ROUNDS)
    assert list(result.train_metrics_clientapp) == [*range(1, ROUNDS + 1)]
    return torch.cat([torch.from_numpy(np.array(result.arrays[name].numpy())).reshape(-1) for name in SHAPES])


@pytest.fixture(scope="module")
def of_others(tmp_path_factory) -> torch.Tensor:
    """Return the model of a run in which node 22 fails."""
    grid = OneProcess(NODES, app())
    grid.broken = {22}
    return model(grid, tmp_path_factory.mktemp("others"))


@pytest.fixture(scope="module")
def of_all(tmp_path_factory) -> torch.Tensor:
    """Return the model of a run in which all nodes do what they should."""
    return model(OneProcess(NODES, app()), tmp_path_factory.mktemp("all"))


@pytest.mark.parametrize("name", ATTACKS)
def test_invalid_reply_costs_only_its_node(name, tmp_path, of_others, caplog):
    grid = Hostile(NODES, app())
    grid.attack, reason = ATTACKS[name]
    assert torch.equal(model(grid, tmp_path), of_others)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "turnout_flower"]
    assert line.startswith("node 22: task 1 is lost: ")
    assert reason in line


@pytest.mark.parametrize("reply", ["an error", "no content"])
def test_failure_message_of_a_node_is_one_log_line(reply, tmp_path, of_others, caplog):
    class Failing(OneProcess):
        def _answer(self, message: Message, node: int) -> Message:
            if node != 22:
                return super()._answer(message, node)
            failed = Message(Error(7, "\x1b[2J oh\nnode 33: task 2 is lost" + 1000 * "!"), reply_to=message)
            if reply == "no content":
                failed.__dict__["_error"] = None
            return failed

    assert torch.equal(model(Failing(NODES, app()), tmp_path), of_others)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "turnout_flower"]
    assert line.startswith("node 22: task 1 is lost: ")
    assert line.isprintable()
    assert len(line) < 600


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [0.5, 0.5]])
def test_non_numeric_metrics_do_not_change_the_model(value, tmp_path, of_all):
    grid = Hostile(NODES, app())
    grid.attack = metrics(train_loss=value)
    assert torch.equal(model(grid, tmp_path), of_all)


class Replayed(OneProcess):
    """A grid that gives every reply again at each later look, without content and with other metadata.

    Args:
        forged: the metadata of a further reply, of that of a reply.
        first: whether it comes before the reply itself.
    """

    def __init__(self, forged: Callable[[Metadata], dict[str, object]], first: bool) -> None:
        super().__init__(NODES, app())
        self._forged, self._first, self._replies = forged, first, list[Message]()

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = list(super().pull_messages(message_ids))
        self._replies += replies
        again = [Message(RecordDict(), reply_to=reply) for reply in self._replies]
        for copy, reply in zip(again, self._replies, strict=True):
            copy.metadata.__dict__.update(vars(reply.metadata) | self._forged(reply.metadata))
        return [*again, *replies] if self._first else [*replies, *again]


REPLAYS: dict[str, tuple[Callable[[Metadata], dict[str, object]], bool]] = {
    "twice, and in later rounds": (lambda _: {}, False),
    "to no message": (lambda _: {"_reply_to_message_id": "99"}, True),
    "by another node": (lambda reply: {"_src_node_id": 11 if reply.src_node_id != 11 else 22}, True),
    "by no node": (lambda _: {"_src_node_id": 55}, True),
}


@pytest.mark.parametrize("name", REPLAYS)
def test_unexpected_reply_is_ignored(name, tmp_path, of_all, caplog):
    assert torch.equal(model(Replayed(*REPLAYS[name]), tmp_path), of_all)
    assert "a reply to no message of its own" in caplog.text


def test_node_with_a_new_id_is_a_new_client(tmp_path):
    grid = OneProcess({**NODES, 55: 1}, app())
    grid.there, grid.silent, looks = set(NODES), {22}, []

    def change() -> None:
        looks.append(1)
        if len(looks) == 3:
            grid.there = set(NODES) - {22} | {55}

    grid.pulls = change
    model(grid, tmp_path)
    assert to.load(tmp_path).clients["name"].to_pylist() == ["11", "22", "33", "44", "55"]
    assert to.load(tmp_path).clients["participations"].to_pylist()[1] == 0


def test_unreachable_node_loses_its_task(tmp_path, of_others):
    class Full(OneProcess):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[Any]:
            messages = list(messages)
            names = super().push_messages(messages)
            return [None if m.metadata.dst_node_id == 22 else n for m, n in zip(messages, names, strict=True)]

    assert torch.equal(model(Full(NODES, app()), tmp_path), of_others)


@pytest.mark.parametrize("body", [b"", b"\xff" * 64, encode({"delta": torch.zeros(1, 7)}), "text", 7])
def test_invalid_report_of_the_mod_costs_only_its_node(body, tmp_path, caplog):
    algorithm = to.fednova(also=(to.selection.AllAvailable(),))
    grid = Hostile(NODES, app(mods=[mod(algorithm, tmp_path / "clients")]))
    grid.attack = lambda content: content["turnout"].update({"report": body})
    model(grid, tmp_path / "run", mod=True)
    assert to.load(tmp_path / "run").clients["participations"].to_pylist() == [ROUNDS, 0, ROUNDS, ROUNDS]
    assert "node 22: task 1 is lost: " in caplog.text


@pytest.mark.parametrize("times", [2, 99])
def test_report_damaged_on_disk_is_written_again(times, tmp_path, of_all, of_others, monkeypatch, caplog):
    """The server still has the reply. If the disk damages it each time, the task ends at once."""
    receive, left = Service.report, [times]

    def damaged(self, client, task, digest, file):
        if client == 1 and task == 1 and left[0]:
            left[0] -= 1
            file.write_bytes(b"other bytes")
        return receive(self, client, task, digest, file)

    monkeypatch.setattr(Service, "report", damaged)
    found = model(OneProcess(NODES, app()), tmp_path)
    assert torch.equal(found, of_all if times == 2 else of_others)
    lost = [record.getMessage() for record in caplog.records if record.name == "turnout_flower"]
    assert [line.split(": ", 2)[-1] for line in lost] == (
        [] if times == 2 else ["its report was damaged 3 times on the disk of the server"]
    )
