"""Operate a server with TLS and one-time codes: three clients join, the server is killed, comes back, and is audited.

    pip install '.[digits]' ./packages/turnout-serve        # in a clone of turnout; openssl makes the certificate
    python examples/journeys/tls_and_codes.py

Everything stays on this machine. The figures that are wanted: the accuracy that clients measure on examples of their own, how
often each of them took part, and that the journal leads to the model that was saved.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import turnout as to

TURNOUT = (sys.executable, "-m", "turnout")

SETTINGS = """
seed = 0
data = { inputs = 64, classes = 10 }
model = { name = "logistic" }
algorithm = { name = "fedau" }
local = { lr = 0.2, steps = 5, batch_size = 16 }
"""

MINE = '''
"""The examples of a client, which stay where they are."""
import numpy as np
from sklearn.datasets import load_digits


def examples():
    x, y = load_digits(return_X_y=True)
    x, y = (x / 16).astype(np.float32)[CLIENT::3], y.astype(np.int64)[CLIENT::3]
    return (x[100:], y[100:]), (x[:100], y[:100])
'''


def main() -> None:
    """Run the federation, and print what an operator wants to know."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="a new folder (default: a temporary one)")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--port", type=int, default=8470)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="turnout-served-"))
    served, certificate, port = folder / "served", folder / "server.pem", options.port
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.toml").write_text(f"rounds = {options.steps}\n{SETTINGS}", encoding="utf-8")
    make_certificate(certificate, folder / "server.key")

    serve = ("serve", folder / "run.toml", "--folder", served, "--port", port, "--certificate", certificate,
             "--key", folder / "server.key", "--enrollment", "codes", "--min-clients", 3,
             "--evaluate-share", 1, "--evaluate-every", options.steps, "--linger", 30)  # fmt: skip
    server = start(folder / "server.log", *serve)
    clients: list[subprocess.Popen[bytes]] = []
    try:
        codes = wait_for(lambda: (served / "codes.txt").read_text("utf-8").split(), server)
        for number in range(3):
            mine = folder / f"mine_{number}.py"
            mine.write_text(MINE.replace("CLIENT", str(number)), encoding="utf-8")
            join = ("join", f"https://127.0.0.1:{port}", "--ca", certificate, "--code", codes[number],
                    "--data", f"{mine}:examples", "--state", folder / f"client_{number}")  # fmt: skip
            clients.append(start(folder / f"client_{number}.log", *join))
        step = wait_for(lambda: steps(served), server)
        print(f"after step {step} of {options.steps}: killing the server, and starting it again", flush=True)
        server.send_signal(signal.SIGKILL)
        server.wait()
        server = start(folder / "server.log", *serve)
        for client in clients:
            client.wait(timeout=300)
        say("clients", served)  # asks the server
        server.wait(timeout=60)
    finally:
        for process in (*clients, server):
            process.kill()
    say("replay", served)
    evaluation = to.load(served).history.evaluations.last
    assert evaluation is not None
    print(f"accuracy on clients' own test examples: {evaluation['test_accuracy']:.1%}")


def say(command: str, served: Path) -> None:
    """Run a command on the folder of the server, and show what it prints."""
    print(f"$ turnout {command} {served}", flush=True)
    subprocess.run([*TURNOUT, command, str(served)], check=True)


def start(log: Path, *command: object) -> subprocess.Popen[bytes]:
    """Start a command of turnout, with its messages in a file."""
    with log.open("ab") as file:
        return subprocess.Popen([*TURNOUT, *map(str, command)], stdout=file, stderr=file)


def wait_for(found: Callable[[], Any], server: subprocess.Popen[bytes], patience: float = 120.0) -> Any:
    """Return what a function finds as soon as there is something."""
    end = time.monotonic() + patience
    while time.monotonic() < end and server.poll() is None:
        try:
            if result := found():
                return result
        except FileNotFoundError:
            pass
        time.sleep(0.2)
    raise TimeoutError("the server has ended or waits: server.log says why")


def steps(served: Path) -> int:
    """Return the number of steps of a server so far, as `turnout status` says."""
    done = subprocess.run([*TURNOUT, "status", str(served), "--json"], capture_output=True, text=True, check=False)
    return json.loads(done.stdout)["version"] if done.returncode == 0 else 0


def make_certificate(certificate: Path, key: Path) -> None:
    """Make a certificate of this machine, which is its own authority."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip


if __name__ == "__main__":
    main()
