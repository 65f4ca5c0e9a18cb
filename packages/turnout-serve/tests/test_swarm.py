"""Simulated clients at a real server: one length of a round of availability."""

import asyncio
import time

import httpx2
import pytest
from tests.tiny import classification

import turnout as to
from turnout.cli.errors import RunFailed
from turnout_serve.cli.commands.join import announced_run
from turnout_serve.client.calls import Call, JoinError
from turnout_serve.client.computer import Computer
from turnout_serve.client.join import Connection
from turnout_serve.client.swarm import Swarm, _Swimmer
from turnout_serve.client.worker import Worker
from turnout_serve.server.leases import Leases
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server


def swarm(availability, **options):
    experiment = to.Experiment(classification(), to.models.Logistic(), population=to.Population(availability))
    return Swarm(Computer(experiment), Connection("http://127.0.0.1:1"), 4, speedup=10.0, **options)


def test_availability_by_the_clock_passes_at_the_speed_of_the_clock():
    assert swarm(to.availability.Diurnal(seconds_per_round=300))._round == 30.0
    assert swarm(to.availability.Markov())._round == 6.0
    assert swarm(to.availability.Markov(), seconds_per_round=20.0)._round == 2.0
    with pytest.raises(
        to.ConfigurationError, match=r"seconds_per_round: got 60 beside Diurnal\(seconds_per_round=300\)"
    ):
        swarm(to.availability.Diurnal(seconds_per_round=300), seconds_per_round=60.0)


def test_swarm_notices_once_that_enrollments_are_deferred():
    reasons = []
    made = swarm(to.availability.Everyone(), notice=reasons.append)

    async def enroll():
        body = b'{"reason": "too many new clients"}'
        answer = httpx2.MockTransport(lambda _: httpx2.Response(429, stream=httpx2.ByteStream(body)))
        async with httpx2.AsyncClient(base_url="http://server", transport=answer) as http:
            for number in range(3):
                await _Swimmer(made, http, number)._send(Call("POST", "/v1/enrol", {}))

    asyncio.run(enroll())
    assert reasons == ["the server puts off new clients: too many new clients"]
    assert made.tally.answers == {429: 3}


def test_refused_client_ends_alone():
    """One client is banned; the others go on until the run is over."""
    made = swarm(to.availability.Everyone())

    async def live(number):
        if number == 0:
            raise JoinError("the server does not take this client: banned")
        await asyncio.sleep(0.05)
        made.tally.over["the run is over"] += 1

    async def together():
        work = [asyncio.create_task(live(number)) for number in range(3)]
        await made._until_over(work, None)

    asyncio.run(together())
    assert made.tally.over["the run is over"] == 2
    assert made.tally.over["the server does not take this client: banned"] == 1


def test_swarm_whose_clients_are_all_refused_says_why():
    made = swarm(to.availability.Everyone())

    async def refused():
        raise JoinError("banned")

    async def together():
        await made._until_over([asyncio.create_task(refused()) for _ in range(3)], None)

    with pytest.raises(JoinError, match="banned"):
        asyncio.run(together())


def test_swarm_waits_for_a_server_as_join_does():
    """A server that starts later is tried again until then, or until the patience ends."""
    with pytest.raises(RunFailed, match=r"http://127.0.0.1:1 has not answered for \d+ seconds"):
        announced_run(Connection("http://127.0.0.1:1"), 0.5)
    with pytest.raises(to.ConfigurationError, match=r"patience: got -1\.0, needed a finite number > 0"):
        announced_run(Connection("http://127.0.0.1:1"), -1.0)


def test_clients_that_wait_for_their_turn_to_compute_keep_their_tasks(folder, monkeypatch):
    """Twenty tasks of a round take 0.1 seconds each, and a lease ends after 0.6 seconds without a heartbeat."""
    do = Worker.do

    def slowly(*arguments):
        time.sleep(0.1)
        return do(*arguments)

    everyone = to.Population(to.availability.Everyone())
    experiment = to.Experiment(classification(), to.models.Logistic(), to.fedavg(cohort_size=None), everyone, rounds=1)
    options = Options(port=0, rate=0, min_clients=20, leases=Leases(heartbeat=0.2))
    run = Server(experiment, folder, None, options)
    monkeypatch.setattr(Worker, "do", slowly)
    with run.listening() as url:
        tally = Swarm(Computer(experiment), Connection(url), 20).run(60.0)
    assert tally.reports == 20
    assert run.driver.ledger is not None
    assert run.driver.ledger.dropped == {}
