"""A client constructs the server's algorithm from the server's settings."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from tests.tiny import LOW_RANK
from torch.nn import ReLU

from turnout import ConfigurationError
from turnout.algorithms import ALGORITHMS
from turnout.cli.names import AGGREGATIONS, ALSO, PACES, SELECTIONS, SERVER_OPTIMIZERS
from turnout.cli.settings import Settings
from turnout.engine.trial import try_model
from turnout.record.describe import describe
from turnout_serve.cli.deployed import announced, experiment_of
from turnout_serve.cli.joining import clients_experiment, functions_of
from turnout_serve.client.computer import Computer
from turnout_serve.server import process
from turnout_serve.server.http.limits import Limits
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server
from turnout_serve.server.run.deployable import check

BASE = {"data": {"name": "digits", "num_clients": 8, "partition": "iid"}, "model": "mlp", "rounds": 3}
OPTIONS = {
    "known_statistics": {"rates": [0.5] * 8},
    "fedstale": {"rates": [0.5] * 8},
    "private_sum": {"norm": 1.0, "noise_multiplier": 1.0, "cohort": 8},
    "clip": {"norm": 1.0},
    "clip_controls": {"norm": 1.0},
    "prox": {"mu": 0.1},
    "top_k": {"share": 0.1},
    "random_k": {"share": 0.1},
    "secure_sum": {"largest": 64.0},
}
OF_RECIPES = {
    "aced",
    "aggregated",
    "feddyn",
    "fedstale",
    "kept_models",
    "mixture",
    "moreau",
    "noise_share",
    "tail_penalty",
}
"""Pieces that go with the rest of their own recipe alone, which has them already."""
SECTIONS = {"aggregation": AGGREGATIONS, "server": SERVER_OPTIMIZERS, "selection": SELECTIONS, "pace": PACES}
CHANGES = [
    {},
    *(
        {section: {"name": name, **OPTIONS.get(name, {})}}
        for section, names in SECTIONS.items()
        for name in names
        if name not in (*OF_RECIPES, "one_place")  # which needs the examples of all clients
    ),
    *({"also": {name: OPTIONS.get(name, {})}} for name in ALSO if name not in OF_RECIPES),
    {"server": "adam", "aggregation": "median", "also": {"clip": {"norm": 1.0}}, "local": {"momentum": 0.9}},
    {"aggregation": {"name": "private_sum", "norm": 1.0, "secure": {"fraction_bits": 20, "min_clients": 2}}},
    {"model": {"name": "cnn"}},
    {"population": {"opting": {"mandatory_rounds": 2}, "requirement": {"kind": "warm_up"}}},
]
"""What is said beside an algorithm."""
MOST = 2
"""Recipes that a change is tried with."""
DEPLOYED = [
    name
    for name in ALGORITHMS
    if name != "fedawe" and name not in LOW_RANK  # clients keep models; no adapters here
]


@pytest.fixture(scope="module")
def data():
    return Settings.of(BASE).data()


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """A client's own data: as `join --data FILE.py:FUNCTION` has them."""
    file = tmp_path_factory.mktemp("own") / "own.py"
    file.write_text("import torch\ndef examples():\n    return torch.rand(30, 64), torch.arange(30) % 10\n")
    return f"{file}:examples"


def sent(settings, experiment, engine=None):
    """Return the server's description of its run as received."""
    setting = SimpleNamespace(
        algorithm=experiment.algorithm,
        seed=experiment.seed,
        reports={"train": SimpleNamespace(manifest={})},
        description=describe(experiment),
        sums=experiment.sums_form(),
    )
    objective = SimpleNamespace(engine=engine, loss=None, network=SimpleNamespace(module=ReLU(), constants=()))
    server: Any = SimpleNamespace(
        store=SimpleNamespace(facts=SimpleNamespace(run="r", shape=None)),
        setting=setting,
        served=SimpleNamespace(objective=objective, visible=()),
        experiment=experiment,
        options=Options(),
    )
    return json.loads(json.dumps(Server.announcement(server, settings and announced(settings))))


@pytest.mark.parametrize("number", range(len(CHANGES)), ids=lambda number: str(CHANGES[number]))
def test_client_needs_only_its_data(number, data, mine):
    """Every aggregation, guard, correction, selection, pace and server optimizer, in compatible recipes."""
    change, tried = CHANGES[number], 0
    for name in (*DEPLOYED[number:], *DEPLOYED[:number]):
        if change and tried == MOST:
            break
        layer = BASE | {"algorithm": {"name": name, **OPTIONS.get(name, {})}} | change
        try:
            settings = Settings.of(layer)
            experiment = settings.experiment(data)
            check(experiment)
        except ConfigurationError:
            continue
        here, row = clients_experiment(sent(settings, experiment), mine, None, None, "cpu")
        assert describe(here.algorithm) == describe(experiment.algorithm), name
        assert describe(here.model) == describe(experiment.model)
        assert (here.seed, here.rounds, here.pace, row) == (experiment.seed, experiment.rounds, experiment.pace, 0)
        tried += 1
    assert tried


@pytest.mark.parametrize("name", DEPLOYED)
def test_client_and_server_agree_on_messages(name, data, mine):
    """Tasks and client memory have the same form, although the client has only its own data."""
    settings = Settings.of(BASE | {"algorithm": {"name": name, **OPTIONS.get(name, {})}})
    there = Computer(settings.experiment(data))
    try_model(there.clients(0, 0), 16)
    here, _ = clients_experiment(sent(settings, there.experiment, there.objective.engine), mine, None, None, "cpu")
    client = Computer(here, there.objective.engine)
    assert client.model == there.model
    assert {n: v.shape for n, v in client.memory.items()} == {n: v.shape for n, v in there.memory.items()}


def test_paths_of_the_server_are_not_sent(tmp_path):
    """A server reads its data from files that clients do not need."""
    rows = "\n".join(f"{i % 3},{i}.5,{i * i % 7},{'ab'[i % 2]}" for i in range(40))
    (tmp_path / "rows.csv").write_text(f"who,p,q,label\n{rows}\n")
    table = {"name": "table", "path": str(tmp_path / "rows.csv"), "label": "label", "client": "who"}
    settings = Settings.of({"data": table, "model": "logistic", "rounds": 2})
    told = sent(settings, settings.experiment())
    assert str(tmp_path) not in json.dumps(told)
    (tmp_path / "two.py").write_text(
        "import torch\ndef examples():\n    return torch.rand(9, 2), torch.arange(9) % 2\n"
    )
    here, _ = clients_experiment(told, f"{tmp_path}/two.py:examples", None, None, "cpu")
    assert here.data.num_classes == 2
    assert here.data.client_test is None
    (tmp_path / "tested.py").write_text(
        "import torch\ndef part(n):\n    return torch.rand(n, 2), torch.arange(n) % 2\n"
        "def examples():\n    return part(9), part(4)\n"
    )
    here, _ = clients_experiment(told, f"{tmp_path}/tested.py:examples", None, None, "cpu")
    assert here.data.client_test is not None
    assert (len(here.data.train.x), len(here.data.client_test.x)) == (9, 4)
    (tmp_path / "three.py").write_text("def examples():\n    return 1, 2, 3\n")
    with pytest.raises(ConfigurationError, match=r"or such a pair for training and one for tests, got tuple"):
        clients_experiment(told, f"{tmp_path}/three.py:examples", None, None, "cpu")
    with pytest.raises(ConfigurationError, match=r"name a file \(data\), which is not read for a server"):
        clients_experiment(told, "table", None, 0, "cpu")


def test_query_functions_have_distinct_names(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def income(x, y):\n    return x[:, 0]\ndef targets(x, y):\n    return y\nTEN = 10\n"
    )
    (found,) = functions_of([f"{tmp_path}/mine.py:income"]).items()
    assert found[0] == "income"
    for names, said in (
        (["TEN"], "got 10"),
        (["targets"], "the name targets is already in use"),
        (["income", "income"], "the name income is already in use"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            functions_of([f"{tmp_path}/mine.py:{name}" for name in names])


def test_different_loss_is_a_different_run(data, mine):
    settings = Settings.of(BASE)
    told = sent(settings, settings.experiment(data))
    told["describes"]["loss"] = "squared_error"
    with pytest.raises(ConfigurationError, match=r"the server runs something else .* loss: 'squared_error'"):
        clients_experiment(told, mine, None, None, "cpu")


LOSS = """
import torch
import turnout as to
def mine(outputs, targets):
    return {loss}
def made():
    torch.manual_seed(0)
    data = to.data.digits().split(to.partition.Iid(), num_clients=4)
    return to.Experiment(data, torch.nn.Linear(64, 10), to.fedavg(), loss=mine, rounds=2)
"""


def test_loss_of_the_same_name_with_another_source_is_a_different_run(tmp_path):
    there, here = tmp_path / "there.py", tmp_path / "here.py"
    there.write_text(LOSS.format(loss="torch.nn.functional.cross_entropy(outputs, targets, reduction='none')"))
    here.write_text(LOSS.format(loss="2 * torch.nn.functional.cross_entropy(outputs, targets, reduction='none')"))
    experiment, _ = experiment_of(f"{there}:made", ())
    told = sent(None, experiment)
    clients_experiment(told, "digits", f"{there}:made", 0, "cpu")
    with pytest.raises(ConfigurationError, match=r"the server runs something else .* loss_code: 'crc32 "):
        clients_experiment(told, "digits", f"{here}:made", 0, "cpu")


def test_server_limits_reach_the_options(turnout, monkeypatch):
    options = []

    def stop(*given):
        options.append(given[-1])
        raise ConfigurationError("seen")

    monkeypatch.setattr(process, "Server", stop)
    turnout("serve", "data.name=digits", "--connections", 7, "--per-address", 3, "--upload-rate", 100,
            "--enrollments-per-address", 0, "--proxy-headers", "127.0.0.1,10.0.0.0/24",
            "--trusted-addresses", "10.0.2.7")  # fmt: skip
    assert options[0].limits == Limits(connections=7, per_address=3, upload_rate=100.0)
    assert options[0].enrollments_per_address == 0
    assert [each in options[0].proxies.addresses for each in ("127.0.0.1", "10.0.0.9", "10.0.1.9")] == [
        True,
        True,
        False,
    ]
    assert [each in options[0].trusted for each in ("10.0.2.7", "10.0.2.8")] == [True, False]
    for option, value, said in (
        ("--enrollments-per-address", -1, "got -1"),
        ("--proxy-headers", "nginx", "got 'nginx'"),
        ("--trusted-addresses", "0.0.0.0/0", "got '0.0.0.0/0', needed the address of a machine"),
    ):
        result = turnout("serve", "data.name=digits", option, value)
        assert result.exit_code == 2
        assert f"{option.removeprefix('--').replace('-', '_')}: {said}" in result.stderr
    for option in ("--connections", "--per-address", "--upload-rate"):
        result = turnout("serve", "data.name=digits", option, 0)
        assert result.exit_code == 2
        assert f"{option.removeprefix('--').replace('-', '_')}: got 0" in result.stderr
    assert len(options) == 1
