"""Plans of minibatches."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.shuffles import client_key, endless

from turnout.core.checks import ConfigurationError
from turnout.pieces.local import minibatches
from turnout.pieces.local.minibatches import Sampling, batches_per_pass, plan


def plan_for(
    sizes, clients, done, num_steps, batch_size, sampling: Sampling = "pass", drop_last=True, seed=0, version=4
):
    """The plan of some clients of a federation whose data lie end to end."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])[clients]
    return plan(
        offsets=offsets,
        sizes=np.asarray(sizes)[clients],
        clients=np.asarray(clients),
        versions=np.full(len(clients), version),
        done=np.asarray(done),
        num_steps=np.asarray(num_steps),
        batch_size=batch_size,
        sampling=sampling,
        drop_last=drop_last,
        seed=seed,
    ), offsets


def batches_of(planned, offsets, lane):
    """The minibatches of one client as lists of places in its own data."""
    rows = planned.examples[lane] - offsets[lane]
    return [list(row[:n]) for row, n in zip(rows, planned.counts[lane], strict=True) if n]


cohorts = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 60), st.integers(1, 9)), min_size=1, max_size=6)


@settings(max_examples=80, deadline=None)
@given(cohorts, st.integers(1, 20), st.sampled_from(["pass", "fresh"]), st.booleans(), st.integers(0, 2**40))
def test_plan_equals_drawing_one_minibatch_at_a_time(cohort, batch_size, sampling, drop_last, seed):
    sizes, done, num_steps = zip(*cohort, strict=True)
    clients = list(range(len(sizes)))
    planned, offsets = plan_for(sizes, clients, done, num_steps, batch_size, sampling, drop_last, seed)
    assert planned.examples.shape == (len(sizes), max(num_steps), batch_size)
    for k in clients:
        key = client_key(seed, k, 4 if sampling == "fresh" else None)
        before = done[k] if sampling == "pass" else 0
        expected = islice(endless(sizes[k], key, batch_size, drop_last), before, before + num_steps[k])
        assert batches_of(planned, offsets, k) == list(expected)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 50), st.integers(1, 20), st.booleans())
def test_pass_uses_every_example_at_most_once(size, batch_size, drop_last):
    in_pass = int(batches_per_pass(np.array([size]), batch_size, drop_last)[0])
    planned, offsets = plan_for([size], [0], [2 * in_pass], [in_pass], batch_size, drop_last=drop_last)
    used = [i for batch in batches_of(planned, offsets, 0) for i in batch]
    assert len(set(used)) == len(used)
    left_out = size % batch_size if drop_last and size > batch_size else 0
    assert len(used) == size - left_out


def test_rounds_continue_the_pass_of_the_previous_round():
    sizes = [50, 7, 33]
    whole, offsets = plan_for(sizes, [0, 1, 2], [0, 0, 0], [24, 24, 24], 8)
    parts = [plan_for(sizes, [0, 1, 2], [done] * 3, [4] * 3, 8, version=done)[0] for done in range(0, 24, 4)]
    for k in range(3):
        pieces = [batch for part in parts for batch in batches_of(part, offsets, k)]
        assert pieces == batches_of(whole, offsets, k)


@pytest.mark.parametrize("sampling", ["pass", "fresh", "replacement"])
def test_results_do_not_depend_on_other_clients(sampling):
    sizes = [50, 7, 33, 18]
    together, offsets = plan_for(sizes, [0, 1, 2, 3], [5, 0, 9, 2], [3, 6, 1, 4], 8, sampling)
    for k, (done, steps) in enumerate([(5, 3), (0, 6), (9, 1), (2, 4)]):
        alone, own = plan_for(sizes, [k], [done], [steps], 8, sampling)
        assert batches_of(alone, own, 0) == batches_of(together, offsets, k)


def test_shuffles_differ_by_pass_client_seed_and_round():
    def order(client=0, done=0, seed=0, version=0, sampling: Sampling = "pass"):
        planned, offsets = plan_for([40, 40], [client], [done], [1], 40, sampling, seed=seed, version=version)
        return tuple(batches_of(planned, offsets, 0)[0])

    passes = {order(), order(done=1), order(client=1), order(seed=1)}
    assert len(passes) == 4
    assert order(version=1) == order()  # only what was done so far counts
    assert order(version=1, sampling="fresh") != order(version=0, sampling="fresh")
    assert order(done=3, sampling="fresh") == order(sampling="fresh")


def test_shuffles_are_uniform():
    first = np.concatenate([plan_for([5], [0], [d], [1], 1)[0].examples.ravel() for d in range(0, 5000, 5)])
    assert np.abs(np.bincount(first, minlength=5) / len(first) - 0.2).max() < 4 * np.sqrt(0.16 / len(first))


def test_replacement_draws_independently_and_uniformly():
    planned, offsets = plan_for([3, 1000], [0, 1], [0, 0], [50, 50], 40, "replacement")
    small, large = planned.examples[0] - offsets[0], planned.examples[1] - offsets[1]
    share = np.bincount(small.ravel(), minlength=3) / small.size
    assert np.abs(share - 1 / 3).max() < 4 * np.sqrt(2 / 9 / small.size)
    assert large.min() >= 0
    assert large.max() < 1000
    assert (planned.counts == 40).all()
    assert len(np.unique(large[0])) < 1000


@pytest.mark.parametrize("sizes", [[7] * 40, [1, 90, 3, 1, 1, 200, 5, 40], [5, 1, 9]], ids=["equal", "unequal", "few"])
@pytest.mark.parametrize("block", [1, 64, 1000])
@pytest.mark.parametrize("sampling", ["pass", "fresh", "replacement"])
def test_clients_are_planned_in_blocks_of_any_size(sampling, block, sizes, monkeypatch):
    clients, steps = np.arange(len(sizes)), np.arange(len(sizes)) % 5
    one, _ = plan_for(sizes, clients, 3 * clients, steps, 4, sampling)
    monkeypatch.setattr(minibatches, "_BLOCK", block)
    other, _ = plan_for(sizes, clients, 3 * clients, steps, 4, sampling)
    np.testing.assert_array_equal(one.examples, other.examples)
    np.testing.assert_array_equal(one.counts, other.counts)


def test_a_client_may_have_more_passes_than_a_sort_key_has_segments():
    """70,000 passes over one example, beside clients of other sizes, which are sorted together."""
    steps = 70_000
    planned, offsets = plan_for([3, 1, 200], [0, 1, 2], [0, 0, 0], [2, steps, 2], 1)
    alone, _ = plan_for([3, 1, 200], [2], [0], [2], 1)
    assert (planned.examples[1] == offsets[1]).all()
    assert batches_of(planned, offsets, 2) == batches_of(alone, offsets[2:], 0)


def test_clients_with_fewer_steps_finish_early():
    planned, offsets = plan_for([30, 30], [0, 1], [0, 0], [5, 2], 8)
    assert list(planned.counts[1]) == [8, 8, 0, 0, 0]
    assert (planned.examples[1, 2:] == offsets[1]).all()  # padding is the client's own first example


def test_number_of_minibatches_of_a_pass():
    sizes = np.array([1, 15, 16, 17, 31, 32, 33])
    assert list(batches_per_pass(sizes, 16, drop_last=True)) == [1, 1, 1, 1, 1, 2, 2]
    assert list(batches_per_pass(sizes, 16, drop_last=False)) == [1, 1, 1, 2, 2, 2, 3]


def test_too_many_examples_to_shuffle_are_refused():
    with pytest.raises(ConfigurationError, match=r"4194304 examples.*at most 4194303.*sampling='replacement'"):
        plan_for([2**22], [0], [0], [1], 16)


@pytest.mark.parametrize("sampling", ["pass", "fresh", "replacement"])
def test_cohort_without_steps_has_no_minibatch(sampling):
    planned, _ = plan_for([5, 20], [0, 1], [3, 0], [0, 0], 4, sampling)
    assert planned.examples.shape == (2, 0, 4)
    assert planned.counts.shape == (2, 0)
    assert planned.full
