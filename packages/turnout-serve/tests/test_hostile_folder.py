"""Commands on a folder from somebody else: no token leaves for its address, and no pipe or device in it is read."""

import asyncio
import json
import os
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx2
import pytest

from turnout import Experiment, Population, fedau
from turnout.core.checks import CheckpointError, ConfigurationError
from turnout.models import Mlp
from turnout.population.availability import Everyone
from turnout_serve.cli.administrator import AdministratorOptions
from turnout_serve.cli.commands import clients, surveys
from turnout_serve.client.administrator import AdministrationFailed, Administrator
from turnout_serve.client.join import Connection
from turnout_serve.server.journal.replay import replay

from .world import DATA, LOCAL

RUN = Experiment(DATA, Mlp(hidden=(4,)), fedau(LOCAL), Population(Everyone()), rounds=2, evaluate_every=2)
SECRET = "S" * 40


def options(folder, **more):
    return AdministratorOptions(
        run=str(folder), ca=None, certificate=None, key=None, plain=False, **{"token": None, **more}
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://federation.example",
        "https://10.0.0.1:8470",
        "http://127.0.0.1@federation.example",
        "http://localhost.example",
    ],
)
@pytest.mark.parametrize("given", ["environment", "option"])
def test_token_does_not_go_to_an_address_that_only_a_folder_names(tmp_path, monkeypatch, url, given):
    (tmp_path / "address.txt").write_text(url)
    (tmp_path / "mine").write_text(SECRET)
    (tmp_path / "mine").chmod(0o600)
    more = {"token": tmp_path / "mine"} if given == "option" else {}
    if given == "environment":
        monkeypatch.setenv("TURNOUT_ADMIN_TOKEN", SECRET)
    with pytest.raises(
        ConfigurationError, match=r"token: .* names the server .*: give the address in place of the folder"
    ):
        options(tmp_path, **more).administrator()
    assert options(url, **more).administrator().token == SECRET


def test_folder_with_a_token_of_its_own_is_asked_with_that(tmp_path, monkeypatch):
    """Also where the environment has another one: that of the folder can only be used against its own server."""
    monkeypatch.setenv("TURNOUT_ADMIN_TOKEN", SECRET)
    (tmp_path / "address.txt").write_text("https://federation.example")
    (tmp_path / "admin.token").write_text("f" * 40)
    (tmp_path / "admin.token").chmod(0o600)
    assert options(tmp_path).administrator().token == "f" * 40
    (tmp_path / "address.txt").write_text("http://127.0.0.1:8470")
    assert options(tmp_path).administrator().token == SECRET


@pytest.mark.parametrize("kind", ["pipe", "zero", "folder", "large"])
def test_address_that_is_no_small_file_is_not_read(tmp_path, kind):
    path = tmp_path / "address.txt"
    {
        "pipe": lambda: os.mkfifo(path),
        "zero": lambda: path.symlink_to("/dev/zero"),
        "folder": path.mkdir,
        "large": lambda: path.write_text("http://127.0.0.1" + " " * 5000),
    }[kind]()
    with pytest.raises(ConfigurationError, match="is neither the address of a server"):
        options(tmp_path).administrator()


@pytest.mark.parametrize("kind", ["pipe", "zero", "folder", "larger"])
def test_report_that_is_no_file_is_not_read(world, kind):
    deployed = world(RUN).run()
    deployed.host.close()
    path = next((deployed.folder / "reports").iterdir())
    content = path.read_bytes()
    path.unlink()
    {
        "pipe": lambda: os.mkfifo(path),
        "zero": lambda: path.symlink_to("/dev/zero"),
        "folder": path.mkdir,
        "larger": lambda: (path.write_bytes(content), os.truncate(path, 1 << 40)),
    }[kind]()
    with pytest.raises(CheckpointError, match="the journal breaks at entry"):
        replay(deployed.setting, deployed.folder)


@pytest.mark.parametrize("name", ["journal.sqlite", "checkpoint.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "zero"])
def test_journal_or_checkpoint_that_is_no_file_is_not_read(world, name, kind):
    deployed = world(RUN).run()
    deployed.host.service.writer.checkpoint()
    deployed.host.close()
    for path in deployed.folder.glob(f"{name}*"):
        path.unlink()
    path = deployed.folder / name
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    with pytest.raises(CheckpointError, match=r"regular file|holds no journal.sqlite"):
        replay(deployed.setting, deployed.folder)


@contextmanager
def odd_server(answer):
    """The address of a server whose answers a function makes of the path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = answer(self.path)
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.do_GET()

        def log_message(self, format, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("name", ["http_proxy", "ALL_PROXY"])
def test_token_for_this_machine_passes_no_proxy(monkeypatch, name):
    """A proxy of the environment is another machine, and what it forwards without TLS it can read."""
    forwarded = []

    async def asked_by_a_swarm(url):
        async with httpx2.AsyncClient(**Connection(url).options()) as http:
            return (await http.get("/v1/run")).text

    with odd_server(lambda path: forwarded.append(path) or b"proxy") as proxy, odd_server(lambda _: b"server") as url:
        monkeypatch.setenv(name, proxy)
        with Connection(url).client() as http:
            answers = [http.get("/v1/status", headers={"authorization": f"Bearer {SECRET}"}).text]
        answers.append(asyncio.run(asked_by_a_swarm(url)))
        assert (answers, forwarded) == (["server"] * 2, [])
        with Connection("http://federation.example").client() as http:
            assert http.get("/v1/run").text == "proxy"
    assert forwarded == ["http://federation.example/v1/run"]


ROW = {
    "client": 0, "name": "a", "state": "there", "reason": None, "seen": None,
    "reports": 1, "participation": 0.5, "unusable": 0,
}  # fmt: skip
ODD = [
    b"", b"[]", b"null", b"{}", b"{", b"\xff", b'{"clients": 3}', b'{"survey": "x"}', b'{"survey": -1}', b"[" * 100_000,
    b'{"a":' * 100_000, json.dumps({"clients": [{}], "next": None, "version": 1}).encode(),
    json.dumps({"clients": [ROW | {"client": "\ud800"}], "next": None, "version": 1}).encode(),
    json.dumps({"clients": [ROW | {"reports": None}], "next": None, "version": 1}).encode(),
    json.dumps({"clients": [ROW], "next": None}).encode(),
    json.dumps({"survey": 0, "phase": "evaluate", "state": "closed", "version": 0, "asked": 1, "answered": 1}).encode(),
]  # fmt: skip


@pytest.mark.parametrize("body", ODD, ids=range(len(ODD)))
def test_odd_answers_of_a_server_are_one_sentence(body):
    with odd_server(lambda _: body) as url:
        administrator = Administrator(Connection(url, timeout=5.0), SECRET)
        with pytest.raises(AdministrationFailed, match="no turnout server of this version"):
            clients._list(administrator)
        with pytest.raises(AdministrationFailed, match="no turnout server of this version"):
            surveys.outcome(administrator, {"phase": "evaluate"}, pause=0.0)


@pytest.mark.parametrize("behind", ["grows", "repeats", "empty"])
def test_list_of_clients_ends(behind):
    """Pages that go on for ever, that give the same clients again, or that leave some out."""

    def page(path):
        first = int(path.rpartition("=")[2])
        rows = {"grows": [ROW | {"client": first + 5}], "repeats": [ROW], "empty": []}[behind]
        return json.dumps({"clients": rows, "next": first + len(rows) or 1, "version": 1}).encode()

    with odd_server(page) as url, pytest.raises(ConfigurationError, match=r"its list of clients (never ends|has gaps)"):
        clients._list(Administrator(Connection(url, timeout=5.0), SECRET))
