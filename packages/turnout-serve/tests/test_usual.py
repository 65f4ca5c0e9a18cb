"""Reports that are far larger than usual are refused: by what was accepted before, also after a restart."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from turnout import Experiment, Population, fedau
from turnout.core.types import Report
from turnout.models import Mlp
from turnout.population.availability import Everyone
from turnout_serve.cli.commands.status import rows_of
from turnout_serve.server.run.usual import UsualSizes
from turnout_serve.wire.format import WireError, decode, digest, encode, repr_digest

from .world import DATA, LOCAL

RUN = Experiment(DATA, Mlp(hidden=(4,)), fedau(LOCAL), Population(Everyone()), rounds=40, evaluate_every=40)


def report(norm, loss=1.0, client=0):
    delta = torch.full((1, 4), norm / 2)
    ones = np.ones(1, dtype=np.int64)
    return Report(
        np.array([client]), np.zeros(1, dtype=np.int64), ones, ones, delta, {}, {"loss": torch.tensor([loss])}
    )


def usual(norms, unit=1.0):
    bounds = UsualSizes(unit)
    for client, norm in enumerate(norms):
        bounds.add(bounds.check(client % 8, report(norm, client=client % 8)))
    return bounds


def test_bound_is_ten_times_a_high_quantile_of_accepted_norms():
    """Of norms 1, ..., 100 the 0.9-quantile is 90.1."""
    bounds = usual(np.arange(1, 101).tolist())
    assert bounds.check(9, report(900.0)) == {"delta": 900.0, "seen.loss": 1.0}
    with pytest.raises(WireError, match=r"delta has norm 902, and this server takes at most 901, a multiple of what"):
        bounds.check(9, report(902.0))


def test_bound_is_bounded_from_below():
    """A run that has converged sends updates near 0: the bound is a hundredth of the first model's norm then."""
    bounds = usual([1e-9] * 50, unit=50.0)
    assert bounds.check(9, report(0.49))["delta"] == pytest.approx(0.49)
    with pytest.raises(WireError, match=r"at most 0\.5,"):
        bounds.check(9, report(0.51))


def test_few_reports_give_no_bound():
    usual([1.0] * 7).check(9, report(1e6))


def test_bound_forgets_old_reports():
    bounds = usual([1000.0] * 20 + [1.0] * 256)
    with pytest.raises(WireError, match="at most 10, "):
        bounds.check(9, report(11.0))


def test_refused_reports_do_not_raise_the_bound():
    """One client that tries for ever is refused for ever."""
    bounds = usual([1.0] * 16)
    for _ in range(300):
        with pytest.raises(WireError):
            bounds.check(9, report(50.0))


def test_bound_follows_where_most_clients_exceed_it():
    """All updates become a hundred times as large: the run goes on once more than half of the clients have sent one."""
    bounds, refused = usual([1.0] * 16), 0
    for _ in range(3):
        for client in range(8):
            try:
                bounds.add(bounds.check(client, report(100.0, client=client)))
            except WireError:
                refused += 1
    assert 0 < refused <= 5


@pytest.mark.parametrize(("loss", "fine"), [(900.0, True), (1100.0, False), (1e11, False)])
def test_figures_have_bounds(loss, fine):
    bounds = usual([1.0] * 16)
    if fine:
        bounds.check(9, report(1.0, loss))
    else:
        with pytest.raises(
            WireError, match=r"seen.loss has size 1(\.1)?e\+(03|11), and this server takes at most 1e\+03"
        ):
            bounds.check(9, report(1.0, loss))


def sent(deployed, home, factor=1.0, **seen):
    """Train a client, and send its report with an update that is so many times as long."""
    home.train(deployed.host)
    pending = home.state.pending
    tensors = dict(decode(pending.body, deployed.setting.reports["train"].manifest))
    tensors["delta"] = tensors["delta"] * factor
    tensors |= {f"seen.{name}": torch.full_like(tensors[f"seen.{name}"], value) for name, value in seen.items()}
    body = encode(tensors)
    headers = {"authorization": f"Bearer {home.state.token}", "repr-digest": repr_digest(digest(body))}
    answer = deployed.host.send("PUT", f"/v1/tasks/{pending.task.task}/report", body, headers)
    return answer.status, answer.table().get("reason", "")


@pytest.mark.parametrize("restarts", [False, True])
def test_server_refuses_an_update_far_beyond_those_before(world, tmp_path, restarts):
    """A hundred times as long as usual is still below the fixed bound of the first reports."""
    deployed = world(RUN, homes=tmp_path, checkpoint_every=0.0)
    while deployed.host.driver.version < 10:
        for home in deployed.homes:
            home.step(deployed.host)
        deployed.host.pump()
    if restarts:
        deployed.host.service.writer.checkpoint()
        deployed.restart()
    home = next(
        home for home in deployed.homes if deployed.host.driver.tasks.training_of(home.state.client) is not None
    )
    status, reason = sent(deployed, home, factor=100.0)
    assert status == 422
    assert "delta has norm" in reason
    entries = [entry for entry in deployed.host.store.entries() if entry.kind == "report"]
    assert set(entries[0].data) == {"size", "sizes"}
    assert len(json.dumps(entries[0].data)) < 120


def test_repeated_report_counts_once(world):
    """The attack: a client sends its report again and again before it is taken, so that its norm is the usual one."""
    deployed = world(RUN)
    while deployed.host.driver.version < 2:
        for home in deployed.homes:
            home.step(deployed.host)
        deployed.host.pump()
    service, usual = deployed.host.service, deployed.host.service.usual
    home = next(
        home for home in deployed.homes if deployed.host.driver.tasks.training_of(home.state.client) is not None
    )
    home.train(deployed.host)
    pending, before = home.state.pending, len(usual._recent["delta"])
    answers = []
    for number in range(300):
        part = deployed.host.store.files.incoming / f"{number}.part"
        part.write_bytes(pending.body)
        size = {"delta": 99.0}
        answers.append(service.report(home.state.client, pending.task.task, pending.digest, part, size))
    deployed.host.pump()
    assert [answer.result(0).status for answer in answers] == [201] + 299 * [200]
    assert (len(usual._recent["delta"]), usual._recent["delta"].count(99.0)) == (before + 1, 1)
    deployed.restart()
    restored = deployed.host.service.usual._recent["delta"]
    assert (len(restored), restored.count(99.0)) == (before + 1, 1)


def test_first_loss_has_a_bound_too(world, tmp_path):
    deployed = world(RUN, homes=tmp_path)
    deployed.host.pump()
    for home in deployed.homes:
        home.train(deployed.host)
    status, reason = sent(deployed, deployed.homes[0], loss=1e13)
    assert (status, reason) == (422, "seen.loss is 1e+13, needed at most 1e+12")


def test_fixed_bound_is_as_given(world, tmp_path):
    """An operator who sets --max-norm N gets N, and nothing that follows the reports."""
    deployed = world(replace(RUN, rounds=3), homes=tmp_path, max_norm=5.0)
    assert deployed.host.service.usual is None
    deployed.run()


@pytest.mark.parametrize("restarts", [False, True])
def test_status_shows_a_step_whose_update_is_far_larger_than_those_before(world, tmp_path, restarts):
    """A report within a bound that the operator has set too high moves the model ten times as far as usual."""
    deployed = world(RUN, homes=tmp_path, max_norm=1e6, checkpoint_every=0.0)
    while deployed.host.driver.version < 8:
        for home in deployed.homes:
            home.step(deployed.host)
        deployed.host.pump()
    assert deployed.host.service.writer.figures.status["unusual"] is None
    home = next(
        home for home in deployed.homes if deployed.host.driver.tasks.training_of(home.state.client) is not None
    )
    step = deployed.host.driver.version + 1
    assert sent(deployed, home, factor=300.0)[0] == 201
    while deployed.host.driver.version < step:
        for other in deployed.homes:
            other.step(deployed.host)
        deployed.host.pump()
    if restarts:
        deployed.host.service.writer.checkpoint()
        deployed.restart()
    status = json.loads(deployed.host.send("GET", "/v1/status").body)
    unusual = status["unusual"]
    assert unusual["step"] == step
    assert unusual["norm"] > 10 * unusual["usual"]
    assert (
        f"unusual: step {step}",
        f"its update has norm {unusual['norm']:.3g}, others {unusual['usual']:.3g}",
    ) in rows_of(status)
    assert f"turnout_unusual_step {step}" in deployed.host.send("GET", "/metrics").body.decode()
