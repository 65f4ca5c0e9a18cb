"""Evidence about shares that cannot be read: it convicts the client at fault, and reveals nothing else."""

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from turnout.protocol.secure import FixedPoint, ProtocolError, curve
from turnout.protocol.secure.attendance import Attendance
from turnout.protocol.secure.client import sealed
from turnout.protocol.secure.disputes import is_unreadable
from turnout.protocol.secure.evidence import EVIDENCE_BYTES, prove, proven
from turnout.protocol.secure.masking import Masking
from turnout.protocol.secure.masks import check_public, new_key, public


def agreed(key, other):
    return X25519PrivateKey.from_private_bytes(key).exchange(X25519PublicKey.from_public_bytes(other))


def test_arithmetic_is_that_of_x25519():
    """The u of a multiple of the base point is the public key, and the base point has the order of RFC 8032."""
    assert curve.equal(curve.multiply(curve.ORDER, curve.base()), curve.ZERO)
    assert curve.encode(curve.base()).hex() == "58" + 31 * "66"
    for _ in range(5):
        key = new_key()
        number = int.from_bytes(key, "little") & (2**255 - 8) | 2**254
        assert curve.montgomery(curve.multiply(number, curve.base())) == public(key)
        point = curve.lift(public(key))
        assert point is not None
        decoded = curve.decode(curve.encode(point))
        assert decoded is not None
        assert curve.equal(decoded, point)


def test_evidence_shows_the_secret_of_two_clients_and_of_no_others():
    for _ in range(8):  # keys of both signs
        one, other, third = new_key(), new_key(), new_key()
        evidence = prove(one, public(other))
        assert len(evidence) == EVIDENCE_BYTES
        assert proven(evidence, public(one), public(other)) == agreed(one, public(other))
        assert proven(evidence, public(other), public(one)) is None
        assert proven(evidence, public(one), public(third)) is None


def _with_torsion(evidence):
    """The agreed point plus one of order 2, (0, -1)."""
    agreed_point = curve.decode(evidence[:32])
    assert agreed_point is not None
    return curve.encode(curve.add(agreed_point, (0, curve.PRIME - 1, 1, 0))) + evidence[32:]


@pytest.mark.parametrize(
    "forged",
    [
        lambda _: bytes(96),
        lambda _: b"\xff" * 96,
        lambda e: curve.encode(curve.ZERO) + e[32:],
        lambda e: curve.encode(curve.base()) + e[32:],
        lambda e: e[:32] + bytes(64),
        lambda e: e[:40] + bytes([e[40] ^ 1]) + e[41:],
        lambda e: e[:64] + (int.from_bytes(e[64:], "little") + curve.ORDER).to_bytes(32, "little"),
        _with_torsion,
    ],
)
def test_forged_evidence_is_refused(forged):
    one, other = new_key(), new_key()
    assert proven(forged(prove(one, public(other))), public(one), public(other)) is None


def test_evidence_of_another_client_is_refused():
    """A liar cannot show what somebody else agrees on with the client that it accuses."""
    liar, honest, accused = new_key(), new_key(), new_key()
    assert proven(prove(honest, public(accused)), public(liar), public(accused)) is None


@pytest.mark.parametrize("low", range(1, 6))
def test_key_with_a_part_of_small_order_changes_nothing(low):
    """A dealer adds a point of small order to its key: X25519 ignores it, and so does the evidence."""
    torsion = curve.multiply(curve.ORDER, curve.lift(bytes([low]) + bytes(31)) or curve.base())
    one, other = new_key(), new_key()
    point = curve.lift(public(other))
    assert point is not None
    mixed = curve.montgomery(curve.add(point, torsion))
    assert proven(prove(one, mixed), public(one), mixed) == agreed(one, mixed)


def test_key_on_the_twist_is_refused():
    """Two clients agree on a secret with it, of which there would be no evidence."""
    on_the_twist = next(bytes([u]) + bytes(31) for u in range(2, 50) if curve.lift(bytes([u]) + bytes(31)) is None)
    agreed(new_key(), on_the_twist)
    with pytest.raises(ProtocolError, match="a public key is not on the curve"):
        check_public(on_the_twist)


def test_judgment():
    """Sealed shares are unreadable if their text or their commitments are wrong, and only then."""
    dealer, client, nonce = new_key(), new_key(), bytes(12)
    shares = bytes(range(33)), bytes(range(33, 66))
    right = sealed(dealer, public(client), 5, 2, *shares, nonce)
    evidence, keys = prove(client, public(dealer)), (public(client), public(dealer))
    assert not is_unreadable(evidence, keys, 2, 5, right)
    for wrong in (right[:20] + bytes([right[20] ^ 1]) + right[21:], right[:-1] + b"x", right[:-1], b""):
        assert is_unreadable(evidence, keys, 2, 5, wrong)
        assert not is_unreadable(bytes(96), keys, 2, 5, wrong)
    elsewhere = sealed(dealer, public(client), 5, 3, *shares, nonce)
    assert is_unreadable(evidence, keys, 2, 5, elsewhere)


@pytest.mark.parametrize("number", [5, 10, 20, 30, 100])
def test_liars_about_shares_stop_no_sum(number):
    """A fifth of the clients each refuse a neighbor's shares: they are named, and the others' sum is opened."""
    liars = range(number // 5)
    attendance = Attendance(Masking(FixedPoint(), 0.6, 3), (0, 0))
    there = attendance.share(range(number))
    assert attendance.mask(there) == there
    attendance.refused = {liar: [number - 1 - liar] for liar in liars}
    assert attendance.cheats() == list(liars)
    helpers = attendance.open(there)
    assert helpers == list(range(number // 5, number))
    attendance.opened(helpers)
    assert attendance.used() == helpers


def silent(number, leavers, degree=None):
    """Whether a sum is opened if clients mask their updates and then fall silent."""
    attendance = Attendance(Masking(FixedPoint(), 0.6, 3, degree), (0, 0))
    there = attendance.share(range(number))
    attendance.mask(there)
    attendance.opened(attendance.open(there)[leavers:])
    return attendance.opens


@pytest.mark.parametrize(("number", "most"), [(5, 1), (10, 3), (20, 7), (30, 11), (100, 39)])
def test_clients_that_fall_silent_stop_a_sum_from_two_fifths_on(number, most):
    """Nobody can tell them from clients that lost their connection; the guide to privacy has these numbers."""
    assert silent(number, most)
    assert not silent(number, most + 1)
    assert most + 1 >= 0.4 * number
    assert all(silent(number, fewer) for fewer in range(most))
