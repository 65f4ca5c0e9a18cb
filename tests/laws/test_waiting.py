"""Nobody waits for a device inside a round, as told by one that holds no numbers: whatever reads a value there fails."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from turnout import Sgd, configuration
from turnout.base import server_step as step
from turnout.base.server_step import server_step
from turnout.core.types import Report
from turnout.data import shards
from turnout.engine import validate
from turnout.engine.compile import compiled
from turnout.privacy.noise import GridNoise
from turnout.simulation import Simulation, workspace
from turnout.simulation.metrics import Judge

from .recipes import COVERING, LOCAL, RECIPES, SERVER, SOME, experiment
from .test_reports import KNOWN, P, batches

NOWHERE = torch.device("meta")

_SINGULAR = "singular values are computed by an algorithm that looks at its own numbers"
MORE = {
    "mw_fed": "who is not content is counted on the host, between the first weights and the last",
    "flexlora": _SINGULAR,
    "raflora": _SINGULAR,
}
"""Recipes whose server step reads something before its end."""

_CHOICE = "whom to train is chosen on the host, by what was measured"
_MEMORY = "what clients remember lives on the host: what they sent goes there"
_FACTORS = "the server's step waits"
_FIRST = "losses of the received model are summed on the host, client by client, before the first local step"
ROUNDS: dict[str, str] = {name: _MEMORY for name in RECIPES if RECIPES[name](LOCAL).personal or "scaffold" in name}
for _name, _make in RECIPES.items():
    if any(piece.memory(1, torch.float32) for piece in (*_make(LOCAL).guard, *_make(LOCAL).corrections)):
        ROUNDS[_name] = _MEMORY
ROUNDS |= {name: _CHOICE for name in RECIPES if "fednu" in name and name != "fednu, uniform"}
ROUNDS |= {name: _CHOICE for name in RECIPES if "power_of_choice" in name}
ROUNDS |= {name: _FIRST for name in RECIPES if "maxfl" in name or "oort" in name or name in ("qffl", "mw_fed")}
ROUNDS |= dict.fromkeys(("flexlora", "raflora"), _FACTORS) | {"hetlora": "frozen weights are hashed, once a run"}
"""Recipes whose clients, or whose selection, read something."""


class NoCopyThatWaits(TorchDispatchMode):
    """Refuse copies to a device that block the host until the device is idle."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default:
            moves = args[0].device != NOWHERE and kwargs.get("device") == NOWHERE
            assert not moves or kwargs.get("non_blocking"), "a copy that waits"
        if func is torch.ops.aten.copy_.default:
            assert args[0].device == args[1].device, "a copy that waits"
        return func(*args, **kwargs)


@pytest.fixture
def reads(monkeypatch):
    """Return the number of reports at each read of the server; all reads say that reports are finite."""
    found: list[int] = []

    def read(after, info, sums):
        assert after.params.device == NOWHERE
        assert all(total.device == NOWHERE for total in sums)
        found.append(len(info["weights"]))
        assert all(value.device == NOWHERE for value in info.values() if isinstance(value, torch.Tensor))
        return after, {name: _here(value) for name, value in info.items()}, True, True

    monkeypatch.setattr(step, "_read", read)
    # a device that holds no numbers draws none
    monkeypatch.setattr(GridNoise, "drawn", lambda *given: torch.zeros(given[2], dtype=torch.float64, device=NOWHERE))
    return found


def _here(value):
    """A figure with its numbers on the host."""
    return torch.zeros(value.shape, dtype=value.dtype) if isinstance(value, torch.Tensor) else value


def there(report: Report | None) -> Any:
    """Reports whose numbers are on the device."""
    if report is None:
        return None
    extra, seen = ({name: v.to(NOWHERE) for name, v in of.items()} for of in (report.extra, report.seen))
    return replace(report, delta=report.delta.to(NOWHERE), extra=extra, seen=seen, measured=there(report.measured))


def steps(name):
    algorithm, known = RECIPES[name](LOCAL), replace(KNOWN, device=NOWHERE)
    state = algorithm.init(torch.zeros(P, dtype=torch.float64, device=NOWHERE), known)
    reports = [there(one) for one in batches(rounds=4)]
    with NoCopyThatWaits():
        for one in reports:
            state, _ = server_step(algorithm, state, one, known)
    return reports


@pytest.mark.parametrize("name", [name for name in SERVER if name not in MORE])
def test_server_step_synchronizes_with_the_device_once(name, reads):
    reports = steps(name)
    assert reads == [len(one) for one in reports]


@pytest.mark.parametrize("name", MORE)
def test_further_synchronizations_of_a_server_step_are_detected(name, reads):
    with pytest.raises(RuntimeError, match="meta"):
        steps(name)
    assert not any(reads)


def simulation_of(name, monkeypatch, local=LOCAL):
    """A simulation on a device without numbers; what is looked at before the first round is not looked at."""
    monkeypatch.setattr(configuration, "check_device", lambda _: None)  # which refuses a device without numbers
    monkeypatch.setattr(shards, "check_finite", lambda *_: None)
    monkeypatch.setattr(validate, "check", lambda *_: None)
    monkeypatch.setattr(Judge, "check", lambda *_: None)
    monkeypatch.setattr(Simulation, "_try_figures", lambda *_: None)
    return Simulation(experiment(name, local=local, device="meta", engine="vectorized"))


def rounds(name, monkeypatch, local=LOCAL):
    """Two rounds with their records, and without evaluations."""
    simulation = simulation_of(name, monkeypatch, local)
    with NoCopyThatWaits():
        for _ in range(2):
            simulation.round()
            assert simulation.row.get("local_loss", 0.0) == 0.0  # private runs record none


@pytest.mark.parametrize("name", [name for name in dict.fromkeys([*COVERING, *SOME]) if name not in ROUNDS])
def test_round_synchronizes_with_the_device_once(name, reads, monkeypatch):
    rounds(name, monkeypatch)
    assert len(reads) == 2


def test_evaluation_has_as_many_examples_per_call_as_training_has_room_for(monkeypatch):
    assert simulation_of("fedavg", monkeypatch).objective.examples_per_call == 8192
    monkeypatch.setattr(workspace, "lanes_per_chunk", lambda *_: 300)
    assert simulation_of("fedavg", monkeypatch).objective.examples_per_call == 300 * LOCAL.batch_size
    monkeypatch.setattr(workspace, "lanes_per_chunk", lambda *_: 1)
    assert simulation_of("fedavg", monkeypatch).objective.examples_per_call == 500
    assert Simulation(experiment("fedavg")).objective.examples_per_call == 500


def test_round_of_unequal_numbers_of_steps_synchronizes_once(reads, monkeypatch):
    monkeypatch.setattr(compiled, "_CALLS", 10**9)  # the first two calls of a trace are compared with its function
    rounds("fedau", monkeypatch, Sgd(lr=0.1, steps=None, epochs=1, batch_size=8, momentum=0.5))
    assert len(reads) == 2


@pytest.mark.parametrize("name", [name for name in SOME if name in ROUNDS])
def test_further_synchronizations_of_a_round_are_detected(name, reads, monkeypatch):  # noqa: ARG001 - nothing is read in earnest
    with pytest.raises(RuntimeError, match="meta"):
        rounds(name, monkeypatch)
