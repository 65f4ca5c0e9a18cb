"""Sums of masked updates: as plain sums, in simulation and between machines; who is refused; what the server sees."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws.recipes import DATA, RECIPES
from tests.phases import train
from tests.tiny import federation, report

import turnout as to
from turnout import ConfigurationError
from turnout.distributed.sums import Summed
from turnout.pieces.aggregation import SecureSum
from turnout.pieces.aggregation.weighted_sum import WeightedSum
from turnout.population import ALittleIsEnough
from turnout.protocol.secure.attendance import Attendance, threshold_of
from turnout.protocol.secure.fixed_point import FixedPoint
from turnout.protocol.secure.graph import neighbors
from turnout.protocol.secure.local import secure_sum
from turnout.protocol.secure.masker import Masker
from turnout.protocol.secure.masking import Masking
from turnout.protocol.secure.masks import word
from turnout.protocol.secure.messages import TooFewClients
from turnout.simulation import Simulation
from turnout_serve.client.worker import phase_message
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.run.served_experiment import ServedExperiment
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import decode, read_manifest
from turnout_serve.wire.privacy import visible

from .world import LOCAL, Home, turn_without


def run(algorithm, rounds=4, **options):
    population = options.pop("population", to.Population(to.availability.Bernoulli(mean=0.7)))
    return to.Experiment(DATA, to.models.Logistic(), algorithm, population, rounds=rounds, evaluate_every=2, **options)


@pytest.mark.parametrize("recipe", [to.fedau, to.fedavg, lambda local, also: to.maxfl(local, cohort_size=4, also=also)])
def test_sum_equals_the_plain_sum_up_to_rounding(recipe):
    """Weights by participation, by examples and by losses: n numbers are off by at most n 2^(-f-1) over D."""
    plain, secure = (
        Simulation(run(recipe(LOCAL, also=also), rounds=1, population=to.Population(to.availability.Everyone())))
        for also in ((), (SecureSum(bits=48, fraction_bits=20, largest=1e4),))
    )
    plain.round()
    secure.round()
    assert torch.allclose(plain.state.params, secure.state.params, rtol=0, atol=8 * 2.0**-20)
    assert not torch.equal(plain.state.params, secure.state.params)


def test_simulation_sums_the_codes_of_the_protocol():
    piece, rng = SecureSum(fraction_bits=10, largest=4.0), np.random.default_rng(5)
    rows, factors = rng.normal(size=(6, 9)), rng.uniform(0.2, 1.2, 6)
    values = {i + 1: piece.code.encode(factors[i] * rows[i]) for i in range(6)}
    total, _ = secure_sum(values, bits=32, threshold=3)
    found = piece.summand(torch.from_numpy(factors), report(range(6), torch.from_numpy(rows)), 0).sum(dim=0)
    np.testing.assert_array_equal(piece.code.decode(total), found.numpy())


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_attendance_ends_rounds_as_the_protocol_does(data):
    n = data.draw(st.integers(3, 8), "clients")
    degree = data.draw(st.sampled_from([None, 2, 4]), "degree")
    who = range(n)
    phases = {c: data.draw(st.sampled_from(["share", "mask", "open", "stays", "stays"])) for c in who}
    leave = {phase: [c + 1 for c in who if phases[c] == phase] for phase in ("share", "mask", "open")}
    share = data.draw(st.sampled_from([0.51, 0.6, 0.8, 1.0]), "threshold")
    follows = Attendance(Masking(FixedPoint(), share, 2, degree), (3, n))
    left, opens = follows.share(list(who)), False
    for phase, then in (("share", follows.mask), ("mask", follows.open)):
        left = then([c for c in left if phases[c] != phase])
        if not left:
            break
    else:
        follows.opened([c for c in left if phases[c] != "open"])
        opens = follows.opens
    values = {c + 1: np.full(3, c, dtype=word(16)) for c in who}
    try:
        _, summed = secure_sum(values, bits=16, threshold=follows.threshold, degree=degree, seed=(3, n), leave=leave)
    except TooFewClients:
        summed = []
    enough = len(summed) >= 2
    assert opens == enough
    if opens:
        assert [c + 1 for c in follows.masked] == summed


def test_masks_of_absent_clients_need_their_neighbors():
    """Client 0 is gone before it masked; of its neighbors, 1 and 5 here, both have to be there at the end."""
    found = Attendance(Masking(FixedPoint(), 1.0, 2, 2), (0, 0))
    found.share(list(range(6)))
    others = found.neighbors[0]
    found.threshold = 1
    found.mask(list(range(6)))
    found.open([c for c in range(6) if c])
    found.opened([c for c in range(6) if c and c not in others])
    assert not found.opens
    found.opened([c for c in range(6) if c and c != others[0]])
    assert found.opens


@pytest.mark.parametrize(
    ("share", "degree", "threshold"), [(0.6, 6, 4), (0.8, 4, 4), (0.5, 4, 3), (0.1, 3, 2), (1.0, 7, 7), (0.51, 10, 6)]
)
def test_threshold_is_rounded_up_and_above_half(share, degree, threshold):
    assert threshold_of(share, degree) == threshold


@pytest.mark.parametrize("degree", [None, 2, 3, 5, 20])
def test_num_neighbors_equals_the_degree_of_the_graph(degree):
    graph = neighbors(range(9), degree, 0)
    assert {len(others) for others in graph.values()} == {SecureSum(degree=degree).masking.num_neighbors(9)}


def test_large_numbers_are_clipped():
    piece = SecureSum(largest=2.0, fraction_bits=4, too_large="clip")
    rows = report([0, 1], torch.tensor([[0.3, -5.0], [1.5, -0.5]]))
    found = piece.summand(torch.tensor([1.0, 2.0], dtype=torch.float64), rows, 0)
    assert found.tolist() == [[5 / 16, -2.0], [2.0, -1.0]]


def test_client_masks_only_in_the_round_of_its_training():
    """A task of another round finds no update, and is given up."""
    simulation = Simulation(run(to.fedau(LOCAL, also=(SecureSum(),)), rounds=1))
    report = train(simulation, np.array([0]))
    side = Masker(SecureSum().extra)
    assert side.announce(0, 3, report, {}) is not None
    task = Assignment(1, 4, "share", 0, "", 0, 1.0)
    assert phase_message(side, task, {}) is None


def test_server_step_sees_no_update(world, monkeypatch):
    """All that the server reads of clients: masks instead of updates, and one sum in the step."""
    from turnout.protocol import blamable_step

    steps, step = [], blamable_step.server_step

    def recorded(*args, **options):
        steps.append(args[2])
        return step(*args, **options)

    monkeypatch.setattr(blamable_step, "server_step", recorded)
    experiment = run(
        to.fedau(LOCAL, also=(SecureSum(largest=64.0),)), rounds=2, population=to.Population(to.availability.Everyone())
    )
    deployed = world(experiment).run()
    for reports in steps:
        assert isinstance(reports.delta, Summed)
        assert not reports.extra
        assert all(value.numel() == len(reports) for value in reports.seen.values())
        with pytest.raises(ConfigurationError, match="one or all of them"):
            reports.updates.gathered()
    bodies = [path.read_bytes() for path in deployed.host.store.files.reports.iterdir()]
    long = [body for body in bodies if "masked" in read_manifest(body)]
    others = [spec for body in bodies if body not in long for spec in read_manifest(body).values()]
    assert all(spec.dtype in ("U8", "I64", "F32", "F64") and np.prod(spec.shape) < 8 * 130 for spec in others)
    assert not any(spec.dtype[0] == "F" and np.prod(spec.shape) > 1 for spec in others)
    assert len(long) == 2 * 8  # one masked update of each client and round
    for body in long:
        masked = decode(body, read_manifest(body))["masked"].double() / 2.0**32
        assert abs(masked.mean()) < 0.2  # uniform: a plain update of logistic regression is below 0.001 of the modulus
        assert masked.std() > 0.2
    assert replay(deployed.setting, deployed.folder).same is True


def run_without(deployed, gone, phase):
    """Let time pass until the run is over; the process of one client ends when it is asked for a phase."""
    for _ in range(60):
        turn_without(deployed, [gone], phase)
        if deployed.host.driver.over:
            break


@pytest.mark.parametrize("phase", ["share", "mask", "open"])
def test_clients_that_drop_out_of_a_phase_are_left_out(world, phase):
    """Who is gone before its masked update has left is not in the sum, and who is gone after is."""
    experiment = run(
        to.fedau(LOCAL, also=(SecureSum(largest=64.0),)), rounds=1, population=to.Population(to.availability.Everyone())
    )
    deployed = world(experiment)
    run_without(deployed, deployed.homes[2], phase)
    assert deployed.host.driver.version == 1
    took_part = deployed.host.driver.ledger.history.participation["client"].to_pylist()
    assert took_part == [c for c in range(8) if c != 2 or phase == "open"]
    reference = Simulation(
        run(
            to.fedau(LOCAL, also=(SecureSum(largest=64.0),)),
            rounds=1,
            population=to.Population(to.availability.Trace(tuple((c, 0, 1) for c in took_part))),
        )
    )
    reference.round()
    assert torch.equal(reference.state.params, deployed.host.driver.params)


def test_round_below_the_threshold_is_empty(world):
    experiment = run(
        to.fedau(LOCAL, also=(SecureSum(largest=64.0, threshold=1.0),)),
        rounds=1,
        population=to.Population(to.availability.Everyone()),
    )
    deployed = world(experiment)
    before = deployed.host.driver.params.clone()
    run_without(deployed, deployed.homes[2], "open")
    assert deployed.host.driver.version == 1
    assert torch.equal(deployed.host.driver.params, before)
    assert not len(deployed.host.driver.ledger.history.participation)


def test_restarted_client_drops_out_of_its_sum(world, folder):
    """Secrets are nowhere on a disk, so a new process has none; a server's come out of what it has received."""
    experiment = run(
        to.fedau(LOCAL, also=(SecureSum(largest=64.0),)), rounds=2, population=to.Population(to.availability.Everyone())
    )
    deployed = world(experiment, folder=folder / "server", homes=folder / "homes")
    reborn = False
    for _ in range(80):
        for row, home in enumerate(deployed.homes):
            held = deployed.host.driver.task_of(home.state.client)
            if row == 3 and not reborn and held is not None and held.phase == "share":
                reborn, deployed.homes[row] = True, home.reborn()
            if row == 4 and deployed.host.driver.run is not None:
                deployed.restart()
            if deployed.homes[row].over is None:
                deployed.homes[row].turn(deployed.host)
        deployed.clock.now += 1.0
        deployed.host.pump()
        if deployed.host.driver.over:
            break
    assert isinstance(deployed.homes[3], Home)
    took_part = deployed.host.driver.ledger.history.participation.to_pydict()
    rounds = list(zip(took_part["round"], took_part["client"], strict=True))
    assert [c for r, c in rounds if r == 1] == [0, 1, 2, 4, 5, 6, 7]
    assert [c for r, c in rounds if r == 2] == list(range(8))
    deployed.host.service.writer.checkpoint()
    assert replay(deployed.setting, deployed.folder).same is True


def test_virtual_time_counts_messages_and_excludes_dropouts():
    population = to.Population(
        speed=to.speed.Speed(compute=to.delay.Constant(1.0), upload=to.delay.Constant(0.5), per="task"),
        dropout=to.behavior.Dropout(0.1),
    )
    history = (
        run(to.fedau(LOCAL, also=(SecureSum(largest=64.0, threshold=0.55),)), 8, population=population).run().rounds
    )
    table = history.to_pydict()
    assert max(table["simulated_seconds"]) == pytest.approx(1.0 + 4 * 0.5)
    assert 0 < max(table["num_participants"]) < 8  # of eight who drop out of one task in ten, each with four in a round
    assert sum(table["num_unused"]) > 0


OTHERS = "weights a report by the others of its step"
WHY = {
    "folb": OTHERS,
    "qffl": OTHERS,
    "fedstaleweight": OTHERS,
    "fednu": "StartGradient sends the gradient of every client|SignOfAlignment weights|draws clients twice",
    "scaffold": "clients store control",
    "amplified_scaffold": "clients store control",
    "fedexp": "reads the norm of every update",
    "oort of slow clients": "clients store control",
}


@pytest.mark.parametrize(
    "name", [name for name, make in RECIPES.items() if type(make(LOCAL).aggregation) is WeightedSum]
)
def test_every_recipe_is_summed_or_refused_with_the_reason(name):
    """By how its name begins; rules with an aggregation of their own fill the same slot, and cannot be asked."""
    algorithm = RECIPES[name](LOCAL)
    pieces = [piece for place, piece in algorithm.pieces().items() if place != "aggregation"]
    why = next((reason for start, reason in WHY.items() if name.startswith(start)), None)
    if why is None:
        assert to.compose(*pieces, SecureSum()).phases[-3:] == ("share", "mask", "open")
        return
    with pytest.raises(ConfigurationError, match=why):
        to.compose(*pieces, SecureSum())


def test_incompatible_pieces_are_refused():
    with pytest.raises(ConfigurationError, match="TopK sends a code"):
        to.fedau(also=(SecureSum(), to.guard.TopK(share=0.1)))
    with pytest.raises(ConfigurationError, match="StartGradient sends the gradient"):
        to.compose(to.local.StartGradient(), SecureSum())
    speed = to.Population(speed=to.speed.Speed(compute=to.delay.Constant(1.0)))
    with pytest.raises(ConfigurationError, match="Buffered does not support masks: SecureSum masks"):
        Simulation(run(to.fedau(LOCAL, also=(SecureSum(),)), population=speed, pace=to.pace.Buffered(2)))
    liars = to.Population(behavior=ALittleIsEnough(fraction=0.3))
    with pytest.raises(ConfigurationError, match="colluding attackers see"):
        Simulation(run(to.fedau(LOCAL, also=(SecureSum(),)), population=liars))


def test_numbers_out_of_range_are_refused():
    with pytest.raises(ConfigurationError, match="bits: got 60, needed 2 to 54"):
        SecureSum(bits=60)
    with pytest.raises(ConfigurationError, match="threshold: got 0, needed a fraction"):
        SecureSum(threshold=0)
    with pytest.raises(ConfigurationError, match="min_clients"):
        SecureSum(min_clients=1)
    with pytest.raises(ConfigurationError, match="degree"):
        SecureSum(degree=1)
    with pytest.raises(ConfigurationError, match="does not fit 32 bits"):
        SecureSum().init(federation(10_000))
    SecureSum(cohort=100).init(federation(10_000))
    with pytest.raises(ConfigurationError, match="write a larger one"):
        Simulation(run(to.fedavg(replace(LOCAL, steps=3), also=(SecureSum(),)))).round()
    Simulation(run(to.fedavg(LOCAL, also=(SecureSum(too_large="clip"),)))).round()


def test_visible_data_are_sums():
    served = ServedExperiment.of(run(to.fedau(LOCAL, also=(SecureSum(),))))
    kinds = {each.kind: each.what for each in served.visible}
    assert "updates" not in kinds
    assert kinds["sums"] == "its update of the model, masked, of which it can open the sum over a round"
    assert [each.kind for each in visible(to.fedau(LOCAL))].count("updates") == 1
