"""``FILE.py:NAME`` for pieces of every family, on the command line only."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from turnout.cli.layers import override
from turnout.cli.settings import Settings
from turnout.core.checks import ConfigurationError
from turnout_serve.cli.joining import _refuse_names_of_files

Turnout = Callable[..., Any]

FILE = '''
from dataclasses import dataclass, replace
import numpy as np, torch, turnout as to
from torch import nn


@dataclass(frozen=True)
class Workdays(to.pieces.Availability):
    """Five of seven rounds."""
    shifted: bool = False

    def bind(self, num_clients, label_counts=None, seed=0):
        return BoundWorkdays(num_clients, np.full(num_clients, 5 / 7), self.shifted)


@dataclass(frozen=True, eq=False)
class BoundWorkdays(to.pieces.BoundAvailability):
    shifted: bool

    def available(self, clients, round):
        return (round + self.shifted * clients) % 7 < 5


@dataclass(frozen=True)
class RoundRobin(to.pieces.Partition):
    def assign(self, labels, num_clients, seed, client_ids=None):
        return [np.arange(client, len(labels), num_clients) for client in range(num_clients)]


@dataclass(frozen=True)
class FirstClients(to.pieces.Selection):
    most: int = 3

    def select(self, candidates):
        return candidates.everyone()[: self.most]


@dataclass(frozen=True)
class Halved(to.pieces.Guard):
    by: float = 0.5

    def apply(self, report, task, memory, clients):
        return replace(report, delta=report.delta * self.by)


@dataclass(frozen=True)
class Summed(to.pieces.Aggregation):
    only_sums = True

    def apply(self, weights, report, state, federation):
        return report.updates.weighted_sum(weights).to(federation.dtype), state


@dataclass(frozen=True)
class Stepped(to.pieces.Server):
    lr: float = 0.5

    def apply(self, params, direction, version, state):
        return params + self.lr * direction, state


@dataclass(frozen=True)
class Falling(to.pieces.Schedule):
    initial: float = 0.1

    def at(self, version):
        return self.initial / (1.0 + version)


class Lines(to.pieces.Tracker):
    def begin(self, config, known, name):
        print("tracker begins", config["rounds"])

    def log(self, round, figures):
        print("tracker logs", round)

    def end(self, status, figures):
        print("tracker ends", status)


class Network(nn.Module):
    def __init__(self, hidden: int = 4):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, x):
        return self.layers(x)


def regression(examples: int = 60, seed: int = 0):
    x = np.random.default_rng(seed).normal(size=(examples, 5)).astype(np.float32)
    return to.data.from_arrays(x, x.sum(axis=1), name="regression")


def absolute_error(outputs, targets):
    return (outputs.reshape(targets.shape) - targets).abs()


class Abstract(to.pieces.Guard):
    pass
'''


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FILE, encoding="utf-8")
    return tmp_path / "mine.py"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--availability", "mine.py:Workdays", "availability.shifted=true"),
        ("data.partition=mine.py:RoundRobin", "data.num_clients=5"),
        ("selection=mine.py:FirstClients", "selection.most=2"),
        ("also.mine.py:Halved.by=0.25",),
        ("aggregation=mine.py:Summed",),
        ("server=mine.py:Stepped", "server.lr=0.1"),
        ('local.lr={kind="mine.py:Falling", initial=0.2}',),
        ("--model", "mine.py:Network", "model.hidden=3", "data.num_clients=5", "--availability", "everyone"),
    ],
    ids=lambda arguments: arguments[0],
)
@pytest.mark.usefixtures("mine")
def test_piece_from_a_file_runs_and_resumes(arguments: tuple[str, ...], turnout: Turnout, tmp_path: Path) -> None:
    small = () if "data.num_clients=5" in arguments else ("--model", "logistic", "data.num_clients=10", "data.alpha=1")
    result = turnout("run", *small, *arguments, "--rounds", "2", "--quiet", "--folder", tmp_path / "a")
    assert result.exit_code == 0, result.output
    settings = json.loads((tmp_path / "a" / "settings.json").read_text())
    assert "mine.py:" in json.dumps(settings)
    refused = turnout("run", "--resume", tmp_path / "a", "--rounds", "3", "--quiet")
    assert refused.exit_code == 2
    assert "names code, 'mine.py:" in refused.stderr
    result = turnout("run", "--resume", tmp_path / "a", "--rounds", "3", "--quiet", "--code", "mine.py")
    assert result.exit_code == 0, result.output


@pytest.mark.usefixtures("mine")
def test_tracker_from_a_file_needs_no_package(turnout: Turnout, small: tuple[str, ...]) -> None:
    result = turnout("run", *small, "--rounds", "1", "--quiet", "--track", "mine.py:Lines")
    assert result.exit_code == 0, result.output
    for line in ("tracker begins 1", "tracker logs 1", "tracker ends finished"):
        assert line in result.stdout


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize("loss", ["squared_error", "mine.py:absolute_error"])
def test_regression_on_a_data_set_from_a_file(loss: str, turnout: Turnout, tmp_path: Path) -> None:
    call = ("run", "--data", "mine.py:regression", "data.partition=iid", "data.num_clients=4", "--model", "logistic")
    result = turnout(*call, "--loss", loss, "--rounds", "2", "--quiet", "--folder", tmp_path / "a")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "a" / "settings.json").read_text())["loss"] == {"name": loss}


@pytest.mark.usefixtures("mine")
def test_data_set_from_a_file_has_no_default_model() -> None:
    with pytest.raises(
        ConfigurationError, match=r"model: there is no default one for mine.py:regression: write --model"
    ):
        Settings.of(override("data=mine.py:regression"))


@pytest.mark.usefixtures("mine")
def test_settings_of_pieces_from_a_file_are_printed(turnout: Turnout) -> None:
    result = turnout("run", "--availability", "mine.py:Workdays", "--model", "mine.py:Network", "--print-config")
    assert result.exit_code == 0, result.output
    assert 'name = "mine.py:Workdays"\nshifted = false' in result.stdout
    assert 'name = "mine.py:Network"\nhidden = 4' in result.stdout


@pytest.mark.usefixtures("mine")
def test_weights_of_a_module_from_a_file_depend_only_on_the_seed() -> None:
    def weights(seed: int) -> torch.Tensor:
        model = Settings.of({"model": "mine.py:Network", "seed": seed}).model()
        assert isinstance(model, torch.nn.Module)
        return model.state_dict()["layers.0.weight"]

    first = weights(0)
    torch.rand(3)
    assert torch.equal(first, weights(0))
    assert not torch.equal(first, weights(1))


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "availability=mine.py:Halved",
            "mine.py:Halved is no availability: needed a class that derives from Availability",
        ),
        ("selection=mine.py:Workdays", "mine.py:Workdays is no selection: needed a class that derives from Selection"),
        ("also.mine.py:Abstract={}", "mine.py:Abstract is no piece: needed a class that derives from Correction or"),
        ("loss=mine.py:Network", "mine.py:Network is no loss: needed a function that returns Tensor"),
        (
            "data.partition=mine.py:Workdays",
            "mine.py:Workdays is no partition: needed a class that derives from Partition",
        ),
        ("data=mine.py:Workdays", "mine.py:Workdays is no data set: needed a class|function that returns Source"),
        ("availability=mine.py:Workday", "mine.py has no function or class 'Workday': did you mean 'Workdays'"),
        ("availability=other.py:Workdays", "other.py:Workdays: there is no file other.py: needed FILE.py:NAME"),
        (
            'local.lr={kind="mine.py:Halved"}',
            "mine.py:Halved is no schedule: needed a class that derives from Schedule",
        ),
        ("loss.delta=1", "loss has options but no name|unknown option 'loss.delta'"),
        ("loss=squared_eror", "did you mean 'squared_error'"),
    ],
)
def test_object_of_another_family_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Settings.of(override(text))


def test_changed_file_is_executed_again(mine: Path) -> None:
    assert Settings.of(override("server=mine.py:Stepped")).algorithm().server.lr == 0.5  # type: ignore[attr-defined]
    mine.write_text(FILE.replace("lr: float = 0.5", "lr: float = 0.125"), encoding="utf-8")
    assert Settings.of(override("server=mine.py:Stepped")).algorithm().server.lr == 0.125  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "layer"),
    [
        ("also.mine.py:Halved.by=0.5", {"also": {"mine.py:Halved": {"by": 0.5}}}),
        ("also.../a.b/mine.py:Halved={}", {"also": {"../a.b/mine.py:Halved": {}}}),
        ("selection=mine.py:First", {"selection": "mine.py:First"}),
    ],
)
def test_file_names_in_settings_are_absolute(text: str, layer: dict[str, Any]) -> None:
    assert override(text) == layer


@pytest.mark.parametrize("settings", [{"also": {"mine.py:Halved": {}}}, {"selection": {"name": "mine.py:First"}}])
def test_server_cannot_name_code_for_its_clients(settings: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigurationError, match=r"the server's settings name a file .*mine.py:.* is not read for a server"
    ):
        _refuse_names_of_files(settings)
