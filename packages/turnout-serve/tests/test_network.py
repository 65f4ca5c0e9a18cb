"""Over real sockets, by the commands that people type."""

import json
import re
import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import httpx2
import pytest
import torch
from typer.testing import CliRunner

from turnout.cli import app, layers
from turnout.cli.settings import Settings
from turnout.core.checks import ConfigurationError
from turnout.data import declared
from turnout_serve.cli.commands.replay import _write_trace
from turnout_serve.cli.deployed import announced
from turnout_serve.cli.joining import clients_experiment
from turnout_serve.cli.serving import note
from turnout_serve.server.http import downloads
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.journal.trace import write_trace
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server
from turnout_serve.server.run.served_experiment import ServedExperiment
from turnout_serve.wire.format import digest, encode, repr_digest, size_limit

from .test_crashes import free_port

SETTINGS = Settings.of(
    {
        "algorithm": "fedau",
        "data": {"name": "digits", "num_clients": 4},
        "model": "logistic",
        "rounds": 2,
        "evaluate_every": 1,
    }
)


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


def cli(*arguments, code=0):
    """Run a command; what it says on both channels."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    said = result.output + (result.stderr if result.stderr_bytes is not None else "")
    assert result.exit_code == code, said
    return " ".join(said.split())


def server(folder, **options):
    options = {"port": 0, "min_clients": 1, "rate": 0, **options}
    made = Server(SETTINGS.experiment(), folder, announced(SETTINGS), Options(**options))
    note(folder, None, SETTINGS.experiment(), SETTINGS)
    return made


def test_unfinished_run_prints_the_command_to_continue(folder):
    server(folder / "run").stop()
    said = cli("report", folder / "run", code=2)
    assert f"is not finished (0 of 2 rounds): go on with `turnout serve SETTINGS --folder {folder / 'run'}`" in said


@pytest.mark.usefixtures("undrawn")
def test_swarm_status_and_replay_work_together(folder):
    """A swarm trains; status shows it; the journal gives the model once more, and a trace."""
    made = server(folder / "run", min_clients=4)
    with made.listening() as url:
        assert "4 away at the end" not in cli("swarm", url)
        token = ("--token", folder / "run" / "admin.token")
        said = cli("status", url, *token)
        assert "2 of 2" in said
        assert "4 enrolled" in said
        figures = json.loads(cli("status", url, *token, "--json"))
        assert figures["state"] == "over"
        assert "no status from" in cli("status", f"{url}/nowhere", code=2)
    assert "test loss" in cli("report", folder / "run")
    shown = (folder / "run" / "report.html").read_text()
    assert "fedau, trained for 2 rounds on digits over 4 clients" in shown
    assert "Participation of clients" in shown
    said = cli("replay", folder / "run", "--as-trace", folder / "trace")
    assert "the same model as in the checkpoint, bit for bit" in said
    assert (folder / "trace" / "speed.csv").read_text().startswith("client,compute\n")
    rerun = Settings.of(layers.read(folder / "trace" / "simulation.json")).experiment()
    assert rerun.run().history.last_round == 2
    again = replay(ServedExperiment.of(SETTINGS.experiment()).setting, folder / "run")
    write_trace(again, folder / "more", num_clients=6)
    assert {line.partition(",")[0] for line in (folder / "more" / "speed.csv").read_text().split()} >= set("012345")
    # A server with the shape alone, whose settings name a data set of six clients, two of whom never came.
    table = {**SETTINGS.table, "data": {"name": "digits", "num_clients": 6, "inputs": 64, "classes": 10}}
    _write_trace(again, folder / "fewer", None, table, declared(64, classes=10))
    rerun = Settings.of(layers.read(folder / "fewer" / "simulation.json")).experiment()
    assert rerun.data.num_clients == 6
    assert rerun.run().history.last_round == 2
    assert "holds no journal.sqlite" in cli("replay", _with_settings(folder / "empty"), code=2)


def _with_settings(folder):
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(SETTINGS.table))
    return folder


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A certificate authority, and certificates that it signed for this machine and for a client."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    usage = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
    openssl("req", "-x509", *curve, "-subj", "/CN=authority", *usage, "-keyout", "ca.key", "-out", "ca.pem")
    for name in ("server", "client"):
        named = ("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-keyout", f"{name}.key", "-out", f"{name}.pem")
        openssl("req", "-x509", *curve, *named, "-addext", "basicConstraints=CA:FALSE", *signed)
    return folder


def test_join_over_tls_with_certificates_and_codes(folder, certificates, tmp_path, monkeypatch):
    """One client with its own data, certificate and code; without any one of them there is no way in."""
    monkeypatch.chdir(tmp_path)
    made = server(
        folder / "run",
        certificate=certificates / "server.pem",
        key=certificates / "server.key",
        client_ca=certificates / "ca.pem",
        enrollment="codes",
        max_clients=3,
    )
    codes = (folder / "run" / "codes.txt").read_text().split()
    assert len(codes) == 3
    Path("own.py").write_text(
        "import torch\ndef examples():\n    return torch.rand(30, 64), torch.arange(30) % 10\n"
        "def square():\n    return torch.rand(30, 8, 8), torch.arange(30) % 10\n"
    )
    mine = ("--certificate", certificates / "client.pem", "--key", certificates / "client.key")
    trust = ("--ca", certificates / "ca.pem")
    with made.listening() as url:
        data = ("--data", "own.py:examples")
        assert "does not trust the certificate of the server: give --ca FILE" in cli("join", url, *data, code=2)
        assert "--certificate FILE --key FILE" in cli("join", url, *data, *trust, code=2)
        assert "one-time code" in cli("join", url, *data, *trust, *mine, "--state", "no", code=2)
        assert "has shape (8, 8), and the server's (64,)" in cli(
            "join", url, "--data", "own.py:square", *trust, *mine, code=2
        )
        said = cli("join", url, *data, *trust, *mine, "--share", "participation,scalars", code=2)
        assert "--share: the server would also see its update of the model (updates)" in said
        said = cli("join", url, *data, *trust, *mine, "--code", codes[0], "--state", "state", "--name", "first")
        assert "the run is over: 2 reports were taken" in said
        joined = Path("state/algorithm.json")
        joined.write_text(joined.read_text().replace('"lr": ', '"lr": 1'))
        said = cli("join", url, *data, *trust, *mine, "--state", "state", code=2)
        assert "announces another algorithm than when this client joined the run" in said
        assert "local.lr: " in said
        token = ("--token", folder / "run" / "admin.token")
        assert "1 enrolled" in cli("status", url, *token, *trust, *mine)
        said = cli("status", url, *trust, *mine, code=2)
        assert "give the folder of the server, or --token FILE with the token in its admin.token" in said
        assert "no status from" in cli("status", url, *trust, code=2)
        with pytest.raises(httpx2.HTTPError):
            httpx2.get(f"{url}/v1/status", verify=ssl.create_default_context(cafile=certificates / "ca.pem"))
    assert {path.name for path in Path("state").iterdir()} >= {"identity.json"}
    assert Path("state/identity.json").stat().st_mode & 0o077 == 0
    assert made.driver.roster.names == {0: "first"}


def test_large_models_are_downloaded_in_pieces(folder):
    """Range, ETag, and what is no model."""
    made = server(folder)
    with made.listening() as url, httpx2.Client(base_url=url) as http:
        http.headers["authorization"] = f"Bearer {'t' * 40}"
        assert http.post("/v1/enrol", json={"protocol": 2}).status_code == 201
        assert http.post("/v1/enrol", json={"protocol": 99}).status_code == 426
        task = http.post("/v1/checkin", json={"wait": 5}).json()["task"]
        whole = http.get(f"/v1/models/{task['model']}")
        assert (whole.status_code, len(whole.content)) == (200, task["size"])
        part = http.get(f"/v1/models/{task['model']}", headers={"range": "bytes=100-199"})
        assert (part.status_code, part.content) == (206, whole.content[100:200])
        assert part.headers["content-range"] == f"bytes 100-199/{task['size']}"
        assert http.get(f"/v1/models/{task['model']}", headers={"range": "bytes=999999-"}).status_code == 416
        same = http.get(f"/v1/models/{task['model']}", headers={"if-none-match": whole.headers["etag"]})
        assert (same.status_code, same.content) == (304, b"")
        assert http.get(f"/v1/models/{'0' * 64}").status_code == 404
        assert httpx2.get(f"{url}/v1/models/{task['model']}").status_code == 401


def test_download_of_another_version_is_not_continued(folder):
    """If-Range with the present ETag continues; with an older one, or a date, the whole file comes."""
    made = server(folder)
    with made.listening() as url, httpx2.Client(base_url=url) as http:
        http.headers["authorization"] = f"Bearer {'t' * 40}"
        assert http.post("/v1/enrol", json={"protocol": 2}).status_code == 201
        task = http.post("/v1/checkin", json={"wait": 5}).json()["task"]
        for path in ("/v1/model", f"/v1/models/{task['model']}"):
            whole = http.get(path)
            assert whole.status_code == 200
            same = http.get(path, headers={"range": "bytes=100-", "if-range": whole.headers["etag"]})
            assert (same.status_code, same.content) == (206, whole.content[100:])
            for other in (f'"{"0" * 64}"', "Wed, 21 Oct 2026 07:28:00 GMT", ""):
                again = http.get(path, headers={"range": "bytes=100-", "if-range": other})
                assert (again.status_code, again.content) == (200, whole.content)


@pytest.mark.parametrize("chunk", [7, 64, 10**6])
@pytest.mark.parametrize("announces", [False, True])
def test_report_in_chunks_is_taken(folder, chunk, announces):
    """Its length is that of its body; one that is too large, cut or without any length is refused."""
    made = server(folder)
    with made.listening() as url, httpx2.Client(base_url=url) as http:
        http.headers["authorization"] = f"Bearer {'t' * 40}"
        assert http.post("/v1/enrol", json={"protocol": 2}).status_code == 201
        task = http.post("/v1/checkin", json={"wait": 5}).json()["task"]
        expected = made.setting.reports["train"]
        tensors = {name: spec.zeros(1) for name, spec in expected.manifest.items()}
        body = encode({name: torch.ones_like(t) if name.startswith("num_") else t for name, t in tensors.items()})
        path = f"/v1/tasks/{task['task']}/report"
        headers = {"repr-digest": repr_digest(digest(body))} | ({"upload-length": str(len(body))} if announces else {})
        pieces = lambda of: (of[begin : begin + chunk] for begin in range(0, len(of), chunk))  # noqa: E731
        assert http.put(path, content=pieces(body[:-1]), headers=headers).status_code == 409
        taken = http.put(path, content=pieces(body), headers=headers)
        assert (taken.status_code, taken.json()) == (201, {"state": "taken"})
        assert made.driver.roster.refused == {}
        large, task = (
            bytes(size_limit(expected.manifest) + 1),
            http.post("/v1/checkin", json={"wait": 5}).json()["task"]["task"],
        )
        refused = http.put(f"/v1/tasks/{task}/report", content=pieces(large), headers=headers)
        if announces:  # another length than that of its body, which is malformed
            assert (refused.status_code, made.driver.roster.refused) == (400, {})
            refused = http.put(
                f"/v1/tasks/{task}/report", content=pieces(large), headers={"repr-digest": repr_digest(digest(large))}
            )
        assert (refused.status_code, made.driver.roster.refused[0]) == (413, (1, refused.json()["reason"]))


def test_report_without_any_length_is_answered_411(folder):
    made = server(folder)
    with made.listening() as url, httpx2.Client(base_url=url) as http:
        http.headers["authorization"] = f"Bearer {'t' * 40}"
        assert http.post("/v1/enrol", json={"protocol": 2}).status_code == 201
        task = http.post("/v1/checkin", json={"wait": 5}).json()["task"]
        host, port = url.removeprefix("http://").split(":")
        request = (
            f"PUT /v1/tasks/{task['task']}/report HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {'t' * 40}\r\n"
            f"Repr-Digest: {repr_digest('0' * 64)}\r\nConnection: close\r\n\r\n"
        )
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(request.encode())
            assert connection.recv(65536).startswith(b"HTTP/1.1 411")


def test_model_deleted_during_a_download_closes_the_connection(folder, monkeypatch):
    """The connection ends, and what comes next is answered."""
    made = server(folder)
    monkeypatch.setattr(downloads, "_PIECE", 1000)
    with made.listening() as url, httpx2.Client(base_url=url) as http:
        http.headers["authorization"] = f"Bearer {'t' * 40}"
        http.post("/v1/enrol", json={"protocol": 2})
        task = http.post("/v1/checkin", json={"wait": 5}).json()["task"]
        path, opened = made.store.files.model(task["model"]), []

        def deleted(path, *arguments):
            opened.append(path)
            if len(opened) > 1:
                raise FileNotFoundError
            return open(path, *arguments)

        with monkeypatch.context() as gone:
            gone.setattr(type(path), "open", deleted)
            with pytest.raises(httpx2.RemoteProtocolError):
                http.get(f"/v1/models/{task['model']}")
        assert len(http.get(f"/v1/models/{task['model']}").content) == task["size"]
        assert not any(code >= 500 for code in made.http.counts)


def test_long_polls_are_answered_in_time(folder):
    """A waiting client is answered as soon as there is work, and when the server stops."""
    made = server(folder, min_clients=2)
    found = []
    with made.listening() as url:

        def wait(token):
            with httpx2.Client(base_url=url, headers={"authorization": f"Bearer {token * 40}"}) as http:
                http.post("/v1/enrol", json={"protocol": 2})
                found.append(http.post("/v1/checkin", json={"wait": 30}).json())

        threads = [threading.Thread(target=wait, args=(token,)) for token in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=10)
        assert ["task" in each for each in found] == [True, True]


def test_client_gives_up_after_its_patience(folder, monkeypatch):
    """Where a server falls silent, a client with a limit to its patience says how to go on; others try for ever."""
    made = server(folder / "run")
    told = made.announcement(announced(SETTINGS))
    made.stop()
    monkeypatch.setattr("turnout_serve.client.join.announcement", lambda *_: told)
    nobody = f"http://127.0.0.1:{free_port()}"
    options = ("--data", "digits", "--client", "0", "--state", folder / "state", "--patience")
    said = cli("join", nobody, *options, "0.01", code=1)
    assert re.search(r"has not answered for \d+ seconds. The same command goes on from ", said)
    assert "patience: got -1.0, needed a finite number > 0" in cli("join", nobody, *options, "-1", code=2)


def test_swarm_runs_no_file_named_by_the_server(folder, monkeypatch):
    """Where the name of the data comes from the server, it is no file of this machine."""
    (folder / "mine.py").write_text(f"open({str(folder / 'mark')!r}, 'w')\ndef examples():\n    return None\n")
    told = {"settings": {**announced(SETTINGS), "data": {"name": f"{folder}/mine.py:examples"}}, "describes": {}}
    monkeypatch.setattr("turnout_serve.client.join.announcement", lambda *_: told)
    said = cli("swarm", "http://127.0.0.1:9", code=2)
    assert "the server's settings name a file (data =" in said
    told["settings"] = None
    assert "give yours with --experiment FILE.py:EXPERIMENT" in cli("swarm", "http://127.0.0.1:9", code=2)
    assert not (folder / "mark").exists()


def test_announced_settings_name_no_files():
    """Whatever a server says, nothing on the client's machine is read or run because of it."""
    told = {"settings": announced(SETTINGS), "describes": {}, "input_shape": [64], "num_classes": 10}
    assert clients_experiment(told, "digits", None, 2, "cpu")[1] == 2
    for change, data in (
        ({"algorithm": {"name": "evil.py:recipe"}}, "own.py:x"),
        ({"server": {"name": "sgd", "state": "../x"}}, "own.py:x"),
        ({"data": {"name": "leaf", "folder": "/etc"}}, "leaf"),
    ):
        evil = {**told, "settings": {**told["settings"], **change}}
        with pytest.raises(ConfigurationError, match="the server's settings name a file"):
            clients_experiment(evil, data, None, None, "cpu")
    for change, data in (
        ({"data": {"name": "table", "path": "passwords.csv", "label": "y"}}, "table"),
        ({"model": {"name": "huggingface", "base": "gpt2"}}, "digits"),
    ):
        evil = {**told, "settings": {**told["settings"], **change}}
        with pytest.raises(ConfigurationError, match=r"the server's settings name .* for a server: give"):
            clients_experiment(evil, data, None, 0, "cpu")
    with pytest.raises(ConfigurationError, match="has many clients: add --client 0"):
        clients_experiment(told, "digits", None, None, "cpu")
    with pytest.raises(ConfigurationError, match="--client: got 9, needed 0 to 3"):
        clients_experiment(told, "digits", None, 9, "cpu")
    with pytest.raises(ConfigurationError, match="the server's data are 'digits'"):
        clients_experiment(told, "mnist", None, 0, "cpu")
    with pytest.raises(ConfigurationError, match="give yours with --experiment"):
        clients_experiment({**told, "settings": None}, "digits", None, 0, "cpu")
    with pytest.raises(
        ConfigurationError, match=re.escape("the server runs something else (there, and here): seed: 7 and 0")
    ):
        clients_experiment({**told, "describes": {"seed": 7}}, "digits", None, 0, "cpu")


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here: apt-get install chromium")
def test_page_on_a_phone(folder, tmp_path):
    """The page asks for its figures by itself and draws them, on a narrow screen without scrolling sideways."""
    made = server(folder, min_clients=4, public_status=True)
    with made.listening() as url:
        cli("swarm", url)
        flags = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--window-size=390,844")
        shown = subprocess.run(
            [str(BROWSER), *flags, "--virtual-time-budget=4000", "--dump-dom", url],
            capture_output=True,
            timeout=60,
            text=True,
        ).stdout
    assert "<title>2/2 fedau</title>" in shown
    assert re.search(r"<b>4</b><span>enrolled</span>", shown)
    assert shown.count("<polyline") >= 3
    assert "test accuracy: 0." in shown
    assert 'aria-label="rounds done"' in shown
