"""Groups of clients with disjoint labels."""

import numpy as np
import pytest

from turnout import ConfigurationError
from turnout.data.partition import LabelGroups

LABELS = np.repeat(np.arange(10), 47)


def test_first_clients_share_the_first_group_of_labels_equally():
    rows = LabelGroups().assign(LABELS, 15, seed=0)
    held = np.array([np.bincount(LABELS[part], minlength=10) for part in rows])
    np.testing.assert_array_equal(held[:10], np.repeat([[0] * 4 + [47 // 10] * 6], 10, axis=0))
    np.testing.assert_array_equal(held[10:], np.repeat([[47 // 5] * 4 + [0] * 6], 5, axis=0))
    everything = np.concatenate(rows)
    assert len(np.unique(everything)) == len(everything)


def test_assignment_depends_on_the_seed():
    one, same, other = (LabelGroups().assign(LABELS, 15, seed) for seed in (0, 0, 1))
    assert all((a == b).all() for a, b in zip(one, same, strict=True))
    assert any((a != b).any() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LabelGroups(clients=(10,)), "clients: got .10,., needed one number for each of 2 groups"),
        (lambda: LabelGroups(clients=(10, 0)), "clients: got 0"),
        (lambda: LabelGroups(((0, 1), (1,))), "labels: got .* none of them in two groups"),
        (lambda: LabelGroups(((0, 1), ())), "labels: got .* at least one for each group"),
        (lambda: LabelGroups().assign(LABELS, 14, 0), "num_clients: got 14, needed as many as the groups have, 15"),
        (lambda: LabelGroups(((0, 77), (1,))).assign(LABELS, 15, 0), "labels: got 77, needed one of which each of 10"),
    ],
)
def test_invalid_arguments_raise(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
