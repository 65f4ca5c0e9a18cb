"""Speeds of clients."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.population import Group, Speed
from turnout.population.delay import Constant, Exponential, LogNormal, Uniform
from turnout.record.describe import describe

FEDSTALEWEIGHT = Speed(groups=(Group(10, Uniform(1, 2)), Group(5, Uniform(8, 12))))


def tasks(num_clients: int, each: int) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(np.arange(num_clients), each), np.tile(np.arange(each), num_clients)


def test_default_speeds_are_equal():
    took = Speed(compute=Uniform(1, 2), upload=Constant(3), download=Constant(4)).bind(5).seconds(*tasks(5, 2000))
    assert took.compute.min() >= 1
    assert took.compute.max() <= 2
    assert took.compute.mean() == pytest.approx(1.5, abs=0.02)
    np.testing.assert_array_equal(took.upload, 3)
    np.testing.assert_array_equal(took.download, 4)
    np.testing.assert_array_equal(took.total, took.download + took.compute + took.upload)


def test_slow_clients_are_the_last_ones():
    clients, numbers = tasks(15, 200)
    compute = FEDSTALEWEIGHT.bind(15).seconds(clients, numbers).compute.reshape(15, 200)
    assert (compute[:10] <= 2).all()
    assert (compute[:10] >= 1).all()
    assert (compute[10:] >= 8).all()
    assert (compute[10:] <= 12).all()
    np.testing.assert_allclose(FEDSTALEWEIGHT.bind(15).seconds_per_step, [1.5] * 10 + [10.0] * 5)


def test_options_omitted_by_a_group_equal_the_common_ones():
    speed = Speed(compute=Constant(7), upload=Constant(2), groups=(Group(1, Constant(1)), Group(1, upload=Constant(9))))
    took = speed.bind(2).seconds(np.arange(2), np.zeros(2, dtype=np.int64))
    np.testing.assert_array_equal(took.compute, [1, 7])
    np.testing.assert_array_equal(took.upload, [2, 9])


def test_compute_per_step_and_per_task():
    clients, steps = np.arange(3), np.array([1, 5, 0])
    once = np.zeros(3, dtype=np.int64)
    per_step = Speed(Uniform(1, 2)).bind(3)
    one = per_step.seconds(clients, once).compute
    np.testing.assert_array_equal(per_step.seconds(clients, once, steps).compute, one * steps)
    per_task = Speed(Uniform(1, 2), per="task").bind(3)
    np.testing.assert_array_equal(per_task.seconds(clients, once, steps).compute, one)


def test_transfer_time_is_bytes_over_bandwidth():
    speed = Speed(upload=Constant(1), upload_bandwidth=100, groups=(Group(), Group(download_bandwidth=50))).bind(2)
    took = speed.seconds(np.arange(2), np.zeros(2, dtype=np.int64), bytes_up=250, bytes_down=1000)
    np.testing.assert_allclose(took.upload, [3.5, 3.5])
    np.testing.assert_allclose(took.download, [0, 20])
    np.testing.assert_allclose(speed.communication_quantile(0.99, bytes_up=250, bytes_down=1000), [3.5, 23.5])


@pytest.mark.parametrize("seed", [0, 1])
def test_factor_is_drawn_once_per_client(seed):
    bound = Speed(Constant(2), upload=Constant(3), spread=0.8, link_spread=0.3).bind(20_000, seed)
    first = bound.seconds(np.arange(20_000), np.zeros(20_000, dtype=np.int64))
    later = bound.seconds(np.arange(20_000), np.full(20_000, 99))
    np.testing.assert_array_equal(first.compute, later.compute)
    np.testing.assert_array_equal(first.compute, bound.seconds_per_step)
    for seconds, median, spread in ((first.compute, 2, 0.8), (first.upload, 3, 0.3)):
        assert np.median(seconds) == pytest.approx(median, rel=0.03)
        assert np.log(seconds).std() == pytest.approx(spread, rel=0.03)
    assert abs(np.corrcoef(np.log(first.compute), np.log(first.upload))[0, 1]) < 0.04


def test_parts_of_a_task_are_independent():
    took = Speed(Exponential(1), upload=Exponential(1), download=Exponential(1)).bind(100).seconds(*tasks(100, 200))
    correlation = np.corrcoef([took.download, took.compute, took.upload])
    assert (np.abs(correlation - np.eye(3)) < 0.04).all()


@given(
    some=st.lists(st.tuples(st.integers(0, 14), st.integers(0, 10**6)), min_size=1, max_size=30),
    seed=st.integers(0, 3),
)
def test_duration_depends_only_on_seed_client_and_task(some, seed):
    speed = Speed(
        LogNormal(1, 0.5),
        upload=Exponential(1),
        groups=(Group(2), Group(1, Uniform(8, 12)), Group(1, download=LogNormal(2, 1))),
        spread=0.4,
        link_spread=0.2,
    )
    clients, numbers = np.array(some).T
    together = speed.bind(15, seed).seconds(clients, numbers, 3).total
    for i in range(len(some)):
        alone = speed.bind(15, seed).seconds(clients[i : i + 1], numbers[i : i + 1], 3).total
        assert alone[0] == together[i]


def test_durations_differ_between_seeds():
    one, other = (FEDSTALEWEIGHT.bind(15, seed).seconds(*tasks(15, 3)).total for seed in (0, 1))
    assert (one != other).all()


def test_empty_query_returns_nothing():
    nobody = np.zeros(0, dtype=np.int64)
    assert FEDSTALEWEIGHT.bind(15).seconds(nobody, nobody).total.shape == (0,)
    assert Speed().bind(15).seconds(nobody, nobody).total.shape == (0,)


def test_communication_quantile_is_that_of_the_sum_of_both_directions():
    bound = Speed(upload=Exponential(1), download=LogNormal(1, 0.5), groups=(Group(), Group(upload=Constant(2)))).bind(
        2
    )
    clients, numbers = tasks(2, 100_000)
    took = bound.seconds(clients, numbers)
    both = (took.upload + took.download).reshape(2, -1)
    for q in (0.5, 0.99):
        at = bound.communication_quantile(q)
        assert (both <= at[:, None]).mean(axis=1) == pytest.approx([q, q], abs=0.005)
    assert bound.communication_quantile(0.5)[1] == pytest.approx(3.0)


def test_folbs_communication_delay_is_exponential():
    bound = Speed(upload=Exponential(2)).bind(3)
    np.testing.assert_allclose(bound.communication_quantile(0.99), 2 * math.log(100))


def test_groups_from_a_table(tmp_path: Path):
    file = tmp_path / "devices.csv"
    file.write_text("profile,share,seconds_per_step\nphone,2,0.5\nboard,1,4\n")
    speed = Speed(groups=str(file))
    np.testing.assert_allclose(speed.bind(6).seconds_per_step, [0.5] * 4 + [4] * 2)
    assert Speed(groups=file) == speed  # type: ignore[arg-type]
    assert describe(speed)["groups"] == str(file)


def test_groups_can_be_shuffled():
    bound = Speed(groups=(Group(1, Constant(1)), Group(1, Constant(2))), shuffle_groups=True).bind(50, 0)
    assert sorted(bound.seconds_per_step) == [1.0] * 25 + [2.0] * 25
    assert (np.diff(bound.seconds_per_step) < 0).any()


def test_memory_of_equal_clients_is_constant():
    assert Speed().bind(10**9).group.strides == (0,)


def test_descriptions_have_every_option():
    assert describe(Speed(Uniform(1, 2), groups=(Group(3, Constant(4)),))) == {
        "kind": "Speed",
        "compute": {"kind": "Uniform", "low": 1, "high": 2},
        "upload": {"kind": "Constant", "seconds": 0.0},
        "download": {"kind": "Constant", "seconds": 0.0},
        "per": "step",
        "upload_bandwidth": None,
        "download_bandwidth": None,
        "groups": [
            {
                "kind": "Group",
                "share": 3,
                "compute": {"kind": "Constant", "seconds": 4},
                "upload": None,
                "download": None,
                "upload_bandwidth": None,
                "download_bandwidth": None,
                "clients": None,
                "name": None,
            }
        ],
        "shuffle_groups": False,
        "spread": 0.0,
        "link_spread": 0.0,
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compute": 3}, r"compute: got 3, needed a distribution of delays\. Write delay\.Constant\(3\)"),
        ({"upload": "slow"}, r"upload: got 'slow', needed a distribution of delays"),
        ({"per": "epoch"}, r"unknown value of per 'epoch'"),
        ({"upload_bandwidth": 0}, r"upload_bandwidth: got 0, needed a finite number > 0"),
        ({"spread": -1}, r"spread: got -1, needed a finite number >= 0"),
        ({"spread": 51.0}, r"spread: got 51.0, needed at most 50, where factors are e\^-400 to e\^400 already"),
        ({"link_spread": float("inf")}, r"link_spread: got inf, needed a finite number >= 0"),
        ({"groups": (Uniform(1, 2),)}, r"groups: got Uniform.*, needed Group\(share, compute=\.\.\.\) for each"),
        ({"compute": Constant(0)}, r"compute, upload and download all take 0 seconds"),
        ({"groups": (Group(), Group(1, Constant(0)))}, r"compute, upload and download all take 0 seconds"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        Speed(**options)


def test_seconds_per_step_is_refused_for_compute_per_task():
    with pytest.raises(
        ValueError, match=r"the time of a local step is not known.*write Speed\(compute=\.\.\., per='step'\)"
    ):
        _ = Speed(per="task").bind(3).seconds_per_step


def test_quantile_outside_0_1_is_refused():
    with pytest.raises(ValueError, match=r"q: got 99, needed a probability"):
        Speed().bind(3).communication_quantile(99)
