"""Codes over the wire: small messages, the simulation's model to the last bit, and nothing that a wrong code could break."""

import numpy as np
import pytest
import torch

from turnout import ConfigurationError, Experiment, Population, compose, fedbuff
from turnout.models import Mlp
from turnout.pieces import Guard
from turnout.pieces.guard import BFloat16, Clip, ClipControls, PowerSgd, Qsgd, RandomK, Sign, TopK
from turnout.pieces.local import Scaffold
from turnout.pieces.weighting import DivideByClients, Participation
from turnout.population import Speed, delay
from turnout.population.availability import Everyone
from turnout.population.behavior import Byzantine
from turnout.protocol.pace import Buffered
from turnout.simulation import Simulation
from turnout_serve.client.computer import Computer
from turnout_serve.client.worker import Worker
from turnout_serve.server.run.served_experiment import ServedExperiment
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import WireError, decode, encode, model_tensors, size_limit

from .test_hostile import put, task_of, waiting
from .world import DATA, LOCAL

GUARDS = [TopK(share=0.1), RandomK(share=0.1), Sign(), Qsgd(bits=2), BFloat16(), PowerSgd(rank=2)]


TASK = Assignment(0, 0, "train", 0, "", 0, 1.0)


def run_with(guard, **options):
    algorithm = compose(LOCAL, Scaffold(), guard, Participation(3), DivideByClients())
    return Experiment(DATA, Mlp(hidden=(8,)), algorithm, Population(Everyone()), rounds=2, **options)


@pytest.mark.parametrize("guard", GUARDS, ids=str)
def test_report_body_contains_the_code(world, guard):
    """Reports have as many bytes as the tables count, and the results equal the simulation bit for bit."""
    run = run_with(guard)
    deployed, simulation, sizes = world(run), Simulation(run), []
    call = deployed.host.call
    deployed.host.call = lambda it: (sizes.append(len(it.body)) if it.method == "PUT" else None, call(it))[1]
    deployed.run()
    for _ in range(run.rounds):
        simulation.round()
    assert torch.equal(deployed.host.driver.params, simulation.state.params)
    memory = simulation.memory.state()
    for row, client in enumerate(memory["clients"].tolist()):
        for part, value in deployed.homes[client].state.memory.items():
            assert torch.equal(value, memory[f"table.{part}"][row]), part
    for column in ("bytes_up", "bytes_down"):
        ours, theirs = deployed.host.driver.ledger.history.column(column)[1], simulation.history.column(column)[1]
        np.testing.assert_array_equal(ours, theirs)
    counted = simulation.history.column("bytes_up")[1][0] / 4
    assert set(sizes) == {sizes[0]}
    names = int.from_bytes(next(deployed.host.store.files.reports.iterdir()).read_bytes()[:8], "little")
    assert 0 < sizes[0] - names <= counted + 8
    assert sizes[0] < size_limit(deployed.setting.reports["train"].manifest) < sizes[0] + 4096
    model = next(deployed.host.store.files.models.iterdir()).stat().st_size
    element = 2 if isinstance(guard, BFloat16) else 4
    assert model < 2 * element * len(deployed.setting.initial) + 1024


def test_random_positions_differ_between_repeated_tasks(world, monkeypatch):
    """A client of a buffered run may get one version twice: its positions are drawn again, and the server can derive them."""
    run = Experiment(
        DATA,
        Mlp(hidden=(8,)),
        fedbuff(LOCAL, also=(RandomK(share=0.2),)),
        Population(speed=Speed(compute=delay.Uniform(1, 4))),
        pace=Buffered(buffer_size=3, concurrency=3, reselect=True),
        rounds=4,
    )
    simulation, order, repeats = Simulation(run), [], []
    scheduler = simulation.coordinator.scheduler
    reported = scheduler.reported
    monkeypatch.setattr(
        scheduler, "reported", lambda t, client, *more: (order.append(client), reported(t, client, *more))
    )
    for _ in range(run.rounds):
        simulation.round()
    deployed = world(run)
    for home in deployed.homes:
        home.step(deployed.host)
    for client in order:
        home = deployed.homes[client]
        home.train(deployed.host)
        repeats.append(home.state.pending.task.repeat)
        home.step(deployed.host)
        home.train(deployed.host)
    assert torch.equal(deployed.host.driver.params, simulation.state.params)
    assert max(repeats) > 0


def test_invalid_code_is_refused(world):
    """Positions outside the model, NaN in a code, and an uncompressed vector are answered with 422 and the reason."""
    from safetensors.torch import load

    deployed = world(run_with(TopK(share=0.1)))
    for home in deployed.homes:
        home.step(deployed.host)
    for home in deployed.homes:
        home.train(deployed.host)
    body = load(waiting(deployed.homes[0]))
    extra = next(name for name in body if name.startswith("code.extra.") and name.endswith("value"))
    beyond = body | {"code.delta.place": body["code.delta.place"] + 10**6}
    nan = {**load(waiting(deployed.homes[1]))}
    nan[extra][0, 0] = torch.nan
    full = {k: v for k, v in load(waiting(deployed.homes[2])).items() if not k.startswith("code.delta")}
    full["delta"] = torch.zeros(1, len(deployed.setting.initial))
    for client, (tensors, status, why) in enumerate(
        [(beyond, 422, "no code of"), (nan, 422, "NaN or infinity"), (full, 422, "code.delta")]
    ):
        answer = put(deployed, client, task_of(deployed, client), encode(tensors))
        assert (answer.status, why in answer.table()["reason"]) == (status, True), answer.table()
    deployed.run()
    assert torch.isfinite(deployed.host.driver.params).all()


def done(worker, client, *given):
    """Do a task that the worker does not give up."""
    found = worker.do(client, *given)
    assert found is not None
    return found


@pytest.mark.parametrize("guard", GUARDS, ids=str)
def test_diverged_report_is_sent_as_nan(guard):
    """A code cannot represent NaN or infinity: it would decode to zeros."""
    run = run_with(guard)
    computer = Computer(run, "vectorized")
    setting, worker = ServedExperiment.of(run).setting, Worker(computer, 0)
    model = {
        "params": setting.initial * torch.inf,
        **{f"shared.{name}": setting.initial * 0 for name in run.algorithm.keeps},
    }
    body, memory = done(worker, 0, TASK, model, worker.first_memory())
    with pytest.raises(WireError, match="NaN or infinity"):
        setting.reports["train"].read(body, 0, 0)
    assert all(torch.isfinite(value).all() for value in memory.values())


def test_attacker_sends_the_code_of_its_changed_update():
    """An update that an attacker of a swarm changes after its guards is compressed again; honest reports are unchanged."""
    run = run_with(TopK(share=1.0))
    computer, setting = Computer(run, "vectorized"), ServedExperiment.of(run).setting
    behavior = Byzantine(fraction=0.5, inflation=0.0, noise=0.0, scale=-1.0).bind(8, 0)
    bad, good = int(np.flatnonzero(behavior.attackers)[0]), int(np.flatnonzero(~behavior.attackers)[0])
    model = {"params": setting.initial, **{f"shared.{name}": setting.initial * 0 for name in run.algorithm.keeps}}
    for client, sign in ((bad, -1), (good, 1)):
        sent = [
            done(Worker(computer, client, who), client, TASK, model, {**computer.memory})[0] for who in (None, behavior)
        ]
        plain, changed = (setting.reports["train"].read(body, client, 0).updates.gathered() for body in sent)
        assert torch.equal(changed, sign * plain)


def test_compression_must_be_the_last_guard():
    """A guard after it would change the vectors without changing their code."""
    with pytest.raises(ConfigurationError, match=r"Clip behind TopK changes .* write TopK as the last guard"):
        fedbuff(LOCAL, also=(TopK(share=0.1), Clip(1.0)))


OF_EACH: dict[str, Guard] = {
    "BFloat16": BFloat16(),
    "Clip": Clip(1.0),
    "ClipControls": ClipControls(1.0),
    "PowerSgd": PowerSgd(rank=2),
    "Qsgd": Qsgd(bits=2),
    "RandomK": RandomK(share=0.1),
    "Sign": Sign(),
    "TopK": TopK(share=0.1),
}


def without_header(body: bytes) -> int:
    """Return the bytes of the tensors of a message."""
    return len(body) - 8 - int.from_bytes(body[:8], "little")


WITHOUT = {"NoiseShare", "PrunedRank", "TruncatedRank", "ranks_from_table"}  # refused; need adapters; no guard


@pytest.mark.parametrize("name", sorted({guard.__name__ for guard in Guard.family.values()} - WITHOUT))
def test_recorded_bytes_equal_message_sizes(name):
    """`bytes_up` and `bytes_down` equal the sizes of messages without the names of tensors."""
    run = run_with(OF_EACH[name])
    algorithm, setting, simulation = run.algorithm, ServedExperiment.of(run).setting, Simulation(run)
    simulation.round()
    model = model_tensors(setting.initial, algorithm.shared(simulation.state), algorithm.broadcast_dtype(torch.float32))
    worker = Worker(Computer(run), 0)
    body, _ = done(worker, 0, TASK, decode(encode(model), worker.model), worker.first_memory())
    # The version goes both ways beside the body: 8 bytes of each.
    assert simulation.row["bytes_up"] == 4 * (without_header(body) + 8)
    assert simulation.row["bytes_down"] == 4 * (without_header(encode(model)) + 8)
    assert simulation.messages.of("train") == (without_header(body) + 8, without_header(encode(model)) + 8)
