"""Sparse graphs: whatever the number of neighbors, clients count the clients of a sum, and refuse fewer than the minimum."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from turnout.pieces.aggregation import PrivateSum, SecureSum
from turnout.protocol.secure.attendance import Attendance
from turnout.protocol.secure.local import secure_sum
from turnout.protocol.secure.masked_vectors import MaskedVectors
from turnout.protocol.secure.masker import VectorMasker

LENGTH = 4


class Sum:
    """One sum between machines with everybody in one process; the messages of each phase are kept.

    Args:
        masking: options.
        attendance: clients in each phase.
        number: of clients.
    """

    def __init__(self, masking, attendance, number):
        self.attendance, self.clients = attendance, attendance.share(range(number))
        self.values = {c: np.full(LENGTH, c + 1, np.uint32) for c in range(number)}
        self.maskers = {c: VectorMasker(masking) for c in self.values}
        self.messages = {
            ("train", c): masker.advertise(c, 0, lambda _, c=c: self.values[c], {})
            for c, masker in self.maskers.items()
        }
        self.told = {}
        self.vectors = MaskedVectors(masking, LENGTH, attendance, self)

    def report(self, client):
        raise NotImplementedError("masks need no report")

    def tensors(self, phase, client):
        return self.messages[phase, client]

    def inputs(self, phase, client):
        return self.told[phase, client]

    def phase(self, phase, clients, change=lambda inputs: inputs):
        """Ask clients for a phase; return those that answer."""
        answered = []
        for client, inputs in self.vectors.inputs(phase, clients).items():
            self.told[phase, client] = inputs
            answer = self.maskers[client].answer(phase, 0, change({n: value[0] for n, value in inputs.items()}), {})
            if answer is not None:
                self.messages[phase, client] = answer[0]
                answered.append(client)
        self.vectors.gathered(phase, answered)
        return answered

    def run(self):
        """Return the sum, and the clients in it."""
        clients = self.clients
        for phase in ("share", "mask", "open"):
            clients = self.phase(phase, self.attendance.ask(phase, clients) if phase != "share" else clients)
        self.attendance.gathered("open", clients)
        return self.vectors.total(clients)[0], self.attendance.used()


@given(
    degree=st.sampled_from([None, 2, 3, 4, 7, 20]),
    min_clients=st.integers(2, 12),
    number=st.integers(2, 12),
    threshold=st.sampled_from([0.51, 0.6, 1.0]),
)
def test_clients_accept_every_sum_that_the_settings_allow(degree, min_clients, number, threshold):
    """With as many clients as the minimum or more, all accept and the sum is right; with fewer, none is asked."""
    piece = SecureSum(fraction_bits=0, largest=1000.0, degree=degree, min_clients=min_clients, threshold=threshold)
    attendance = Attendance(piece.extra.masking, (0, 0))
    if number < min_clients:
        assert attendance.share(range(number)) == []
        return
    total, used = Sum(piece.masking, attendance, number).run()
    assert used == list(range(number))
    np.testing.assert_array_equal(total, number * (number + 1) // 2)


def fewer(inputs):
    """A server that lists one client less than there are."""
    return inputs | {"clients": inputs["clients"][inputs["clients"] != inputs["clients"][-1]]}


@pytest.mark.parametrize("phase", ["mask", "open"])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda inputs: {n: v for n, v in inputs.items() if n != "clients"},
            "no list of different clients called clients",
        ),
        (lambda inputs: inputs | {"clients": inputs["clients"][:2]}, "the server's list of the sum's clients lacks"),
        (fewer, "a sum of 7 clients, and by the run's settings it has 8 at least"),
    ],
)
def test_client_with_few_neighbors_checks_the_list_of_clients(phase, change, why, caplog):
    piece = SecureSum(fraction_bits=0, largest=1000.0, degree=2, min_clients=8)
    attendance = Attendance(piece.extra.masking, (0, 0))
    made = Sum(piece.masking, attendance, 8)
    clients = made.phase("share", made.clients)
    if phase == "open":
        clients = made.phase("mask", attendance.mask(clients))
        answered = made.phase("open", attendance.open(clients), change)
    else:
        answered = made.phase("mask", attendance.mask(clients), change)
    assert len(answered) <= (3 if change is fewer else 2)  # with that client as a neighbor, the list lacks it
    assert any(why in record.reason for record in caplog.records if hasattr(record, "reason"))


@pytest.mark.parametrize("degree", [2, 4, 20])
def test_noise_shares_go_with_few_neighbors(degree):
    """The minimum is that of the noise, 40 of 50 clients, and every client accepts its few neighbors."""
    piece = PrivateSum(
        norm=0.5, noise_multiplier=2.0, noise_shares=50, dropouts=10,
        secure=SecureSum(largest=1.0, fraction_bits=16, degree=degree),
    )  # fmt: skip
    assert piece.extra is not None
    made = Sum(piece.masking, Attendance(piece.extra.masking, (0, 0)), 50)
    assert len(made.phase("share", made.clients)) == 50


def test_sparse_sum_equals_the_sum_in_one_process():
    values = {c: np.full(LENGTH, c, np.uint32) for c in range(1, 9)}
    total, clients = secure_sum(values, bits=32, threshold=2, degree=2)
    assert clients == list(range(1, 9))
    assert torch.equal(torch.from_numpy(total.astype(np.int64)), torch.full((LENGTH,), 36))
