"""The folder of a server trusts its certificate, SIGHUP reloads it, and a client says that its server is away."""

import hashlib
import json
import logging
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from typing import Any, cast

import httpx2
import pytest
from typer.testing import CliRunner

from turnout.cli import app
from turnout.core.checks import ConfigurationError
from turnout_serve.client.calls import Answer
from turnout_serve.client.connection import Connection
from turnout_serve.client.join import Joined
from turnout_serve.server.address import own_certificate
from turnout_serve.server.options import Options
from turnout_serve.wire.administrator import JOURNAL_FILE

from .test_network import cli, server


def made(folder, name):
    """A certificate for a name that this machine does not have."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "20",
         "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"],
        check=True, capture_output=True, cwd=folder,
    )  # fmt: skip
    return {"certificate": folder / f"{name}.pem", "key": folder / f"{name}.key"}


def test_folder_trusts_its_own_server_whose_certificate_has_another_name(folder, tmp_path):
    """As the guide says: a certificate for the public name, and the commands of the administrator on the folder."""
    run = server(folder / "run", **made(tmp_path, "federation.example"))
    with run.listening() as url:
        assert url.startswith("https://127.0.0.1:")
        assert "0 clients, 0 steps" in cli("clients", folder / "run")
        assert "0 clients, 0 steps" in cli("clients", folder / "run", "--ca", tmp_path / "federation.example.pem")
        said = cli("clients", url, "--token", folder / "run" / "admin.token", code=2)
        assert "does not trust the certificate of the server: give --ca FILE" in said
        assert f"no connection to {url}: this machine does not trust" in said
        assert "CERTIFICATE_VERIFY_FAILED" in said
        trusted = ("--ca", tmp_path / "federation.example.pem", "--token", folder / "run" / "admin.token")
        assert "is for another name: write the address that it names" in cli("clients", url, *trusted, code=2)
        plain = cli("clients", url.replace("https", "http"), "--token", folder / "run" / "admin.token", code=1)
        assert "If the server has a certificate, write https://" in plain
    assert (folder / "run" / "certificate.pem").read_text() == (tmp_path / "federation.example.pem").read_text()


def test_folder_refuses_another_server_at_its_address(folder, tmp_path):
    """With a certificate of the same name, even: the certificate itself is compared."""
    (tmp_path / "other").mkdir()
    run = server(folder / "run", **made(tmp_path, "federation.example"))
    with run.listening():
        made(tmp_path / "other", "federation.example")
        shutil.copy(tmp_path / "other" / "federation.example.pem", folder / "run" / "certificate.pem")
        assert "CERTIFICATE_VERIFY_FAILED" in cli("clients", folder / "run", code=2)


@pytest.mark.parametrize("tls", [True, False])
def test_folder_has_both_addresses_and_uses_the_one_that_answers(folder, tmp_path, tls):
    """The public one needs a name server, and perhaps a way out of the network and back; the other one this machine."""
    options = made(tmp_path, "federation.example") if tls else {}
    run = server(folder / "run", public_url="https://federation.example", **options)
    with run.listening() as url:
        addresses = (folder / "run" / "address.txt").read_text().split()
        assert addresses == [url, "https://federation.example"]
        assert "0 clients, 0 steps" in cli("clients", folder / "run")
        (folder / "run" / "address.txt").write_text(f"http://127.0.0.1:1\n{url}\n")  # as in a container
        assert tls or "0 clients, 0 steps" in cli("clients", folder / "run")
    assert "no server answers there: is it running?" in cli("clients", folder / "run", code=1)


def test_certificate_of_an_earlier_start_is_not_trusted(folder, tmp_path):
    with server(folder / "run", **made(tmp_path, "federation.example")).listening():
        assert (folder / "run" / "certificate.pem").is_file()
    with server(folder / "run").listening():
        assert not (folder / "run" / "certificate.pem").exists()


def test_public_address_is_an_address():
    with pytest.raises(
        ConfigurationError, match=r"public_url: got 'federation.example', needed an address such as https"
    ):
        Options(public_url="federation.example")


def test_only_the_first_certificate_of_a_chain_is_noted(tmp_path):
    """Neither the authority, whose other certificates would be trusted, nor the key."""
    pair = made(tmp_path, "a.example")
    other = made(tmp_path, "b.example")["certificate"].read_text()
    chain = tmp_path / "chain.pem"
    chain.write_text(pair["key"].read_text() + pair["certificate"].read_text() + other)
    assert own_certificate(chain) == pair["certificate"].read_text()


def test_certificate_that_no_authority_has_signed_is_its_own_authority(folder, tmp_path):
    """As that of a server whose authority is not at hand: `--ca` takes the certificate itself."""
    sign = "openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 9 -extfile names -out server.pem"
    made(tmp_path, "ca")
    (tmp_path / "names").write_text("subjectAltName=IP:127.0.0.1")
    subprocess.run(
        ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=s", "-keyout",
         "server.key", "-out", "server.csr"], check=True, capture_output=True, cwd=tmp_path,
    )  # fmt: skip
    subprocess.run(sign.split(), check=True, capture_output=True, cwd=tmp_path)
    with server(folder / "run", certificate=tmp_path / "server.pem", key=tmp_path / "server.key").listening() as url:
        for trusted in ("ca.pem", "server.pem"):
            assert "0 clients" in cli(
                "clients", url, "--token", folder / "run" / "admin.token", "--ca", tmp_path / trusted
            )


def test_certificates_that_cannot_be_used_are_errors(tmp_path):
    first, second = made(tmp_path, "first.example"), made(tmp_path, "second.example")
    with pytest.raises(
        ConfigurationError, match=r"second.example.key cannot be used .*: needed a certificate and its own"
    ):
        Options(certificate=first["certificate"], key=second["key"])
    with pytest.raises(
        ConfigurationError, match=r"client_ca: \S*first.example.key cannot be used .*: needed certificates"
    ):
        Options(**first, client_ca=first["key"])
    with pytest.raises(ConfigurationError, match=r"ca: \S*nothing.pem cannot be used .*No such file"):
        Connection("https://127.0.0.1", ca=tmp_path / "nothing.pem").client()
    with pytest.raises(ConfigurationError, match=r"first.example.pem cannot be used"):
        Connection("https://127.0.0.1", certificate=first["certificate"]).client()


def test_server_that_cannot_listen_says_so(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = server(folder / "run", port=port)
        with pytest.raises(
            ConfigurationError, match=rf"cannot listen at 127.0.0.1:{port} .*in use.*give another --host"
        ):
            run.run()
    with pytest.raises(ConfigurationError, match="port: got 80000, needed a whole number of at most 65535"):
        Options(port=80_000)


def test_list_of_clients_shows_the_codes_and_certificates_of_clients(folder, tmp_path):
    own = made(tmp_path, "127.0.0.1")
    client = made(tmp_path, "ward.example")
    options = {"client_ca": client["certificate"], "enrollment": "codes", "max_clients": 4}
    with server(folder / "run", **own, **options).listening() as url:
        context = ssl.create_default_context(cafile=own["certificate"])
        context.check_hostname = False
        context.load_cert_chain(client["certificate"], client["key"])
        code = (folder / "run" / "codes.txt").read_text().split()[2]
        with httpx2.Client(base_url=url, verify=context, headers={"authorization": f"Bearer {'t' * 40}"}) as http:
            assert http.post("/v1/enrol", json={"protocol": 2, "code": code}).status_code == 201
            assert http.post("/v1/checkin", json={}).status_code == 200
        files = ("--certificate", client["certificate"], "--key", client["key"])
        said = cli("clients", folder / "run", *files)
        assert code in said
        assert "ward.example" in said
        assert "connected" in said or "working" in said
        token = ("--token", folder / "run" / "admin.token", "--ca", own["certificate"])
        elsewhere = url.replace("127.0.0.1", "localhost")
        without = CliRunner().invoke(app, ["clients", str(folder / "run")])  # TLS 1.3 tells the client late, or never
        assert without.exit_code in (1, 2)
        assert "--certificate FILE --key FILE" in without.output
        assert "is for another name" in cli("clients", elsewhere, *token, *files, code=2)
        (row,) = json.loads(cli("clients", folder / "run", *files, "--json"))["clients"]
        assert row["code"] == hashlib.sha256(code.encode()).hexdigest()


SERVE = """
import sys
sys.path.insert(0, sys.argv[4])
from turnout.cli import app
app(["serve", "algorithm=fedau", "data.name=digits", "data.inputs=64", "data.classes=10", "model.name=logistic", "rounds=3",
     "--folder", sys.argv[1], "--certificate", sys.argv[2], "--key", sys.argv[3], "--port", "0", "--log-format", "json"])
"""


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")
def test_hangup_reloads_the_certificate_and_does_not_stop_the_server(folder, tmp_path):
    first, second = made(tmp_path, "first.example"), made(tmp_path, "second.example")
    pem, key = tmp_path / "server.pem", tmp_path / "server.key"
    shutil.copy(first["certificate"], pem)
    shutil.copy(first["key"], key)
    command = [sys.executable, "-c", SERVE, str(folder / "run"), str(pem), str(key), os.getcwd()]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        url = next(found[1] for line in lines if (found := re.search(r"serving at https://(\S+:\d+)", line)))
        host, port = url.split(":")
        served = lambda: ssl.get_server_certificate((host, int(port)))  # noqa: E731
        assert served() == first["certificate"].read_text()
        shutil.copy(second["certificate"], pem)  # without its key: nothing changes
        process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert served() == first["certificate"].read_text()
        shutil.copy(second["key"], key)
        process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 10
        while served() != second["certificate"].read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert served() == second["certificate"].read_text()
        assert process.poll() is None
        while (folder / "run" / "certificate.pem").read_text() != pem.read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert "0 clients" in cli("clients", folder / "run")
    finally:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert "certificate reloaded" in said
    assert "the certificate cannot be used, and the earlier one stays" in said


def test_client_says_that_its_server_is_away_and_for_how_long(monkeypatch, caplog):
    """Once at the beginning, then every minute, and when it answers again."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    joined = Joined(cast("Any", None), Connection("http://127.0.0.1:1"))
    with caplog.at_level(logging.INFO, "turnout.client"):
        for seconds in range(0, 130, 10):
            now[0] = 1000.0 + seconds
            joined._heard(Answer(0, headers={"error": "connection refused"}))
        now[0] = 1200.0
        joined._heard(Answer(200))
        joined._heard(Answer(200))
    told = [(record.getMessage(), getattr(record, "for_seconds", None)) for record in caplog.records]
    away = "the server does not answer: trying again"
    assert told == [(away, 0), (away, 60), (away, 120), ("the server answers again", None)]
    assert caplog.records[-1].away_seconds == 200
    assert caplog.records[0].reason == "connection refused"


def test_status_of_the_folder_of_a_server_shows_its_steps(folder):
    """While it runs, as another process sees it, and afterwards."""
    run = server(folder / "run", min_clients=4)
    command = [sys.executable, "-m", "turnout", "status", str(folder / "run"), "--json"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with run.listening() as url:
        cli("swarm", url)
        said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
        figures = json.loads(said)  # those of the server, which answers the administrator
        assert (figures["enrolled"], figures["rounds"], figures["healthy"]) == (4, 2, True)
        assert figures["version"] in (1, 2)
    (row,) = json.loads(cli("status", folder / "run", "--json"))
    assert (row["state"], row["done"], row["rounds"], row["at_least"]) == ("finished", 2, 2, False)


def test_status_after_a_kill_says_that_it_shows_the_last_checkpoint(folder):
    run = server(folder / "run")
    with run.listening() as url, httpx2.Client(base_url=url) as http:
        http.post("/v1/enrol", json={"protocol": 2}, headers={"authorization": f"Bearer {'t' * 40}"})
        for name in ("killed", "elsewhere"):
            shutil.copytree(folder / "run", folder / name)
    (folder / "elsewhere" / JOURNAL_FILE).unlink()
    for name in ("killed", "elsewhere"):
        assert "at least 0 of 2, as of the last checkpoint" in " ".join(cli("status", folder / name).split())
    (row,) = json.loads(cli("status", folder / "killed", "--json"))
    assert (row["state"], row["done"], row["rounds"], row["at_least"]) == ("stopped", 0, 2, True)
    (row,) = json.loads(cli("status", folder / "run", "--json"))  # it was stopped
    assert (row["state"], row["done"], row["rounds"], row["at_least"]) == ("stopped", 0, 2, False)
