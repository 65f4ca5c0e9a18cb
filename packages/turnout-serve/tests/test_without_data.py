"""A server without data: it knows the shape of an example, and trains what a server with data trains, bit for bit."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.children import Child
from tests.laws.recipes import experiment

import turnout as to
from turnout.core.checks import ConfigurationError, DataError
from turnout.data import declared
from turnout.population.availability import Everyone
from turnout.simulation import Simulation
from turnout_serve.cli.commands.replay import _write_trace
from turnout_serve.cli.deployed import announced, experiment_of, with_test
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server
from turnout_serve.server.run.served_experiment import ServedExperiment

from .test_crashes import free_port
from .test_laws import NAMES
from .test_network import cli
from .world import LOCAL, World

SERVED = Path(__file__).parents[3] / "examples" / "served.toml"


def without_data(run):
    """The same experiment of a server that knows the shape of its data alone."""
    data = run.data
    kind = {torch.float32: "float32", torch.float64: "float64", torch.int64: "int64"}[data.train.x.dtype]
    return replace(
        run, data=declared(data.input_shape, data.num_classes, input_type=kind, num_clients=data.num_clients)
    )


@pytest.mark.parametrize("name", NAMES)
def test_formats_of_reports_equal_those_with_data(name):
    """Names, types and shapes of all phases, the bound of norms, and how clients compute follow from the shape alone."""
    there, here = ServedExperiment.of(experiment(name)), ServedExperiment.of(without_data(experiment(name)))
    assert here.objective.engine == there.objective.engine
    assert {phase: each.manifest for phase, each in here.setting.reports.items()} == {
        phase: each.manifest for phase, each in there.setting.reports.items()
    }
    assert here.setting.reports["train"].max_norm == there.setting.reports["train"].max_norm
    assert torch.equal(here.setting.initial, there.setting.initial)
    assert here.setting.score is None


@pytest.mark.parametrize(
    ("data", "model", "options"),
    [
        (declared((1, 28, 28), 10), to.models.Cnn(hidden=(8,), channels=2), {}),
        (declared(20, 80, input_type="int64"), to.models.CharLstm(), {}),
        (declared(5, outputs=1), torch.nn.Sequential(torch.nn.Linear(5, 1)), {"loss": to.loss.squared_error}),
        (
            declared(6, 3),
            torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3)),
            {"algorithm": to.fedbn(LOCAL)},
        ),
    ],
)  # fmt: skip
def test_model_is_tried_on_zeros(data, model, options):
    setting = ServedExperiment.of(to.Experiment(data, model, **{"algorithm": to.fedau(LOCAL), **options})).setting
    assert setting.reports["train"].manifest["delta"].shape == (1, len(setting.initial))


def test_model_that_does_not_fit_the_declared_shape_is_refused():
    with pytest.raises(ConfigurationError, match=r"the model does not fit the data: inputs \(16, 5\)"):
        ServedExperiment.of(to.Experiment(declared(5, 2), torch.nn.Linear(6, 2), to.fedau(LOCAL)))
    with pytest.raises(ConfigurationError, match="the model"):
        ServedExperiment.of(to.Experiment(declared(6, 3), torch.nn.Linear(6, 2), to.fedau(LOCAL)))


@pytest.mark.parametrize("name", ["fedau", "folb", "scaffold_p", "maxfl"])
def test_server_without_data_equals_simulation(folder, name, capsys):
    run = experiment(name, rounds=2, population=to.Population(Everyone()))
    simulation = Simulation(run)
    for _ in range(2):
        simulation.round()
    deployed = World(run, folder, served=without_data(run))
    try:
        deployed.run()
        assert torch.equal(deployed.host.driver.params, simulation.state.params)
        deployed.host.service.writer.checkpoint()
        history = to.load(folder).history
        assert not len(history.column("test_accuracy")[1])  # nothing is judged by zeros
        replayed = replay(deployed.setting, folder)
        assert replayed.same is True
        _write_trace(replayed, folder / "trace", None, {"data": {"inputs": 4}, "rounds": 2}, declared(4, 2))
        assert "data" not in json.loads((folder / "trace" / "simulation.json").read_text())
        number = run.data.num_clients  # of the clients that took part: their data stay with them
        assert f"simulation.json --data NAME data.num_clients={number}" in capsys.readouterr().out
        named = {"name": "digits", "inputs": 64}
        _write_trace(replayed, folder / "named", None, {"data": named, "rounds": 2}, declared(64, 10))
        assert json.loads((folder / "named" / "simulation.json").read_text())["data"] == named
        assert "--data NAME" not in capsys.readouterr().out
    finally:
        deployed.close()


def test_cohorts_larger_than_the_declared_clients():
    """How many clients there are is not known before they come."""
    setting = ServedExperiment.of(
        to.Experiment(declared(4, 2), to.models.Logistic(), to.ditto(LOCAL, cohort_size=10))
    ).setting
    assert setting.check_clients(10, None) == 100_000


# By the commands that people type.


OWN = """
import torch
import turnout as to

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
    def forward(self, x):
        return self.layers(x)

def experiment():
    torch.manual_seed(0)
    return to.Experiment(to.data.declared(5, classes=3), Net(), to.fedau(), rounds=2, evaluate_every=1)

def examples():
    return torch.rand(20, 5), torch.arange(20) % 3

def square():
    return torch.rand(20, 8, 8), torch.arange(20) % 3
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "two.toml").write_text("[algorithms.fedau]\n[algorithms.fedrep]\n")
    return tmp_path / "own.py"


def served(folder, source, *overrides, test=None):
    made, settings = experiment_of(source, overrides, loads=False)
    told = None if settings is None else announced(settings)
    return Server(with_test(made, test), folder, told, Options(port=0, rate=0, min_clients=1))


def test_own_model_and_data_from_files(folder, own):
    """The server has the experiment's file, without data; each client that file, and its data."""
    made = served(folder / "run", f"{own}:experiment", test=f"{own}:examples")
    with made.listening() as url:
        mine = ("--data", f"{own}:examples", "--experiment", f"{own}:experiment")
        said = cli("join", url, *mine, "--state", folder / "client")
        assert "the run is over: 2 reports were taken" in said
        assert "sending the report on task 1 (train, version 1)" in said
    result = to.load(folder / "run")
    assert result.history.column("test_accuracy")[0].tolist() == [1, 2]  # by the server's own test examples
    assert list(result.state_dict()) == [
        "layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias"
    ]  # fmt: skip


def test_settings_file_declares_the_shape(folder, own):
    """Clients of such a server need their data alone."""
    (folder / "run.toml").write_text(
        'rounds = 2\n[algorithm]\nname = "fedavg"\n[data]\ninputs = 5\nclasses = 3\n[model]\nname = "logistic"\n'
    )
    made = served(folder / "run", str(folder / "run.toml"))
    with made.listening() as url:
        no_data = "the server has no data, and knows only that inputs have shape [5]: give the data of this client"
        assert no_data in cli("join", url, "--data", "declared", "--client", 0, code=2)
        assert no_data in cli("swarm", url, code=2)
        assert "the server's data are 'declared': give that name" in cli("join", url, "--data", "digits", code=2)
        assert "has shape (8, 8), and the server's (5,)" in cli("join", url, "--data", f"{own}:square", code=2)
        said = cli("join", url, "--data", f"{own}:examples", "--state", folder / "client")
        assert "the run is over: 2 reports were taken" in said
    assert made.driver.version == 2


def test_invalid_declarations_are_refused(own):
    made = own.parent
    python = ("serve", f"{own}:experiment")
    assert "own.py:experiment describes the entire experiment: leave rounds=5 out" in cli(*python, "rounds=5", code=2)
    said = cli(*python, "--inputs", "auto", "--classes", 3, code=2)
    assert "leave --inputs out, and write to.Experiment(to.data.declared(30, classes=3), ...) there" in said
    assert "in FILE.toml or as KEY=VALUE, can have the shape of the first client" in said
    said = cli(*python, "--evaluate-share", 0.5, code=2)
    assert "leave --evaluate-share out, and write to.Experiment(..., evaluate_share=0.5) there" in said
    assert "algorithm=to.fedrep(...)) there" in cli(*python, "--algorithm", "fedrep", code=2)
    assert "add --algorithm fedau|fedrep" in cli("serve", own.parent / "two.toml", code=2)
    for words in ([], ["data.inputs=5", "data.classes=3"]):
        assert experiment_of(None, words, loads=False, algorithm="fedrep")[0].algorithm.name == "fedrep"
    assert "data.inputs: got 'five'" in cli("serve", "--inputs", "five", "--classes", 2, code=2)
    assert "--test: got 'digits', needed FILE.py:FUNCTION" in cli(
        "serve", "--inputs", 5, "--classes", 3, "--test", "digits", "--folder", made / "run", code=2
    )
    assert "an example has shape (8, 8), and the experiment's (5,)" in cli(
        "serve", "--inputs", 5, "--classes", 3, "--test", f"{own}:square", "--folder", made / "run", code=2
    )


def without_files(*commands):
    """``turnout`` in a process that may open no data: neither in scikit-learn, where the digits are, nor in TURNOUT_DATA."""

    def hook(event, given):
        if event == "open" and isinstance(given[0], str | Path):
            path = str(given[0])
            if "/sklearn/" in path or path.startswith(os.environ["TURNOUT_DATA"]):
                raise PermissionError(f"data are opened: {path}")

    sys.addaudithook(hook)
    import turnout_cli

    for command in commands:
        sys.argv = ["turnout", *command]
        with pytest.raises(SystemExit, match=r"^(0|None)$"):
            turnout_cli.main()
    with pytest.raises(DataError, match="data are opened"):  # as by a server that loads them
        experiment_of(str(SERVED), ())


def test_the_demos_server_opens_no_file_of_data(folder, tmp_path):
    """Its clients have the data; the model is that of a server with data, and so is its replay."""
    port, run = free_port(), folder / "run"
    serve = ["serve", str(SERVED), "rounds=1", "data.num_clients=4", "--folder", str(run), "--port", str(port)]
    serve += ["--inputs", "64", "--classes", "10", "--min-clients", "3", "--rate", "0", "--linger", "0.5"]
    server = Child(folder, without_files, serve, ["replay", str(run)], TURNOUT_DATA=str(tmp_path))
    server.wait_for(lambda: "serving at" in server.output)
    said = cli("swarm", f"http://127.0.0.1:{port}", "--availability", "everyone")
    assert "the run is over" in said
    code, out, err = server.ended()
    assert code == 0, err
    assert "this server has no examples, so losses and accuracies of the model are not recorded" in " ".join(
        err.split()
    )
    assert "the same model as in the checkpoint, bit for bit" in out
