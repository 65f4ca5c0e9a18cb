"""Pieces of users that raise: for what one client sends, or whatever clients send. A server loses nothing by either."""

import base64
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from safetensors.torch import load

from turnout import Experiment, Population, compose
from turnout.base import RecordingSelection, Weighting
from turnout.models import Logistic
from turnout.pieces.aggregation import PrivateSum, SecureSum
from turnout.pieces.aggregation.weighted_sum import WeightedSum
from turnout.pieces.local import GradientNorm
from turnout.pieces.selection import AllAvailable, Uniform
from turnout.pieces.server_optimizer import ServerSgd
from turnout.pieces.weighting import DivideByClients, DivideByParticipants
from turnout.population.availability import Everyone
from turnout.protocol.pace import Buffered
from turnout_serve.server.http.status import status
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server
from turnout_serve.server.run.blame import PieceFailed, culprits, is_of_the_machine
from turnout_serve.wire.format import digest, encode

from .world import DATA, LOCAL

HOSTILE = 3  # the client
ODD = {"num_examples": 7770, "seen.start_gradient_norm": 7770.0, "delta": 50.0}
"""What it says in place of its own numbers."""
ROUNDS = 2
SWITCH: dict[str, int | None] = {"version": None, "copes": None}
"""The version from which on pieces are broken, None where they are mended; and whether they cope with odd numbers."""


def odd(values, most):
    """Raise for the numbers of the hostile client, alone or in a mean."""
    if SWITCH["copes"] is None and len(values) and float(np.abs(np.asarray(values, dtype=float)).max()) > most:
        raise ZeroDivisionError("odd")


def broken(version):
    if SWITCH["version"] is not None and version >= SWITCH["version"]:
        raise LookupError("broken")


@dataclass(frozen=True)
class Factors(Weighting):
    """Of which updates are summed as they come in."""

    def factors(self, report, version, state, federation):
        del state, federation
        broken(version)
        odd(report.num_examples, 1000)
        return torch.ones(len(report), dtype=torch.float64)


@dataclass(frozen=True)
class Applies(Weighting):
    """Counts steps in place, before it raises, and names no rows."""

    reads = "timing"
    participation = "own"

    def init(self, federation):
        del federation
        return {"steps": torch.zeros(1)}

    def apply(self, weights, report, version, state, federation):
        del federation
        state["steps"] += 1
        broken(version)
        odd(report.num_examples, 1000)
        return weights * state["steps"].double(), state


@dataclass(frozen=True)
class Sums(WeightedSum):
    only_sums = False

    def apply(self, weights, report, state, federation):
        broken(int(report.version.max()))
        odd(report.updates.gathered(), 5.0)
        return super().apply(weights, report, state, federation)


@dataclass(frozen=True)
class Steps(ServerSgd):
    def apply(self, params, direction, version, state):
        broken(version)
        odd(direction, 5.0)
        return super().apply(params, direction, version, state)


@dataclass(frozen=True)
class Selects(Uniform):
    measurements = (GradientNorm(),)

    def measuring(self, candidates):
        return np.arange(candidates.num_clients)

    def select(self, candidates):
        broken(candidates.round)
        assert candidates.measured is not None
        odd(candidates.measured.seen["start_gradient_norm"], 1000.0)
        return super().select(candidates)


@dataclass(frozen=True)
class Broken(AllAvailable):
    def select(self, candidates):
        broken(candidates.round)
        return super().select(candidates)


@dataclass(frozen=True)
class Records(Uniform, RecordingSelection):
    """Raises on what it recorded of the step before."""

    client_rows = ("recorded",)

    def init(self, federation):
        return {"recorded": torch.zeros(federation.num_clients)}

    def apply(self, report, version, state):
        del version
        state["recorded"][torch.from_numpy(report.client)] = torch.from_numpy(report.num_examples).float()
        return state

    def select(self, candidates):
        broken(candidates.round)
        odd(candidates.record["recorded"], 1000.0)
        return super().select(candidates)


@dataclass(frozen=True)
class Measures(Selects):
    def select(self, candidates):
        return Uniform.select(self, candidates)


@dataclass(frozen=True)
class ByMeasurements(Weighting):
    def apply(self, weights, report, version, state, federation):
        del federation
        broken(version)
        assert report.measured is not None
        odd(report.measured.seen["start_gradient_norm"], 1000.0)
        return weights, state


def recipe(kind):
    pieces = {
        "factors": (Factors(), DivideByParticipants()),
        "applies": (Applies(), DivideByParticipants()),
        "sums": (Sums(), DivideByParticipants()),
        "steps": (Steps(), DivideByParticipants()),
        "steps of masked updates": (Steps(), DivideByParticipants(), SecureSum(largest=1e4, fraction_bits=10)),
        "selects": (Selects(4), DivideByParticipants()),
        "records": (Records(DATA.num_clients), DivideByParticipants()),
        "measures": (Measures(4), ByMeasurements(), DivideByParticipants()),
    }[kind]
    return compose(*pieces, LOCAL)


def run(kind, data=DATA):
    return Experiment(data, Logistic(), recipe(kind), Population(Everyone()), rounds=ROUNDS)


KINDS = ["factors", "applies", "sums", "steps", "selects", "records", "measures"]


@pytest.fixture(autouse=True)
def mended():
    yield
    SWITCH.update(version=None, copes=None)


def tamper(deployed):
    """Have the hostile client send `ODD` numbers."""
    send, token = deployed.host.send, f"Bearer {deployed.homes[HOSTILE].state.token}"

    def sent(method, path, body=b"", headers=None, cut=None):
        headers = dict(headers or {})
        if method == "PUT" and headers.get("authorization") == token:
            tensors = {name: torch.full_like(v, ODD[name]) if name in ODD else v for name, v in load(body).items()}
            body = encode(tensors)
            headers["repr-digest"] = f"sha-256=:{base64.b64encode(bytes.fromhex(digest(body))).decode()}:"
        return send(method, path, body, headers, cut)

    deployed.host.send = sent


def through(deployed):
    """Let everyone have turns until the run is over, and hold it against its replay, and against a later start."""
    deployed.run()
    driver, setting = deployed.host.driver, deployed.setting
    assert driver.version == setting.rounds
    again = replay(setting, deployed.folder)
    assert torch.equal(again.driver.params, driver.params)
    params, dropped = driver.params, dict(driver.ledger.dropped)
    for checkpoint in deployed.folder.glob("checkpoint*"):
        checkpoint.unlink()
    deployed.restart()
    assert torch.equal(deployed.host.driver.params, params)
    assert deployed.host.driver.ledger.dropped == dropped
    return params, dropped


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_report_that_makes_a_piece_raise_is_dropped(world, kind):
    deployed = world(run(kind))
    tamper(deployed)
    deployed.round()
    params, dropped = through(deployed)
    assert dropped == {"unusable": ROUNDS}
    first = deployed.host.store.outcomes.get(HOSTILE, HOSTILE)
    assert (first.client, first.outcome) == (HOSTILE, "unusable")
    rows = deployed.host.administer("GET", "clients").table()["clients"]
    assert [row["unusable"] for row in rows] == [ROUNDS * (row["client"] == HOSTILE) for row in rows]
    SWITCH["copes"] = 1  # a piece that was mended later changes nothing of what was
    assert torch.equal(replay(deployed.setting, deployed.folder).driver.params, params)


@pytest.mark.parametrize("kind", ["applies", "sums"])
def test_report_that_raises_is_dropped_from_steps_of_one_report(world, kind):
    """A piece that accepts a blank report is not to blame."""
    deployed = world(replace(run(kind), pace=Buffered(1), rounds=6))
    tamper(deployed)
    for home in [*deployed.homes, deployed.homes[HOSTILE]] * 20:
        home.step(deployed.host)
    _, dropped = through(deployed)
    assert dropped["unusable"] >= 1


def test_masked_sum_that_makes_a_piece_raise_is_dropped(world, caplog):
    """No client can be left out of a secure sum, so the step has no report; the server and later starts continue."""
    data = replace(DATA, train=replace(DATA.train, x=DATA.train.x.clone()))
    data.train.client(HOSTILE)[0].fill_(1e3)
    deployed = world(run("steps of masked updates", data=data))
    params, dropped = through(deployed)
    assert torch.equal(params, deployed.setting.initial)
    assert dropped["unusable"] == ROUNDS * DATA.num_clients
    cohorts = [record.clients for record in caplog.records if record.msg.startswith("a secure sum dropped")]
    assert cohorts[:ROUNDS] == [list(range(DATA.num_clients))] * ROUNDS


@pytest.mark.parametrize("kind", [*KINDS, "steps of masked updates"])
def test_piece_that_always_raises_stops_the_run_without_loss(world, folder, kind):
    """The message names the piece, a restart repeats it, and after the piece is fixed the run continues unchanged."""
    version = len(kind) % 2
    expected = world(run(kind), folder=folder / "a").run().host.driver.params
    deployed = world(run(kind), folder=folder / "b")
    SWITCH["version"] = version
    name = {"factors": "Factors.factors", "applies": "Applies.apply", "sums": "Sums.apply", "selects": "Selects.select"}
    name["records"] = "Records.select"
    name["measures"] = "ByMeasurements.apply"
    where = rf"{name.get(kind, 'Steps.apply')} \(.*test_broken_pieces.py:\d+\)"
    said = rf"{where} raised LookupError\('broken'\) at step {version}"
    with pytest.raises(PieceFailed, match=said):
        deployed.run()
    with pytest.raises(PieceFailed, match=said):
        deployed.restart()
    with pytest.raises(PieceFailed, match=said):
        replay(deployed.setting, deployed.folder)
    SWITCH["version"] = None
    deployed.restart()
    params, dropped = through(deployed)
    assert torch.equal(params, expected)
    assert dropped == {}


def test_private_run_drops_no_report(world):
    """Leaving out a client would reveal something about its data: the run stops until the piece is fixed."""
    algorithm = compose(Applies(), DivideByClients(), PrivateSum(norm=0.3, noise_multiplier=2.0), LOCAL)
    deployed = world(replace(run("applies"), algorithm=algorithm))
    tamper(deployed)
    with pytest.raises(PieceFailed, match=r"Applies.apply .* raised ZeroDivisionError\('odd'\) at step 0"):
        deployed.run()
    SWITCH["copes"] = 1
    deployed.restart()
    through(deployed)


def test_piece_that_raises_at_the_start_stops_the_run(world, monkeypatch):
    deployed = world(run("applies"))
    monkeypatch.setattr(Applies, "init", lambda *_: broken(0) or {"steps": torch.zeros(1)})
    SWITCH["version"] = 0
    with pytest.raises(PieceFailed, match=r"broken \(.*\) raised LookupError|Applies.init|raised LookupError"):
        deployed.run()
    SWITCH["version"] = None
    deployed.restart()
    through(deployed)


def test_failed_run_is_reported_and_not_saved(folder):
    """The status and the error of the process name the piece, and a restart repeats the error."""
    SWITCH["version"] = 0
    server = Server(run("steps"), folder, None, Options(port=0, min_clients=1, linger=0.2))
    driver = server.driver
    driver.setting = replace(driver.setting, algorithm=replace(driver.setting.algorithm, selection=Broken()))
    server.service.enroll("t" * 40).add_done_callback(lambda _: server.service.work_of(0, 100.0))
    said = r"Broken.select \(.*\) raised LookupError\('broken'\) at step 0"
    with pytest.raises(PieceFailed, match=said):
        server.run(lambda _: None)
    figures = status(server.service, 0, {})
    assert (figures.state, figures.healthy) == ("failed", False)
    assert "Broken.select" in str(figures.failure)
    assert not (folder / "checkpoint.safetensors").exists()


def test_bisection_finds_all_culprits():
    tried = []

    def raises(some):
        tried.append(list(some))
        return 5 in some

    assert culprits(range(64), raises) == [5]
    assert len(tried) <= 14
    assert culprits([1, 2, 3], lambda some: bool(some)) == [1, 2, 3]
    assert culprits([1, 2, 3], lambda _: False) == []
    assert culprits([], lambda _: True) == []


def test_errors_of_the_machine_drop_no_report():
    """Such an error may not occur at the next attempt or in a replay."""
    full = RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: 8 bytes")
    assert is_of_the_machine(full)
    assert is_of_the_machine(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_of_the_machine(RuntimeError("shapes"))
