"""Clients that cheat in secure sums between machines: the run goes on without them, restarts, and says who they are."""

import logging
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.phases import train
from tests.tiny import classification

import turnout as to
from turnout.pieces.aggregation import SecureSum
from turnout.protocol.secure import SecureClient, shamir
from turnout.protocol.secure.masker import Masker
from turnout.protocol.secure.masks import new_key, public
from turnout_serve.cli.commands.status import rows_of
from turnout_serve.client.calls import Call
from turnout_serve.client.worker import phase_message
from turnout_serve.server.http.status import status
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.leases import Leases
from turnout_serve.server.run.extra_phases import ExtraPhases
from turnout_serve.server.store.files import Files, ReportLost
from turnout_serve.wire.assignment import Assignment, plain_row
from turnout_serve.wire.format import decode, digest, encode, read_manifest

from .world import FIVE, LOCAL, Home

ROUNDS = 2
SECURE = SecureSum(largest=64.0)
EVERYONE = to.Population(to.availability.Everyone())


def run(data=FIVE):
    algorithm = to.fedau(LOCAL, also=(SECURE,))
    return to.Experiment(data, to.models.Logistic(), algorithm, EVERYONE, rounds=ROUNDS, evaluate_every=2)


@pytest.fixture
def deployed(world):
    return world(run())


def cheat(deployed, row, change):
    """Have a client change what it sends: `change` gets phase, version and tensors, and None gives the task up."""
    home = deployed.homes[row]
    worker, do = home.client.trainer, home.client.trainer.do

    def changed(client, task, model, memory):
        found = do(client, task, model, memory)
        if found is None:
            return None
        tensors = change(task.phase, task.version, decode(found[0], read_manifest(found[0])))
        return None if tensors is None else (encode(tensors), found[1])

    worker.do = changed


def participants(deployed, rounds=ROUNDS):
    """Who took part, by round."""
    table = deployed.host.driver.ledger.history.participation.to_pydict()
    pairs = list(zip(table["round"], table["client"], strict=True))
    return [[client for r, client in pairs if r == 1 + i] for i in range(rounds)]


def goes_on(deployed):
    """A server that starts again, from its checkpoint and from its journal alone, has the same model."""
    params, barred = deployed.host.driver.params.clone(), dict(deployed.host.driver.barred)
    deployed.restart()
    assert torch.equal(deployed.host.driver.params, params)
    deployed.host.service.writer.checkpoint()
    deployed.restart()
    assert deployed.host.driver.barred == barred
    assert replay(deployed.setting, deployed.folder).same is True


ALL, OTHERS = list(range(5)), [0, 1, 2, 4]


def test_keys_of_low_order_are_refused_on_arrival(deployed):
    sent = []

    def zeros(phase, version, tensors):
        if phase != "train" or version != 0:
            return tensors
        sent.append(None)
        return tensors | {"keys": torch.zeros_like(tensors["keys"])} if len(sent) == 1 else None

    cheat(deployed, 3, zeros)
    answers, call = [], deployed.host.call
    deployed.host.call = lambda request: (answers.append(call(request)), answers[-1])[1]
    deployed.run()
    (refused,) = [answer for answer in answers if answer.status == 422]
    assert refused.table()["reason"] == "keys: a public key is of low order, or does not have 32 bytes"
    assert participants(deployed) == [OTHERS, ALL]
    goes_on(deployed)


def test_sender_of_wrong_shares_is_barred(deployed, caplog):
    """It is in the sum in which it cheats, for its update was masked before; in no later one."""
    cheat(
        deployed,
        3,
        lambda phase, _, tensors: {n: t * 0 + 1 for n, t in tensors.items()} if phase == "open" else tensors,
    )
    with caplog.at_level(logging.WARNING, "turnout.server"):
        deployed.run()
    assert participants(deployed) == [ALL, OTHERS]
    assert deployed.host.driver.barred == {3: "it opened other shares than it was dealt"}
    (said,) = [record for record in caplog.records if "barred from secure sums" in record.message]
    assert (said.client, said.reason) == (3, "it opened other shares than it was dealt")
    figures = status(deployed.host.service, 0, {}).fields()
    assert figures["barred"] == {"3": "it opened other shares than it was dealt"}
    assert ("in no secure sum: client 3", "it opened other shares than it was dealt") in rows_of(figures)
    goes_on(deployed)


def test_lost_masked_update_aborts_the_sum(deployed, monkeypatch):
    """The server goes on with the next round, and a replay comes to the same model."""
    lost, take, read = [], ExtraPhases.take, Files.read_report

    def taken(self, client, body, task):
        if (client, task.phase, task.version) == (3, "mask", 0):
            lost.append(body)
        take(self, client, body, task)

    def gone(self, name):
        if name in lost:
            raise ReportLost(f"{name} is gone")
        return read(self, name)

    monkeypatch.setattr(ExtraPhases, "take", taken)
    monkeypatch.setattr(Files, "read_report", gone)
    deployed.run()
    assert len(lost) == 1
    assert participants(deployed) == [[], ALL]
    assert not deployed.host.driver.barred
    assert replay(deployed.setting, deployed.folder).same is True


def test_sender_of_unreadable_shares_is_excluded(deployed, caplog):
    cheat(
        deployed,
        3,
        lambda phase, _, tensors: {"sealed": tensors["sealed"] * 0} if phase == "share" else tensors,
    )
    with caplog.at_level(logging.WARNING, "turnout.server"):
        deployed.run()
    assert participants(deployed) == [OTHERS] * ROUNDS
    assert [r.clients for r in caplog.records if "excluded from a secure sum" in r.message] == [[3]]
    assert deployed.host.driver.barred == {3: "it dealt shares that a neighbor cannot read"}
    goes_on(deployed)


@pytest.mark.parametrize("filler", [0, 7])
def test_client_that_falsely_refuses_a_neighbor_is_excluded(world, filler):
    """One liar in five gives no evidence, or evidence by which the shares can be read: the sum goes on without it."""

    def accuses(phase, version, tensors):
        lies = phase == "mask" and version == 0
        flags = torch.eye(4, dtype=torch.uint8)[:1]
        evidence = torch.full((1, 4, 96), filler, dtype=torch.uint8)
        return tensors | {"refused": flags, "evidence": evidence} if lies else tensors

    deployed = world(run())
    cheat(deployed, 3, accuses)
    deployed.run()
    assert participants(deployed) == [OTHERS] * ROUNDS
    assert deployed.host.driver.barred == {3: "it refused shares of a neighbor that can be read"}
    goes_on(deployed)


def test_share_message_of_an_earlier_round_is_refused(deployed):
    seen = []

    def replayed(phase, _, tensors):
        if phase != "share":
            return tensors
        seen.append(tensors)
        return seen[0]

    cheat(deployed, 3, replayed)
    deployed.run()
    assert participants(deployed) == [ALL, OTHERS]
    goes_on(deployed)


def test_shares_of_another_key_abort_one_sum(deployed, monkeypatch, caplog):
    """Client 3 deals shares of another key and leaves: nobody can take off its masks, the round says so, and it is barred."""
    share = SecureClient.share

    def dealt(self, neighbors):
        if self.number != 4:
            return share(self, neighbors)
        right, self._masking = self._masking, new_key()
        try:
            return share(self, neighbors)
        finally:
            self._masking = right

    monkeypatch.setattr(SecureClient, "share", dealt)
    cheat(deployed, 3, lambda phase, _, tensors: None if phase == "mask" else tensors)
    before = deployed.host.driver.params.clone()
    with caplog.at_level(logging.WARNING, "turnout.server"):
        for _ in range(200):
            deployed.round()
            if deployed.host.driver.version == 1:
                break
    assert torch.equal(deployed.host.driver.params, before)
    deployed.run()
    assert participants(deployed) == [[], OTHERS]
    (said,) = [record for record in caplog.records if "cannot be opened" in record.message]
    assert said.reason == "the shares of client 4 give another key than it advertised"
    assert deployed.host.driver.barred == {3: "the shares that it dealt give another key than it advertised"}
    goes_on(deployed)


def test_clients_that_prevent_one_sum_each_end_no_run(world, monkeypatch):
    """Two of eight deal shares of another key and leave: a sum names one of them, and the run goes on after both."""
    share = SecureClient.share

    def dealt(self, neighbors):
        right, self._masking = self._masking, self._masking if self.number not in (3, 6) else new_key()
        try:
            return share(self, neighbors)
        finally:
            self._masking = right

    monkeypatch.setattr(SecureClient, "share", dealt)
    eight = classification([6] * 8, features=16, classes=16)
    deployed = world(replace(run(eight), rounds=3), max_empty_steps=1)
    for liar in (2, 5):
        cheat(deployed, liar, lambda phase, _, tensors: None if phase == "mask" else tensors)
    deployed.run()
    assert sorted(deployed.host.driver.barred) == [2, 5]
    assert participants(deployed, 3) == [[], [], [0, 1, 3, 4, 6, 7]]
    goes_on(deployed)


@pytest.mark.parametrize("phase", ["train", "share", "mask", "open"])
@pytest.mark.parametrize("change", [lambda body: body[:-5], lambda body: body + bytes(4096)], ids=["cut", "oversized"])
def test_message_of_another_length_ends_only_its_task(deployed, phase, change):
    """The client is not in that sum, unless its masked update arrived before."""
    worker, do = deployed.homes[3].client.trainer, deployed.homes[3].client.trainer.do

    def cut(client, task, model, memory):
        found = do(client, task, model, memory)
        return (change(found[0]), found[1]) if task.phase == phase and task.version == 0 else found

    worker.do = cut
    deployed.run()
    assert participants(deployed) == [ALL if phase == "open" else OTHERS, ALL]
    goes_on(deployed)


def test_second_messages_are_refused(deployed):
    """In every phase of a sum; the first answer that is right counts, and the run goes on."""
    home, phases = deployed.homes[3], set()
    for _ in range(400):
        for other in deployed.homes:
            if other is home and home.has_report and (held := deployed.host.driver.task_of(3)) is not None:
                call = home.action
                phases.add(held.phase)
                home.step(deployed.host)
                again = deployed.host.call(call)
                changed = call.body[:-1] + bytes([call.body[-1] ^ 1])
                other_body = deployed.host.call(
                    Call("PUT", call.path, body=changed, headers={**call.headers, "repr-digest": _named(changed)})
                )
                assert (again.status, other_body.status) == (200, 409)
            elif other.over is None:
                other.train(deployed.host) if other is home else other.turn(deployed.host)
        deployed.clock.now += 1.0
        deployed.host.pump()
        if deployed.host.driver.over:
            break
    assert phases == {"train", "share", "mask", "open"}
    assert participants(deployed) == [ALL] * ROUNDS
    goes_on(deployed)


def _named(body):
    import base64

    return f"sha-256=:{base64.b64encode(bytes.fromhex(digest(body))).decode()}:"


def task(phase, **tensors):
    return Assignment(1, 0, phase, 0, "", 0, 1.0, plain_row(tensors, 0))


def announced(piece=SECURE):
    """A client that has trained, and keys of neighbors."""
    experiment = to.Experiment(FIVE, to.models.Logistic(), to.fedau(LOCAL, also=(piece,)), rounds=1)
    from turnout.simulation import Simulation

    report = train(Simulation(experiment), np.array([0]))
    side = Masker(piece.extra)
    assert side.announce(0, 0, report, {}) is not None
    return side


def neighbors(number, key=None):
    keys = [list((key or public(new_key())) * 2) for _ in range(number)]
    return {
        "neighbours": torch.arange(2, number + 2)[None],
        "keys": torch.tensor([keys], dtype=torch.uint8),
        "weight": torch.ones(1, dtype=torch.float64),
    }


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"weight": torch.tensor([9.0], dtype=torch.float64)}, "the weight 9, allowed are 0.5 to 2"),
        ({"weight": torch.tensor([torch.nan])}, "the weight nan"),
        ({"weight": torch.zeros((1, 0))}, "the weight nan"),
        ({"neighbours": torch.tensor([[2, 2, 3, 4]])}, "no list of different clients called neighbours"),
        ({"neighbours": torch.tensor([[1, 2, 3, 4]])}, "client 1 got itself"),
        ({"neighbours": torch.tensor([[-1, 2, 3, 4]])}, "a number below 1"),
        ({"neighbours": torch.tensor([[2.0, 3, 4, 5]])}, "no list of different clients"),
        ({"keys": torch.zeros((1, 4, 64), dtype=torch.uint8)}, "of low order"),
        ({"keys": torch.zeros((1, 4, 10), dtype=torch.uint8)}, "no keys of 64 bytes for each of 4 clients"),
        ({"keys": torch.zeros((1, 3, 64), dtype=torch.uint8)}, "no keys of 64 bytes for each of 4 clients"),
        (
            neighbors(2),
            "the server gives this client 2 neighbors; by the run's settings it has 4 at most, and at least 3",
        ),
        (neighbors(6), "the server gives this client 6 neighbors"),
    ],
)
def test_client_drops_out_of_impossible_tasks(change, why, caplog):
    """It says why, and goes on to the next round: nothing that a server sends ends its process."""
    side = announced(SecureSum(largest=64.0, degree=4, min_clients=4, weights=(0.5, 2.0)))
    with caplog.at_level(logging.WARNING, "turnout.client"):
        assert phase_message(side, task("share", **(neighbors(4) | change)), {}) is None
    assert why in caplog.records[-1].reason
    assert phase_message(side, task("mask", senders=torch.tensor([[2]])), {}) is None


def test_task_without_tensors_does_not_end_the_client(caplog):
    for phase in ("share", "mask", "open"):
        with caplog.at_level(logging.WARNING, "turnout.client"):
            assert phase_message(announced(), Assignment(1, 0, phase, 0, "", 0, 1.0, {}), {}) is None
            broken = Assignment(1, 0, phase, 0, "", 0, 1.0, {"neighbours": ("I64", (1,), 8 * "00")})
            assert phase_message(announced(), broken, {}) is None


def test_client_opens_a_sum_once(deployed):
    """A server that asks again, after a restart or with another list of who left, gets nothing."""
    asked = []
    worker = deployed.homes[3].client.trainer
    answer = worker._phases.answer

    def twice(phase, version, told, memory):
        found = answer(phase, version, told, memory)
        if phase == "open":
            asked.append(answer(phase, version, told, memory))
        return found

    worker._phases.answer = twice
    deployed.run()
    assert asked == [None] * ROUNDS
    assert participants(deployed) == [ALL] * ROUNDS


def test_weights_out_of_range_are_refused():
    for wrong in ((2.0, 1.0), (-1.0, 1.0), (1.0,)):
        with pytest.raises(to.ConfigurationError, match=r"weights: got .*, needed the smallest and the largest"):
            SecureSum(weights=wrong)
    with pytest.raises(to.ConfigurationError, match=r"threshold: got 0.5, needed a fraction of the neighbors, > 0.5"):
        SecureSum(threshold=0.5)
    assert shamir.SHARE_BYTES == 33


def test_client_on_two_machines_drops_only_itself(world):
    """Both have its token, and each answers some of its tasks; under masks, their secrets do not fit each other."""
    run = to.Experiment(FIVE, to.models.Logistic(), to.fedau(LOCAL, also=(SECURE,)), EVERYONE, rounds=ROUNDS)
    deployed = world(run, leases=Leases(heartbeat=1e6, grace=1e6, task_deadline=50.0))
    twin, chance = Home(deployed.computer, 0), random.Random(1)
    twin.state.token = deployed.homes[0].state.token
    twin.session = twin.client.session()
    twin.action = next(twin.session)
    homes = [*deployed.homes, twin]
    for turn in range(20_000):
        if all(home.over for home in homes):
            break
        chance.choice(homes).step(deployed.host)
        if turn % 20 == 0:
            deployed.clock.now += 1.0
            deployed.host.pump()
    driver = deployed.host.driver
    assert driver.version == run.rounds
    assert driver.barred.keys() <= {0}
    assert driver.ledger.history.participation["client"].to_pylist().count(1) == run.rounds
    deployed.host.service.writer.checkpoint()
    assert replay(deployed.setting, deployed.folder).same is True


def test_status_has_the_number_of_sums_that_were_opened(deployed):
    """Three of five clients give up in one step, whose sum cannot be opened; a restarted server knows that, too."""
    for row in range(3):
        cheat(deployed, row, lambda phase, version, tensors: None if (phase, version) == ("share", 0) else tensors)
    deployed.run()
    assert participants(deployed) == [[], ALL]
    for _ in range(3):  # as it is, after a replay, and from a checkpoint
        figures = deployed.host.send("GET", "/v1/status").table()
        assert figures["sums"] == {"steps": 2, "opened": 1}
        assert ("secure sums", "1 of 2 opened") in rows_of(figures)
        assert b"turnout_secure_sums_opened_total 1\n" in deployed.host.send("GET", "/metrics").body
        deployed.restart()
        deployed.host.service.writer.checkpoint()
