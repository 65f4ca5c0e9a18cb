"""The log of a server has a line for each event that its operator looks for, with client, name and reason; counts as well."""

import itertools
import json
import logging
import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest
from rich.table import Table

from turnout import Experiment, Population, fedau
from turnout.cli.console import say, say_by
from turnout.models import Mlp
from turnout.population.availability import Everyone
from turnout_serve.cli.commands.clients import shown
from turnout_serve.cli.commands.status import rows_of
from turnout_serve.cli.commands.surveys import outcome
from turnout_serve.cli.connection import LogOption
from turnout_serve.cli.logs import JsonLines, TextLines
from turnout_serve.client.calls import Call
from turnout_serve.server.http.app import Http
from turnout_serve.server.http.status import page
from turnout_serve.server.options import Options
from turnout_serve.wire.format import digest, repr_digest
from turnout_serve.wire.words import WORDS

from .test_network import server
from .world import DATA, LOCAL

RUN = Experiment(DATA, Mlp(hidden=(4,)), fedau(LOCAL), Population(Everyone()), rounds=2, evaluate_every=2)


def lines(caplog, message):
    """The records with a message, as an operator with --log-format json reads them."""
    records = [record for record in caplog.records if record.getMessage() == message]
    return [json.loads(JsonLines().format(record)) for record in records]


def refused_report(deployed, home):
    home.train(deployed.host)
    body = b'\x08\0\0\0\0\0\0\0{"x":12}'
    headers = {"authorization": f"Bearer {home.state.token}", "repr-digest": repr_digest(digest(body))}
    return deployed.host.send("PUT", f"/v1/tasks/{home.state.pending.task.task}/report", body, headers)


@pytest.fixture
def heard(caplog):
    with caplog.at_level(logging.INFO, "turnout"):
        yield caplog


@pytest.mark.parametrize("restarts", [False, True])
def test_refused_reports_name_their_client(world, tmp_path, heard, restarts):
    deployed = world(RUN, homes=tmp_path, checkpoint_every=0.0)
    deployed.host.administer("POST", "clients/2", change="name", text="Ward 2")
    for home in deployed.homes:
        home.train(deployed.host)
    assert refused_report(deployed, deployed.homes[2]).status == 422
    (line,) = lines(heard, "report refused")
    assert (line["client"], line["client_name"], line["level"]) == (2, "Ward 2", "warning")
    assert "safetensors" in line["reason"]
    assert not [other for other in lines(heard, "task dropped") if other["client"] == 2]
    if restarts:
        deployed.host.service.writer.checkpoint()
        deployed.restart()
    row = deployed.host.administer("GET", "clients").table()["clients"][2]
    assert (row["refused"], row["dropped"], row["refusal"]) == (1, 1, line["reason"])
    others = [deployed.host.administer("GET", "clients").table()["clients"][client] for client in (0, 1, 3)]
    assert [(other["refused"], other["refusal"]) for other in others] == [(0, None)] * 3


def test_list_of_clients_shows_refusals():
    from turnout_serve.wire.admin_bodies import Row

    row = Row(
        client=2, name="Ward 2", state="there", reason=None, seen=1.0, reports=4, participation=0.5, unusable=0,
        dropped=3, refused=2, refusal="delta holds NaN",
    ).model_dump()  # fmt: skip
    table = shown({"clients": [row], "version": 8, "next": None})
    assert isinstance(table, Table)
    cells = {column.header: list(column.cells) for column in table.columns}
    assert (cells["dropped"], cells["refused"]) == (["3"], ["2: delta holds NaN"])


def test_late_and_dropped_tasks_are_told(world, tmp_path, heard):
    from dataclasses import replace

    from turnout.protocol.pace import Rounds

    deployed = world(replace(RUN, pace=Rounds(deadline=10.0)), homes=tmp_path)
    for home in deployed.homes:
        home.train(deployed.host)
    deployed.homes[0].turn(deployed.host)
    deployed.host.call(deployed.homes[1].client.leave())
    deployed.clock.now += 20.0
    deployed.host.pump()
    told = {(line["client"], line["reason"]) for line in lines(heard, "task dropped")}
    assert told == {(1, "left"), (2, "late"), (3, "late")}
    (step,) = lines(heard, "server step")
    assert (step["step"], step["reports"]) == (1, 1)


def test_enrollments_changes_and_failed_authentications_are_told(world, heard):
    deployed = world(RUN)
    assert [line["client"] for line in lines(heard, "client enrolled")] == [0, 1, 2, 3]
    for change in ("ban", "unban", "remove"):
        deployed.host.administer("POST", "clients/1", change=change, text="sends noise")
    assert [(line["client"], line.get("reason")) for line in lines(heard, "client banned")] == [(1, "sends noise")]
    assert [line["client"] for line in lines(heard, "client removed")] == [1]
    deployed.host.send("POST", "/v1/checkin", b"{}", {"authorization": f"Bearer {'x' * 40}"})
    deployed.host.administer("GET", "clients", token=deployed.homes[0].state.token)
    deployed.host.administer("GET", "clients", token="y" * 40)
    failed = lines(heard, "authentication failed")
    assert [(line["address"], line["route"], line.get("client")) for line in failed] == [
        ("test", "/v1/checkin", None), ("test", "/v1/admin/clients", 0), ("test", "/v1/admin/clients", None)
    ]  # fmt: skip
    assert not any("x" * 40 in json.dumps(line) for line in failed)


def test_refused_enrollment_is_told(world, heard):
    deployed = world(RUN, max_clients=4)
    headers = {"authorization": f"Bearer {'z' * 40}"}
    deployed.host.call(Call("POST", "/v1/enrol", {"protocol": 2, "name": "late\x1b[2J"}, headers=headers))
    deployed.host.call(Call("POST", "/v1/enrol", {"protocol": 2, "name": "fifth"}, headers=headers))
    (line,) = lines(heard, "enrollment refused")
    assert (line["client_name"], line["reason"]) == ("fifth", "this federation has its 4 clients")


def test_lines_of_text_have_no_control_characters():
    record = logging.makeLogRecord({"msg": "report refused", "client": 1, "reason": "a\x1b[2Jb"})
    assert "\x1b" not in TextLines().format(record)


@pytest.mark.parametrize(
    "words",
    [
        "clients {url} --token {token}",
        "status {url} --token {token}",
        "query {url} label_histogram --seconds 0 --token {token}",
        "evaluate {url} --seconds 0 --token {token}",
        "clients {folder}",
        "status {folder}",
    ],
)
def test_commands_that_send_one_request_do_not_import_torch(folder, words):
    """To import PyTorch takes seconds of the processor."""
    run = server(folder / "run")
    code = (
        "import sys\nfrom turnout.cli import app\ntry:\n    app(sys.argv[1:])\n"
        "except SystemExit as end:\n    code = end.code\nprint('torch' in sys.modules, code)"
    )
    with run.listening() as url:
        arguments = words.format(url=url, folder=folder / "run", token=folder / "run" / "admin.token").split()
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, env=environment
        )
    assert done.stdout.splitlines()[-1] == "False 0", done.stdout + done.stderr


def test_report_that_is_too_large_and_requests_of_banned_clients_name_them(world, heard):
    deployed = world(RUN)
    home = deployed.homes[2]
    for other in deployed.homes:
        other.train(deployed.host)
    deployed.host.administer("POST", "clients/2", change="name", text="Ward 2")
    task, token = deployed.host.driver.task_of(2).task, {"authorization": f"Bearer {home.state.token}"}
    large = {"repr-digest": f"sha-256=:{'A' * 43}=:", **token}
    assert deployed.host.send("PUT", f"/v1/tasks/{task}/report", bytes(100_000), large).status == 413
    (line,) = lines(heard, "report refused")
    assert (line["client"], line["client_name"], line["task"]) == (2, "Ward 2", task)
    assert "a report on this task has at most" in line["reason"]
    deployed.host.administer("POST", "clients/2", change="ban", text="sends noise")
    assert deployed.host.send("POST", "/v1/checkin", b"{}", token).status == 403
    assert deployed.host.send("POST", "/v1/enrol", b'{"protocol": 2}', token).status == 403
    (line,) = lines(heard, "authentication failed")
    assert (line["client"], line["client_name"], line["reason"]) == (2, "Ward 2", "this client is banned: sends noise")
    (line,) = lines(heard, "enrollment refused")
    assert (line["client"], line["client_name"], line["reason"]) == (2, "Ward 2", "this client is banned: sends noise")
    deployed.host.administer("POST", "clients/2", change="remove")
    (line,) = lines(heard, "client removed")
    assert (line["client"], line["client_name"]) == (2, "Ward 2")


def test_banned_client_that_does_not_stop_is_slowed_down(world):
    deployed = world(RUN)
    deployed.host.administer("POST", "clients/2", change="ban", text="sends noise")
    deployed.host.app = Http(deployed.host.service, {}, Options(rate=5.0)).app()
    token = {"authorization": f"Bearer {deployed.homes[2].state.token}"}
    statuses = [deployed.host.send("POST", "/v1/checkin", b"{}", token).status for _ in range(30)]
    assert set(statuses) == {403, 429}


def test_name_of_a_client_cannot_look_like_other_fields_of_a_line():
    record = logging.LogRecord("turnout.server", logging.INFO, "", 0, "client enrolled", (), None)
    record.client, record.client_name = 3, 'Ward client=0 reason="fine"'
    said = TextLines().format(record)
    assert said.endswith(r'client enrolled client=3 client_name="Ward client=0 reason=\"fine\""')


@pytest.mark.parametrize(("state", "shows"), [("there", "connected"), ("at work", "working"), ("away", "away")])
def test_people_read_plain_words(state, shows):
    row = {"client": 0, "name": "", "state": state, "reason": None, "seen": None, "reports": 0, "participation": 0.0}
    table = shown({"clients": [row], "version": 8, "next": None})
    assert isinstance(table, Table)
    cells = {column.header: list(column.cells) for column in table.columns}
    assert cells["state"] == [shows]
    assert not cells.keys() & {"code", "certificate"}  # no client has any
    assert str(shown({"client": 0, "state": state})) == f"client 0: {shows}"


def test_reasons_of_dropped_tasks_are_in_plain_words():
    names = ("run", "algorithm", "pace", "state", "version", "rounds", "enrolled", "there", "at_work")
    figures = dict.fromkeys(names, 1) | {
        "dropped": {"died": 2},
        "curves": {"seconds": [[1, 0.1234567]]},
        "healthy": True,
    }
    assert rows_of(figures)[3:] == [("dropped: given up by the client, or refused", "2"), ("seconds", "0.1235")]


def test_what_an_evaluation_waits_for_is_told(monkeypatch, capsys):
    """With no client connected, it stays open for ten minutes, without a word."""
    states = [
        {"state": "open", "asked": 0, "answered": 0},
        {"state": "open", "asked": 3, "answered": 1},
        {"state": "closed"},
    ]
    for first, expected in (
        (0, "no client is connected: the server asks those"),
        (1, "1 of 3 clients have answered so far"),
    ):
        clock = itertools.count(0.0, 10.0)
        monkeypatch.setattr(time, "monotonic", lambda clock=clock: next(clock))
        answers = iter([{"survey": 0}, *states[first:]])
        administrator: Any = SimpleNamespace(ask=lambda *_, answers=answers: next(answers))
        outcome(administrator, {}, pause=0.0)
        assert expected in capsys.readouterr().err


def test_notices_and_errors_are_lines_of_json_where_the_log_is(tmp_path):
    """A file is in the place of the folder, so the command fails, with nothing but JSON on standard error."""
    (tmp_path / "run").write_text("")
    words = ["rounds=2", "--folder", str(tmp_path / "run"), "--log-format"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    said = {
        form: subprocess.run(
            [sys.executable, "-m", "turnout", "serve", *words, form],
            capture_output=True, text=True, check=False, env=environment,
        ).stderr.splitlines()
        for form in ("json", "text")
    }  # fmt: skip
    (line,) = map(json.loads, said["json"])
    assert (line["level"], line["message"]) == ("error", said["text"][-1])


def test_levels_of_notices_follow_their_color(caplog, capsys, monkeypatch):
    monkeypatch.setattr(logging.getLogger("turnout"), "handlers", [])
    LogOption(logs="json").write_log()
    monkeypatch.setattr(logging.getLogger("turnout"), "handlers", [])  # caplog has the records
    try:
        say("1,000 one-time codes")
        say("no certificate", "yellow")
        say("Error: no rounds", "red")
    finally:
        say_by(None)
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told == [("INFO", "1,000 one-time codes"), ("WARNING", "no certificate"), ("ERROR", "Error: no rounds")]
    say("going on")
    assert capsys.readouterr().err == "going on\n"


def test_client_of_another_protocol_is_told(world, heard):
    deployed = world(RUN)
    token = {"authorization": f"Bearer {'n' * 40}"}
    assert deployed.host.send("POST", "/v1/enrol", b'{"protocol": 1}', token).status == 426
    (line,) = lines(heard, "enrollment refused")
    assert line["reason"] == "this server speaks protocol 2, the client 1: update it"


def test_state_of_a_run_that_is_over_and_still_asks_clients(world):
    """It does not train any more, and is not over for clients that come to answer."""
    deployed = world(RUN).run()
    state = lambda: deployed.host.service.writer.figures.status["state"]  # noqa: E731
    assert state() == "over"
    deployed.host.service.survey("evaluate", seconds=60.0)
    deployed.host.pump()
    assert state() == "waiting for answers of clients"


def test_the_page_of_a_server_has_the_words_of_its_commands():
    assert f"const WORDS = {json.dumps(WORDS)};" in page()
