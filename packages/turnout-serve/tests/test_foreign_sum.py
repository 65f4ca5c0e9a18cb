"""A client written from docs/protocol.md alone takes part in a masked sum with ours, and the sum that is opened is right."""

from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch
from tests.tiny import classification

import turnout as to
from turnout_serve.client.calls import carry_out
from turnout_serve.client.computer import Computer
from turnout_serve.client.newcomer import Manners, Newcomer
from turnout_serve.client.session import Client
from turnout_serve.client.state import ClientState
from turnout_serve.client.worker import Worker
from turnout_serve.conform.vectors import Recorder
from turnout_serve.server.leases import Leases
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import decode, model_tensors, read_manifest

pytest.importorskip("cryptography", reason="secure sums take cryptography, an extra")

from tests.oracles import secagg

SIZES = (8, 9, 7, 6)


def experiment(**options):
    local = to.Sgd(lr=0.1, batch_size=4)
    also = (to.aggregation.SecureSum(largest=64.0, **options),) if options else ()
    data = classification(sizes=SIZES, dtype=torch.float64)
    return to.Experiment(data, to.models.Logistic(), to.fedavg(local, also=also), rounds=1)


def delta(client, initial):
    """What a client of ours computes, in a run without masks."""
    worker = Worker(Computer(experiment()), client)
    task = Assignment(0, 0, "train", 0, "0" * 64, 0, 1.0)
    done = worker.do(client, task, model_tensors(initial, {}, initial.dtype), worker.first_memory())
    assert done is not None
    return decode(done[0], read_manifest(done[0]))["delta"][0]


@pytest.mark.parametrize(("bits", "degree", "leaves"), [(32, None, False), (54, None, True), (24, 4, False)])
def test_client_written_from_the_protocol_page_completes_a_secure_sum(folder, bits, degree, leaves):
    """Three of ours and the other one; of a fourth of ours, who leaves once it has shared, the others open the key."""
    run = experiment(bits=bits, fraction_bits=14, degree=degree)
    server = Server(run, folder, {}, Options(port=0, rate=0, min_clients=5, leases=Leases(heartbeat=60)))
    initial = server.setting.initial.clone()
    own = torch.linspace(-1.0, 1.0, len(initial), dtype=torch.float64)
    with server.listening() as url:
        recorder, computer = Recorder(url), Computer(run)
        ours = [Client(Newcomer(ClientState(), manners=Manners(wait=0.0)), Worker(computer, k)) for k in range(4)]
        sessions, results = [client.session() for client in ours], list[Any]([None] * 4)
        foreign: secagg.Client | None = None
        alive = set(range(4))
        while alive or foreign is None or not foreign.over:
            for k in sorted(alive):
                try:
                    results[k] = carry_out(sessions[k].send(results[k]), partial(recorder.send, ""))
                except StopIteration:
                    alive.discard(k)
                    continue
                task = ours[k].task
                if leaves and k == 3 and task is not None and task.phase == "mask":
                    recorder.send("", ours[k].leave())
                    alive.discard(k)
            if foreign is None and server.service.num_clients == 4:
                foreign = secagg.Client(urlsplit(url).netloc, own.numpy(), 10)
            elif foreign is not None and not foreign.over:
                foreign.turn()
        params = server.driver.params
    assert foreign is not None
    assert foreign.phases == ["train", "share", "mask", "open"]
    present = range(3 if leaves else 4)
    total = sum(SIZES[k] * delta(k, initial) for k in present) + 10 * own
    expected = initial + total / (sum(SIZES[k] for k in present) + 10)
    torch.testing.assert_close(params, expected, rtol=0, atol=5 * 2.0**-15 / 30)
