"""Schedules compared with a naive simulation, with the paper's formula, and with laws of time."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.population import Bernoulli, Cyclic, Dropout, Group, Markov, Population, RecordedSpeed, Speed, Trace
from turnout.population.delay import Constant, Exponential, LogNormal, Uniform
from turnout.protocol.pace import Buffered, Rounds
from turnout.record.tasks import OUTCOMES
from turnout.simulation.schedule import Timeline, schedule

from .oracle import arrivals, protocol

FEDSTALEWEIGHT = Speed(groups=(Group(10, Uniform(1, 2)), Group(5, Uniform(8, 12))))


def rows(timeline: Timeline) -> list[tuple[float, int, int, int]]:
    """The used reports: arrival, client, version trained, version at the step."""
    tasks = {name: column[timeline.used].tolist() for name, column in timeline.tasks.items()}
    return list(zip(tasks["ended"], tasks["client"], tasks["version"], tasks["stepped"], strict=True))


def assert_same(one: Timeline, other: Timeline) -> None:
    np.testing.assert_array_equal(one.steps, other.steps)
    for name in one.tasks:
        np.testing.assert_array_equal(one.tasks[name], other.tasks[name], err_msg=name)


def most_at_once(timeline: Timeline) -> int:
    """The greatest number of tasks that were out at a time; one that ends makes room for one that starts then."""
    time = np.concatenate([timeline.tasks["ended"], timeline.tasks["asked"]])
    change = np.repeat([-1, 1], len(timeline.tasks["task"]))
    return int(np.cumsum(change[np.lexsort((change, time))]).max())


def assert_rows(found, expected) -> None:
    assert [row[1:] for row in found] == [row[1:] for row in expected]
    np.testing.assert_allclose([row[0] for row in found], [row[0] for row in expected], rtol=1e-12)


@pytest.mark.parametrize("buffer_size", [1, 5, 23])
def test_continuous_clients_equal_the_naive_simulation(buffer_size):
    found = schedule(Buffered(buffer_size), Population(speed=FEDSTALEWEIGHT), 15, until=400, seed=3)
    assert_rows(rows(found), arrivals(FEDSTALEWEIGHT.bind(15, 3), 15, buffer_size, 400))


@settings(max_examples=40, deadline=None)
@given(
    num_clients=st.integers(2, 9),
    buffer_size=st.integers(1, 9),
    waits=st.sampled_from(["never", "if_current", "always"]),
    max_staleness=st.none() | st.integers(0, 3),
    drops_out=st.booleans(),
    seed=st.integers(0, 99),
)
def test_client_protocol_equals_the_naive_simulation(num_clients, buffer_size, waits, max_staleness, drops_out, seed):
    buffer_size = buffer_size if waits == "never" else min(buffer_size, num_clients)
    speed = Speed(LogNormal(1, 0.8), upload=Exponential(0.2), spread=0.7)
    dropout = Dropout(0.2, 0.05) if drops_out else None
    found = schedule(
        Buffered(buffer_size, max_staleness=max_staleness, waits=waits),
        Population(speed=speed, dropout=dropout),
        num_clients,
        steps=30,
        seed=seed,
    )
    bound, dead = speed.bind(num_clients, seed), None if dropout is None else dropout.bind(seed)
    used, dropped = protocol(bound, dead, num_clients, buffer_size, waits, max_staleness, 30)
    assert_rows(rows(found), used)
    lost = {name: column[~found.used].tolist() for name, column in found.tasks.items()}
    whys = [OUTCOMES[outcome] for outcome in lost["outcome"]]
    assert list(zip(lost["client"], whys, strict=True)) == [row[1:] for row in dropped]
    np.testing.assert_allclose(lost["ended"], [row[0] for row in dropped], rtol=1e-12)


@pytest.mark.parametrize("buffer_size", [1, 5, 16])
def test_equation_6_of_fedstaleweight_holds(buffer_size):
    # E[tau_i] = (sum_j r_j / r_i - 1) / b for clients who never wait, with rates that no small numbers relate.
    seconds = np.sqrt([2, 3, 5, 7, 11, 13, 17, 190, 230, 290])
    speed = Speed(groups=tuple(Group(1, Constant(float(s))) for s in seconds))
    found = schedule(Buffered(buffer_size), Population(speed=speed), 10, until=5_000).contributions()
    rate = 1 / seconds
    np.testing.assert_allclose(found["mean_staleness"], (rate.sum() / rate - 1) / buffer_size, rtol=0.03, atol=0.02)
    np.testing.assert_allclose(found["share"], rate / rate.sum(), rtol=0.01)


def test_equation_6_holds_on_average_for_random_speeds():
    found = schedule(Buffered(5), Population(speed=FEDSTALEWEIGHT), 15, until=3_000).contributions()
    rate = 1 / np.array([1.5] * 10 + [10.0] * 5)
    np.testing.assert_allclose(found["mean_staleness"], (rate.sum() / rate - 1) / 5, rtol=0.04)


def test_cohort_sized_buffer_with_equal_delays_is_a_synchronous_round():
    population = Population(speed=Speed(Constant(3), upload=Constant(2)))
    one = schedule(Buffered(8, waits="always"), population, 8, steps=20)
    assert_same(one, schedule(Rounds(), population, 8, steps=20))
    assert_same(one, schedule(Buffered(8, waits="if_current"), population, 8, steps=20))
    np.testing.assert_array_equal(one.steps, np.arange(1, 21) * 5.0)
    assert (one.tasks["staleness"] == 0).all()


def test_simultaneous_reports_are_ordered_by_task():
    found = schedule(Buffered(2), Population(speed=Speed(Constant(1))), 3, steps=6)
    # 0 and 1 fill the buffer; 2 begins the next one, and so on: the version known at second t is what came before.
    assert rows(found)[:6] == [(1, 0, 0, 0), (1, 1, 0, 0), (1, 2, 0, 1), (2, 0, 0, 1), (2, 1, 1, 2), (2, 2, 1, 2)]


@pytest.mark.parametrize("reselect", [False, True])
@pytest.mark.parametrize("waits", ["never", "if_current", "always"])
def test_concurrency_is_respected_and_used(reselect, waits):
    pace = Buffered(4, concurrency=6, reselect=reselect, waits=waits)
    found = schedule(pace, Population(speed=FEDSTALEWEIGHT), 15, until=500)
    assert most_at_once(found) == 6
    work = (found.tasks["ended"] - found.tasks["asked"]).sum() / found.steps[-1]
    if waits == "never" or reselect:
        assert work > 5.5  # only what is under way at the end is missing
    if not reselect:
        assert set(found.tasks["client"]) < set(range(15))


@pytest.mark.parametrize("num_clients", [40, 3000])  # listed, and searched
def test_reselection_is_uniform(num_clients):
    speed = Speed(Uniform(1, 2))
    found = schedule(Buffered(4, num_clients // 8, reselect=True), Population(speed=speed), num_clients, steps=3_000)
    counts = found.contributions()["contributions"]
    mean = counts.mean()
    assert counts.var() < 1.2 * mean  # at most that of a Poisson distribution, but for chance
    assert abs(counts - mean).max() < 6 * math.sqrt(mean) + 1


def test_staleness_grows_with_clients_in_flight():
    # Every report waits for about concurrency / b others: their mean staleness, whoever is asked.
    for concurrency in (10, 40):
        pace = Buffered(5, concurrency, reselect=True)
        found = schedule(pace, Population(speed=Speed(Exponential(1))), 200, steps=2500)
        staleness = found.tasks["staleness"][found.used]
        assert staleness[1000:].mean() == pytest.approx((concurrency - 1) / 5, rel=0.03)


@pytest.mark.parametrize("availability", [Markov(mean=0.4, join=0.2), Cyclic(mean=0.5, period=10)])
@pytest.mark.parametrize("pace", [Buffered(3, 10), Buffered(3, 10, reselect=True, waits="always"), Rounds(20, 1.5)])
@pytest.mark.parametrize("num_clients", [30, 1200])
def test_clients_train_only_while_available(availability, pace, num_clients):
    population = Population(availability, Speed(LogNormal(4, 1)), seconds_per_round=5.0)
    found = schedule(pace, population, num_clients, until=500, cohort_size=6)
    bound = availability.bind(num_clients)
    there = np.stack([bound.available(np.arange(num_clients), t) for t in range(102)])
    client, asked, ended = (found.tasks[name] for name in ("client", "asked", "ended"))
    left = found.tasks["outcome"] == OUTCOMES.index("left")
    assert left.sum() > 10
    assert found.used.sum() > 150
    for c, start, end in zip(client, asked, ended, strict=True):
        # What happens in the very moment that a round begins still belongs to the one before.
        last = math.ceil(end / 5) - 1
        assert there[min(int(start // 5), max(last, 0)) : last + 1, c].all()
    for c, end in zip(client[left], ended[left], strict=True):
        assert end % 5 == 0
        assert not there[round(end / 5), c]


def test_free_slots_go_to_arriving_clients():
    trace = Trace(((0, 0, 100), (1, 2, 100), (2, 4, 6), (3, 50, 60)))
    found = schedule(Buffered(1), Population(trace, Speed(Constant(1)), seconds_per_round=10.0), 4, until=999)
    first = [found.tasks["asked"][found.tasks["client"] == c].min() for c in range(4)]
    assert first == [0, 20, 40, 500]
    assert found.tasks["ended"][found.tasks["client"] == 2].max() == 60


def test_availability_rounds_follow_server_rounds_without_a_clock():
    found = schedule(Rounds(), Population(Bernoulli(mean=0.3), Speed(Constant(2))), 10, steps=400)
    bound = Bernoulli(mean=0.3).bind(10)
    counts = []
    for version in range(400):
        there = np.flatnonzero(bound.available(np.arange(10), version)).tolist()
        assert found.tasks["client"][found.tasks["version"] == version].tolist() == there
        counts.append(len(there))
    assert 0 in counts  # empty rounds take no time
    np.testing.assert_allclose(np.diff(found.steps, prepend=0.0), 2.0 * (np.array(counts) > 0))


def test_empty_round_lasts_until_its_deadline():
    nobody_at_first = Trace(((0, 3, 9),), repeat=False)
    found = schedule(Rounds(deadline=7.0), Population(nobody_at_first, Speed(Constant(2))), 1, steps=4)
    assert found.steps.tolist() == [7, 14, 21, 23]


def test_round_without_clients_waits_for_the_clock():
    later = Trace(((0, 3, 9),), repeat=False)
    found = schedule(Rounds(), Population(later, Speed(Constant(2)), seconds_per_round=10), 1, until=40)
    assert found.tasks["asked"].tolist() == [30, 32, 34, 36, 38]


def test_report_at_the_deadline_counts_and_a_later_one_does_not():
    speed = RecordedSpeed(((0, 1.0), (1, 2.0), (2, 2.5)))
    found = schedule(Rounds(deadline=2.0), Population(speed=speed), 3, steps=2)
    assert rows(found) == [(1, 0, 0, 0), (2, 1, 0, 0), (3, 0, 1, 1), (4, 1, 1, 1)]
    assert found.outcomes()["late"] == 2


def test_report_at_the_moment_of_departure_counts():
    trace = Trace(((0, 0, 1), (1, 0, 1)), repeat=False)
    speed = RecordedSpeed(((0, 5.0), (1, 5.5)))
    found = schedule(Buffered(1), Population(trace, speed, seconds_per_round=5.0), 2, until=20)
    assert rows(found) == [(5, 0, 0, 0)]
    assert found.outcomes()["left"] == 2  # client 1, and client 0 who had just been asked again


def test_over_selection_drops_the_slowest_clients():
    found = schedule(Rounds(over_selection=1.5), Population(speed=FEDSTALEWEIGHT), 15, steps=200, cohort_size=10)
    late = found.tasks["outcome"] == OUTCOMES.index("late")
    assert late.sum() == 200 * 5
    assert (found.tasks["client"][late] >= 10).all()
    assert most_at_once(found) == 15
    np.testing.assert_array_equal(np.bincount(found.tasks["stepped"][found.used]), 10)


def test_cohorts_are_uniform_with_the_requested_size():
    found = schedule(Rounds(), Population(speed=Speed()), 50, steps=1000, cohort_size=5)
    np.testing.assert_array_equal(np.bincount(found.tasks["stepped"]), 5)
    counts = found.contributions()["contributions"]
    assert abs(counts - 100).max() < 6 * math.sqrt(100)


def test_drop_out_has_the_requested_probability():
    population = Population(speed=Speed(Constant(2)), dropout=Dropout(0.3))
    found = schedule(Buffered(5), population, 20, until=2000)
    died = found.tasks["outcome"] == OUTCOMES.index("died")
    n = len(died)
    assert died.mean() == pytest.approx(0.3, abs=5 * math.sqrt(0.21 / n) + 20 / n)
    assert (found.tasks["ended"] - found.tasks["asked"])[died].max() < 2.0


def test_steps_of_work_take_time():
    speed = Speed(Constant(1), upload=Constant(10))
    assert schedule(Rounds(), Population(speed=speed), 2, steps=1, num_steps=7).steps[0] == 17
    own = schedule(Buffered(1), Population(speed=speed), 2, steps=2, num_steps=np.array([3, 5]))
    assert own.steps.tolist() == [13, 15]
    by_version = schedule(
        Rounds(), Population(speed=speed), 2, steps=3, num_steps=lambda clients, t: clients + 1 + 10 * t
    )
    assert by_version.steps.tolist() == [12, 34, 66]


def test_sizes_of_messages_take_time():
    speed = Speed(Constant(1), upload_bandwidth=10.0, download_bandwidth=100.0)
    found = schedule(Rounds(), Population(speed=speed), 2, steps=1, bytes_up=50, bytes_down=200)
    assert found.steps[0] == 8


@pytest.mark.parametrize("pace", [Buffered(4, 30, reselect=True), Rounds(10, 1.2)])
def test_schedule_depends_on_the_seed(pace):
    population = Population(Markov(mean=0.5), FEDSTALEWEIGHT, Dropout(0.1), seconds_per_round=3.0)
    one, again, other = (schedule(pace, population, 50, until=200, seed=seed) for seed in (0, 0, 1))
    assert_same(one, again)
    assert one.steps.tolist() != other.steps.tolist()


def test_task_durations_do_not_depend_on_the_pace():
    took = []
    for pace in (Buffered(3), Buffered(7, waits="if_current"), Rounds()):
        tasks = schedule(pace, Population(speed=FEDSTALEWEIGHT), 15, until=300).tasks
        mine = tasks["client"] == 12
        took.append((tasks["ended"] - tasks["asked"])[mine][:10])
    np.testing.assert_allclose(took[0], took[1])
    np.testing.assert_allclose(took[0], took[2])


def test_tasks_end_once_and_have_consecutive_numbers():
    population = Population(Markov(mean=0.5), FEDSTALEWEIGHT, Dropout(0.1), seconds_per_round=3.0)
    tasks = schedule(Buffered(4, max_staleness=3), population, 50, until=300).tasks
    assert len(np.unique(tasks["task"])) == len(tasks["task"])
    assert tasks["task"].max() + 1 - len(tasks["task"]) <= 50 + 3  # at work or in the buffer at the end
    assert (tasks["ended"] >= tasks["asked"]).all()
    assert sorted(np.unique(tasks["outcome"])) == [0, *(OUTCOMES.index(why) for why in ("stale", "died", "left"))]


def test_contributions_are_counted():
    found = schedule(Buffered(1), Population(speed=RecordedSpeed(((0, 1.0), (1, 2.5), (2, 99.0)))), 3, until=5.2)
    table = found.contributions()
    assert table["client"].tolist() == [0, 1, 2]
    assert table["contributions"].tolist() == [5, 2, 0]
    assert table["tasks"].tolist() == [5, 2, 0]
    np.testing.assert_allclose(table["share"], [5 / 7, 2 / 7, 0])
    # Steps at 1, 2, 2.5 (client 1's), 3, 4, and two at 5, client 1's first, because it was asked before client 0 was.
    np.testing.assert_allclose(table["mean_staleness"], [(0 + 0 + 1 + 0 + 1) / 5, (2 + 2) / 2, np.nan])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"until and steps are both left out, so there is no end"),
        ({"until": 0}, r"until: got 0, needed a finite number > 0"),
        ({"steps": 0}, r"steps: got 0, needed a whole number >= 1"),
        ({"steps": 1, "cohort_size": 0}, r"cohort_size: got 0, needed a whole number >= 1"),
        ({"steps": 1, "num_clients": 0}, r"num_clients: got 0, needed a whole number >= 1"),
        ({"steps": 1, "population": Population()}, r"the population has no speed, so nothing takes time"),
        (
            {"steps": 1, "population": Population(Markov(), Speed())},
            r"Buffered takes server steps whenever reports arrive, so availability needs rounds.*seconds_per_round=",
        ),
    ],
)
def test_invalid_schedules_are_refused(options, message):
    options = {"pace": Buffered(1), "population": Population(speed=Speed()), "num_clients": 3} | options
    with pytest.raises(ValueError, match=message):
        schedule(**options)


@pytest.mark.parametrize(
    ("seconds_per_round", "instead"),
    [(None, "availability, or"), (1.0, r"or longer rounds of it \(seconds_per_round\), or")],
)
def test_federation_without_future_clients_is_refused(seconds_per_round, instead):
    trace = Trace(((0, 0, 3),), repeat=False)
    message = f"no client has worked for 10000 rounds of availability in a row.* {instead} end the run before"
    with pytest.raises(ValueError, match=message):
        schedule(Rounds(), Population(trace, Speed(), seconds_per_round=seconds_per_round), 2, steps=20_000)


def test_impossible_first_step_of_all_clients_is_refused():
    """Client 2 is never available, and the others wait for its report."""
    population = Population(Trace(((0, 0, 9), (1, 0, 9))), Speed(Constant(1.0)), seconds_per_round=5.0)
    message = r"every client \(starts_with_all\), and 1 client sent none for 10000 rounds of .* client 2 among them"
    with pytest.raises(ValueError, match=message):
        schedule(Buffered(1, starts_with_all=True), population, 3, steps=2)
    assert schedule(Buffered(1), population, 3, steps=2).contributions()["contributions"].tolist() == [1, 1, 0]
