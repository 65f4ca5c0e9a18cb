"""The status of a run is for its administrator, unless the server shows it to anyone."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.tiny import classification

from turnout import Experiment, Sgd, fedau
from turnout.models import Logistic
from turnout.record.describe import describe
from turnout.record.environment import save_description
from turnout_serve.cli.serving import status_at
from turnout_serve.server.enrollment import hashed
from turnout_serve.server.http.app import Http
from turnout_serve.server.http.status import page
from turnout_serve.server.options import Options
from turnout_serve.wire.administrator import TOKEN_FILE, server_token

from .world import ADMINISTRATOR, ANNOUNCEMENT

RUN = Experiment(classification(), Logistic(), fedau(Sgd(lr=0.1)), rounds=2)
FIGURES = ("/v1/status", "/metrics")


def bearer(token):
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
def deployed(world):
    """A federation whose server shows its figures to the administrator alone."""
    made = world(RUN)
    made.host.http = Http(made.host.service, ANNOUNCEMENT, Options(rate=0), hashed(ADMINISTRATOR))
    made.host.app = made.host.http.app()
    return made


@pytest.mark.parametrize("path", FIGURES)
def test_figures_require_the_administrator_token(deployed, path):
    client = deployed.homes[0].state.token
    for headers, status in (({}, 401), (bearer("a" * 43), 401), (bearer(client), 403), (bearer(ADMINISTRATOR), 200)):
        answer = deployed.host.send("GET", path, headers=headers)
        assert answer.status == status
        assert (b"fedau" in answer.body or b"turnout_steps_total" in answer.body) == (status == 200)


def test_guessed_tokens_of_the_status_are_rate_limited(deployed):
    deployed.host.app = Http(deployed.host.service, ANNOUNCEMENT, Options(rate=5.0), hashed(ADMINISTRATOR)).app()
    answers = [deployed.host.send("GET", "/v1/status", headers=bearer(f"{n:040}")).status for n in range(20)]
    assert (answers[:10], answers[-1]) == ([401] * 10, 429)


def test_clients_take_part_at_a_server_that_shows_them_no_figures(deployed):
    deployed.run()
    assert deployed.host.driver.version == 2


@pytest.mark.parametrize("path", FIGURES)
def test_a_public_status_needs_no_token(world, path):
    host = world(RUN).host
    assert [host.send("GET", path, headers=headers).status for headers in ({}, bearer("a" * 43))] == [200, 200]


def test_the_page_has_no_figures_itself(deployed):
    """The page is the same file for every run: it asks for the figures with the token."""
    answer = deployed.host.send("GET", "/")
    assert (answer.status, answer.body.decode()) == (200, page())


def test_the_link_with_the_token_is_printed_on_terminals_alone(folder, monkeypatch):
    """The output of a service goes to a log, and a log shall have no token."""
    token, url = server_token(folder), "http://0.0.0.0:1"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert status_at(url, folder, public=False) == f"status: http://127.0.0.1:1/#token={token}"
    assert status_at(url, folder, public=True) == "status for anyone: http://127.0.0.1:1"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    said = status_at(url, folder, public=False)
    assert token not in said
    assert f"turnout status {folder}" in said
    assert str(folder / TOKEN_FILE) in said


IMPORTS = """
import sys
from turnout.cli import app
try:
    app({words!r}, standalone_mode=False)
finally:
    print("heavy:", sorted({{"torch", "pyarrow"}} & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("words", [("status",), ("clients",), ("query", "count"), ("evaluate",)], ids=lambda it: it[0])
def test_commands_of_one_request_do_not_import_pytorch(folder, words):
    """Neither do they if there is no server, or none that answers."""
    (folder / "address.txt").write_text("http://127.0.0.1:1\n")
    server_token(folder)
    name, *more = words
    code = IMPORTS.format(words=[name, "http://127.0.0.1:1", *more, "--token", str(folder / TOKEN_FILE)])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "Connection refused" in done.stderr
    assert "heavy: []" in done.stderr


@pytest.mark.parametrize("state", ["finished", "stopped"])
def test_status_of_a_stopped_server_does_not_import_pytorch(deployed, state):
    deployed.run()
    deployed.host.service.writer.stop()
    deployed.close()
    save_description(deployed.folder, describe(RUN))
    if state == "stopped":
        (deployed.folder / "clients.parquet").unlink()
    code = IMPORTS.format(words=["status", str(deployed.folder)])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert state in done.stdout, done.stderr
    assert "2 of 2" in done.stdout
    assert "heavy: ['pyarrow']" in done.stderr


NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="the script of the page runs in Node")
@pytest.mark.parametrize("status", [200, 401])
def test_the_page_takes_the_token_out_of_its_address_and_sends_it_in_a_header(deployed, tmp_path, status):
    """The token is neither in the address, nor in what the page asks for; where it is wrong, the page asks for it."""
    deployed.run()
    figures = deployed.host.send("GET", "/v1/status", headers=bearer(ADMINISTRATOR)).table()
    clients = deployed.host.administer("GET", "clients").table()
    (tmp_path / "page.html").write_text(page(), encoding="utf-8")
    (tmp_path / "answers.json").write_text(json.dumps({"status": figures, "clients": clients}))
    script = Path(__file__).parent / "javascript" / "page.mjs"
    done = subprocess.run(
        [str(NODE), str(script), str(tmp_path), str(status)], capture_output=True, text=True, check=True
    )
    seen = json.loads(done.stdout)
    assert seen["address"] == "/"
    assert {call["authorization"] for call in seen["calls"]} == {"Bearer given"}
    if status == 200:
        assert [call["path"] for call in seen["calls"]] == ["v1/status", "v1/admin/clients"]
        assert seen["stored"] == "given"
        assert seen["asks"] is False
        assert seen["rows"] == 1 + len(clients["clients"])
        assert seen["run"].startswith(f"run {figures['run']} at server:8470, last step ")
    else:
        assert (seen["stored"], seen["asks"]) == (None, True)
    assert seen["plain"] == [0, 29]
    assert seen["outlier"] == [0, 29]  # and not 1e6: one number does not flatten the others
    assert seen["jump"] == [0, 1]  # a curve of few values has no outliers
