"""The coordinator with events given by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiny import federation, recipe, report

from turnout import (
    ALGORITHMS,
    ConfigurationError,
    average_all,
    compose,
    fedau,
    fedbuff,
    fednu,
    folb_two_set,
    scaffold_p,
)
from turnout.base import KnownInAdvance
from turnout.core.adapter import Adapter
from turnout.core.candidates import Candidates
from turnout.pieces.aggregation import FedStale
from turnout.pieces.local.measurements import LossRms
from turnout.pieces.selection import Oort, PowerOfChoice, RecentLoss
from turnout.pieces.weighting import DivideByClients
from turnout.protocol.choice import Choice
from turnout.protocol.cohorts import SelectedCohorts
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.federated_server import FederatedServer
from turnout.protocol.pace import Ask, Buffered, Drop, Gather, Rounds, SetTimer, Step
from turnout.protocol.scheduler import Scheduler

N, P = 6, 5
SHARES = (1 / N,) * N


class Here:
    """A choice in which all enrolled clients are present."""

    num_clients = N

    def available(self, clients, round):
        del round
        return clients < self.num_clients


def server(algorithm, pace, here=None) -> Coordinator:
    """A coordinator as a network has it."""
    here = here or Here()
    bound = pace.bind(N, algorithm)
    cohorts = SelectedCohorts(
        algorithm.selection,
        lambda version: Candidates(lambda ids: here.available(ids, version), here.num_clients, version, 0),
        lambda: np.arange(here.num_clients),
    )
    scheduler = Scheduler(bound, cohorts, Choice(here, bound, 0), patient=True)
    initial = torch.zeros(P, dtype=torch.float64)
    return Coordinator(FederatedServer(algorithm, initial, federation(N, P), cohorts), scheduler)


def told(coordinator, time) -> Any:
    """Return the next actions."""
    return coordinator.next(time)


def sent(batch, **seen):
    """Return the reports of a batch: updates that depend on client and version."""
    delta = torch.from_numpy(batch.clients + 0.5 * batch.versions)[:, None] * torch.arange(1.0, P + 1)
    reports = report(batch.clients, delta.double(), seen={name: value(batch) for name, value in seen.items()})
    return replace(reports, version=batch.versions)


def gradients(batch):
    """Different gradients for different clients."""
    return torch.cos(torch.from_numpy(batch.clients)[:, None] + torch.arange(P)).double()


def all_report(coordinator, ask):
    for task, client in zip(ask.tasks, ask.clients, strict=True):
        coordinator.scheduler.reported(1.0, client, task, ask.version)


def test_round_measures_selects_and_trains():
    coordinator = server(fednu(cohort_size=3), Rounds())
    coordinator.scheduler.start(0.0)
    measure = told(coordinator, 0.0)
    assert measure == Ask(range(N), list(range(N)), 0, "measure")
    assert told(coordinator, 0.0) is None
    all_report(coordinator, measure)
    gather = told(coordinator, 1.0)
    assert isinstance(gather, Gather)
    batch = coordinator.batch(gather)
    coordinator.gathered(batch, sent(batch, start_gradient=gradients))
    train = told(coordinator, 1.0)
    assert isinstance(train, Ask)
    assert (train.phase, train.clients) == ("train", sorted(set(coordinator.scheduler.cohort.tolist())))
    all_report(coordinator, train)
    step = told(coordinator, 1.0)
    assert isinstance(step, Step)
    batch = coordinator.batch(step)
    stepped = coordinator.step(batch, sent(batch, start_gradient=gradients))
    assert stepped.reports.client.tolist() == coordinator.scheduler.cohort.tolist()  # who was drawn twice counts twice
    assert coordinator.server.state.version == 1
    assert told(coordinator, 1.0).phase == "measure"


def test_preparation_happens_once_before_the_first_round():
    coordinator = server(scaffold_p(cohort_size=2), Rounds(deadline=9.0))
    coordinator.scheduler.start(0.0)
    prepare = told(coordinator, 0.0)
    assert prepare == Ask(range(N), list(range(N)), -1, "prepare")
    assert told(coordinator, 0.0) == SetTimer(0, 9.0)
    coordinator.scheduler.reported(1.0, 2, 2, -1)
    coordinator.scheduler.expired(9.0, 0)
    assert told(coordinator, 9.0) == Drop([0, 1, 3, 4, 5], [0, 1, 3, 4, 5], "late")
    gather = told(coordinator, 9.0)
    assert gather == Gather("prepare", (2,), (2,), (-1,))
    batch = coordinator.batch(gather)
    reports = report([2], torch.zeros(1, 0, dtype=torch.float64))
    coordinator.gathered(batch, replace(reports, extra={"control": torch.ones(1, P, dtype=torch.float64)}))
    torch.testing.assert_close(coordinator.server.shared()["control"], torch.full((P,), 1 / N, dtype=torch.float64))
    assert told(coordinator, 9.0).phase == "train"
    pace: Any = coordinator.scheduler.pace
    assert [pace.phases, coordinator.server.state.version] == [("prepare", "train"), 0]


@pytest.mark.parametrize("algorithm", [fednu(cohort_size=2), folb_two_set(cohort_size=2), scaffold_p(cohort_size=2)])
def test_buffer_has_no_phases(algorithm):
    with pytest.raises(
        ConfigurationError,
        match=r"Buffered trains and does nothing else, it cannot (measure|prepare): write the pace Rounds\(\)",
    ):
        Buffered(2).bind(N, algorithm)


def test_restart_between_measuring_and_training_changes_nothing():
    def until_trained(coordinator):
        train = told(coordinator, 1.0)
        all_report(coordinator, train)
        batch = coordinator.batch(told(coordinator, 1.0))
        coordinator.step(batch, sent(batch, start_gradient=gradients))
        return train, coordinator.server.state.params

    whole, again = (server(folb_two_set(cohort_size=4), Rounds()) for _ in range(2))
    whole.scheduler.start(0.0)
    all_report(whole, told(whole, 0.0))
    batch = whole.batch(told(whole, 1.0))
    whole.gathered(batch, sent(batch, start_gradient=gradients))
    groups = whole.state_groups()
    again.restore(lambda name: groups.get(name, {}))
    (train, params), (other, found) = until_trained(whole), until_trained(again)
    assert train == other
    assert torch.equal(params, found)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("scheduler.cohort", [0, 6], "schedule: client 6 of 6 clients"),
        ("scheduler.cohort", [-1, 2], "schedule: client -1 of 6 clients"),
        ("pace.open", [[0, 2, 9]], "schedule: a task with version 9 of the model, which is missing"),
    ],
)
def test_damaged_schedules_are_refused(name, value, message):
    whole, again = (server(fedbuff(cohort_size=2), Buffered(2)) for _ in range(2))
    whole.scheduler.start(0.0)
    told(whole, 0.0)
    groups = whole.state_groups()
    group, _, part = name.partition(".")
    groups[f"schedule.{group}"][part] = torch.tensor(value)
    with pytest.raises(ValueError, match=message):
        again.restore(lambda name: groups.get(name, {}))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 9999), waits=st.sampled_from(["never", "if_current"]))
def test_repeat_count_of_a_task_equals_that_at_the_step(seed, waits):
    """A network announces it with the task, and a simulation computes it at the step."""
    coordinator, rng = server(fedbuff(), Buffered(4, waits=waits)), np.random.default_rng(seed)
    coordinator.scheduler.start(0.0)
    repeats, versions, steps = {}, {}, 0
    while steps < 6:
        while (action := told(coordinator, 0.0)) is not None:
            if isinstance(action, Ask):
                repeats |= {order.task: order.repeat_index for order in coordinator.orders(action)}
                versions |= dict.fromkeys(action.tasks, action.version)
            elif isinstance(action, Step):
                batch = coordinator.batch(action)
                assert batch.repeat_index is not None
                assert batch.repeat_index.tolist() == [repeats[task] for task in batch.tasks.tolist()]
                coordinator.step(batch, sent(batch))
                steps += 1
        at_work = coordinator.scheduler.pace.open.task_of
        client = int(rng.choice(sorted(at_work)))
        task = at_work[client]
        if rng.random() < 0.8:
            coordinator.scheduler.reported(0.0, client, task, versions[task])
        else:
            coordinator.scheduler.died(0.0, client, task)


GROWING = [name for name in ALGORITHMS if name not in ("known_statistics", "fedstale")]  # which need known rates


@pytest.mark.parametrize("name", GROWING)
def test_growth_before_the_first_step_equals_a_larger_federation(name):
    adapters = (Adapter("layer", 0, 2, 1, 2, 2, 0.5),)
    algorithm = recipe(name, cohort_size=2)
    few, many = (replace(federation(number, P), adapters=adapters) for number in (N, N + 3))
    params = torch.zeros(P, dtype=torch.float64)
    found = algorithm.grown(algorithm.init(params, few), few, many)
    expected = algorithm.init(params, many)
    assert found.slots.keys() == expected.slots.keys()
    for place, state in expected.slots.items():
        for key, value in state.items():
            torch.testing.assert_close(found.slots[place][key], value, msg=f"{place}.{key}")


def test_means_over_clients_survive_growth():
    algorithm, few, many = scaffold_p(cohort_size=2), federation(N, P), federation(2 * N, P)
    state = algorithm.init(torch.zeros(P, dtype=torch.float64), few)
    state.slots["controls"]["control"] += 1.0
    assert algorithm.grown(state, few, many).slots["controls"]["control"].tolist() == [0.5] * P
    algorithm = ALGORITHMS["mifa"]()
    state = algorithm.init(torch.zeros(P, dtype=torch.float64), few)
    state.slots["aggregation"] |= {"table": torch.ones(N, P, dtype=torch.float64)}
    state.slots["aggregation"]["mean"] += 1.0
    slot = algorithm.grown(state, few, many).slots["aggregation"]
    torch.testing.assert_close(slot["mean"], slot["table"].mean(dim=0))


def test_first_interval_of_a_new_client_begins_at_its_enrollment():
    algorithm, few, many = fedau(cutoff=5), federation(N, P), federation(N + 1, P)
    state = replace(algorithm.init(torch.zeros(P, dtype=torch.float64), few), version=40)
    weighting = algorithm.grown(state, few, many).slots["weighting.0"]
    piece = algorithm.weighting[0]
    assert isinstance(piece, KnownInAdvance)
    omega = piece.client_weights(40, weighting, many)
    assert omega is not None
    assert omega.tolist() == [5.0] * N + [1.0]  # the others were away for eight times the cutoff


def test_clients_enroll_during_a_run():
    here = Here()
    coordinator = server(average_all(), Rounds(), here)
    coordinator.scheduler.start(0.0)
    for step in range(3):
        ask = told(coordinator, float(step))
        assert ask.clients == list(range(N + 2 * step))
        all_report(coordinator, ask)
        for _ in range(2):
            assert coordinator.enroll() == here.num_clients
            here.num_clients += 1
        batch = coordinator.batch(told(coordinator, float(step)))
        stepped = coordinator.step(batch, sent(batch))
        assert (
            coordinator.server.federation.num_clients == here.num_clients
        )  # N of the step is who has enrolled by then
        np.testing.assert_allclose(stepped.info["weights"], 1 / here.num_clients)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (
            ALGORITHMS["known_statistics"](rates=(0.5,) * N),
            "was given the rates of 6 clients, and the rate of a client",
        ),
        (
            fedau(groups=(0, 1) * 3),
            "groups has a number for each of 6 clients, and more have enrolled: write groups=None",
        ),
        (
            compose(DivideByClients(), FedStale(shares=SHARES)),
            "shares has a number for each of 6 clients, and more have enrolled",
        ),
        (ALGORITHMS["f3ast"](cohort_size=1, shares=SHARES), "write shares=None if clients may enroll at any time"),
        (compose(PowerOfChoice(1, 1, SHARES)), "write shares=None"),
        (compose(RecentLoss(1, 1, SHARES)), "write shares=None"),
        (compose(Oort(1, durations=(1.0,) * N), LossRms()), "write durations=None"),
    ],
)
def test_options_per_client_prevent_growth(algorithm, message):
    few = federation(N, P)
    state = algorithm.init(torch.zeros(P, dtype=torch.float64), few)
    with pytest.raises(ConfigurationError, match=message):
        algorithm.grown(state, few, federation(N + 1, P))
