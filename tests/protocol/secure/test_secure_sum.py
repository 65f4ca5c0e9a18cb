"""SecAgg+: the sum is the plain sum for any drop-outs up to the threshold, and the server sees no single update."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout import ConfigurationError
from turnout.protocol.secure import Opening, ProtocolError, Request, SecureClient, SecureServer, TooFewClients
from turnout.protocol.secure.local import secure_sum
from turnout.protocol.secure.masks import expand, word

BITS = 20
X25519 = "cryptography.hazmat.primitives.asymmetric.x25519"


def inputs(clients, length=6, bits=BITS, seed=0):
    rng = np.random.default_rng(seed)
    return {int(c): rng.integers(0, 2**bits, length, dtype=np.uint64).astype(word(bits)) for c in clients}


def plain(values, clients, bits=BITS):
    return (sum(values[c].astype(object) for c in clients) % 2**bits).astype(word(bits))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_sum_equals_the_plain_sum_for_all_drop_outs_up_to_the_threshold(data):
    n = data.draw(st.integers(3, 9), "clients")
    degree = data.draw(st.sampled_from([None, 2, 4, 6]), "degree")
    bits = data.draw(st.sampled_from([1, 8, 20, 32, 61, 64]), "bits")
    k = min(n - 1, degree or n - 1)
    threshold = data.draw(st.integers(k // 2 + 1, k), "threshold")
    numbers = data.draw(st.permutations(range(1, n + 1)))
    leaving = numbers[: data.draw(st.integers(0, k - threshold), "leaving")]
    phases = {c: data.draw(st.sampled_from(["share", "mask", "open"])) for c in leaving}
    leave = {phase: [c for c in leaving if phases[c] == phase] for phase in ("share", "mask", "open")}
    values = inputs(numbers, bits=bits, seed=n)
    total, clients = secure_sum(values, bits=bits, threshold=threshold, degree=degree, seed=[1, n], leave=leave)
    assert clients == sorted(c for c in numbers if phases.get(c, "open") == "open")
    np.testing.assert_array_equal(total, plain(values, clients, bits))


@pytest.mark.parametrize("phase", ["share", "mask", "open"])
def test_no_sum_below_the_threshold(phase):
    values = inputs(range(1, 7))
    secure_sum(values, bits=BITS, threshold=3, leave={phase: [1, 2]})
    with pytest.raises(TooFewClients, match="the threshold is 3"):
        secure_sum(values, bits=BITS, threshold=3, leave={phase: [1, 2, 3]})


def test_three_participants_are_too_few_for_a_threshold_of_three():
    with pytest.raises(TooFewClients, match="3 clients came"):
        secure_sum(inputs([1, 2, 3]), bits=BITS, threshold=3)


def shared_by(number):
    """Return clients 1 to `number` with a threshold of 2, after the first has shared and received shares."""
    clients = [SecureClient(c, 2, 8) for c in range(1, number + 1)]
    keys = {client.number: client.advertise() for client in clients}
    sent = {c.number: c.share({o: k for o, k in keys.items() if o != c.number}) for c in clients}
    return clients[0], {other: sealed[1] for other, sealed in sent.items() if other > 1}


def test_client_gives_up_below_the_threshold():
    """With one neighbor less than the threshold it gives up in each phase, whatever the server says."""
    values = np.zeros(3, np.uint8)
    with pytest.raises(TooFewClients, match="client 1 has 1 neighbors, and the threshold is 2"):
        shared_by(2)
    one, sealed = shared_by(3)
    with pytest.raises(TooFewClients, match="client 1 has 1 neighbors that shared"):
        one.mask(values, {2: sealed[2]})
    one, sealed = shared_by(4)
    one.mask(values, sealed)
    with pytest.raises(TooFewClients, match="client 1 has 1 neighbors that sent"):
        one.open(Request(frozenset({2}), frozenset({3, 4})))


def test_server_accepts_one_input_per_client_and_detects_wrong_shares():
    clients = {c: SecureClient(c, 2, 8) for c in (1, 2, 3, 4)}
    server = SecureServer(3, 8, 2)
    for number, client in clients.items():
        server.advertised(number, client.advertise())
    for number, keys in server.keys().items():
        server.shared(number, clients[number].share(keys))
    for number, sealed in server.sealed().items():
        if number < 4:
            masked = clients[number].mask(np.ones(3, np.uint8), sealed)
            server.masked(number, masked)
            with pytest.raises(ProtocolError, match="does not belong"):
                server.masked(number, masked)
    for number, request in server.requests().items():
        right = clients[number].open(request)
        server.opened(number, Opening(right.self_masks, {4: next(iter(right.self_masks.values()))}))
    with pytest.raises(TooFewClients, match="client 4 has 0 neighbors left"):
        server.total()
    assert server.culprits == dict.fromkeys((1, 2, 3), "it opened other shares than it was dealt")


def test_leaving_after_sending_changes_nothing():
    values = inputs(range(1, 8))
    sums = [secure_sum(values, bits=BITS, threshold=4, leave={"open": gone})[0] for gone in ([], [1], [2, 7])]
    assert all(np.array_equal(one, sums[0]) for one in sums)


class Watched(SecureServer):
    """Keeps all that a server is sent."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.seen = []

    def masked(self, client, values, refused=frozenset()):
        self.seen.append(values.copy())
        super().masked(client, values, refused)

    def opened(self, client, opening):
        self.seen += [np.frombuffer(share, np.uint8) for share in opening.self_masks.values()]
        assert not set(opening.self_masks) & set(opening.masking_keys)
        super().opened(client, opening)


def test_server_receives_neither_an_update_nor_both_secrets(monkeypatch):
    """With updates of zeros, a missing mask would be visible; no masked input can be opened alone."""
    monkeypatch.setattr("turnout.protocol.secure.local.SecureServer", Watched)
    made, start = [], Watched.__init__
    monkeypatch.setattr(Watched, "__init__", lambda self, *given: (start(self, *given), made.append(self))[0])
    values = {c: np.zeros(2000, dtype=np.uint32) for c in range(1, 6)}
    total, _ = secure_sum(values, bits=32, threshold=3, leave={"mask": [3]})
    assert not total.any()
    (server,) = made
    masked = [one for one in server.seen if one.dtype == np.uint32]
    assert len(masked) == 4
    for i, one in enumerate(masked):
        assert np.unique(one).size > 1990
        others = sum(masked[:i] + masked[i + 1 :])
        assert np.unique(others).size > 1990  # nor does any sum of all but one
    pairs = zip(sorted({1, 2, 4, 5}), masked, strict=True)
    for (
        client,
        one,
    ) in pairs:  # the server, once it can take off every self mask it was given shares of, still sees noise
        shares = {o: p.self_masks[client] for o, p in server._openings.items() if client in p.self_masks}
        alone = one - expand(server._secret(shares), 2000, 32)
        assert np.unique(alone).size > 1990
    kept = [value for value in vars(server).values() if isinstance(value, np.ndarray)]
    assert len(kept) == 1  # the sum


def test_masked_update_is_uniform():
    """Chi-square on 8 values, with an update of zeros; chance alone exceeds 40 once in a million runs."""
    first = SecureClient(1, 1, 3)
    second = SecureClient(2, 1, 3)
    keys = {1: first.advertise(), 2: second.advertise()}
    first.share({2: keys[2]})
    sealed = second.share({1: keys[1]})
    drawn = np.bincount(first.mask(np.zeros(40_000, dtype=np.uint8), {2: sealed[1]}), minlength=8)
    assert ((drawn - 5000.0) ** 2 / 5000.0).sum() < 40


def test_client_opens_one_secret_per_neighbor_and_answers_once():
    ready = [SecureClient(number, 2, 8) for number in (1, 2, 3)]
    keys = {client.number: client.advertise() for client in ready}
    sent = {c.number: c.share({o: k for o, k in keys.items() if o != c.number}) for c in ready}
    one = ready[0]
    one.mask(np.zeros(3, np.uint8), {2: sent[2][1], 3: sent[3][1]})
    with pytest.raises(ProtocolError, match="client 1 was asked to mask, and open is next"):
        one.mask(np.zeros(3, np.uint8), {2: sent[2][1]})
    with pytest.raises(ProtocolError, match="both secrets of a neighbor"):
        one.open(Request(frozenset({2}), frozenset({2})))
    with pytest.raises(TooFewClients, match="client 2 has 1 neighbors that shared"):
        ready[1].mask(np.zeros(3, np.uint8), {1: sent[1][2], 3: sent[3][1]})
    assert ready[1].refused == {3}
    with pytest.raises(ProtocolError, match="client 3 got values of float64, or shares of no neighbor"):
        ready[2].mask(np.zeros(3), {})


def test_client_refuses_a_threshold_of_half_of_its_neighbors():
    """The attack: to some, a server says that a client has left, and to the others, that it has not."""
    client, others = SecureClient(1, 2, 8), {number: SecureClient(number, 2, 8) for number in range(2, 6)}
    client.advertise()
    with pytest.raises(
        ProtocolError, match="client 1: the threshold is 2 of 4 neighbors, and has to be more than half"
    ):
        client.share({number: other.advertise() for number, other in others.items()})


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, X25519, None)
    with pytest.raises(ConfigurationError, match=r"a secure sum needs cryptography, .*: pip install '\.\[secure\]'"):
        SecureClient(1, 1, 8).advertise()


def test_server_rejects_unexpected_messages():
    server = SecureServer(3, 8, 1)
    keys = SecureClient(1, 1, 8).advertise()
    for client in (1, 2):
        server.advertised(client, keys)
    with pytest.raises(ProtocolError, match="does not belong to the phase 'advertise'"):
        server.advertised(1, keys)
    with pytest.raises(ProtocolError, match="client 1: this message"):
        server.shared(1, {})
    with pytest.raises(ProtocolError, match="the phase is 'advertise', not 'open'"):
        server.total()
    server.keys()
    for client, other in ((1, 2), (2, 1)):
        server.shared(client, {other: b""})
    server.sealed()
    with pytest.raises(ProtocolError, match="client 1: this message"):
        server.masked(1, np.zeros(4, np.uint8))
    with pytest.raises(ProtocolError, match="client 3: this message"):
        server.masked(3, np.zeros(3, np.uint8))
    with pytest.raises(ProtocolError, match="client 1: this message"):
        server.opened(1, Opening())


def test_missing_cryptography_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, X25519, None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[secure\]'"):
        SecureClient(1, 1, 8)


def test_masks_do_not_depend_on_torch_seeds():
    masks = []
    for _ in range(2):
        torch.manual_seed(0)
        masks.append(SecureClient(1, 1, 8)._self_mask)
    assert masks[0] != masks[1]
