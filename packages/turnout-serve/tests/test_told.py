"""The log of a server has a line for each event that its operator looks for, with client, name and reason; counts as well."""

import json
import logging
import os
import subprocess
import sys

import pytest

from turnout import Experiment, Population, fedau
from turnout.models import Mlp
from turnout.population.availability import Everyone
from turnout_serve.cli.commands.clients import shown
from turnout_serve.cli.logs import JsonLines, TextLines
from turnout_serve.client.calls import Call
from turnout_serve.wire.format import digest, repr_digest

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
    from rich.table import Table

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
        arguments = words.format(url=url, token=folder / "run" / "admin.token").split()
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, env=environment
        )
    assert done.stdout.splitlines()[-1] == "False 0", done.stdout + done.stderr
