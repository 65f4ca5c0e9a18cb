"""The mod around a ClientApp with plain SGD gives the reports of turnout's clients, and stores their state."""

# pyright: reportMissingImports=false

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import turnout as to
from turnout.core.checks import ConfigurationError, Diverged
from turnout.simulation.simulation import Simulation

pytest.importorskip("flwr", reason="flwr is not installed: sh scripts/extras.sh flower")
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from turnout_flower import Rule
from turnout_flower.arrays import Arrays
from turnout_flower.client_mod import Steps, mod
from turnout_flower.loop import client_part

from .grids import Killed, OneProcess

NODES = {11: 0, 22: 1, 33: 2, 44: 3}
STEPS, LR = 3, 0.1


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def examples(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = np.random.default_rng(client)
    x = generator.normal(size=(8 + client, 3)).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(generator.integers(0, 2, len(x)))


def client_app(algorithm: to.Algorithm, folder, freezes: bool = False, mods: bool = True, **options) -> ClientApp:
    """Return an app that takes full-batch steps, by code that knows nothing of turnout."""
    app = ClientApp(mods=[mod(algorithm, folder)] if mods else [])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model = net()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = examples(int(context.node_config["partition-id"]))
        optimizer = torch.optim.SGD(model.parameters(), lr=LR, **options)
        for _ in range(STEPS):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            if not freezes:
                optimizer.step()
        metrics = MetricRecord({"num-examples": len(y), "train_loss": 0.5})
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        model = net()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = examples(int(context.node_config["partition-id"]))
        loss = nn.functional.cross_entropy(model(x), y, reduction="none").detach()
        scores = {"eval_loss": loss.mean().item(), "eval_loss_rms": loss.square().mean().sqrt().item()}
        return Message(RecordDict({"metrics": MetricRecord(scores | {"num-examples": len(y)})}), reply_to=message)

    return app


def simulated(algorithm: to.Algorithm, rounds: int, **local) -> torch.Tensor:
    """Return the model of a simulation by turnout, whose minibatches hold all examples of a client."""
    sets = [examples(client) for client in range(4)]
    sizes = [len(y) for _, y in sets]
    x, y = (torch.cat(parts) for parts in zip(*sets, strict=True))
    local = to.Sgd(lr=LR, steps=STEPS, batch_size=max(sizes), **local)
    experiment = to.Experiment(
        data=to.data.from_arrays(x, y, client_ids=np.repeat(np.arange(4), sizes)).split(test_fraction=0.0),
        model=net(), algorithm=replace(algorithm, local=local), rounds=rounds, engine="one_by_one", evaluate_every=rounds,
    )  # fmt: skip
    simulation = Simulation(experiment)
    for _ in range(rounds):
        simulation.round()
    return simulation.state.params


def over_grid(algorithm: to.Algorithm, tmp_path, rounds: int, **options) -> torch.Tensor:
    rule = Rule(algorithm, folder=tmp_path / "run", mod=True, min_nodes=4, poll=0.01)
    grid = OneProcess(NODES, client_app(algorithm, tmp_path / "clients", **options))
    result = rule.start(grid, ArrayRecord(net().state_dict()), num_rounds=rounds)
    return torch.cat([value.reshape(-1) for value in result.arrays.to_torch_state_dict().values()])


CASES = {
    "scaffold": to.scaffold(),
    "scaffold option I": to.average_participating(also=(to.local.Scaffold(option="I"),)),
    "scaffold from gradients": to.average_participating(also=(to.local.Scaffold(initial="gradients"),)),
    "amplified_scaffold": to.amplified_scaffold(),
    "feddyn": to.feddyn(),
    "fedprox": to.fedprox(mu=0.5),
    "focus": to.focus(),
    "fednova": to.fednova(),
    "folb": to.folb(cohort_size=3),
    "fednu": to.fednu(cohort_size=2),
    "power_of_choice": to.power_of_choice(candidates=4, cohort_size=2),
    "oort": to.oort(cohort_size=2),
    "qffl": to.qffl(to.Sgd(lr=LR)),
    "clip": to.fedavg(also=(to.guard.Clip(0.05),)),
    "top_k": to.fedavg(also=(to.guard.TopK(share=0.2),)),
    "qsgd": to.scaffold(also=(to.guard.Qsgd(bits=4),)),
    "fedper": to.fedper(),
    "fedbabu": to.fedbabu(),
    "fedsim": to.fedsim(),
    "fedalt": to.fedalt(),
    "fedrep": to.fedrep(),
    "ditto": to.ditto(),
    "scaffold_p": to.scaffold_p(),
    "fedbuff": to.fedbuff(),
}


@pytest.mark.parametrize("name", CASES)
def test_model_equals_that_of_a_simulation(name, tmp_path):
    algorithm = CASES[name]
    if isinstance(algorithm.selection, to.selection.Uniform):
        algorithm = replace(algorithm, selection=to.selection.AllAvailable())
    params, expected = over_grid(algorithm, tmp_path, 4), simulated(algorithm, 4)
    torch.testing.assert_close(params[: len(expected)], expected, rtol=1e-4, atol=1e-6)
    assert not torch.equal(
        params[: len(expected)], torch.cat([p.detach().reshape(-1) for p in net().parameters()])[: len(expected)]
    )


@pytest.mark.parametrize("after", [2, 3, 4])
@pytest.mark.parametrize("name", ["scaffold", "fedper", "top_k"])
def test_killed_server_app_continues_with_client_state(name, after, tmp_path):
    algorithm = replace(CASES[name], selection=to.selection.AllAvailable())
    rule = Rule(algorithm, folder=tmp_path / "run", mod=True, min_nodes=4, poll=0.01)
    grid = OneProcess(NODES, client_app(algorithm, tmp_path / "clients"))
    grid.kill_at(after)
    with pytest.raises(Killed):
        rule.start(grid, ArrayRecord(net().state_dict()), num_rounds=4)
    params = over_grid(algorithm, tmp_path, 4)
    assert torch.equal(params, over_grid(algorithm, tmp_path / "again", 4))


class Lossy(OneProcess):
    """A grid on which the first reply of a node is lost."""

    lost = 0

    def _answer(self, message: Message, node: int) -> Message:
        reply = super()._answer(message, node)
        if node == 22 and not self.lost:
            self.lost += 1
            return Message(Error(1, "lost"), reply_to=message)
        return reply


def test_control_variates_stay_the_mean_after_a_lost_reply(tmp_path):
    algorithm = replace(to.scaffold(), selection=to.selection.AllAvailable())
    rule = Rule(algorithm, folder=tmp_path / "run", mod=True, min_nodes=4, poll=0.01, retry=0.001)
    grid = Lossy(NODES, client_app(algorithm, tmp_path / "clients"))
    rule.start(grid, ArrayRecord(net().state_dict()), num_rounds=5)
    assert grid.lost == 1
    shared = []
    grid.pulls = lambda: shared.extend(
        message.content["turnout.shared"].to_torch_state_dict()["control"] for message in grid._waiting.values()
    )
    rule.start(grid, ArrayRecord(net().state_dict()), num_rounds=6)
    folders = sorted((tmp_path / "clients").iterdir())
    before = [load_file(folder / "memory.safetensors")["control"] for folder in folders]
    torch.testing.assert_close(shared[0], torch.stack(before).mean(0), rtol=1e-5, atol=1e-7)


def test_evaluations_of_other_strategies_use_the_personal_part(tmp_path):
    algorithm = replace(to.fedper(), selection=to.selection.AllAvailable())
    app = client_app(algorithm, tmp_path / "clients")
    rule = Rule(algorithm, folder=tmp_path / "run", mod=True, min_nodes=4, poll=0.01)
    rule.start(OneProcess(NODES, app), ArrayRecord(net().state_dict()), num_rounds=3)
    received = []

    def look(message: Message, _: Context) -> Message:
        received.append(message.content["arrays"].to_torch_state_dict())
        return message

    for node in NODES:
        message = Message(RecordDict({"arrays": ArrayRecord(net().state_dict())}), node, "evaluate")
        mod(algorithm, tmp_path / "clients")(message, Context(0, node, {}, RecordDict(), {}), look)
    first = net().state_dict()
    for arrays in received:
        assert torch.equal(arrays["0.weight"], first["0.weight"])
        assert not torch.equal(arrays["2.weight"], first["2.weight"])


def failing(tmp_path, caplog, server: to.Algorithm, app: ClientApp) -> str:
    """Return the log of a run whose tasks fail."""
    rule = Rule(server, folder=tmp_path / "run", mod=True, min_nodes=4, poll=0.01, retry=0.001)
    with pytest.raises(Diverged):
        rule.start(OneProcess(NODES, app), ArrayRecord(net().state_dict()), num_rounds=20)
    return caplog.text


def everyone(algorithm: to.Algorithm) -> to.Algorithm:
    return replace(algorithm, selection=to.selection.AllAvailable())


def test_different_algorithm_at_the_clients_is_refused(tmp_path, caplog):
    text = failing(tmp_path, caplog, everyone(to.fedprox(mu=0.1)), client_app(to.fedprox(mu=0.5), tmp_path / "clients"))
    assert "the server has other options of corrections, guards or personal parameters than fedprox here" in text


def test_client_app_without_optimizer_steps_is_refused(tmp_path, caplog):
    app = client_app(to.scaffold(), tmp_path / "clients", freezes=True)
    text = failing(tmp_path, caplog, everyone(to.scaffold()), app)
    assert "Scaffold: the ClientApp took no step of an optimizer of torch.optim to correct" in text


def test_failure_of_the_client_app_is_the_reason(tmp_path, caplog):
    app = ClientApp(mods=[mod(to.fedavg(), tmp_path / "clients")])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        del context
        return Message(Error(0, "the sensor is off"), reply_to=message)

    assert "the ClientApp failed: the sensor is off" in failing(tmp_path, caplog, everyone(to.fedavg()), app)


def test_client_app_without_the_mod_is_refused(tmp_path, caplog):
    text = failing(tmp_path, caplog, everyone(to.fedavg()), client_app(to.fedavg(), tmp_path, mods=False))
    assert "the reply is not one of the mod: write mods=[turnout_flower.mod(...)] in the ClientApp" in text


def test_unsupported_algorithm_is_refused():
    with pytest.raises(
        ConfigurationError, match="perfedavg does not run in a ClientApp: Meta replaces the local training loop"
    ):
        mod(to.perfedavg())


def test_parameters_of_another_model_are_refused():
    steps = Steps(Arrays({"weight": torch.ones(3)}), torch.ones(3), lambda gradient, _: gradient, stay=False)
    weight = nn.Parameter(torch.zeros(3))
    weight.grad = torch.ones(3)
    with pytest.raises(ConfigurationError, match=r"shape \(3,\) that is none of the received arrays"):
        steps.before(torch.optim.SGD([weight], lr=0.1))
    weight.data = torch.ones(3)
    steps.before(torch.optim.SGD([weight], lr=0.1))
    with pytest.raises(ConfigurationError, match="steps other parameters than before"):
        steps.before(torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=0.1))


def test_weight_decay_does_not_change_frozen_parameters(tmp_path):
    algorithm = everyone(to.fedbabu())
    params = over_grid(algorithm, tmp_path, 2, weight_decay=0.5, momentum=0.9)
    first = torch.cat([value.reshape(-1) for value in net().state_dict().values()])
    assert not torch.equal(params[:16], first[:16])
    for folder in (tmp_path / "clients").iterdir():
        memory = load_file(folder / "memory.safetensors")["personal"]
        assert torch.equal(memory, first[16:])


def test_running_statistics_are_refused_with_client_corrections(tmp_path):
    algorithm = everyone(to.feddyn())
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))

    def app(message: Message, _: Context) -> Message:
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = examples(0)
        nn.functional.cross_entropy(model(x), y).backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": 8})}
        return Message(RecordDict(content), reply_to=message)

    order = {"task": 0, "version": 0, "repeat": 0, "phase": "train", "client": 0, "seed": 0, "taken": -1}
    order |= {"arrays": "arrays", "examples": "num-examples", "run": "r", "client_part": client_part(algorithm)}
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "turnout": ConfigRecord(order)})
    with pytest.raises(ConfigurationError, match="other arrays moved as well, such as running statistics"):
        mod(algorithm, tmp_path)(Message(content, 11, "train"), Context(0, 11, {}, RecordDict(), {}), app)


def test_layers_are_recognized_by_array_names():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2))
    state = ArrayRecord(model.state_dict())
    chosen = {kind: Arrays.of(to.fedper(personal=kind), state).personal for kind in ("head", "norms", "first")}
    assert chosen["head"] == {"3.weight", "3.bias"}
    assert chosen["norms"] == {f"1.{name}" for name in ("weight", "bias", "running_mean", "running_var")}
    assert chosen["first"] == {"0.weight", "0.bias"}
