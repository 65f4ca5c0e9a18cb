"""Malicious clients and a lying server: sums continue without the former, and clients refuse the latter."""

import numpy as np
import pytest
import torch
from tests.tiny import classification

import turnout as to
from turnout.pieces.aggregation import SecureSum
from turnout.protocol.secure import (
    FixedPoint,
    Keys,
    Opening,
    ProtocolError,
    Request,
    SecureClient,
    SecureServer,
    TooFewClients,
    shamir,
    sizes,
)
from turnout.protocol.secure import client as secure_client
from turnout.protocol.secure.attendance import Attendance
from turnout.protocol.secure.disputes import disputed, unreadable
from turnout.protocol.secure.masker import VectorMasker
from turnout.protocol.secure.masking import Masking
from turnout.protocol.secure.masks import expand, new_key, pairwise, public, reduce
from turnout.protocol.secure.messages import SEALED_BYTES, commitment

BITS, LENGTH = 16, 5

LOW_ORDER = [
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
]
"""All points of X25519 that have a small order: whoever uses one agrees on zeros with everybody."""


class Round:
    """One sum with everybody in one process, some of whom cheat.

    Args:
        number: of clients.
        threshold: t.
        degree: k.
        cheats: by phase, a function that changes what a client sends, given its number and what it would send.
    """

    def __init__(self, number=7, threshold=4, degree=None, **cheats):
        self.server = SecureServer(LENGTH, BITS, threshold, degree, 0)
        self.clients = {c: SecureClient(c, threshold, BITS) for c in range(1, number + 1)}
        self.values = {c: np.full(LENGTH, 3 * c, np.uint16) for c in self.clients}
        self.cheats, self.out = cheats, set()

    def sent(self, phase, client, message):
        return self.cheats.get(phase, lambda _, message: message)(client, message)

    def run(self, gone=()):
        server, clients = self.server, self.clients
        for c, client in clients.items():
            server.advertised(c, client.advertise())
        for c, keys in server.keys().items():
            server.shared(c, self.sent("share", c, clients[c].share(keys)))
        masked = {}
        for c, sealed in server.sealed().items():
            if c not in gone:
                masked[c] = clients[c].mask(self.values[c], self.sent("passed", c, sealed))
        refused = {c: clients[c].refused for c in masked if clients[c].refused}
        dealers = unreadable(
            refused,
            lambda c, dealer: self.sent("evidence", c, clients[c].evidence(dealer)),
            lambda dealer, c: server._sealed[dealer][c],
            lambda c: server._keys[c].sealing,
        )
        self.out = disputed(refused, dealers)
        for c in masked.keys() - self.out:
            server.masked(c, masked[c], clients[c].refused)
        for c, request in server.requests().items():
            server.opened(c, self.sent("open", c, clients[c].open(request)))
        return server.total()

    def expected(self, *gone):
        rows = [value for c, value in self.values.items() if c not in gone]
        return np.sum(rows, axis=0, dtype=np.uint16)


def test_keys_of_low_order_are_refused_on_both_sides():
    mine = SecureClient(1, 1, BITS)
    mine.advertise()
    good = public(new_key())
    for bad in (*LOW_ORDER, b"", bytes(31), good + b"x"):
        for keys in (Keys(bad, good), Keys(good, bad)):
            with pytest.raises(ProtocolError, match="a public key is of low order, or does not have 32 bytes"):
                SecureServer(LENGTH, BITS, 1).advertised(1, keys)
            client = SecureClient(1, 1, BITS)
            client.advertise()
            with pytest.raises(ProtocolError, match="of low order"):
                client.share({2: keys})


@pytest.mark.parametrize("wrong", [lambda s: bytes(len(s)), lambda s: s[:-1], lambda s: s[::-1]])
def test_wrong_shares_are_detected_and_replaced(wrong):
    """Three of seven open wrong shares of a departed client: the other four suffice, and the three are named."""

    def opened(client, right):
        return (
            Opening(right.self_masks, {c: wrong(s) for c, s in right.masking_keys.items()})
            if client in (2, 5)
            else right
        )

    found = Round(open=opened)
    np.testing.assert_array_equal(found.run(gone={7}), found.expected(7))
    assert found.server.culprits == dict.fromkeys((2, 5), "it opened other shares than it was dealt")


def test_too_many_wrong_shares_end_the_round_and_name_their_senders():
    found = Round(
        open=lambda c, right: (
            right if c > 3 else Opening(right.self_masks, dict.fromkeys(right.masking_keys, bytes(33)))
        )
    )
    with pytest.raises(TooFewClients, match="client 7 has 3 neighbors left, and the threshold is 4"):
        found.run(gone={7})
    assert set(found.server.culprits) == {1, 2, 3}


def test_sender_of_garbage_is_excluded():
    """No client can read the message of client 3: the sum is that of the others, without any secret of client 3."""
    found = Round(share=lambda c, sealed: {o: bytes(SEALED_BYTES) for o in sealed} if c == 3 else sealed)
    np.testing.assert_array_equal(found.run(), found.expected(3))
    assert found.out == {3}
    assert not found.server.culprits


@pytest.mark.parametrize("victims", [1, 2, 4])
def test_garbage_for_some_neighbors_is_tolerated(victims):
    """Neighbors that can read its shares have masked with it: their shares remove its masks."""
    found = Round(
        share=lambda c, sealed: (
            sealed if c != 3 else {o: s if o > victims else bytes(len(s)) for o, s in sealed.items()}
        )
    )
    total = found.run() if victims < 4 else None
    if total is not None:
        assert found.out == {3}
        np.testing.assert_array_equal(total, found.expected(3))
        return
    with pytest.raises(TooFewClients, match="client 3 has 3 neighbors left"):
        found.run()


def test_of_two_clients_in_a_dispute_the_one_at_fault_is_excluded():
    assert disputed({1: {2, 3, 4}}, ()) == {1}
    assert disputed({1: {4}, 2: {4}, 3: {4}}, {4}) == {4}
    assert disputed({1: {2}, 2: {1}}, ()) == {1, 2}
    assert disputed({1: {2, 3}}, {2}) == {1, 2}  # it is right about one, and lies about the other
    assert not disputed({}, ())


@pytest.mark.parametrize("evidence", [bytes(96), b"\xff" * 96, None])
def test_client_that_falsely_refuses_shares_is_excluded_alone(evidence):
    """It gives no evidence, or true evidence, by which everybody reads the shares that it calls unreadable."""
    found = Round(
        passed=lambda c, sealed: sealed | {3: bytes(SEALED_BYTES)} if c == 1 else sealed,
        evidence=lambda _, right: right if evidence is None else evidence,
    )
    np.testing.assert_array_equal(found.run(), found.expected(1))
    assert found.out == {1}


def resealed(client, others):
    """Client 3 deals shares of another key than it advertised, with commitments that fit."""
    secret, other = client._masking, new_key()
    client._masking = other
    client._next = "share"
    try:
        return client.share(others)
    finally:
        client._masking = secret


def test_shares_of_another_key_are_attributed_to_their_sender():
    """A client that shares a key other than the advertised one, and leaves, costs one sum and is named."""
    found = Round()

    def dealt(c, sealed):
        return resealed(found.clients[c], found.clients[c]._neighbors) if c == 3 else sealed

    found.cheats["share"] = dealt
    with pytest.raises(ProtocolError, match="the shares of client 3 give another key than it advertised"):
        found.run(gone={3})
    assert found.server.culprits == {3: "the shares that it dealt give another key than it advertised"}


def test_one_wrong_share_of_a_key_does_not_prevent_reconstruction(monkeypatch):
    """Client 3 sends one neighbor an invalid share with a valid commitment, and leaves."""
    share = shamir.share

    def dealt(secret, threshold, points):
        return share(secret, threshold, points) | ({1: bytes(33)} if 3 not in points else {})

    monkeypatch.setattr(shamir, "share", dealt)
    found = Round()
    np.testing.assert_array_equal(found.run(gone={3}), found.expected(3))
    assert not found.server.culprits


def test_messages_of_an_earlier_round_are_rejected():
    """Keys are fresh in every round, so older messages are unreadable and their sender is excluded."""
    first = Round()
    seen = {}
    first.cheats["share"] = lambda c, sealed: seen.setdefault(c, sealed)
    first.run()
    second = Round(share=lambda c, sealed: seen[3] if c == 3 else sealed)
    np.testing.assert_array_equal(second.run(), second.expected(3))
    with pytest.raises(ProtocolError, match="does not belong to the phase 'nothing'"):
        second.server.opened(1, Opening())


def test_share_of_an_earlier_round_is_rejected():
    first, seen = Round(), {}
    first.cheats["open"] = lambda c, right: seen.setdefault(c, right)
    first.run(gone={7})
    second = Round(open=lambda c, right: seen[c] if c < 4 else right)
    with pytest.raises(TooFewClients):
        second.run(gone={7})
    assert set(second.server.culprits) == {1, 2, 3}


def test_duplicate_senders_and_wrong_sizes_are_rejected():
    found = Round()
    server = found.server
    for c, client in found.clients.items():
        server.advertised(c, client.advertise())
    with pytest.raises(ProtocolError, match="does not belong"):
        server.advertised(1, SecureClient(1, 1, BITS).advertise())
    for c, keys in server.keys().items():
        sealed = found.clients[c].share(keys)
        server.shared(c, sealed)
        with pytest.raises(ProtocolError, match="does not belong"):
            server.shared(c, sealed)
    passed = server.sealed()[1]
    short = {o: text[:40] if o == 2 else text + b"x" if o == 3 else text for o, text in passed.items()}
    values = found.clients[1].mask(found.values[1], short)
    assert found.clients[1].refused == {2, 3}
    for wrong in (values[:-1], np.append(values, values[:1]), values.astype(np.uint32)):
        with pytest.raises(ProtocolError, match="does not belong"):
            server.masked(1, wrong)
    server.masked(1, values, frozenset({2, 3}))
    with pytest.raises(ProtocolError, match="does not belong"):
        server.masked(2, values)  # which client 1 has no mask with


def lying(number, threshold, degree):
    """Let a server tell half of the neighbors of client 1 that it left; return what the server learns.

    It needs nobody's help, and knows nothing but what honest clients tell it.
    """
    server = SecureServer(LENGTH, BITS, 1, degree, 0)
    clients = {c: SecureClient(c, threshold, BITS) for c in range(1, number + 1)}
    for c, client in clients.items():
        server.advertised(c, client.advertise())
    keys = server.keys()
    for c in clients:
        server.shared(c, clients[c].share(keys[c]))
    sealed = server.sealed()
    masked = clients[1].mask(np.arange(LENGTH, dtype=np.uint16), sealed[1])
    opened = {}
    for turn, c in enumerate(sorted(keys[1])):
        clients[c].mask(np.zeros(LENGTH, np.uint16), sealed[c])
        others = frozenset(keys[c]) - {1}
        request = Request(others | {1}) if turn < threshold else Request(others, frozenset({1}))
        opened[c] = clients[c].open(request)
    self_masks = {c: each.self_masks[1] for c, each in opened.items() if 1 in each.self_masks}
    shares = {c: each.masking_keys[1] for c, each in opened.items() if 1 in each.masking_keys}
    key = shamir.reconstruct(dict(sorted(shares.items())[:threshold]))
    masked = masked - expand(shamir.reconstruct(dict(sorted(self_masks.items())[:threshold])), LENGTH, BITS)
    for other, theirs in keys[1].items():
        one = expand(pairwise(key, theirs.masking, 1, other), LENGTH, BITS)
        masked = masked - one if other > 1 else masked + one
    return reduce(masked, BITS)


def test_lying_server_learns_nothing_about_who_left(monkeypatch):
    """With half of the neighbors as the threshold it would open a single update; clients refuse such a threshold."""
    with pytest.raises(
        ProtocolError, match=r"client \d+ could open|the threshold is 18 of 36 neighbors, and has to be more"
    ):
        lying(60, 18, 36)
    monkeypatch.setattr(SecureClient, "share", _obliging)
    np.testing.assert_array_equal(lying(60, 18, 36), np.arange(LENGTH))
    try:
        found = lying(60, 19, 36)
    except Exception:  # shares of the key are too few to give one
        return
    assert not np.array_equal(found, np.arange(LENGTH))


def _obliging(self, neighbors):
    """Return a client without checks of the server's messages."""
    self._enter("share", "mask")
    self._neighbors = dict(neighbors)
    points = sorted(neighbors)
    masks = shamir.share(self._self_mask, self.threshold, points)
    keys = shamir.share(self._masking, self.threshold, points)
    own, nonce = self._sealing, bytes(12)
    return {
        o: secure_client.sealed(own, neighbors[o].sealing, self.number, o, masks[o], keys[o], nonce) for o in points
    }


@pytest.mark.parametrize("number", [10, 40, 300, 1000])
@pytest.mark.parametrize(("corrupt", "dropout"), [(0.0, 0.0), (0.05, 0.1), (0.1, 0.2), (0.0, 0.4)])
def test_sizes_prevent_that_attack(number, corrupt, dropout):
    """Even with one corrupt neighbor too many, t shares of both secrets take more than k neighbors."""
    degree, threshold = sizes(number, corrupt=corrupt, dropout=dropout)
    assert 2 * threshold > degree
    assert not corrupt or 2 * threshold - degree > corrupt * degree


def test_client_gives_one_kind_of_share_per_neighbor():
    found = Round()
    server, clients = found.server, found.clients
    for c, client in clients.items():
        server.advertised(c, client.advertise())
    for c, keys in server.keys().items():
        server.shared(c, clients[c].share(keys))
    clients[1].mask(found.values[1], server.sealed()[1])
    with pytest.raises(ProtocolError, match="both secrets"):
        clients[1].open(Request(frozenset(range(2, 8)), frozenset({2})))
    with pytest.raises(ProtocolError, match="nothing is next"):  # nor a second time, with another question
        clients[1].open(Request(frozenset(range(2, 8)), frozenset()))


def test_client_is_not_its_own_neighbor():
    client = SecureClient(1, 2, BITS)
    keys = client.advertise()
    with pytest.raises(ProtocolError, match="client 1 got itself"):
        client.share({1: keys, 2: SecureClient(2, 2, BITS).advertise(), 3: SecureClient(3, 2, BITS).advertise()})


@pytest.mark.parametrize("gone", [(), (3,), (2, 3), (5,)])
def test_duplicate_keys_are_harmless(gone):
    """The attack: two clients announce the same keys. If others refused them, they could block every sum."""
    found = Round()
    one, two = found.clients[2], found.clients[3]
    two._sealing, two._masking, two._self_mask = one._sealing, one._masking, one._self_mask
    np.testing.assert_array_equal(found.run(gone=set(gone)), found.expected(*gone))
    assert not found.out
    assert not found.server.culprits


def told(**values):
    return {name: torch.as_tensor(value) for name, value in values.items()}


def masked(masking, codes):
    """Four clients that have masked their vectors in round 7; and the keys and the message of the round's third phase."""
    clients = [VectorMasker(masking) for _ in range(4)]
    keys = [client.advertise(c, 7, lambda _: codes, {})["keys"][0] for c, client in enumerate(clients)]
    sealed = {}
    for c, client in enumerate(clients):
        others = [o for o in range(4) if o != c]
        message = told(neighbours=[o + 1 for o in others], keys=torch.stack([keys[o] for o in others]), weight=1.0)
        shared = client.answer("share", 7, message, {})
        assert shared is not None
        sealed |= {(c, other): text for other, text in zip(others, shared[0]["sealed"][0], strict=True)}
    passed = told(senders=[2, 3, 4], sealed=torch.stack([sealed[o, 0] for o in (1, 2, 3)]))
    assert clients[0].answer("mask", 7, passed, {}) is not None
    return clients[0], keys, passed


@pytest.mark.parametrize(("min_clients", "opens"), [(3, True), (4, False)])
def test_client_opens_no_sum_of_fewer_clients_than_the_run_allows(min_clients, opens):
    masking = SecureSum(bits=16, fraction_bits=4, threshold=0.6, min_clients=min_clients).masking
    client, _, _ = masked(masking, np.full(LENGTH, 3, np.uint16))
    assert (client.answer("open", 7, told(there=[2, 3], gone=[4]), {}) is not None) == opens


def test_server_gets_one_kind_of_share_over_repeats_restarts_and_regrouping():
    """The attack: after a share of a self mask, the server requests that of the key in all possible ways."""
    masking, codes = SecureSum(bits=16, fraction_bits=4).masking, np.full(LENGTH, 3, np.uint16)
    first, keys, passed = masked(masking, codes)
    there, gone = told(there=[2, 3, 4], gone=[]), told(there=[3, 4], gone=[2])
    there["gone"] = there["gone"].long()
    assert first.answer("open", 8, there, {}) is None  # another version, or another task
    opened = first.answer("open", 7, there, {})
    assert opened is not None
    assert opened[0]["self_masks"].shape == (1, 3, 33)
    for phase, message in (("open", gone), ("open", there), ("mask", passed), ("open", gone)):
        assert first.answer(phase, 7, message, {}) is None
    restarted = VectorMasker(masking)
    assert restarted.answer("open", 7, gone, {}) is None
    # The group is formed again from the same version, and the others show the keys and shares that they had.
    for client in (first, restarted):
        client.advertise(0, 7, lambda _: codes, {})
        old = told(neighbours=[2, 3, 4], keys=torch.stack(keys[1:]), weight=1.0)
        assert client.answer("share", 7, old, {}) is not None
        assert client.answer("mask", 7, passed, {}) is None  # which nobody sealed for its new key
        assert client.answer("open", 7, gone, {}) is None


def test_sum_accepts_no_more_clients_than_its_capacity():
    """The attack: clients enroll until the sum overflows, or a cohort is larger than declared, unnoticed."""
    code = FixedPoint(bits=10, fraction_bits=4, largest=8.0)
    assert code.capacity == 3
    masking = Masking(code, 0.6, min_clients=2)
    asked = [Attendance(masking, (0, version)).share(range(50)) for version in range(20)]
    assert {len(clients) for clients in asked} == {3}
    assert len({client for clients in asked for client in clients}) > 20
    assert Attendance(masking, (0, 0)).share([4, 1, 7]) == [1, 4, 7]
    piece = SecureSum(bits=10, fraction_bits=4, cohort=3, min_clients=2)
    largest = torch.full((8, 2), 8.0, dtype=torch.float64)
    attendance = Attendance(piece.extra.masking, (0, 0))
    rows = piece.code.encode(largest[attendance.share(range(8))].numpy())
    total = piece.code.decode(reduce(rows.sum(axis=0, dtype=np.uint16), 10))
    np.testing.assert_array_equal(total, 24.0)
    everyone = to.average_participating(to.Sgd(lr=0.1, steps=1), also=(piece,))
    result = to.Experiment(classification(), to.models.Logistic(), everyone, rounds=5).run()
    assert result.rounds["num_participants"].to_pylist() == [3] * 5
    assert len(set(result.participation["client"].to_pylist())) > 3


def test_commitments_reveal_nothing_about_shares():
    assert commitment(bytes(33)) != commitment(bytes(32) + b"\x01")
    assert len(commitment(bytes(33))) == 16
