"""Personal parameters: selection, updates, and confidentiality."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from turnout import ConfigurationError, Experiment, Population, Sgd, compose, models
from turnout.base import Guard
from turnout.core.types import Report, Task
from turnout.engine.parameters import Layout
from turnout.pieces.aggregation import Mifa
from turnout.pieces.guard import Clip
from turnout.pieces.local import Scaffold, StartGradient, StartLoss, UniformWork
from turnout.pieces.personalization.partial import Personal
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import ByExamples, DivideByClients, DivideBySum, Participation
from turnout.population.availability import Bernoulli
from turnout.record import checkpoint
from turnout.simulation import Simulation, running

from ...phases import ask, train

N = 8
EVERYONE = np.arange(N)
MODEL = models.Mlp(hidden=(6, 5))
HEAD = 5 * 4 + 4
SHARED = 16 * 6 + 6 + 6 * 5 + 5


def simulation_of(data, *pieces, local=None, **options):
    local = local or Sgd(lr=0.2, steps=4, batch_size=8)
    options = {"model": MODEL, "population": Population(Bernoulli(mean=0.5)), "rounds": 20, **options}
    return Simulation(Experiment(data, algorithm=compose(local, *pieces), evaluate_every=20, **options))


def own(simulation):
    """Return the personal parameters of all clients, ``[N, P_v]``."""
    return simulation.memory.gather(EVERYONE)["personal"]


class Mixed(nn.Module):
    """Layers inside layers, normalizations, a parameter of its own, a frozen one."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.GroupNorm(2, 4), nn.Linear(4, 4, bias=False))
        self.norm = nn.LayerNorm(4)
        self.classifier = nn.Linear(4, 2)
        self.scale = nn.Parameter(torch.ones(1))
        self.frozen = nn.Linear(1, 1).requires_grad_(False)


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ("head", {"classifier.weight", "classifier.bias"}),
        ("first", {"scale"}),
        ("norms", {"body.1.weight", "body.1.bias", "norm.weight", "norm.bias"}),
        ("none", set()),
        ("all", {"scale", "body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias", "body.2.weight"}
         | {"norm.weight", "norm.bias", "classifier.weight", "classifier.bias"}),
        ("*.bias", {"body.0.bias", "body.1.bias", "norm.bias", "classifier.bias"}),
        (("classifier.*", "scale"), {"classifier.weight", "classifier.bias", "scale"}),
        (("norms", "head"), {"body.1.weight", "body.1.bias", "norm.weight", "norm.bias"}
         | {"classifier.weight", "classifier.bias"}),
    ],
)  # fmt: skip
def test_personal_parameters_by_pattern(parameters, names):
    module = Mixed()
    chosen = Personal(parameters).chosen(module)
    assert chosen == names
    layout = Layout.of(module, lambda name: name in chosen)
    assert set(layout.names[len(layout.names) - len(names) :]) == names
    assert layout.num_params - layout.num_shared == sum(dict(module.named_parameters())[n].numel() for n in names)


@pytest.mark.parametrize(("model", "name"), [(MODEL, "output"), (models.CharLstm(2, 3, 1), "output")])
def test_head_of_built_in_models_is_the_output_layer(model, name):
    module = model.build((16,), 4)
    assert Personal().chosen(module) == {f"{name}.weight", f"{name}.bias"}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("output", "personal parameters 'output' match nothing of Mixed: its parameters are scale, body.0.weight"),
        (("head", "x*"), "personal parameters 'x\\*' match nothing"),
        ("*", "are all that Mixed has .*write 'all' if that is meant"),
        (
            lambda _: False,
            "the function of personal parameters chose none of scale, .*: choose some, or write 'all'",
        ),
        (lambda _: True, "the function of personal parameters chose all of scale, .* or write 'all' or 'none'"),
    ],
)
def test_patterns_without_match_are_refused(parameters, message):
    with pytest.raises(ConfigurationError, match=message):
        Personal(parameters).chosen(Mixed())


def test_model_without_the_kind_of_layer_is_refused():
    with pytest.raises(ConfigurationError, match="'norms' match nothing of Linear: it has no such layer"):
        Personal("norms").chosen(nn.Linear(2, 2))
    with pytest.raises(ConfigurationError, match="normalization layer '1' has no trainable weights: write affine=True"):
        Personal("norms").chosen(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False)))
    with pytest.raises(ConfigurationError, match=r"'head' are all that Linear has \(weight, bias\)"):
        Personal("head").chosen(nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parameters": ()}, "parameters: got \\(\\), needed one of head, first"),
        ({"parameters": ("head", 3)}, "parameters: got"),
        ({"lr_factor": 0.0}, "lr_factor: got 0.0"),
        ({"outer_lr": -1.0}, "outer_lr: got -1.0"),
        ({"alternate": 1.5}, "alternate: got 1.5"),
        ({"adaptation_steps": 0}, r"adaptation_steps: got 0, .* Or several, such as \(1, 5, 20\)"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        Personal(**options)


def test_update_rules_without_personal_parameters_are_refused():
    for pieces, idle in (
        ((Mifa(), DivideByClients()), "Mifa"),
        ((Clip(), Participation(), DivideByClients()), "Clip"),
    ):
        with pytest.raises(ConfigurationError, match=f"nothing for {idle} to act on"):
            compose(Personal("all"), *pieces)
    compose(Personal("all"), ByExamples(), DivideBySum(), ServerSgd(2.0), Scaffold())
    compose(Personal("all"), Participation(), DivideByClients())


def test_momentum_is_refused_with_alternating_parts():
    with pytest.raises(ConfigurationError, match="with momentum the velocity of one part would change it"):
        compose(Sgd(momentum=0.9), Personal(alternate=0.5))


def test_two_personalizations_are_refused():
    with pytest.raises(ConfigurationError, match="Personal and Personal are both for the slot 'personal'"):
        compose(Personal(), Personal("first"))


@dataclass(frozen=True)
class Wiretap(Guard):
    """Record reports after all other guards."""

    seen: ClassVar[list[tuple[Report, Task]]] = []

    def apply(self, report, task, memory, clients):
        del memory, clients
        self.seen.append((report, task))
        return report


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_personal_parameters_never_leave_their_client(tiny, tmp_path, engine):
    """Neither in messages of either direction nor in the state or checkpoint of the server."""
    Wiretap.seen.clear()
    pieces = (Personal(), StartGradient(), StartLoss(), Scaffold(initial="gradients"), Wiretap())
    simulation = simulation_of(tiny, *pieces, engine=engine)
    for _ in range(4):
        simulation.round()
    assert simulation.objective.layout.num_params == SHARED + HEAD
    assert simulation.server.federation.num_params == SHARED
    assert len(Wiretap.seen) > 3
    for report, task in Wiretap.seen:
        vectors = [*report.extra.values(), *(v for v in report.seen.values() if v.dim() > 1)]
        assert report.delta.shape[1] in (SHARED, 0)  # none before the first round
        assert [v.shape[1:] for v in vectors] == [(SHARED,)] * len(vectors)
        assert task.params.shape == (SHARED,)
        assert [v.shape for v in task.shared.values()] == [(SHARED,)]
    report, _ = Wiretap.seen[-1]
    assert {"start_gradient", "control"} <= report.seen.keys() | report.extra.keys()
    row = simulation.history.rounds.to_pylist()[-1]
    assert row["bytes_up"] == row["num_participants"] * (3 * 4 * SHARED + 2 * 4 + 24)
    running.save_simulation(simulation, tmp_path)
    saved, _ = checkpoint.load(tmp_path)
    assert saved["model/params"].shape == (SHARED,)
    elsewhere = ("memory/", "model.first/", "schedule.", "coordinator/")  # with clients; or who was asked when
    at_server = {name: value for name, value in saved.items() if not name.startswith(elsewhere)}
    assert saved["model.first/row"].equal(simulation.objective.initial[SHARED:])  # what all begin with is nobody's own
    assert all(value.shape[-1:] in ((SHARED,), ()) for value in at_server.values())
    assert [name for name in saved if "personal" in name] == ["memory/table.personal"]


def test_report_depends_only_on_the_clients_own_personal_part(tiny):
    one, other = simulation_of(tiny, Personal()), simulation_of(tiny, Personal())
    for simulation in (one, other):
        train(simulation, EVERYONE)
    memory = other.memory.gather(np.array([3]))
    other.memory.scatter(np.array([3]), memory | {"personal": memory["personal"] + 0.5})
    changed = (train(one, EVERYONE).updates.gathered() != train(other, EVERYONE).updates.gathered()).any(dim=1)
    assert changed.tolist() == [k == 3 for k in range(N)]


def test_personal_part_starts_from_the_first_model_and_persists(tiny):
    simulation = simulation_of(tiny, Personal())
    first = simulation.objective.initial[SHARED:]
    assert torch.equal(own(simulation), first.expand(N, -1))
    train(simulation, np.array([1, 4]))
    moved = (own(simulation) != first).any(dim=1)
    assert moved.tolist() == [k in (1, 4) for k in range(N)]
    assert (own(simulation)[1] - own(simulation)[4]).norm() > 0.01


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_shared_and_personal_parts_form_one_ordinary_update(tiny, engine):
    """One client, one round."""
    personal, whole = simulation_of(tiny, Personal(), engine=engine), simulation_of(tiny, engine=engine)
    sent, update = train(personal, EVERYONE), train(whole, EVERYONE).delta
    torch.testing.assert_close(sent.delta, update[:, :SHARED])
    kept = own(personal) - personal.objective.initial[SHARED:]
    torch.testing.assert_close(kept, update[:, SHARED:], rtol=1e-4, atol=1e-6)
    assert kept.norm() > 0.1


def test_outer_lr_scales_only_the_personal_update(tiny):
    plain, half = simulation_of(tiny, Personal()), simulation_of(tiny, Personal(outer_lr=0.5))
    first = plain.objective.initial[SHARED:]
    assert torch.equal(train(plain, EVERYONE).updates.gathered(), train(half, EVERYONE).updates.gathered())
    torch.testing.assert_close(own(half) - first, 0.5 * (own(plain) - first), rtol=1e-4, atol=1e-6)


def test_lr_factor_scales_only_personal_steps(tiny):
    """With one step there is one gradient, so both parts are known."""
    local = Sgd(lr=0.2, steps=1, batch_size=8, weight_decay=0.1)
    plain, scaled = (simulation_of(tiny, Personal(lr_factor=f), local=local) for f in (1.0, 2.5))
    first = plain.objective.initial[SHARED:]
    torch.testing.assert_close(train(plain, EVERYONE).delta, train(scaled, EVERYONE).delta)
    torch.testing.assert_close(own(scaled) - first, 2.5 * (own(plain) - first), rtol=1e-4, atol=1e-6)


def test_parts_alternate(tiny):
    """3 of 5 steps on the personal part, then 2 on the shared one."""
    simulation = simulation_of(tiny, Personal(alternate=0.6), local=Sgd(lr=0.2, steps=5, batch_size=8))
    sent = train(simulation, EVERYONE).updates.gathered()
    by_hand = simulation_of(tiny, local=Sgd(lr=0.2, steps=1, batch_size=8))
    params = by_hand.state.params.expand(N, -1)
    for step in range(5):
        by_hand.server.state = replace(by_hand.state, params=params)
        delta = train(by_hand, EVERYONE).updates.gathered()  # with one model each
        delta[:, slice(SHARED, None) if step >= 3 else slice(SHARED)] = 0.0
        params = params + delta
    start = by_hand.objective.initial
    torch.testing.assert_close(sent, (params - start)[:, :SHARED], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(own(simulation), params[:, SHARED:], rtol=1e-4, atol=1e-6)


def test_alternation_uses_each_clients_number_of_steps(tiny):
    """A client with one step trains the shared part; one with many begins with the personal part."""
    local = Sgd(lr=0.2, steps=UniformWork(1, 3), batch_size=8)
    simulation = simulation_of(tiny, Personal(alternate=0.5), local=local)
    report = train(simulation, EVERYONE)
    moved = (own(simulation) != simulation.objective.initial[SHARED:]).any(dim=1)
    assert {1} < set(report.num_steps.tolist())
    assert moved.tolist() == (report.num_steps > 1).tolist()
    assert report.delta.norm(dim=1).min() > 0


def test_dropped_client_keeps_its_personal_part(tiny):
    """Its training overflows, so the server drops its report."""
    data = replace(tiny, train=replace(tiny.train, x=tiny.train.x.clone()))
    data.train.client(4)[0].fill_(3e38)
    simulation = simulation_of(data, Personal())
    train(simulation, EVERYONE)
    moved = (own(simulation) != simulation.objective.initial[SHARED:]).any(dim=1)
    assert moved.tolist() == [k != 4 for k in range(N)]


def test_diverged_fully_personal_model_is_restored(tiny):
    """Nothing is sent that could show the divergence."""
    simulation = simulation_of(tiny, Personal("all"), local=Sgd(lr=1e38, steps=1, batch_size=8))
    for _ in range(3):
        train(simulation, EVERYONE)
    assert torch.isfinite(own(simulation)).all()


def test_measuring_before_selection_changes_no_personal_part(tiny):
    simulation = simulation_of(tiny, Personal())
    ask(simulation, EVERYONE, "measure")
    assert len(simulation.memory.state()["clients"]) == 0
