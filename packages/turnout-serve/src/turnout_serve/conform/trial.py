"""Run a client against a server that injects faults, and judge its requests."""

from __future__ import annotations

import contextlib
import json
import queue
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from turnout.configuration import Configuration
from turnout.core.checks import ConfigurationError
from turnout.evaluation.queries import Question
from turnout_serve.client.computer import Computer
from turnout_serve.client.worker import Worker
from turnout_serve.conform import judge
from turnout_serve.conform.faults import Exchange, Fault, Misbehaving, Script
from turnout_serve.conform.scenarios import SCENARIOS, Scenario
from turnout_serve.server.leases import Leases
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server

ROUNDS = 1 + sum(scenario.route[0] == "PUT" for scenario in SCENARIOS)
"""Rounds of a trial: one for each fault of a report, and one without a fault."""

QUESTIONS = (
    Question("variance", center=0.5),
    Question("histogram", "targets", edges=(0, 1, 2)),
    Question("mean", "function_of_nobody"),
)
"""Queries of a trial; the last is of a function that the client does not have."""

_FILE = """import json
from pathlib import Path

import torch


def examples():
    table = json.loads((Path(__file__).parent / "examples.json").read_text())
    return torch.tensor(table["inputs"], dtype=torch.float64), torch.tensor(table["targets"])
"""


class _Server(Server):
    """A server with middleware that injects faults."""

    trial: Trial
    script: Script

    def application(self) -> ASGIApp:
        """Return the application with the middleware."""
        return Misbehaving(super().application(), self.script, self.trial.log, self.trial.done)


@dataclass
class Trial:
    """Run a client against a server that injects faults, and judge its requests.

    Args:
        experiment: experiment with the data of one client, for `ROUNDS` rounds.
        settings: settings of the experiment, from which clients of this package build it.
        command: command of the client. ``{url}``, ``{data}`` (JSON with inputs and targets), ``{python}``
            (``FILE.py:FUNCTION``) and ``{state}`` (a path for its state) are filled in.
        seconds: seconds without progress after which the client is ended. A fault that is reached and a report that is
            taken are progress, so a slow machine does not use up the limit.
        scenarios: faults; those that kill the client are left out where its command has no ``{state}``.

    Attributes:
        log: exchanges of the client.
        output: last lines that it printed.
        code: its exit code; None where it was ended.
    """

    experiment: Configuration
    settings: Mapping[str, Any]
    command: str
    seconds: float = 120.0
    scenarios: Sequence[Scenario] = SCENARIOS
    log: list[Exchange] = field(default_factory=list)
    output: str = ""
    code: int | None = None

    def __post_init__(self) -> None:
        if "{url}" not in self.command:
            raise ConfigurationError("command: it has no {url}, where the server's address belongs")
        fits = "{state}" in self.command
        self.scenarios = [scenario for scenario in self.scenarios if fits or scenario.fault.action != "kill"]
        self._left = list(self.scenarios)
        self._actions: queue.Queue[str] = queue.Queue()
        self._blocked, self._progress = False, 0.0

    def run(self) -> dict[str, str | None]:
        """Run the client until the run is over; return the violation of each rule, or None."""
        self._go(self._script)
        ended = None if self.code == 0 else f"it ends with {self.code}, needed 0 when the run is over: {self.output}"
        ended = f"it makes no progress for {self.seconds:g} s: {self.output}" if self.code is None else ended
        return judge.of_scenarios(self.scenarios, self.log) | judge.in_general(self.log) | {"ends with the run": ended}

    def training(self, specified: bool) -> dict[str, str | None]:
        """Return the difference from the reports of the reference client, by rule; None without one."""
        worker = Worker(Computer(self.experiment))
        return {
            "minibatches and updates are as specified" if specified else "counts are right": judge.of_training(
                worker, self.log, specified
            ),
            "queries are answered as specified": judge.of_queries(worker, self.log),
        }

    def refused(self) -> dict[str, str | None]:
        """Run the client against a server of another version; return its violation, by rule."""
        answer = Fault("status", 426, {"reason": "this server speaks another protocol than the client: update it"})
        self._go(lambda exchange: answer if exchange.path == "/v1/enrol" else None)
        wrong = None if self.code else f"it ends with {self.code}, needed an exit code > 0: {self.output}"
        enrollments = sum(exchange.path == "/v1/enrol" for exchange in self.log)
        return {"stops at 426": f"it enrolls {enrollments} times" if enrollments > 1 else wrong}

    # Called by the thread of the server.

    def _script(self, exchange: Exchange) -> Fault | None:
        if not self._left or self._blocked or not self._left[0].fits(exchange):
            return None
        scenario = self._left.pop(0)
        exchange.fault, self._blocked, self._progress = scenario.name, exchange.method == "PUT", time.monotonic()
        if scenario.fault.action is not None:
            self._actions.put(scenario.fault.action)
        if scenario.fault.action == "kill":  # here, before the client can send another request
            self._process.kill()
        return scenario.fault

    def done(self, exchange: Exchange) -> None:
        """Continue with the next scenario once the client has learned that a report was taken."""
        if exchange.method == "PUT" and exchange.status in (200, 201):
            self._blocked, self._progress = False, time.monotonic()

    # Called by the thread of the trial.

    def _go(self, script: Script) -> None:
        """Start the server and the client, and carry out restarts and kills until the client ends."""
        self.code, port, self._progress = None, 0, time.monotonic()
        train = self.experiment.data.train
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            (folder / "examples.json").write_text(json.dumps({"inputs": train.x.tolist(), "targets": train.y.tolist()}))
            (folder / "examples.py").write_text(_FILE)
            output = stack.enter_context((folder / "said.txt").open("w+"))
            serving = stack.enter_context(contextlib.ExitStack())
            url = serving.enter_context(self._served(folder, script, port))
            port = int(url.rpartition(":")[2])
            self._process = self._client(folder, url, output)
            stack.callback(lambda: (self._process.kill(), self._process.wait()))
            queried = script != self._script
            while self._is_running() and time.monotonic() - self._progress < self.seconds:
                if not queried and self._server.driver.version > 0:
                    queried = True
                    for question in QUESTIONS:
                        self._server.service.survey("query", question=question).result()
                try:
                    action = self._actions.get(timeout=0.02)
                except queue.Empty:
                    continue
                if action == "restart":
                    serving.close()
                    serving.enter_context(self._served(folder, script, port))
                else:
                    self._process.wait()
                    self._process = self._client(folder, url, output)
            self.code = self._process.poll()
            output.seek(0)
            self.output = " | ".join(output.read().splitlines()[-3:])[-500:] or "it said nothing"

    def _is_running(self) -> bool:
        """Return whether the client runs, or was killed to be started again."""
        return self._process.poll() is None or not self._actions.empty()

    def _served(self, folder: Path, script: Script, port: int) -> contextlib.AbstractContextManager[str]:
        """Serve in a thread."""
        # Leases outlast a slow start of the client after it was killed.
        options = Options(port=port, rate=0, leases=Leases(heartbeat=5.0, missed=24, grace=120.0), max_norm=None)
        server = _Server(self.experiment, folder / "run", dict(self.settings), options)
        server.trial, server.script, self._server = self, script, server
        return server.listening()

    def _client(self, folder: Path, url: str, output: Any) -> subprocess.Popen[str]:
        """Start the client."""
        values = {
            "url": url,
            "data": str(folder / "examples.json"),
            "python": f"{folder / 'examples.py'}:examples",
            "state": str(folder / "state"),
        }
        names = re.compile(f"{{({'|'.join(values)})}}")
        words = [names.sub(lambda name: values[name[1]], word) for word in shlex.split(self.command)]
        try:
            return subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, text=True)
        except OSError as error:
            raise ConfigurationError(f"command: {words[0]} cannot be started: {error}") from None


def tried(
    experiment: Configuration,
    settings: Mapping[str, Any],
    command: str,
    *,
    specified: bool = True,
    seconds: float = 120.0,
    scenarios: Sequence[Scenario] = SCENARIOS,
) -> Iterator[tuple[str, str | None]]:
    """Yield each rule and its violation by a client, or None.

    Args:
        experiment, settings, command, seconds, scenarios: see `Trial`.
        specified: True where the minibatches of the client are those that the protocol specifies.
    """
    trial = Trial(experiment, settings, command, seconds, scenarios)
    yield from trial.run().items()
    yield from trial.training(specified).items()
    yield from Trial(experiment, settings, command, seconds).refused().items()
