"""The mod with a SuperLink and SuperNodes as processes: a SuperNode and the ServerApp are killed, and the run continues."""

# pyright: reportMissingImports=false

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import turnout as to
from turnout.record import checkpoint

pytest.importorskip("flwr", reason="flwr is not installed: sh scripts/extras.sh flower")
BIN = Path(sys.executable).parent
ROUNDS = 4

PROJECT = """
[project]
name = "killed"
version = "1.0.0"
description = "An app whose processes are killed"
license = {{ file = "LICENSE" }}
dependencies = ["flwr>={version}"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "nobody"
fab-format-version = 1
flwr-version-target = "{version}"

[tool.flwr.app.components]
serverapp = "killed.server:app"
clientapp = "killed.client:app"

[tool.flwr.app.config]
"""
SERVER = """
import os
import time
import torch
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from killed.client import ALGORITHM, net
from turnout_flower import Rule
import turnout as to

app = ServerApp()

@app.main()
def main(grid, context):
    def note(version, arrays):
        pauses = version == 2 and not os.path.exists({folder!r} + "/killed")
        with open({folder!r} + "/steps", "a") as file:
            file.write(f"{{version}} {{os.getpid()}}\\n")
        if pauses:
            time.sleep(600)
    rule = Rule(ALGORITHM, folder={folder!r} + "/run", mod=True, min_nodes=3, poll=0.2, retry=1,
                pace=to.pace.Rounds(deadline=90))
    rule.start(grid, ArrayRecord(net().state_dict()), num_rounds={rounds}, evaluate_fn=note)
    open({folder!r} + "/done", "w").close()
"""
CLIENT = """
import time
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn
import turnout as to
from turnout_flower import mod

ALGORITHM = to.{recipe}(also=(to.selection.AllAvailable(),))
app = ClientApp(mods=[mod(ALGORITHM, {folder!r} + "/clients")])

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

@app.train()
def train(message, context):
    model = net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    generator = torch.Generator().manual_seed(int(context.node_config["partition-id"]))
    x = torch.randn(12, 3, generator=generator)
    y = torch.randint(0, 2, (12,), generator=generator)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    metrics = MetricRecord({{"num-examples": 12}})
    return Message(RecordDict({{"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}}), reply_to=message)
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Processes:
    """A SuperLink, SuperNodes and runs of an app."""

    def __init__(self, folder: Path, recipe: str) -> None:
        import flwr

        self.folder, self.port, self.running = folder, free_port(), list[subprocess.Popen[bytes]]()
        app, options = folder / "app", {"folder": str(folder), "recipe": recipe, "rounds": ROUNDS}
        (app / "killed").mkdir(parents=True)
        (app / "pyproject.toml").write_text(PROJECT.format(version=flwr.__version__))
        (app / "killed" / "__init__.py").touch()
        (app / "LICENSE").write_text("Anyone may do anything with this app.")
        (app / "killed" / "server.py").write_text(SERVER.format(**options))
        (app / "killed" / "client.py").write_text(CLIENT.format(**options))
        home = folder / "home"
        home.mkdir()
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self.environment = {**os.environ, "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "PYTHONPATH": path,
                            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}  # fmt: skip

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command in a session of its own, which ends with all that it started."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(BIN / arguments[0]), *arguments[1:]],
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )
        self.running.append(process)
        return process

    def link(self) -> None:
        where = ("--port", str(self.port)) if self._has("flower-superlink", "--port") else (
            "--control-api-address", f"127.0.0.1:{self.port}")  # fmt: skip
        self.start("link", "flower-superlink", "--insecure", "--disable-runtime-dependency-installation", *where)

    def _has(self, command: str, option: str) -> bool:
        said = subprocess.run(
            [str(BIN / command), "--help"], capture_output=True, text=True, env=self.environment, check=False
        )
        return option in said.stdout

    def node(self, number: int) -> subprocess.Popen[bytes]:
        return self.start(
            f"node{number}", "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{self.port}",
            "--node-config", f"partition-id={number}", "--port", str(free_port()),
        )  # fmt: skip

    def run(self) -> None:
        """Submit the app; the ServerApp is started by the SuperLink."""
        for _ in range(20):
            said = subprocess.run(
                [str(BIN / "flwr"), "run", str(self.folder / "app"), "here"],
                capture_output=True,
                env=self.environment,
                check=False,
            )
            (self.folder / "submit.log").write_bytes(said.stdout + said.stderr)
            if said.returncode == 0:
                return
            time.sleep(1)
        raise AssertionError(self.logs())

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def steps(self) -> list[tuple[int, int]]:
        """Return the versions that were scored, and by which process."""
        path = self.folder / "steps"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(version), int(process)) for version, process in (line.split() for line in lines)]

    def until(self, holds, seconds: float = 300.0) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, self.logs()
            time.sleep(0.1)

    def logs(self) -> str:
        return "\n".join(
            f"{path.name}: {path.read_text(errors='replace')[-3000:]}" for path in self.folder.glob("*.log")
        )

    def end(self) -> None:
        for process in self.running:
            if process.poll() is None:
                self.kill(process)


def remembered(folder: Path, run: Path, name: str) -> list[torch.Tensor]:
    """Return what each node remembers: of its last report, if the server has taken it, or of the one before."""
    with closing(sqlite3.connect(run / "journal.sqlite")) as journal:
        taken = {task for (task,) in journal.execute("SELECT task FROM tasks WHERE outcome = 'taken'")}
    rows = []
    for client in sorted(folder.iterdir()):
        pending, settled = client / "pending", client / "memory.safetensors"
        is_taken = pending.exists() and json.loads((pending / "task.json").read_text())["task"] in taken
        if is_taken or settled.exists():
            rows.append(load_file(pending / "memory.safetensors" if is_taken else settled)[name])
    return rows


@pytest.mark.parametrize("recipe", ["scaffold", "fedrep"])
def test_run_continues_after_kills_of_a_super_node_and_the_server_app(tmp_path, recipe):
    """A restarted SuperNode without a key is a new node and a new client, with new state."""
    processes = Processes(tmp_path, recipe)
    try:
        processes.link()
        nodes = [processes.node(number) for number in range(3)]
        processes.run()
        processes.until(lambda: len(processes.steps()) >= 3)
        (tmp_path / "killed").touch()
        # The ServerApp, in step 2: no node is at work, because one that pulls a message then may hang in Flower for a minute.
        os.kill(processes.steps()[-1][1], signal.SIGKILL)
        before = len({process for _, process in processes.steps()})
        processes.kill(nodes[2])
        processes.node(2)
        processes.run()
        processes.until((tmp_path / "done").exists)
    finally:
        processes.end()
    versions, servers = zip(*processes.steps(), strict=True)
    assert len(set(servers)) == before + 1
    assert sorted(set(versions)) == list(range(ROUNDS + 1))
    loaded = to.load(tmp_path / "run")
    participations = loaded.clients["participations"].to_pylist()
    assert len(participations) in (3, 4)
    assert min(loaded.rounds["num_participants"].to_pylist()) >= 2
    shutil.rmtree(tmp_path / "home")
    name = "control" if recipe == "scaffold" else "personal"
    rows = remembered(tmp_path / "clients", tmp_path / "run", name)
    assert len(rows) == sum(number > 0 for number in participations)
    assert all(torch.isfinite(row).all() for row in rows)
    if recipe == "scaffold":  # the server's mean is that of all clients, the one that died among them
        tensors, _ = checkpoint.load(tmp_path / "run")
        (shared,) = [value for key, value in tensors.items() if key.endswith("control")]
        torch.testing.assert_close(shared.float(), torch.stack(rows).sum(0) / len(participations), rtol=1e-4, atol=1e-6)
