import torch

from turnout import ByExamples, DivideByClients, DivideByParticipants, DivideBySum

from ..tiny import federation, report

KNOWN = federation(8)
WEIGHTS = torch.tensor([1.0, 2.0, 5.0]).double()
REPORT = report([0, 3, 4], sizes=[10, 20, 70])


def applied(piece, weights=WEIGHTS, one=REPORT):
    return piece.apply(weights, one, 0, {}, KNOWN)[0].tolist()


def test_divisors():
    assert applied(DivideByClients()) == [1 / 8, 2 / 8, 5 / 8]
    assert applied(DivideByParticipants()) == [1 / 3, 2 / 3, 5 / 3]
    assert applied(DivideBySum()) == [1 / 8, 2 / 8, 5 / 8]
    assert applied(DivideBySum(), 2 * WEIGHTS) == [1 / 8, 2 / 8, 5 / 8]


def test_nobody_and_nothing_divide_to_nothing():
    for piece in (DivideByClients(), DivideByParticipants(), DivideBySum()):
        assert applied(piece, WEIGHTS[:0], report([])) == []
    assert applied(DivideBySum(), 0 * WEIGHTS) == [0.0, 0.0, 0.0]


def test_by_examples():
    assert applied(ByExamples()) == [10.0, 40.0, 350.0]
    assert ByExamples().client_weights(0, {}, KNOWN) is None  # only the report knows how many it has
