"""Evaluations and queries of which the server learns sums alone: exact under masks, noised and counted with `PrivateSum`."""

import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiny import SIZES

import turnout as to
from turnout import ConfigurationError, privacy
from turnout.evaluation.queries import Question
from turnout.pieces.aggregation import PrivateSum, SecureSum
from turnout.privacy import Answers
from turnout.protocol.answer_sum import AnswerSum
from turnout_serve.cli.commands.status import rows_of
from turnout_serve.cli.commands.surveys import shown
from turnout_serve.client.computer import Computer
from turnout_serve.client.worker import Worker
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.leases import Leases
from turnout_serve.server.run import surveys
from turnout_serve.server.run.noise import RELEASES
from turnout_serve.server.run.served_experiment import ServedExperiment
from turnout_serve.server.verdicts import Refused
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import WireError, digest, model_tensors
from turnout_serve.wire.surveys import sums_body

from .test_crashes import KILLS, live_all, reaper, revive
from .test_evaluate import experiment, held_out, hinge
from .test_privacy import backup, restored
from .test_secure_attacks import cheat
from .world import LOCAL, REPEATS, Killed, turn_without

__all__ = ["reaper"]

N = 5
"""Clients: few, because each of them sends its own requests, and so many that a sum without one can be opened."""

SECURE = SecureSum(fraction_bits=20, largest=1.0)
Z, DELTA = 4.0, 1e-5
ANSWERS = Answers(noise_multiplier=Z, most=6, examples=30)
NOISED = PrivateSum(norm=0.3, noise_multiplier=2.0, answers=ANSWERS)
KINDS = {
    "server": NOISED,
    "masks": replace(NOISED, secure=SECURE),
    "shares": replace(NOISED, secure=replace(SECURE, fraction_bits=16), noise_shares=N, dropouts=1),
}


def run(*pieces, **options):
    options = {"rounds": 2, "evaluate_share": 0.0, "data": held_out(range(N), sizes=SIZES[:N]), **options}
    return experiment(to.fedau(LOCAL, also=pieces), **options)


TRAIN = run().data.train
LABELS = np.bincount(TRAIN.y.numpy(), minlength=4)


def ask(deployed, question=None, turns=6):
    """Ask those who are there, and return what came of it."""
    phase = "evaluate" if question is None else "query"
    number = deployed.host.service.survey(phase, question=question)
    deployed.host.pump()
    for _ in range(turns):
        deployed.round()
    return deployed.host.driver.ledger.survey(number.result())


def there(world, experiment, **options):
    """A federation that has not begun to train, whose clients are there."""
    deployed = world(experiment, min_clients=N + 1, **options)
    for _ in range(2):
        deployed.round()
    return deployed


@pytest.mark.parametrize(
    "question",
    [
        Question("label_histogram"),
        Question("variance", center=0.5),
        Question("quantiles", column=2, edges=(-1.0, 0.0, 1.0)),
        Question("mean", column=0, bound=0.5),
    ],
)
def test_opened_sum_equals_the_plain_sum_up_to_rounding(world, folder, question):
    plain = ask(there(world, run(), folder=folder / "plain"), question)
    masked = ask(there(world, run(SECURE), folder=folder / "masked"), question)
    assert (masked["asked"], masked["answered"], masked["lost"]) == (N, N, {})
    assert "epsilon" not in masked
    assert plain["figures"].keys() == masked["figures"].keys()
    for name, value in plain["figures"].items():
        if name in ("num_examples", "counts", "quantiles"):
            assert masked["figures"][name] == value
        else:  # eight numbers, each off by half a unit of 2^-20 at most, over 235 examples
            np.testing.assert_allclose(masked["figures"][name], value, rtol=0, atol=8 * 2.0**-21)


def test_masked_evaluation_has_the_same_figures(world, folder):
    form = {"label_groups": ((0, 1), (3,)), "appeal": to.AppealMetrics()}
    plain = world(run(evaluate_share=1.0, **form), folder=folder / "plain").run()
    masked = world(run(SECURE, evaluate_share=1.0, **form), folder=folder / "masked").run()
    tables = [deployed.host.driver.ledger.history.evaluations.table.to_pylist() for deployed in (plain, masked)]
    for exact, summed in zip(*tables, strict=True):
        assert (summed["answered"], summed["examples"]) == (exact["answered"], exact["examples"])
        assert not [name for name in summed if name.startswith("unseen")]
        shared = exact.keys() & summed.keys()
        assert {"test_accuracy", "test_loss", "appeal_test", "test_accuracy_of_0_1"} <= shared
        for name in shared:  # training in fixed point moves the model a little; clients' figures are those of bins
            off = 0.026 if name.startswith("client_test_") else 2e-3
            assert summed[name] == pytest.approx(exact[name], abs=off)
    driver = masked.host.driver
    assert driver.ledger.history.evaluations.by_client(N) == {}
    masked.host.close()
    again = replay(masked.setting, masked.folder)
    assert [closed.opened.total["loss"] for closed in again.surveys] == [  # pyright: ignore[reportOptionalSubscript, reportOptionalMemberAccess]
        driver.ledger.history.evaluations.answers(number).total["loss"] for number in range(len(again.surveys))
    ]


def test_client_with_keys_of_low_order_is_left_out(world):
    """Its neighbors would drop out of the sum, because everybody would know what they share with it."""
    deployed = there(world, run(SECURE))
    cheat(
        deployed, 2, lambda phase, _, tensors: tensors | {"keys": tensors["keys"] * 0} if phase == "query" else tensors
    )
    found = ask(deployed, Question("label_histogram"), turns=8)
    assert (found["answered"], sum(found["lost"].values())) == (N - 1, 1)
    mine = np.bincount(TRAIN.client(2)[1].numpy(), minlength=4)
    assert found["figures"]["counts"] == (LABELS - mine).tolist()


@pytest.mark.parametrize(("phase", "answered"), [("share", N - 1), ("mask", N - 1), ("open", N)])
def test_clients_that_leave_in_a_phase_are_excluded(world, phase, answered):
    deployed = there(world, run(SECURE))
    number = deployed.host.service.survey("query", question=Question("label_histogram"))
    deployed.host.pump()
    gone = [deployed.homes[2]]
    for _ in range(8):
        turn_without(deployed, gone, phase)
    found = deployed.host.driver.ledger.survey(number.result())
    assert (found["answered"], sum(found["lost"].values())) == (answered, N - answered)
    mine = np.bincount(TRAIN.client(2)[1].numpy(), minlength=4)
    assert found["figures"]["counts"] == (LABELS - (0 if answered == N else mine)).tolist()


@pytest.mark.parametrize("piece", [replace(SECURE, min_clients=N), replace(KINDS["shares"], dropouts=0)])
def test_cohort_below_the_threshold_opens_no_sum(world, piece):
    deployed = there(world, run(piece))
    number = deployed.host.service.survey("query", question=Question("label_histogram"))
    deployed.host.pump()
    for _ in range(8):
        turn_without(deployed, [deployed.homes[2]], "share")
    found = deployed.host.driver.ledger.survey(number.result())
    assert (found["answered"], found["unopened"]) == (0, "too few clients are left")
    assert "figures" not in found
    assert sum(found["lost"].values()) == N
    assert deployed.host.driver.budget.charged == isinstance(piece, PrivateSum)  # it counts all the same


@pytest.mark.parametrize("deadline", [None, 45.0])
def test_phase_ends_at_the_task_deadline(world, deadline):
    leases = Leases(heartbeat=1e6, grace=1e6, task_deadline=deadline)
    deployed = there(world, run(SECURE), leases=leases)
    number = deployed.host.service.survey("query", question=Question("count"))
    deployed.host.pump()
    silent = deployed.homes[2]
    for turn in range(12):
        for home in deployed.homes:
            task = deployed.host.driver.task_of(home.state.client)
            if not (home is silent and task is not None and task.phase == "mask"):
                home.turn(deployed.host)
        if turn == 6:  # so far the clock has moved by a second a turn
            deployed.clock.now += (deadline or surveys.LONGEST) - 10.0
            deployed.host.pump()
            assert deployed.host.driver.surveys.open
            deployed.clock.now += 10.0
        deployed.clock.now += 1.0
        deployed.host.pump()
    found = deployed.host.driver.ledger.survey(number.result())
    assert (found["answered"], found["lost"]) == (N - 1, {"late": 1})


def test_restart_in_each_phase_continues(world):
    deployed, phases = there(world, run(SECURE), checkpoint_every=0.0), []
    number = deployed.host.service.survey("query", question=Question("label_histogram"))
    deployed.host.pump()
    for _ in range(12):
        for home in deployed.homes:
            task = deployed.host.driver.task_of(home.state.client)
            if task is not None and task.phase not in phases:
                phases.append(task.phase)
                deployed.restart()
            home.turn(deployed.host)
        deployed.clock.now += 1.0
        deployed.host.pump()
    assert phases == ["query", "share", "mask", "open"]
    found = deployed.host.driver.ledger.survey(number.result())
    assert (found["answered"], found["figures"]["counts"]) == (N, LABELS.tolist())


@pytest.mark.parametrize("kind", ["secure", "masks"])
def test_kill_between_any_two_writes_loses_no_answer(world, folder, reaper, kind):
    """Server and clients die at any write of any phase: a sum is that of the clients whose masks came off, or none.

    A client that starts again in the midst of a sum has lost its secrets and drops out of it; nobody is barred for that.
    """
    answers = Answers(noise_multiplier=1e-3, most=10_000, examples=100)
    piece = SECURE if kind == "secure" else PrivateSum(norm=0.3, noise_multiplier=2.0, answers=answers, secure=SECURE)
    options = {"checkpoint_every": 0.0, "leases": Leases(heartbeat=1e6, grace=1e6, task_deadline=100.0)}
    deployed = there(world, run(piece), homes=folder / "homes", allows=REPEATS, **options)
    reaper.most = 100  # so that not all drop out of the same sum
    of_each, numbers = [np.bincount(TRAIN.client(row)[1].numpy(), minlength=4) for row in range(N)], []
    while min(reaper.kills.values()) < (KILLS if KILLS > 10 else 2) or len(numbers) < 3:
        reaper.left = None
        asked = deployed.host.service.survey("query", question=Question("label_histogram"))
        deployed.host.pump()
        numbers.append(asked.result())
        while deployed.host.driver.surveys.open:
            live_all(deployed, reaper)
            deployed.clock.now += 20.0
            with suppress(Killed):
                deployed.host.pump()
                continue
            revive(deployed)
    reaper.left = None
    driver = deployed.host.driver
    deployed.host.service.writer.checkpoint()
    again = replay(deployed.setting, deployed.folder)
    assert [closed.survey.request.number for closed in again.surveys] == numbers
    assert again.driver.barred == driver.barred == {}
    opened = 0
    for closed in again.surveys:
        used = closed.survey.answers
        if closed.opened is None or closed.opened.total is None:
            continue
        opened += 1
        expected = sum(of_each[client] for client in used)
        np.testing.assert_allclose(
            closed.opened.total["counts"].reshape(-1), expected, atol=1.0 if kind == "masks" else 1e-3
        )
        found = driver.ledger.survey(closed.survey.request.number)
        assert found["answered"] == len(used)
    assert opened
    assert any("died" in closed.survey.reasons for closed in again.surveys)


@pytest.mark.parametrize("kind", KINDS)
def test_noised_answers_count_toward_the_budget(world, kind):
    """Epsilon in all tables is that of as many Gaussian releases, one by one; noise of the stated deviation is in the sum."""
    deployed = there(world, run(KINDS[kind], rounds=2, evaluate_every=2, evaluate_share=1.0), checkpoint_every=0.0)
    found = ask(deployed, Question("label_histogram"))
    assert (found["answered"], found["asked"]) == (N, N)
    assert found["epsilon"] == pytest.approx(_account(kind, [Z]))
    sums = np.minimum(1.0, 30 / TRAIN.sizes)[:, None] * np.stack(
        [np.bincount(TRAIN.client(c)[1].numpy(), minlength=4) for c in range(N)]
    )
    off = np.array(found["figures"]["counts"]) - sums.sum(axis=0)[: len(found["figures"]["counts"])]
    deviation = found["deviations"]["counts"]
    assert deviation == pytest.approx(Z * 2**0.5 * 30)
    assert 0.01 < np.sqrt(np.mean(off**2)) / deviation < 5.0  # of four numbers
    deployed.options["min_clients"] = N
    deployed.restart()
    deployed.run()
    history = deployed.host.driver.ledger.history
    table = history.rounds["epsilon"].to_pylist()
    assert table == pytest.approx([_account(kind, [Z, 2.0]), _account(kind, [Z, 2.0, 2.0])])
    last = history.evaluations.table.to_pylist()[-1]
    assert last["epsilon"] == pytest.approx(_account(kind, [Z, 2.0, 2.0, Z]))
    assert not {"loss", "counts"} & set(history.evaluations.by_client(N))
    status = json.loads(deployed.host.send("GET", "/v1/status").body)
    assert status["privacy"]["epsilon"] == pytest.approx(last["epsilon"])
    assert ("noised answers", "2 of 6") in rows_of(status)
    assert f"turnout_epsilon {status['privacy']['epsilon']}" in deployed.host.send("GET", "/metrics").body.decode()
    noted = json.loads((deployed.folder / RELEASES).read_text())
    assert (noted["releases"], noted["answers"]) == (2, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_sums_with_noise_are_multiples_of_the_grid(world, kind):
    """Of sums with noise in full precision, the last digits told the exact sum: in no file is anything but multiples."""
    deployed = there(world, run(KINDS[kind]), checkpoint_every=0.0)
    ask(deployed)
    asked = ask(deployed, Question("label_histogram"))
    (path,) = (deployed.folder / "evaluations").glob("*.parquet")
    recorded = json.loads(pq.read_schema(path).metadata[b"evaluation"])
    assert recorded["grid"].keys() == recorded["total"].keys() == recorded["deviations"].keys()
    for name, total in recorded["total"].items():
        steps = np.array(total) / recorded["grid"][name]
        np.testing.assert_allclose(steps, np.rint(steps), rtol=1e-14, atol=1e-9)
        assert np.abs(steps).max() > 100
    assert all(isinstance(number, int) for number in asked["figures"]["counts"])
    assert asked["grid"]["counts"] < asked["deviations"]["counts"] / 2**10


def _account(kind, multipliers):
    """Epsilon of Gaussian mechanisms by dp-accounting, composed one by one."""
    if kind == "shares":  # discrete noise: the sum of Renyi divergences
        moved = sum(z**-2 for z in multipliers)
        return privacy.epsilon(privacy.Release(moved**-0.5, is_discrete=True), 1, DELTA)
    dp = pytest.importorskip("dp_accounting")
    moved = sum(z**-2 for z in multipliers)
    return dp.get_epsilon_gaussian(moved**-0.5, DELTA)


@pytest.mark.parametrize(
    "release",
    [
        privacy.Release(1.5),
        privacy.Release(1.5, coefficients=(1.0, 0.5, 0.25, 0.1)),
        privacy.Release(1.5, sampling_rate=0.2),
        privacy.Release(1.5, sampling_rate=0.2, sampling="fixed_size"),
    ],
    ids=["plain", "correlated", "poisson", "fixed size"],
)
def test_budget_equals_brute_force_accounting(release):
    """Rounds and answers as single mechanisms, composed by dp-accounting's privacy loss distributions."""
    dp = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    rounds, answers, z = 4, 3, 4.0
    fixed = release.sampling == "fixed_size"
    relation = dp.NeighboringRelation.REPLACE_ONE if fixed else dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    account = RdpAccountant([*range(2, 65), 128, 257, 512], relation) if fixed else PLDAccountant(relation)
    ratio = 2 if fixed else 1
    if release.coefficients is not None:  # the noise of a matrix mechanism: one Gaussian mechanism of its sensitivity
        account.compose(dp.GaussianDpEvent(1.5 / privacy.sensitivity(np.array(release.coefficients), 1)))
    else:
        once = dp.GaussianDpEvent(1.5 / ratio)
        if fixed:
            once = dp.SampledWithoutReplacementDpEvent(5, 1, once)
        elif release.sampling_rate is not None:
            once = dp.PoissonSampledDpEvent(0.2, once)
        account.compose(once, rounds)
    account.compose(dp.GaussianDpEvent(z / ratio), answers)
    found = privacy.epsilon(release, rounds, DELTA, beside=answers / z**2)
    assert found == pytest.approx(account.get_epsilon(DELTA), rel=0.02)
    assert found > privacy.epsilon(release, rounds, DELTA)


values = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([np.inf, -np.inf, np.nan, 1e300]))


def of_query(adds, question, widths):
    return adds.of_query(question.kind, question.shapes(widths), question.bound)


def layouts():
    for piece in KINDS.values():
        experiment = run(piece, label_groups=((0, 1), (1, 2)))
        adds = AnswerSum.of(experiment.algorithm)
        assert adds is not None
        yield adds.layout(experiment.sums_form().shapes)
        for question in (
            Question("label_histogram"),
            Question("variance", bound=2.0),
            Question("quantiles", edges=(0.0, 1.0)),
        ):
            yield of_query(adds, question, {"features": 3, "targets": 1, "classes": 4})


LAYOUTS = list(layouts())


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(LAYOUTS))
def test_influence_of_a_client_on_a_sum_is_bounded(data, layout):
    """Whatever a client sends, and on the grid of the masks: neighbors differ by S at most."""
    answer = {
        name: np.array(data.draw(st.lists(values, min_size=(n := int(np.prod(shape))), max_size=n))).reshape(shape)
        for name, shape in layout.shapes.items()
    }
    assert np.linalg.norm(layout.vector(answer)) <= layout.norm * (1 + 1e-12)
    assert np.linalg.norm(layout.vector(None)) == 0.0
    if layout.sums.masking is not None:
        quiet = replace(layout, sums=replace(layout.sums, shares=None))
        code = quiet.masking.code
        assert np.linalg.norm(code.decode(quiet.encoded(answer))) <= layout.norm


def test_masked_noise_has_the_accounted_deviation():
    """That of n - t clients together, in 6,001 numbers of clients that hold nothing."""
    adds = AnswerSum.of(run(KINDS["shares"]).algorithm)
    assert adds is not None
    layout = of_query(adds, Question("variance", bound=2.0), {"features": 3000, "targets": 1, "classes": 0})
    code = layout.masking.code
    total = np.sum([code.decode(layout.encoded(None)) for _ in range(N - 1)], axis=0)
    assert (layout.size, layout.server_noise) == (6001, None)
    assert float(total.std()) == pytest.approx(layout.deviation, rel=0.06)
    assert layout.deviation == pytest.approx(Z * layout.norm)


def test_client_without_data_answers_zeros(world):
    """That it holds no test examples, or that its loss is not finite, shows nowhere but in noise."""
    deployed = there(world, run(NOISED))
    deployed.homes[1].client.trainer._surveys._evaluation = lambda *_: None
    deployed.homes[3].client.trainer._surveys._evaluation = lambda *_: {"num_examples": 3, "loss": 1e200, "score": 1.0}
    found = ask(deployed)
    assert (found["answered"], found["lost"]) == (N, {})


def test_answers_beyond_the_budget_are_refused(world):
    budget = privacy.epsilon(privacy.Release(2.0), 2, DELTA, beside=2 / Z**2) * 1.0001
    piece = replace(NOISED, budget=budget, answers=replace(ANSWERS, most=2))
    deployed = there(world, run(piece))
    for _ in range(2):
        assert ask(deployed, Question("count"))["epsilon"] < budget
    with pytest.raises(Refused, match=r"all 2 noised answers of this run are spent: write a larger answers.most"):
        deployed.host.service.survey("query", question=Question("count"))
    with pytest.raises(ConfigurationError, match=r"2 rounds and 3 noised answers would spend .* or fewer answers"):
        run(replace(piece, answers=replace(ANSWERS, most=3)))
    with pytest.raises(ConfigurationError, match="the answers alone spend it"):
        run(replace(piece, answers=replace(ANSWERS, noise_multiplier=0.5)))
    deployed.options["min_clients"] = N
    deployed.restart()
    deployed.run()
    assert deployed.host.driver.version == 2  # the planned rounds have their part of the budget
    assert deployed.host.driver.ledger.history.rounds["epsilon"].to_pylist()[-1] <= budget


def test_two_that_are_asked_for_at_once_do_not_exceed_the_budget(world):
    deployed = there(world, run(replace(NOISED, answers=replace(ANSWERS, most=1))))
    both = [deployed.host.service.survey("query", question=Question("count")) for _ in range(2)]
    deployed.host.pump()
    assert both[0].result() == 0
    assert isinstance(both[1].exception(), Refused)
    assert deployed.host.driver.budget.charged == 1


def test_periodic_evaluations_end_before_the_budget_does(world, caplog):
    """After answers that a lost journal made, those of the plan no longer fit; training goes on."""
    piece = replace(NOISED, answers=replace(ANSWERS, most=2))
    deployed = there(world, run(piece, rounds=2, evaluate_every=1, evaluate_share=1.0))
    ask(deployed, Question("count"))
    deployed.options["min_clients"] = N
    deployed.restart()
    deployed.run()
    assert deployed.host.driver.version == 2
    assert len(deployed.host.driver.ledger.history.evaluations) == 1
    assert "no further evaluations by clients" in caplog.text


@pytest.mark.parametrize("deleted", [False, True])
def test_a_server_restored_from_a_copy_counts_answers_that_it_does_not_know(world, deleted):
    deployed = there(world, run(NOISED))
    copy = backup(deployed)
    for _ in range(2):
        ask(deployed, Question("count"))
    if deleted:
        (deployed.folder / RELEASES).unlink()
    restored(deployed, copy)
    assert deployed.host.driver.budget.charged == (6 if deleted else 2)


def test_lost_answers_count_in_the_budget_of_the_next_step(world):
    deployed = world(run(NOISED, rounds=20))
    deployed.round()
    copy = backup(deployed)
    ask(deployed, Question("count"), turns=2)
    restored(deployed, copy)
    driver = deployed.host.driver
    assert driver.run.server.federation.noised_answers == driver.budget.charged == 1


def test_a_restart_counts_an_open_answer_once_more(world):
    """Two servers of one journal may open it with other clients' answers, and other noise."""
    deployed = there(world, run(replace(NOISED, answers=replace(ANSWERS, most=2))))
    deployed.host.service.survey("query", question=Question("count"), seconds=1e6)
    deployed.host.pump()
    deployed.restart()
    assert deployed.host.driver.budget.charged == 2
    assert len(deployed.host.driver.surveys.open) == 1
    deployed.restart()
    assert deployed.host.driver.surveys.open == {}
    assert deployed.host.driver.ledger.survey(0)["answered"] == 0


def test_a_client_answers_no_server_that_asks_it_for_sums_without_masks(world, folder):
    """It follows its own settings, whatever the server claims: it sends keys, and declines where no noise covers it."""
    deployed = there(world, run(SECURE), folder=folder / "masked")
    worker = deployed.homes[0].client.trainer
    initial = deployed.setting.initial
    task = _task()
    assert worker.declines(task) is None
    with pytest.raises(WireError, match="which evaluation or query"):
        worker.do(0, task, model_tensors(initial, {}, initial.dtype), worker.first_memory())
    quiet = ServedExperiment.of(run(PrivateSum(noise_multiplier=2.0))).setting
    assert quiet.answer_sum is None
    private = there(world, run(PrivateSum(noise_multiplier=2.0)), folder=folder / "noised")
    assert private.homes[0].client.trainer.declines(task) == "refused"


def _task():
    return Assignment(10**14, 0, "evaluate", 0, digest(b""), 0, 1.0, {})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"evaluate_share": 1.0, "metrics": (hinge,)}, "metrics: noise needs a bound"),
        ({"evaluate_share": 1.0, "evaluate_every": 1, "rounds": 7}, "answers.most: got 6, and 7 rounds"),
    ],
)
def test_evaluations_that_noise_cannot_cover_are_refused(options, said):
    with pytest.raises(ConfigurationError, match=said):
        ServedExperiment.of(run(NOISED, **options))


def test_evaluations_without_noise_beside_noised_sums_are_refused():
    with pytest.raises(
        ConfigurationError,
        match=r"evaluate_share: answers reveal .*noise_multiplier=4 .*; or leave evaluate_share out",
    ):
        ServedExperiment.of(run(PrivateSum(noise_multiplier=2.0), evaluate_share=1.0))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Answers(noise_multiplier=0.0), "noise_multiplier"),
        (lambda: Answers(examples=0), "examples"),
        (lambda: Answers(largest_loss=0.0), "largest_loss"),
        (lambda: Answers(most=0), "most"),
        (
            lambda: PrivateSum(answers=4.0),  # pyright: ignore[reportArgumentType]
            "answers: got 4.0, needed an instance of privacy.Answers",
        ),
        (
            lambda: PrivateSum(noise_multiplier=0.0, answers=Answers()),
            "answers: with noise_multiplier=0 a run has no privacy guarantee",
        ),
        (lambda: Question("count", bound=1.0), "bound: count sums no values"),
        (lambda: Question("mean", bound=-1.0), "bound"),
    ],
)
def test_what_is_out_of_range_is_refused(make, said):
    with pytest.raises(ConfigurationError, match=said):
        make()


def test_values_need_a_bound_where_there_is_noise(world):
    deployed = there(world, run(NOISED))
    answered = deployed.host.administer("POST", "surveys", phase="query", question={"kind": "mean"})
    assert answered.status == 400
    assert "the question has no bound: write --bound 10" in answered.reason


def test_a_sum_that_does_not_fit_is_not_sent(caplog):
    surveys, sums = Worker(Computer(run(SECURE)))._surveys, {"num_examples": 1, "sums": [1e9] * 16}
    assert surveys.encoded(0, _task(), Question("mean"), sums) is None
    assert "a sum is too large" in caplog.text
    assert sums_body(sums)


def test_what_is_printed():
    found = {"version": 3, "asked": 8, "answered": 8, "lost": {}, "epsilon": 1.25, "figures": {"num_examples": 7}}
    assert "has spent epsilon 1.25" in str(shown(found).renderables[-1])
    unopened = {"version": 3, "asked": 8, "answered": 0, "lost": {"left": 8}, "unopened": "too few clients are left"}
    assert "no figures: too few clients are left" in str(shown(unopened).renderables[-1])
