"""Measure the load that a server of a deployment sustains, with the server on one core and its clients on another.

    python benchmarks/deployment.py               # everything, a few minutes
    python benchmarks/deployment.py reports  # or one: reports, tls, checkins, waiting, model, latency, large, judged, masked

The clients are raw sockets on the loopback interface that send what `turnout join` sends, and cost less than the server.
Reports are answered only when they are durable: file and journal are on the disk.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import json
import os
import resource
import signal
import ssl
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from turnout import Experiment, Sgd, fedavg, fedbuff
from turnout.core.types import Report
from turnout.data.declared import declared
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.engine.allocator import SERVER, keep_large_buffers
from turnout.models import Mlp
from turnout.pieces.aggregation import SecureSum
from turnout.pieces.selection import Uniform
from turnout.protocol.pace import Buffered, Rounds
from turnout.protocol.secure import masker
from turnout.protocol.survey import FIRST_TASK
from turnout_serve.client.computer import Computer
from turnout_serve.client.opting import ClientRequirement
from turnout_serve.client.survey_worker import SurveyWorker
from turnout_serve.client.worker import phase_message
from turnout_serve.server.leases import Leases
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import encode
from turnout_serve.wire.surveys import sums_body

KEEP = 120.0
ANSWER = {"num_examples": 10, "loss": 7.0, "score": 5.0}
"""The evaluation of a model by a client."""


def experiment(num_params: int, buffered: int | None, rounds: int) -> Experiment:
    """Return an experiment with a linear model of about so many parameters, and hardly any data."""
    features = max(1, num_params // 10 - 1)
    x, y = torch.zeros(20, features), torch.arange(20) % 10
    data = FederatedData("bench", Shards(x, y, np.array([0, 10, 20])), 10)
    local = Sgd(lr=0.1, steps=1, batch_size=1)
    pace = Rounds() if buffered is None else Buffered(buffer_size=buffered)
    algorithm = fedavg(local) if buffered is None else fedbuff(local)
    return Experiment(data, nn.Linear(features, 10), algorithm, pace=pace, rounds=rounds, engine="one_by_one")


class Http:
    """A persistent HTTP connection."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        self._port, self._context = port, context
        self._reader: asyncio.StreamReader | None = None

    async def ask(self, method: str, path: str, token: str, body: bytes = b"", headers: str = "") -> tuple[int, bytes]:
        """Send a request, and return the status and the body of the response."""
        if self._reader is None:
            self._reader, self._writer = await asyncio.open_connection(
                "127.0.0.1", self._port, ssl=self._context, limit=1 << 20
            )
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-length: {len(body)}\r\n"
        )
        self._writer.write(head.encode() + headers.encode() + b"\r\n" + body)
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        length = next(int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length"))
        return int(lines[0].split()[1]), await self._reader.readexactly(length)

    def close(self) -> None:
        """Close the connection."""
        if self._reader is not None:
            self._writer.close()


class Peer:
    """A client as the server sees it."""

    def __init__(self, port: int, number: int, context: ssl.SSLContext | None = None) -> None:
        self.http, self.token = Http(port, context), hashlib.sha256(str(number).encode()).hexdigest()

    async def enroll(self) -> None:
        """Enroll as a client."""
        status, body = await self.http.ask("POST", "/v1/enrol", self.token, b'{"protocol": 2}')
        assert status in (200, 201), body

    async def checkin(self, wait: float) -> dict[str, Any]:
        """Ask for a task."""
        status, body = await self.http.ask("POST", "/v1/checkin", self.token, json.dumps({"wait": wait}).encode())
        assert status == 200, body
        return json.loads(body)

    async def report(self, task: int, body: bytes) -> int:
        """Send a report."""
        name = base64.b64encode(hashlib.sha256(body).digest()).decode()
        status, _ = await self.http.ask(
            "PUT", f"/v1/tasks/{task}/report", self.token, body, f"repr-digest: sha-256=:{name}:\r\n"
        )
        return status


class Body:
    """Make reports that differ in a few bytes."""

    def __init__(self, num_params: int) -> None:
        counts = {name: torch.ones(1, dtype=torch.int64) for name in ("num_examples", "num_steps")}
        whole = encode({"delta": torch.zeros(1, num_params), "seen.loss": torch.zeros(1), **counts})
        self._body, self._at, self._count = bytearray(whole), len(whole) - 8, 0

    def next(self) -> bytes:
        """Return another report."""
        self._count += 1
        self._body[self._at - 400 : self._at - 396] = np.float32(self._count * 1e-6).tobytes()
        return bytes(self._body)


@contextmanager
def served(run: Experiment, **options: Any) -> Iterator[tuple[int, int]]:
    """Start a server in a process of its own, on one core, and yield its port and process number."""
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder:
        receive, send = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            with suppress(AttributeError, OSError):
                os.sched_setaffinity(0, {0})
            try:
                keep_large_buffers(SERVER)  # as `turnout serve` does
                server = Server(run, Path(folder), None, Options(port=0, rate=0, **{"linger": 0, **options}))
                server.run(partial(_tell, send))
                code = 0
            finally:
                os._exit(code)
        try:
            yield int(os.read(receive, 10)), pid
        finally:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
            os.close(receive)
            os.close(send)


def _tell(pipe: int, url: str) -> None:
    """Pass on the port at which a server listens."""
    os.write(pipe, url.rpartition(":")[2].encode() + b"\n")


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a TLS certificate for this machine."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        ["openssl", "req", "-x509", *curve, *name, "-keyout", str(key), "-out", str(cert)],
        check=True,
        capture_output=True,
    )
    return cert, key


def reports(tls: bool = False, seconds: float = 8.0, num_clients: int = 64, num_params: int = 50_000) -> str:
    """Measure the durable reports of 200 KB per second."""
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"min_clients": num_clients, "leases": Leases(heartbeat=KEEP)}
        context = None
        if tls:
            options["certificate"], options["key"] = certificate(Path(folder))
            context = ssl.create_default_context(cafile=options["certificate"])
        run = experiment(num_params, 100, 1_000_000)
        size = sum(p.numel() for p in run.build_model().parameters())
        with served(run, **options) as (port, _):

            async def measure() -> int:
                peers = [Peer(port, number, context) for number in range(num_clients)]
                for peer in peers:
                    await peer.enroll()
                end, done, body = 0.0, 0, Body(size)

                async def work(peer: Peer) -> None:
                    nonlocal done, end
                    while not end or time.perf_counter() < end:
                        found = await peer.checkin(20.0)
                        if "task" not in found:
                            continue
                        end = end or time.perf_counter() + seconds
                        taken = await peer.report(found["task"]["task"], body.next()) == 201
                        done += taken

                await asyncio.gather(*map(work, peers))
                return done

            done = asyncio.run(measure())
        what = "with TLS" if tls else "without TLS"
        return f"{done / seconds:,.0f} durable reports of {len(Body(size).next()) / 1000:.0f} KB a second {what}"


def checkins(seconds: float = 5.0, num_clients: int = 64) -> str:
    """Measure the check-ins per second."""
    with served(experiment(100, None, 10), min_clients=10_000) as (port, _):

        async def measure() -> int:
            peers, done = [Peer(port, number) for number in range(num_clients)], 0
            for peer in peers:
                await peer.enroll()
            end = time.perf_counter() + seconds

            async def work(peer: Peer) -> None:
                nonlocal done
                while time.perf_counter() < end:
                    await peer.checkin(0.0)
                    done += 1

            await asyncio.gather(*map(work, peers))
            return done

        return f"{asyncio.run(measure()) / seconds:,.0f} questions for work a second"


def waiting(num_clients: int = 10_000) -> str:
    """Measure the memory of waiting clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    num_clients = min(num_clients, hard - 200)
    with served(experiment(100, None, 10), min_clients=num_clients + 1, public_status=True) as (port, pid):

        async def measure() -> tuple[int, int]:
            before = memory(pid)
            peers = [Peer(port, number) for number in range(num_clients)]
            for low in range(0, num_clients, 200):
                await asyncio.gather(*(peer.enroll() for peer in peers[low : low + 200]))
            asked = [asyncio.ensure_future(peer.checkin(50.0)) for peer in peers]
            await asyncio.sleep(10)
            figures = json.loads((await Http(port).ask("GET", "/v1/status", "x"))[1])
            after = memory(pid)
            for question in asked:
                question.cancel()
            return after - before, figures["waiting"]

        taken, there = asyncio.run(measure())
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return f"{taken / 2**20:,.0f} MiB for {there:,} clients who wait ({taken / there / 1024:.1f} KiB each)"


def memory(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def model(num_clients: int = 50, num_params: int = 25_000_000) -> str:
    """Measure the seconds until 50 clients have downloaded a model of 100 MB."""
    with served(experiment(num_params, 1000, 10), min_clients=num_clients, leases=Leases(heartbeat=KEEP)) as (port, _):

        async def measure() -> tuple[float, int]:
            peers = [Peer(port, number) for number in range(num_clients)]
            for peer in peers:
                await peer.enroll()
            tasks = [found["task"] for found in await asyncio.gather(*(peer.checkin(40.0) for peer in peers))]
            begin = time.perf_counter()

            async def fetch(peer: Peer, task: dict[str, Any]) -> int:
                status, body = await peer.http.ask("GET", f"/v1/models/{task['model']}", peer.token)
                assert status == 200
                return len(body)

            sizes = await asyncio.gather(*map(fetch, peers, tasks))
            return time.perf_counter() - begin, sum(sizes)

        seconds, total = asyncio.run(measure())
    each = total / num_clients
    return f"{each / 1e6:.0f} MB to {num_clients} clients in {seconds:.1f} s ({total / seconds / 1e6:,.0f} MB/s)"


def latency(rounds: int = 50, num_clients: int = 10) -> str:
    """Measure the time from the last report of a round to the next task."""
    with served(experiment(10_000, None, rounds + 5), min_clients=num_clients, leases=Leases(heartbeat=KEEP)) as (
        port,
        _,
    ):

        async def measure() -> list[float]:
            peers, found, body = [Peer(port, number) for number in range(num_clients)], [], Body(10_000 // 10 * 10)
            for peer in peers:
                await peer.enroll()
            given = await asyncio.gather(*(peer.checkin(20.0) for peer in peers))
            for _ in range(rounds):
                order = list(zip(peers, given, strict=True))
                asked = []
                for peer, each in order[:-1]:
                    assert await peer.report(each["task"]["task"], body.next()) == 201
                    asked.append(asyncio.ensure_future(peer.checkin(20.0)))
                last, each = order[-1]
                await asyncio.sleep(0.02)
                begin = time.perf_counter()
                sent = asyncio.ensure_future(last.report(each["task"]["task"], body.next()))
                await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
                found.append(time.perf_counter() - begin)
                await sent
                given = [*await asyncio.gather(*asked), await last.checkin(20.0)]
            return found

        found = asyncio.run(measure())
    middle, worst = statistics.median(found), statistics.quantiles(found, n=20)[-1]
    return f"{1000 * middle:.1f} ms from the last report of a round to the next task (median; {1000 * worst:.1f} ms at 95 %)"


def large(rounds: int = 3, num_clients: int = 6, width: int = 9_110) -> str:
    """Measure rounds in which clients download a model of 335 MB and send reports of that size, and the server's memory."""
    # Declared, so that nothing but the server holds its parameters, as where `turnout serve` reads a file.
    model, local = Mlp(hidden=(width, width)), Sgd(lr=0.1, steps=1, batch_size=1)
    run = Experiment(declared(64, 10), model, fedavg(local), rounds=rounds + 1)
    size = sum(parameter.numel() for parameter in run.build_model().parameters())
    with served(run, min_clients=num_clients, leases=Leases(heartbeat=KEEP)) as (port, pid):

        async def measure() -> tuple[float, int]:
            peers, body = [Peer(port, number) for number in range(num_clients)], Body(size)
            for peer in peers:
                await peer.enroll()

            async def work(peer: Peer) -> None:
                found: dict[str, Any] = {}
                while "task" not in found:
                    found = await peer.checkin(40.0)
                status, model = await peer.http.ask("GET", f"/v1/models/{found['task']['model']}", peer.token)
                assert (status, hashlib.sha256(model).hexdigest()) == (200, found["task"]["model"])
                del model
                assert await peer.report(found["task"]["task"], body.next()) == 201

            await asyncio.gather(*map(work, peers))
            most, over = [0], asyncio.Event()
            watched = asyncio.create_task(asyncio.to_thread(watch, pid, most, over))
            begin = time.perf_counter()
            for _ in range(rounds):
                await asyncio.gather(*map(work, peers))
            seconds = (time.perf_counter() - begin) / rounds
            over.set()
            await watched
            return seconds, most[0]

        seconds, held = asyncio.run(measure())
    beyond = (held - 4 * size) / 2**30
    return (
        f"{seconds:.1f} s a round of {num_clients} clients with a model of {4 * size / 1e6:.0f} MB, {beyond:.2f} GiB at the "
        "server beyond the model"
    )


def watch(pid: int, most: list[int], over: asyncio.Event) -> None:
    """Record the peak memory of a process without mapped files, which the system can drop."""
    while not over.is_set():
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        most[0] = max(most[0], 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1]))
        time.sleep(0.02)


class Masker:
    """A client of a secure sum with real keys, shares and masks, whose update and measurements are zeros.

    Args:
        computer: model and algorithm of all clients.
        client: number of the client.
    """

    def __init__(self, computer: Computer, client: int) -> None:
        extra = computer.experiment.algorithm.aggregation.extra
        assert extra is not None
        self._side, self._client = masker.Masker(extra), client
        self._surveys = SurveyWorker(computer, 0, ClientRequirement(computer, 0), (), {})
        self._zeros = {name: np.zeros(shape) for name, shape in computer.sums.shapes.items()}

    def message(self, task: Assignment, size: int) -> bytes | None:
        """Return the message that answers a task, for a model of so many parameters."""
        if task.phase == "evaluate":
            return self._surveys.encoded(self._client, task, None, self._zeros)
        if task.task >= FIRST_TASK:
            return self._surveys.later(task)
        if task.phase != "train":
            done = phase_message(self._side, task, {})
            return None if done is None else done[0]
        of_one, one = np.array([self._client]), np.ones(1, dtype=np.int64)
        seen = {"loss": torch.zeros(1)}
        report = Report(of_one, np.array([task.version]), one, one, torch.zeros(1, size), seen=seen)
        tensors = self._side.announce(self._client, task.version, report, {})
        return None if tensors is None else encode(tensors)


def judged(masked: bool = False, num_clients: int = 1000, num_params: int = 10_000, steps: int = 40) -> str:
    """Measure how much longer steps of 1,000 clients take if all of them evaluate the model at every tenth."""
    run = experiment(num_params, None, steps)
    size = sum(p.numel() for p in run.build_model().parameters())
    also = (Uniform(num_clients), *((SecureSum(largest=64.0, degree=20),) if masked else ()))
    algorithm = fedavg(Sgd(lr=0.1, steps=1, batch_size=1), also=also)
    run = replace(run, algorithm=algorithm, evaluate_every=10, evaluate_share=1.0)

    async def moments(port: int) -> list[float]:
        """Return the times at which each step began, and at which the last evaluation had ended."""
        peers, body, done = [Peer(port, number) for number in range(num_clients)], Body(size), asyncio.Event()
        begun: dict[int, float] = {}
        computer = Computer(run) if masked else None
        for peer in peers:
            await peer.enroll()

        async def work(client: int, peer: Peer) -> None:
            one = None if computer is None else Masker(computer, client)
            while "over" not in (work := await peer.checkin(5.0)):  # which the last evaluation is waited for
                if "task" not in work:
                    continue
                task = Assignment.read(work["task"])
                begun.setdefault(task.version, time.perf_counter())
                if one is not None:
                    sent = one.message(task, size)
                    assert sent is not None
                else:
                    sent = body.next() if task.phase == "train" else sums_body(ANSWER)
                assert await peer.report(task.task, sent) == 201
            done.set()

        workers = [asyncio.ensure_future(work(client, peer)) for client, peer in enumerate(peers)]
        over = asyncio.ensure_future(done.wait())
        await asyncio.wait([over, *workers], return_when=asyncio.FIRST_COMPLETED)
        ended = time.perf_counter()
        for worker in workers:
            if worker.done():
                worker.result()  # raises what it raised
            worker.cancel()
        return [*(begun[version] for version in range(steps + 1)), ended]

    with served(run, min_clients=num_clients, leases=Leases(heartbeat=KEEP), linger=5.0) as (port, _):
        seconds = np.diff(asyncio.run(moments(port)))
    judging = np.arange(steps + 1) % 10 == 0
    plain, judged = np.median(seconds[1:][~judging[1:]]), np.median(seconds[10:-1:10])
    return (
        f"{steps} steps of {num_clients:,} clients: {plain:.2f} s each, and {judged:.2f} s where all of them judge the model "
        f"({100 * (judged / plain - 1) / 10:+.1f} % of wall time at every tenth step); the last evaluation, behind "
        f"which there is no step, takes {seconds[-1]:.2f} s"
    )


PARTS: dict[str, Callable[[], str]] = {
    "reports": reports,
    "tls": lambda: reports(tls=True),
    "checkins": checkins,
    "waiting": waiting,
    "model": model,
    "latency": latency,
    "large": large,
    "judged": judged,
    "masked": lambda: judged(masked=True, num_clients=60, steps=30),
}


def main() -> None:
    """Run the named measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="what to measure (default: everything)")
    torch.set_num_threads(1)
    for name in parser.parse_args().parts or PARTS:
        print(f"{name}: {PARTS[name]()}", flush=True)


if __name__ == "__main__":
    main()
