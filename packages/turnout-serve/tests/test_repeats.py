"""What a server gains by asking again: clients remember what they have sent to sums, over restarts of both sides."""

import logging

import numpy as np
import pytest
import torch

import turnout as to
from turnout.core.checks import CheckpointError
from turnout.evaluation.queries import Question
from turnout.pieces.aggregation import SecureSum
from turnout.protocol.secure import masker
from turnout.protocol.secure.overlap import apart, as_bits, is_too_similar
from turnout_serve.client.repeats import Repeats
from turnout_serve.client.sum_history import OpenedSum, SumHistory
from turnout_serve.server.run import summed_survey
from turnout_serve.wire.assignment import Assignment, plain_row

from .test_privacy import backup, restored
from .test_summed_answers import LABELS, SECURE, N, ask, run, there
from .world import FIVE, REPEATS

EVERYONE = to.Population(to.availability.Everyone())
HISTOGRAM = Question("label_histogram")
ROUNDS = 6


@pytest.fixture
def updates(monkeypatch):
    """The updates that clients masked, by (client, version)."""
    found, announce = {}, masker.Masker.announce

    def noted(self, client, version, report, memory):
        found.setdefault((client, version), report.delta[0].double().clone())
        return announce(self, client, version, report, memory)

    monkeypatch.setattr(masker.Masker, "announce", noted)
    return found


@pytest.fixture
def deployed(world, folder):
    """Clients with a single minibatch, whose updates are the same whenever they train from the same model."""
    algorithm = to.average_all(to.Sgd(lr=0.3, steps=2, batch_size=64), also=(SecureSum(largest=8.0, fraction_bits=20),))
    experiment = to.Experiment(FIVE, to.models.Logistic(), algorithm, EVERYONE, rounds=ROUNDS, evaluate_every=ROUNDS)
    return world(experiment, homes=folder / "homes")


def until(deployed, version, homes=None, turns=150):
    """Let clients take turns until the server has taken so many steps; return whether it has."""
    for _ in range(turns):
        for home in deployed.homes if homes is None else homes:
            if deployed.host.driver.version >= version:
                return True
            if home.over is None:
                home.step(deployed.host)
        deployed.clock.now += 0.1
        deployed.host.pump()
    return deployed.host.driver.version >= version


def begins(deployed):
    """Let clients take turns until the first step has begun."""
    while deployed.host.driver.run is None or not any(deployed.host.driver.tasks.training()):
        assert not until(deployed, 1, turns=1)


def leaves(deployed, home):
    deployed.host.call(home.client.leave())
    home.over = "left"


def steps(deployed):
    """The number of participants of each step."""
    return deployed.host.driver.ledger.history.rounds["num_participants"].to_pylist()


def test_restored_server_gets_no_sum_without_one_client(deployed, updates):
    """The attack: after a restore, the same step again with one client absent. Its update is never a difference."""
    before = deployed.host.driver.params.double()
    begins(deployed)
    copy = backup(deployed)
    assert until(deployed, 1)
    first = deployed.host.driver.params.double()
    restored(deployed, copy)
    assert deployed.host.driver.version == 0
    for row, home in enumerate(deployed.homes):
        deployed.homes[row] = home.reborn()  # what they remember is on their disks
    leaves(deployed, deployed.homes[4])
    assert until(deployed, ROUNDS, turns=400)  # which skips the steps that were lost, and never ends early for it
    second = deployed.host.driver.params.double()
    update = updates[4, 0]
    assert torch.equal(second, before)  # every step from the same model is refused, under whatever number
    assert torch.nn.functional.cosine_similarity(5 * (first - second), update, dim=0) < 0.9
    assert sum(steps(deployed)[-5:]) == 0


def test_restored_server_goes_on_with_the_same_clients(deployed, updates):
    """The lost step is empty. The next one starts from the same model with the same clients, and has the same sum."""
    copy = backup(deployed)
    assert until(deployed, 2)
    del updates
    restored(deployed, copy)
    assert until(deployed, ROUNDS, turns=400)
    assert steps(deployed) == [0, 0, 5, 5, 5, 5]


def test_restored_server_without_lost_steps_loses_nothing(deployed):
    assert until(deployed, 2)
    restored(deployed, backup(deployed))
    assert until(deployed, ROUNDS, turns=400)
    assert steps(deployed) == [5] * ROUNDS


def counted(deployed):
    return ask(deployed, question=HISTOGRAM, turns=8)


def test_difference_of_two_queries_is_no_client(world):
    """A client leaves between two queries: the second one is answered by nobody, though all others allow repeats."""
    deployed = there(world, run(SECURE), allows=REPEATS)
    assert counted(deployed)["figures"]["counts"] == LABELS.tolist()
    leaves(deployed, deployed.homes[4])
    second = counted(deployed)
    assert second["unopened"] == "every group of these clients differs from an earlier one by fewer than 3 clients"
    assert "figures" not in second


@pytest.mark.parametrize("second", [HISTOGRAM, Question("mean"), Question("count")])
def test_clients_refuse_a_group_that_is_too_similar(world, monkeypatch, second):
    """A server that asks all the same gets no sum: of any question, for all count the same examples."""
    monkeypatch.setattr(summed_survey, "apart", lambda clients, *_: list(clients))
    deployed = there(world, run(SECURE), allows=REPEATS)
    counted(deployed)
    leaves(deployed, deployed.homes[4])
    found = ask(deployed, question=second, turns=8)
    assert "figures" not in found
    assert found["lost"] == {"left": 1, "similar group": N - 1} or found["lost"] == {"similar group": N - 1}
    deployed.restart()
    assert "figures" not in ask(deployed, question=second, turns=8)


def test_client_that_drops_out_in_the_last_phase_reveals_nothing(world):
    """The server chooses a group that is all right, and a client falls out of it before the sum is opened."""
    deployed = there(world, run(SECURE), allows=REPEATS)
    counted(deployed)
    number = deployed.host.service.survey("query", question=HISTOGRAM)
    deployed.host.pump()
    for _ in range(10):
        for home in deployed.homes:
            task = deployed.host.driver.task_of(home.state.client)
            if home is deployed.homes[4] and home.over is None and task is not None and task.phase == "mask":
                leaves(deployed, home)
            elif home.over is None:
                home.turn(deployed.host)
        deployed.clock.now += 1.0
        deployed.host.pump()
    assert "figures" not in deployed.host.driver.ledger.survey(number.result())


def test_same_group_answers_again_where_owners_allow_it(world):
    deployed = there(world, run(SECURE), allows=REPEATS)
    assert counted(deployed)["figures"] == counted(deployed)["figures"]


@pytest.mark.parametrize("piece", [(), (SECURE,)])
@pytest.mark.parametrize("again", [HISTOGRAM, None])
def test_question_is_answered_once(world, folder, piece, again):
    """Also after a restart of the client; an evaluation of the same model counts as the same question."""
    deployed = there(world, run(*piece), homes=folder / "homes")
    assert "figures" in ask(deployed, question=again, turns=8)
    assert ask(deployed, question=again, turns=8)["lost"] == {"answered": N}
    deployed.homes[0] = deployed.homes[0].reborn()
    assert ask(deployed, question=again, turns=8)["lost"] == {"answered": N}


def test_another_center_or_bound_is_the_same_question(world):
    deployed = there(world, run())
    ask(deployed, question=Question("variance", column=1))
    for again in (Question("variance", column=1, center=0.5), Question("variance", column=1, bound=2.0)):
        assert ask(deployed, question=again)["lost"] == {"answered": N}
    assert ask(deployed, question=Question("variance", column=0))["answered"] == N


SAME = {
    "fields that a count does not use": (
        Question("count"), [Question("count", "targets"), Question("count", column=7)],
    ),
    "fields that counts of labels do not use": (
        Question("label_histogram"), [Question("label_histogram", "targets"), Question("label_histogram", column=1)],
    ),
    "the only column": (Question("mean", "targets"), [Question("mean", "targets", 0)]),
    "quantiles of the same bins": (
        Question("histogram", edges=(0, 1)),
        [Question("quantiles", edges=(0.0, 1.0)), Question("histogram", edges=(-0.0, 1))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_question_with_the_same_sums_is_the_same(world, name):
    """Another group of clients could otherwise answer it, and the difference would be the answer of one client."""
    deployed, (first, others) = there(world, run()), SAME[name]
    assert ask(deployed, question=first)["answered"] == N
    for again in others:
        assert ask(deployed, question=again)["lost"] == {"answered": N}


def test_history_survives_a_line_that_was_cut_off(folder, world):
    """The line was not on the disk when the process was killed, so what it is about was never sent."""
    deployed = there(world, run(), homes=folder / "homes")
    ask(deployed, question=HISTOGRAM)
    path = folder / "homes" / "0" / "sums.jsonl"
    whole = path.read_bytes()
    deployed.homes[0].state.close()
    path.write_bytes(whole + b'{"event": "answ')
    home = deployed.homes[0].reborn()
    assert len(home.state.sums.answered) == 1
    home.state.sums.answer("x")
    assert path.read_bytes().startswith(whole + b'{"event": "answered"')
    assert path.stat().st_mode & 0o777 == 0o600
    home.state.close()
    for damaged, why in {
        "{}": "no line of what the client has sent: KeyError",
        '{"event": "forgotten"}': "unknown event 'forgotten'",
        "[]": "no line of what the client has sent: TypeError",
        "x": "Expecting value",
    }.items():
        path.write_text(f"{damaged}\n")
        message = rf"is damaged \({why}.*restore it from a copy, or give another --state"
        with pytest.raises(CheckpointError, match=message):
            home.reborn()


def test_history_is_the_same_from_its_lines():
    lines = []
    one = SumHistory(lines.append)
    one.mask(3, 0, "a")
    one.open(OpenedSum("train", "a", 3, as_bits([0, 70])))
    one.mask(4, 1, "b")
    one.answer("q")
    one.supersede("b")
    one.supersede("b")
    other = SumHistory(None, lines)
    assert len(lines) == 5
    assert vars(other) == vars(one) | {"_write": None}
    assert other.superseded == {"a", "b"}
    assert other.opened == [OpenedSum("train", "a", 3, 1 | 1 << 70)]


def test_group_is_the_largest_that_is_no_too_similar():
    everyone, draw = list(range(10)), (0, 1)
    assert apart(everyone, [], 3, draw) == everyone
    assert apart(everyone, [as_bits(everyone)], 3, draw) == everyone
    without = [c for c in everyone if c != 4]
    group = apart(without, [as_bits(everyone)], 3, draw)
    assert len(group) == 7
    assert set(group) < set(without)
    assert group == apart(without, [as_bits(everyone)], 3, draw)
    assert apart(everyone, [as_bits(without)], 3, draw) == without  # nobody learns of the one who is new
    assert apart([0, 1, 2, 3], [as_bits(range(5))], 3, draw) == []


def test_groups_of_law():
    """Whatever the earlier groups are, that of `apart` differs from each by none or by the minimum, or is empty."""
    draw = np.random.default_rng(0)
    for trial in range(200):
        earlier = [as_bits(draw.choice(9, draw.integers(3, 9), replace=False).tolist()) for _ in range(3)]
        clients = sorted(draw.choice(9, draw.integers(0, 9), replace=False).tolist())
        group = apart(clients, earlier, 3, (trial,))
        assert set(group) <= set(clients)
        assert not group or len(group) >= 3
        assert not group or not any(is_too_similar(as_bits(group), other, 3) for other in earlier)


def test_client_says_why_it_declines(world, caplog, deployed):
    copy = backup(deployed)
    until(deployed, 1)
    restored(deployed, copy)
    with caplog.at_level(logging.WARNING, "turnout.client"):
        until(deployed, 1)
    texts = {record.getMessage() for record in caplog.records}
    assert "a masked update for this step was sent before: the server was restored from a copy" in texts
    del world


def trains(version, model, phase="train", repeat=0, told=None):
    tensors = {name: torch.tensor([value]) for name, value in (told or {}).items()}
    return Assignment(version, version, phase, repeat, model * 64, 0, 1.0, plain_row(tensors, 0))


def contributes(repeats, version, model, others, repeat=0):
    """Take part in a sum of updates; return what is declined."""
    declined = []
    for phase, name in (("train", ""), ("share", "neighbours"), ("mask", "senders"), ("open", "there")):
        task = trains(version, model, phase, repeat, {name: others} if name else {})
        declined.append(repeats.declines(task))
        if declined[-1] is None:
            repeats.begins(task)
            repeats.sends(task)
    return [reason for reason in declined if reason is not None]


def test_sums_from_one_model():
    """What is declined, and what remains: a server that claims that a sum was not opened goes on from its model."""
    repeats = Repeats(SecureSum().masking, {}, noised=False, allowed=False)
    assert contributes(repeats, 0, "a", [2, 3, 4, 5]) == []
    assert "answered" in contributes(repeats, 0, "a", [2, 3, 4, 5])
    other = Repeats(SecureSum().masking, {}, noised=False, allowed=False)
    assert contributes(other, 0, "a", [2, 3, 4, 5]) == []
    assert contributes(other, 1, "a", [2, 3, 4]) == []  # the sum of step 0 was not opened, says the server
    assert contributes(other, 2, "b", [2, 3, 4]) == []
    assert set(contributes(other, 3, "a", [2, 3, 5])) == {"similar group"}  # it has shown another model since
    assert contributes(other, 4, "a", [2, 6, 7, 8, 9]) == []


def test_groups_of_one_version():
    """A client trains twice from a version for a buffer of groups, with the same clients or with enough others."""
    repeats = Repeats(SecureSum().masking, {}, noised=False, allowed=False)
    assert contributes(repeats, 5, "a", [2, 3, 4, 5]) == []
    assert set(contributes(repeats, 5, "a", [2, 3, 4], repeat=1)) == {"similar group"}
    assert contributes(repeats, 5, "a", [2, 3, 4, 5], repeat=2) == []
    assert contributes(repeats, 5, "a", [4, 5, 6, 7], repeat=3) == []
    assert contributes(repeats, 5, "a", [4, 5, 6, 7], repeat=3) == ["answered"]


def test_sparse_groups_are_compared_by_the_list_of_clients():
    """Of a client's few neighbors alone, groups that differ little would look alike or unlike by chance."""
    repeats = Repeats(SecureSum(degree=2).masking, {}, noised=False, allowed=True)
    for version, clients, declined in ((0, [1, 2, 3, 4, 5, 6], None), (1, [1, 2, 3, 4, 5], "similar group")):
        tasks = [trains(version, "a")]
        tasks += [
            trains(version, "a", phase, told={name: [2, 3], "clients": clients})
            for phase, name in (("mask", "senders"), ("open", "there"))
        ]
        if declined is not None:
            repeats.history.supersede(tasks[0].model)
        assert repeats.declines(tasks[0]) is None
        repeats.begins(tasks[0])
        assert repeats.declines(trains(version, "a", "share", told={"neighbours": [2, 3]})) is None
        assert [repeats.declines(task) for task in tasks[1:]] == [declined] * 2
        for task in tasks[1:]:
            repeats.sends(task)
