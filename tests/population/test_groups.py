"""Groups of clients."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.population import Group
from turnout.population.delay import Exponential
from turnout.population.speed.groups import assign


def test_last_group_has_the_last_clients():
    np.testing.assert_array_equal(assign((Group(10), Group(5)), 15, False, 0), [0] * 10 + [1] * 5)


@given(
    shares=st.lists(st.floats(0.01, 100), min_size=1, max_size=6),
    num_clients=st.integers(1, 300),
    seed=st.integers(0, 9),
)
def test_groups_cover_all_clients_by_their_shares(shares, num_clients, seed):
    groups = [Group(share) for share in shares]
    group = assign(groups, num_clients, False, seed)
    assert (np.diff(group) >= 0).all()
    sizes = np.bincount(group, minlength=len(shares))
    assert sizes.sum() == num_clients
    np.testing.assert_allclose(sizes, num_clients * np.array(shares) / sum(shares), atol=1.0 + 1e-9)
    shuffled = assign(groups, num_clients, True, seed)
    np.testing.assert_array_equal(np.sort(shuffled), group)


def test_shuffling_depends_only_on_the_seed():
    groups = (Group(1), Group(1))
    one = assign(groups, 100, True, 3)
    np.testing.assert_array_equal(one, assign(groups, 100, True, 3))
    assert (one != assign(groups, 100, True, 4)).any()
    assert (one != assign(groups, 100, False, 3)).any()


def test_named_clients_join_their_group_and_others_by_share():
    group = assign((Group(clients=(0, 4)), Group(1), Group(3)), 6, False, 0)
    np.testing.assert_array_equal(group, [0, 1, 2, 2, 0, 2])


def test_all_clients_can_be_named():
    np.testing.assert_array_equal(assign((Group(clients=(1,)), Group(clients=(2, 0))), 3, False, 0), [1, 0, 1])


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ((Group(clients=(0, 7)), Group()), r"clients of group 0: got 7, needed less than 4"),
        ((Group(clients=(0, 0)), Group()), r"clients of group 0: a client is named twice: name each once"),
        (
            (Group(clients=(0,)), Group(clients=(0,), name="slow"), Group()),
            r"clients of group slow: a client is named twice",
        ),
        ((Group(clients=(0, 1)),), r"no group has client 2: name all of 0\.\.3, or add a group with a share"),
    ],
)
def test_invalid_clients_are_refused(groups, message):
    with pytest.raises(ValueError, match=message):
        assign(groups, 4, False, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 0}, r"share: got 0, needed a finite number > 0"),
        ({"compute": 3}, r"compute: got 3, needed a distribution of delays\. Write delay\.Constant\(3\)"),
        ({"upload": Exponential}, r"upload: got .*Exponential.*Write delay\.Uniform\(1, 2\)"),
        ({"upload_bandwidth": 0}, r"upload_bandwidth: got 0, needed a finite number > 0"),
        ({"clients": ()}, r"clients: got \(\), needed names or numbers, or None to go by share"),
        ({"clients": (-1,)}, r"clients: got -1, needed a whole number >= 0\. Client numbers start at 0"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        Group(**options)
