"""Run many clients of a simulated population in one process, over real HTTP.

Availability, durations of tasks and dropouts of the population are sped up by a factor; the pauses of the protocol are not.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx2
import numpy as np

from turnout.core.checks import ConfigurationError, count, positive
from turnout.population.availability import BoundAvailability
from turnout.population.availability.base import one_round_length
from turnout.population.behavior import BoundAttack
from turnout.population.behavior.leaving import BoundDropout
from turnout.population.speed.durations import BoundSpeed
from turnout_serve.client.calls import Answer, Call, JoinError, Sleep, Work
from turnout_serve.client.computer import Computer
from turnout_serve.client.connection import Connection
from turnout_serve.client.exchange import Incoming
from turnout_serve.client.newcomer import Manners, Newcomer
from turnout_serve.client.session import Client
from turnout_serve.client.state import ClientState
from turnout_serve.client.worker import Worker

_PER_POOL = 20
"""Clients that share a pool of connections; each has one connection, or two where a leave follows an open request."""


@dataclass
class Tally:
    """Counts of events of a swarm.

    Attributes:
        reports: reports that were taken.
        died: tasks that clients dropped out of.
        left: times that a client left.
        answers: answers by HTTP status; 0 counts requests without an answer.
        over: clients by the reason that they ended.
    """

    reports: int = 0
    died: int = 0
    left: int = 0
    answers: Counter[int] = field(default_factory=Counter)
    over: Counter[str] = field(default_factory=Counter)


class Swarm:
    """Clients of a population, on data that this process holds.

    Args:
        computer: model, algorithm, data and population of all clients.
        connection: connection to the server.
        num_clients: number of clients; client k has the data of client ``k mod N``.
        speedup: simulated seconds per real second.
        seconds_per_round: length of a round of availability in simulated seconds; None is that of an availability that
            follows a clock, and 60 for others.
        manners: waits and retries.
        notice: called once with the reason when the server refuses new clients for now.
    """

    def __init__(
        self,
        computer: Computer,
        connection: Connection,
        num_clients: int,
        *,
        speedup: float = 1.0,
        seconds_per_round: float | None = None,
        manners: Manners | None = None,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        count("clients", num_clients)
        positive("speedup", speedup)
        if seconds_per_round is not None:
            positive("seconds_per_round", seconds_per_round)
        length = one_round_length(computer.experiment.population.availability, seconds_per_round) or 60.0
        self._computer, self._connection, self._num = computer, connection, num_clients
        self._speedup, self._round = speedup, length / speedup
        experiment = computer.experiment
        seed, data = experiment.seed, experiment.data
        population = experiment.population.of_clients(data.client_names)
        labels = None if data.train.y.is_floating_point() else data.label_counts()
        if labels is not None:
            labels = labels[np.arange(num_clients) % len(labels)]
        self._availability: BoundAvailability = population.availability.bind(num_clients, labels, seed)
        self._speed: BoundSpeed | None = None if population.speed is None else population.speed.bind(num_clients, seed)
        self._dropout: BoundDropout | None = None if population.dropout is None else population.dropout.bind(seed)
        self._behavior = _attackers(computer, num_clients)
        self._manners = manners or Manners(longest=5.0)
        self._notice = notice
        self._begun = time.monotonic()
        self.tally = Tally()

    def run(self, seconds: float | None = None) -> Tally:
        """Run all clients until the run is over, or for some seconds."""
        asyncio.run(self._run(seconds))
        return self.tally

    async def _run(self, seconds: float | None) -> None:
        self._begun = time.monotonic()
        options = self._connection.options()
        # A pool looks through all of its connections and waiting requests for each request, so one of a thousand is slow.
        with ThreadPoolExecutor(1) as self._pool:
            async with AsyncExitStack() as stack:
                pools = [
                    await stack.enter_async_context(httpx2.AsyncClient(**options, timeout=90.0))
                    for _ in range(0, self._num, _PER_POOL)
                ]
                clients = [_Swimmer(self, pools[number // _PER_POOL], number) for number in range(self._num)]
                for client in clients:  # in turn, so that the server numbers them in this order
                    await client.enroll()
                work = [asyncio.create_task(client.live()) for client in clients]
                await self._until_over(work, seconds)

    async def _until_over(self, work: list[asyncio.Task[None]], seconds: float | None) -> None:
        """Wait until the run is over, or for some seconds, and end all clients."""
        # The first client that ends has learned that the run is over; those that are away need not come back for it.
        # One that the server refuses, such as a banned one, ends alone, as with `join`.
        begun, done, others = time.monotonic(), set[asyncio.Task[None]](), set(work)
        while others and not done:
            left = None if seconds is None else max(0.0, seconds - (time.monotonic() - begun))
            ended, others = await asyncio.wait(others, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not ended:
                break
            done = {task for task in ended if not isinstance(task.exception(), JoinError)}
        if done and others:
            _, others = await asyncio.wait(others, timeout=2.0)
        for task in others:
            task.cancel()
        self.tally.over["away at the end" if done else "at it when time was up"] += len(others)
        results = await asyncio.gather(*work, return_exceptions=True)
        failed = [result for result in results if isinstance(result, Exception)]
        for error in failed:
            if not isinstance(error, JoinError) or len(failed) == len(work):
                raise error
        self.tally.over.update(map(str, failed))

    def is_available(self, client: int) -> bool:
        """Return whether a client is available now."""
        now = int((time.monotonic() - self._begun) / self._round)
        return bool(self._availability.available(np.array([client]), now)[0])

    async def until_next_round(self) -> None:
        """Wait for the next round of availability."""
        passed = time.monotonic() - self._begun
        await asyncio.sleep(self._round - passed % self._round + 1e-3)

    def seconds(self, client: int, task: int, nbytes: tuple[int, int]) -> tuple[float, bool]:
        """Return the real seconds of a client's task, and False where the client drops out at its end."""
        if self._speed is None:
            return 0.0, True
        clients, tasks = np.array([client]), np.array([task])
        whole = self._speed.seconds(clients, tasks, 1, *nbytes).total
        death = np.array([np.inf]) if self._dropout is None else self._dropout.deaths(clients, tasks, whole)
        return float(min(whole[0], death[0])) / self._speedup, bool(death[0] >= whole[0])


def _attackers(computer: Computer, num_clients: int) -> BoundAttack | None:
    """Return the attackers among clients, after poisoning their data; None where the population has none.

    Raises:
        ConfigurationError: if an attack is impossible between machines.
    """
    experiment = computer.experiment
    if experiment.population.behavior is None:
        return None
    attack = experiment.population.behavior.bind(num_clients, experiment.seed)
    if attack.options.colludes:
        raise ConfigurationError(
            f"behavior: attackers by {type(attack.options).__name__} know all honest reports of a step before they send "
            "theirs, and between machines nobody does: take another attack"
        )
    if num_clients == experiment.data.num_clients:
        computer.shards = attack.poisoned(computer.shards, experiment.data.num_classes or 0)
    return attack


class _Swimmer:
    """One client of a swarm."""

    def __init__(self, swarm: Swarm, http: httpx2.AsyncClient, number: int) -> None:
        self._swarm, self._http, self._number = swarm, http, number
        name, jitter = f"swarm-{number}", random.Random(number)
        newcomer = Newcomer(ClientState(), name=name, manners=swarm._manners, jitter=jitter)
        row = number % swarm._computer.shards.num_clients
        self._client = Client(newcomer, Worker(swarm._computer, row, swarm._behavior))
        self._session = self._client.session()
        self._next: Any = None
        self._tasks = 0

    async def enroll(self) -> None:
        """Carry out the actions of the client up to its enrollment."""
        action = self._session.send(None)
        while self._client.state.client is None:
            action = self._session.send(await self._do(action))
        self._next = action

    async def live(self) -> None:
        """Carry out the actions of the client until the run is over, while it is available."""
        action = self._next
        while True:
            if not self._swarm.is_available(self._number) and isinstance(action, Sleep | Call):
                await self._away()
            try:
                action = self._session.send(await self._do(action))
            except StopIteration as over:
                self._swarm.tally.over[str(over.value)] += 1
                return

    async def _away(self) -> None:
        """Leave, and wait until the client is available again.

        The leave is sent again until it is answered: a server that was down would wait for the report until the lease ends.
        """
        self._swarm.tally.left += 1
        notified = False
        while not self._swarm.is_available(self._number):
            notified = notified or (await self._send(self._client.leave())).status != 0
            await self._swarm.until_next_round()

    async def _do(self, action: Any) -> Any:
        match action:
            case Call(heartbeat=beat):
                sent = self._send(action)
                answer = await (sent if beat is None else self._meanwhile(asyncio.ensure_future(sent), *beat))
                self._swarm.tally.reports += action.method == "PUT" and answer.status == 201
                return answer
            case Sleep(seconds=seconds):
                await asyncio.sleep(seconds)
                return None
            case Work(function=function, heartbeat=heartbeat):
                return await self._work(function, *heartbeat)
        raise AssertionError(action)

    async def _work(self, function: Any, heartbeat: Call, every: float) -> Any:
        """Compute a task in the time that it takes, or drop out of it."""
        number, self._tasks = self._tasks, self._tasks + 1
        # In another thread, after the clients that are waiting for it, while others exchange messages.
        done = asyncio.get_running_loop().run_in_executor(self._swarm._pool, function)
        if (result := await self._meanwhile(done, heartbeat, every)) is None:
            return None
        seconds, finished = self._swarm.seconds(self._number, number, (len(result[0]), len(result[0])))
        await self._meanwhile(asyncio.ensure_future(asyncio.sleep(seconds)), heartbeat, every)
        if finished:
            return result
        self._swarm.tally.died += 1
        task = heartbeat.path.split("/")[3]
        await self._send(Call("POST", f"/v1/tasks/{task}/fail", {"reason": "died"}, headers=heartbeat.headers))
        return None

    async def _meanwhile(self, done: asyncio.Future[Any], heartbeat: Call, every: float) -> Any:
        """Wait for a result, and send heartbeats meanwhile."""
        try:
            while not (await asyncio.wait([done], timeout=every))[0]:
                await self._send(heartbeat)
        finally:
            done.cancel()  # without effect once it is done
        return done.result()

    async def _send(self, call: Call) -> Answer:
        content, headers = call.content
        incoming = Incoming(call)
        try:
            async with self._http.stream(call.method, call.path, content=content, headers=headers) as response:
                incoming.begin(response)
                async for piece in response.aiter_raw():
                    incoming.add(piece)
            answer = incoming.answer()
        except httpx2.HTTPError as error:
            answer = incoming.answer(error)
        if call.path == "/v1/enrol" and answer.status == 429 and not self._swarm.tally.answers[429]:
            self._swarm._notice(f"the server puts off new clients: {answer.reason}")
        self._swarm.tally.answers[answer.status] += 1
        return answer
