"""The log of what leaves a client: what a server received, on the disk before it is sent, through kills and full disks."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load
from tests.laws.recipes import DATA

import turnout as to
from turnout import ConfigurationError
from turnout.evaluation.queries import Question
from turnout.pieces.aggregation import PrivateSum, SecureSum
from turnout.pieces.guard import Clip, TopK
from turnout_serve.cli.sent import inspect
from turnout_serve.client import join, sent
from turnout_serve.client.join import Connection, Joined
from turnout_serve.client.sent import SentLog, Unlogged, read_log
from turnout_serve.client.worker import Worker
from turnout_serve.wire.format import digest

from .world import LOCAL, Killed

URL = "http://127.0.0.1:9"
SHARES = PrivateSum(
    norm=0.3, noise_multiplier=0.5, secure=SecureSum(fraction_bits=14, largest=1.0), noise_shares=8, dropouts=1
)


def run(*pieces, rounds=2):
    algorithm = to.fedau(LOCAL, also=pieces)
    return to.Experiment(
        DATA,
        to.models.Logistic(),
        algorithm,
        to.Population(to.availability.Everyone()),
        rounds=rounds,
        evaluate_every=2,
    )


class Logged:
    """Stands where a client sends: logs, remembers what the server gets, and may die between both."""

    def __init__(self, host, log, home, dies_at=None):
        self.host, self.log, self.home, self.dies_at, self.received = host, log, home, dies_at, []

    def call(self, call):
        self.log.write(call, self.home.client)
        if call.path.endswith(("/report", "/fail", "/enrol", "/leave")):
            if len(self.received) == self.dies_at:
                raise Killed
            self.received.append((call.path, call.content[0]))
        return self.host.call(call)


@pytest.mark.parametrize("pieces", [(), (Clip(norm=0.1),), (TopK(share=0.2),), (SecureSum(largest=64.0),), (SHARES,)])
def test_log_lists_what_the_server_received(pieces, world, tmp_path):
    deployed = world(run(*pieces))
    home, path = deployed.homes[0], tmp_path / "sent.jsonl"
    logged = Logged(deployed.host, SentLog(path, deployed.computer, URL), home)
    for _ in range(40):
        home.turn(logged)
        for other in deployed.homes[1:]:
            other.turn(deployed.host)
        deployed.clock.now += 1.0
        deployed.host.pump()
    logged.log.close()
    assert home.over is not None
    lines = read_log(path)
    assert [(line["path"], line["bytes"], line["digest"]) for line in lines] == [
        (where, len(body), digest(body)) for where, body in logged.received
    ]
    assert not any(line["again"] for line in lines)
    reports = [
        (line, load(body)) for line, (_, body) in zip(lines, logged.received, strict=True) if line["what"] == "report"
    ]
    assert len(reports) >= 2
    for line, tensors in reports:
        assert line["guards"] == [type(piece).__name__ for piece in pieces if isinstance(piece, Clip | TopK)]
        assert line["masked"] == ("masked" in tensors) == (line["phase"] == "mask")
        assert line["noised"] == (line["masked"] and pieces == (SHARES,))
        assert line["examples"] == (int(tensors["num_examples"][0]) if line["phase"] == "train" else None)
        if "delta" in tensors:
            assert line["norm"] == pytest.approx(tensors["delta"].double().norm().item(), rel=1e-12)
        else:
            assert (line["norm"] is not None) == (pieces != () and isinstance(pieces[0], TopK))
        named = {*line["tensors"], *(name if name.startswith("num_") else f"seen.{name}" for name in line["scalars"])}
        assert named == set(tensors) or isinstance(pieces[0], TopK)
    assert any(line["masked"] for line, _ in reports) == bool(deployed.experiment.algorithm.extra_phases)


def test_request_is_logged_before_it_is_sent(world, tmp_path, monkeypatch):
    """A `Joined` client: the line is flushed before the request of the same name, and the last is its leave."""
    deployed, path, events = world(run(rounds=1), min_clients=9), tmp_path / "sent.jsonl", []
    home = deployed.homes[0]
    log = SentLog(path, deployed.computer, URL)
    stopped = join.Flag()

    def send(_, call, *__, **___):
        events.append(("sent", call.path))
        if call.path == "/v1/checkin":
            stopped.set()
        return deployed.host.call(call)

    flush = sent.flush
    monkeypatch.setattr(sent, "flush", lambda file: (events.append(("flushed",)), flush(file)))
    monkeypatch.setattr(join, "send", send)
    assert Joined(home.client, Connection(URL), stopped, sent=log.write).run() == "stopped"
    log.close()
    assert events == [
        ("flushed",),
        ("sent", "/v1/enrol"),
        ("sent", "/v1/checkin"),
        ("flushed",),
        ("sent", "/v1/leave"),
    ]
    assert [(line["what"], line.get("server")) for line in read_log(path)] == [("enrollment", URL), ("leave", None)]


def test_answers_and_declines_are_logged(world, tmp_path):
    deployed, path = world(run(), min_clients=9), tmp_path / "sent.jsonl"
    home = deployed.homes[0]
    log = SentLog(path, deployed.computer, URL)
    for allows in (("queries",), ()):
        home.client.trainer = Worker(deployed.computer, 0, allows=allows)
        deployed.round()
        deployed.host.service.survey("query", question=Question("label_histogram"))
        deployed.host.pump()
        for _ in range(4):
            home.turn(Logged(deployed.host, log, home))
    log.close()
    answer, decline = read_log(path)
    assert (answer["what"], answer["question"], answer["phase"]) == ("query", "label_histogram of features", "query")
    assert "counts" in answer["tensors"]
    assert (decline["what"], decline["phase"], decline["reason"]) == ("decline", "query", "refused")


def test_all_messages_of_a_masked_answer_are_logged_as_such(world, tmp_path):
    """Phases of a sum of answers have the names of those of a sum of updates, and are not called training."""
    deployed, path = world(run(SecureSum(largest=64.0)), min_clients=9), tmp_path / "sent.jsonl"
    home = deployed.homes[0]
    logged = Logged(deployed.host, SentLog(path, deployed.computer, URL), home)
    deployed.round()
    for question in (Question("label_histogram"), None):
        deployed.host.service.survey("evaluate" if question is None else "query", question=question)
        deployed.host.pump()
        for _ in range(8):
            home.turn(logged)
            for other in deployed.homes[1:]:
                other.turn(deployed.host)
            deployed.host.pump()
    logged.log.close()
    lines = [line for line in read_log(path) if line["what"] != "decline"]
    assert [(line["what"], line["phase"]) for line in lines] == [
        ("query", phase) for phase in ("query", "share", "mask", "open")
    ]
    assert [line["masked"] for line in lines] == [False, False, True, False]
    assert {line["question"] for line in lines} == {"label_histogram of features"}


def test_kill_between_log_and_request_keeps_the_log_valid(world, tmp_path):
    """The line is there, cut anywhere, or whole; the client that starts again sends the same report, and it is logged."""
    deployed, path = world(run(rounds=1), homes=tmp_path / "homes"), tmp_path / "sent.jsonl"
    home = deployed.homes[0]
    for _ in range(3):
        for each in deployed.homes:
            each.train(deployed.host)
        deployed.clock.now += 1.0
        deployed.host.pump()
    assert home.has_report
    log = SentLog(path, deployed.computer, URL)
    with pytest.raises(Killed):
        home.step(Logged(deployed.host, log, home, dies_at=0))
    log.close()
    whole = path.read_bytes()
    assert whole.endswith(b"\n")
    body = home.state.pending.body
    home = deployed.homes[0] = home.reborn()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert len(read_log(path)) == 0
        SentLog(path, deployed.computer, URL).close()
        assert path.read_bytes() == b""
    path.write_bytes(whole)
    log = SentLog(path, deployed.computer, URL)
    logged = Logged(deployed.host, log, home)
    while home.state.pending is not None:
        home.step(logged)
    log.close()
    lines = read_log(path)
    assert [(line["what"], line["again"]) for line in lines] == [
        ("report", False),
        ("enrollment", False),
        ("report", True),
    ]
    assert lines[0]["digest"] == lines[2]["digest"] == digest(body) == digest(logged.received[-1][1])


def test_unlogged_request_is_not_sent(world, tmp_path):
    """Half a line fits: the file is as it was before, the client says so, and the server gets nothing."""
    resource = pytest.importorskip("resource", reason="limits of files are of Unix")
    deployed, path = world(run(), min_clients=9), tmp_path / "sent.jsonl"
    home = deployed.homes[0]
    log = SentLog(path, deployed.computer, URL)
    log.write(home.client.leave(), home.client)
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 40, limits[1]))
    try:
        with pytest.raises(
            Unlogged, match=r"cannot be written \(File too large\), so the leave was not sent: free some space"
        ):
            log.write(home.client.leave(), home.client)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    log.write(home.client.leave(), home.client)
    log.close()
    assert [line["again"] for line in read_log(path)] == [False, True]


@pytest.mark.parametrize(
    ("there", "reason"), [(False, "No such file or directory"), (True, "another file is in its place")]
)
def test_request_is_not_sent_when_the_log_is_gone(there, reason, world, tmp_path, monkeypatch):
    """A program that rotates or deletes logs leaves the client with a file that nobody can read."""
    deployed = world(run(), min_clients=9)
    home = deployed.homes[0]
    monkeypatch.chdir(tmp_path)
    log = SentLog(Path("sent.jsonl"), deployed.computer, URL)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    log.write(home.client.leave(), home.client)
    (tmp_path / "sent.jsonl").rename(tmp_path / "sent.jsonl.1")
    if there:
        (tmp_path / "sent.jsonl").touch()
    with pytest.raises(Unlogged, match=rf"{reason}\), so the leave was not sent: .*, or start the client again"):
        log.write(home.client.leave(), home.client)
    log.close()
    assert len(read_log(tmp_path / "sent.jsonl.1")) == 1


@pytest.mark.parametrize("content", ["text\n", "text", '{"time": "x"}\n', '{"time": "x\n{"time": "\n', "[]\n"])
def test_another_file_is_refused_and_not_changed(content, tmp_path):
    path = tmp_path / "notes"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match="line 1: no line of join --log: give another file"):
        SentLog(path, None, URL)  # type: ignore[arg-type]
    assert path.read_text() == content


def test_unusable_log_files_are_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="is no file: give one"):
        read_log(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_log(tmp_path / "missing")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"--log: .*cannot be written"):
        SentLog(tmp_path / "file" / "log", None, URL)  # type: ignore[arg-type]
    first = SentLog(tmp_path / "log", None, URL)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="another client writes to"):
        SentLog(tmp_path / "log", None, URL)  # type: ignore[arg-type]
    first.close()


def test_lines_with_fields_of_any_kind_are_shown(tmp_path, capsys):
    """The attack: a log that somebody sent, whose lines are such lines by their first two fields."""
    odd = [None, [], {}, -1, float("nan"), "\ud800", 10**300, True]
    fields = ("name", "code", "data", "task", "norm", "tensors", "scalars", "guards", "reason", "question", "version")
    lines = [{}, *({field: value} for field in fields for value in odd)]
    start = {"time": "2026", "bytes": 1}
    written = [json.dumps({**start, "what": what, **line}) for what in ("enrollment", "report") for line in lines]
    (tmp_path / "log").write_text("\n".join([*written, ""]))
    inspect(tmp_path / "log")
    assert capsys.readouterr().out.count("enrollment") > len(lines)
