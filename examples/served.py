"""Serve a federation, have a swarm of clients come and go, kill the server in the middle, and compare with the simulation.

The server has no data: it knows the shape of an example. What it has trained is judged here, where the test examples are,
and by the clients who are there, each by test examples of its own.
Everything stays on this machine: ``make demo-serve``, or ``python examples/served.py``.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import torch
from rich.console import Console
from rich.table import Table
from torch.nn.functional import cross_entropy

import turnout
from turnout.cli import layers
from turnout.cli.settings import Settings
from turnout.evaluation.fairness import fairness
from turnout.record.query import History

TURNOUT = (sys.executable, "-m", "turnout")


def main() -> None:
    """Run the demo."""
    trial = Trial(
        Path(__file__).with_name("served.toml"),
        serve=["--min-clients", "5", "--inputs", "64", "--classes", "10", "--evaluate-share", "1"],
        swarm=["--availability", "markov", "availability.mean=0.3", "--seconds-per-round", "0.25"],
    )
    folder = Path(tempfile.mkdtemp(prefix="turnout-served-"))
    served = trial.served(folder)
    trial.replay(folder, "--as-trace", str(folder / "trace"))
    who_came = simulated(folder / "trace" / "simulation.json")
    planned = trial.simulated()
    show(
        ("served, killed once", served, *judged(folder, trial.config)),
        ("simulated, those who came", who_came, *ended(who_came)),
        ("simulated, as planned", planned, *ended(planned)),
    )
    show_fairness(served, who_came)
    print("The simulation of those who came has the server's participants in every step.")
    print("A server steps when its cohort has reported, not once in a round of availability: others come than planned.")
    print(f"tables, journal, models and reports: {folder}")


@dataclass(frozen=True)
class Trial:
    """A server and a swarm on this machine, and the simulation of the same settings.

    Attributes:
        config: the settings.
        overrides: further ones, ``KEY=VALUE``.
        serve: further arguments of ``turnout serve``.
        swarm: of ``turnout swarm``.
    """

    config: Path
    overrides: Sequence[str] = ()
    serve: Sequence[str] = ()
    swarm: Sequence[str] = ()

    def served(self, folder: Path, patience: float = 600.0) -> History:
        """Train over HTTP, kill the server (SIGKILL) after half of the steps, start it again, and return its tables."""
        url = f"http://127.0.0.1:{free_port()}"
        server = self._start(folder, url)
        with (folder / "swarm.log").open("ab") as log:
            swarm = subprocess.Popen([*TURNOUT, "swarm", url, *self.swarm], stdout=log, stderr=log)
        try:
            half = wait(url, folder, lambda figures: figures["version"] >= figures["rounds"] // 2, patience)
            print(f"step {half['version']} of {half['rounds']}: killing the server, and starting it again", flush=True)
            server.send_signal(signal.SIGKILL)
            server.wait()
            server = self._start(folder, url)
            swarm.wait(timeout=patience)
            server.wait(timeout=60)
        finally:
            for process in (swarm, server):
                process.kill()
        return History.load(folder)

    def replay(self, folder: Path, *options: str) -> str:
        """Recompute the model from the journal, and return what ``turnout replay`` says.

        Raises:
            CalledProcessError: where the journal leads to another model.
        """
        done = subprocess.run([*TURNOUT, "replay", str(folder), *options], check=True, capture_output=True, text=True)
        print(done.stdout, end="", flush=True)
        return done.stdout

    def simulated(self) -> History:
        """Return the tables of the simulation."""
        return simulated(self.config, self.overrides)

    def _start(self, folder: Path, url: str) -> subprocess.Popen[bytes]:
        """Start the server, and wait until it answers."""
        port = url.rpartition(":")[2]
        command = [*TURNOUT, "serve", str(self.config), *self.overrides, "--folder", str(folder), "--port", port]
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "server.log").open("ab") as log:
            server = subprocess.Popen([*command, "--linger", "3", *self.serve], stdout=log, stderr=log, env=os.environ)
        wait(url, folder, bool, server=server)
        return server


def simulated(config: Path, overrides: Sequence[str] = ()) -> History:
    """Return the tables of a simulation of these settings."""
    return Settings.of(layers.read(config), *map(layers.override, overrides)).experiment().run().history


def wait(
    url: str, folder: Path, until: Any, patience: float = 300.0, server: subprocess.Popen[bytes] | None = None
) -> dict[str, Any]:
    """Ask the server of a folder for its figures, with the administrator's token, until they are as wanted."""
    end = time.monotonic() + patience
    while time.monotonic() < end and (server is None or server.poll() is None):
        try:
            token = (folder / "admin.token").read_text("utf-8").strip()
            answer = httpx2.get(f"{url}/v1/status", headers={"authorization": f"Bearer {token}"}, timeout=5)
            if answer.status_code == 200 and until(figures := answer.json()):
                return figures
        except (httpx2.HTTPError, FileNotFoundError, ValueError):
            pass
        time.sleep(0.2)
    raise TimeoutError(f"{url} has ended, or not answered as wanted: server.log in its folder says why")


def judged(folder: Path, config: Path) -> tuple[float, float]:
    """Return accuracy and loss of the model in a run's folder, on the test examples of the data that settings name."""
    test = Settings.of(layers.read(config)).data().test
    assert test is not None
    with torch.no_grad():
        outputs = turnout.load(folder).model(test.x)
    return float((outputs.argmax(dim=1) == test.y).float().mean()), float(cross_entropy(outputs, test.y))


def ended(history: History) -> tuple[float, float]:
    """Return accuracy and loss of the last model of a run."""
    return float(history.column("test_accuracy")[1][-1]), float(history.column("test_loss")[1][-1])


def show(*runs: tuple[str, History, float, float]) -> None:
    """Print how runs ended, beside each other: name, tables, test accuracy and test loss."""
    table = Table("run", "steps", "clients in a step", "test accuracy", "test loss")
    for name, history, accuracy, loss in runs:
        clients = history.column("num_participants")[1].mean()
        table.add_row(name, str(history.last_round), f"{clients:.1f}", f"{accuracy:.2%}", f"{loss:.3f}")
    Console(width=100).print(table)


def show_fairness(served: History, simulated: History) -> None:
    """Print how evenly the last models serve clients: figures over the accuracies on each client's own test examples.

    The server has those of the clients who answered its last evaluation; a simulation evaluates all clients.
    """
    last, accuracies = served.evaluations.last, simulated.client_column("test_accuracy")
    assert last is not None
    answers = served.evaluations.answers(last["evaluation"])
    table = Table("fairness over clients", "mean", "worst tenth", "spread (std)", "clients")
    for name, values in (
        ("served, clients that answered", answers.by_client()["test_accuracy"]),
        ("simulated, the same clients", accuracies[answers.clients]),
        ("simulated, all clients", accuracies),
    ):
        even, share = fairness(values), len(values) / len(accuracies)
        figures = [f"{even[figure]:.2%}" for figure in ("mean", "worst", "spread")]
        table.add_row(name, *figures, f"{share:.0%} ({len(values)} of {len(accuracies)})")
    Console(width=100).print(table)


def free_port() -> int:
    """Return a port that nobody uses."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


if __name__ == "__main__":
    main()
