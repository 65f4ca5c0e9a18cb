"""The model of a result is the trained and evaluated one."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import turnout as to
from turnout.engine.loss import cross_entropy

from .tiny import classification

LOCAL = to.Sgd(lr=0.1, steps=2, batch_size=8)
DATA = classification(sizes=(20, 9, 12))


class Net(nn.Module):
    """Tied weights, a frozen layer and both kinds of buffers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 16, bias=False), nn.Linear(16, 16)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(16, 16).requires_grad_(False)
        self.output = nn.Linear(16, 4)
        self.register_buffer("scale", torch.tensor(2.0))
        self.register_buffer("hidden", torch.ones(3), persistent=False)

    def forward(self, x):
        return self.output(self.frozen(self.second(self.first(x)).tanh()) * self.scale)


def experiment(model=None, data=DATA, **options):
    given = {"algorithm": to.fedavg(local=LOCAL), "rounds": 3}
    return to.Experiment(data=data, model=model or to.models.Mlp((4,)), **(given | options))


def loss_of(model, x, y):
    with torch.no_grad():
        return cross_entropy(model(x), y).mean().item()


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_model_equals_the_evaluated_one():
    result = experiment(Net()).run()
    assert DATA.test is not None
    loss = loss_of(result.model, DATA.test.x, DATA.test.y)
    assert loss == pytest.approx(result.history.column("test_loss")[1][-1], rel=1e-5)
    assert not result.model.training
    assert equal(result.model.state_dict(), result.state_dict())
    assert result.rounds.num_rows == 3
    assert result.clients.num_rows == 3
    assert set(result.participation["client"].to_pylist()) == {0, 1, 2}


def test_user_module_is_unchanged():
    module = Net()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    result = experiment(module).run()
    assert equal(module.state_dict(), before)
    result.state_dict()["output.bias"].zero_()
    assert result.state_dict()["output.bias"].any()


@pytest.mark.parametrize("recipe", [to.fedavg_p, to.ditto])
def test_personal_models_are_those_of_clients(recipe, tmp_path):
    sizes, offsets = DATA.train.sizes, DATA.train.offsets
    result = experiment(algorithm=recipe(local=LOCAL, cohort_size=2), rounds=2).run(tmp_path)
    loaded = to.load(tmp_path)
    for k in range(3):
        rows = slice(offsets[k], offsets[k + 1])
        loss = loss_of(result.personal_model(k), DATA.train.x[rows], DATA.train.y[rows])
        assert loss == pytest.approx(result.history.client_column("train_loss")[k], rel=1e-5)
        assert equal(loaded.personal_model(k).state_dict(), result.state_dict(k))
    assert len(sizes) == 3
    assert not equal(result.state_dict(0), result.state_dict(1))
    assert equal(loaded.state_dict(), result.state_dict())


def test_run_folder_gives_the_same_result(tmp_path):
    result = experiment().run(tmp_path)
    loaded = to.load(tmp_path)
    assert equal(loaded.state_dict(), result.state_dict())
    assert loaded.model(DATA.train.x[:2]).shape == (2, 4)
    assert loaded.summary() == result.summary()
    assert loaded.rounds.equals(result.rounds)


def test_user_module_is_required_to_load(tmp_path):
    result = experiment(Net()).run(tmp_path)
    loaded = to.load(tmp_path)
    assert equal(loaded.state_dict(), result.state_dict())
    with pytest.raises(to.ConfigurationError, match=r"your own module.* write to.load\(folder, model=Net\(\)\)"):
        _ = loaded.model
    assert equal(to.load(tmp_path, model=Net()).model.state_dict(), result.model.state_dict())
    with pytest.raises(to.ConfigurationError, match="trained another module than this Linear"):
        _ = to.load(tmp_path, model=nn.Linear(16, 4)).model
    with pytest.raises(to.ConfigurationError, match=r"model: got 'mlp', needed a torch.nn.Module"):
        to.load(tmp_path, model="mlp")  # type: ignore[arg-type]


def test_exported_model_is_loaded_by_torch(tmp_path, monkeypatch):
    result = experiment(Net()).run()
    path = result.export(tmp_path / "new" / "model.safetensors")
    model = Net()
    model.load_state_dict(load_file(path))
    assert equal(model.state_dict(), result.state_dict())
    before = path.read_bytes()
    with pytest.raises(to.CheckpointError, match=r"cannot write .*previous files are unchanged"):
        result.export(tmp_path)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(to.CheckpointError, match=r"cannot write .*No space left"):
        result.export(path, card=True)
    assert path.read_bytes() == before
    assert [it.name for it in path.parent.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_dtype_of_parameters_is_kept(kind, tmp_path):
    result = experiment(data=classification(sizes=(20, 9), dtype=kind)).run(tmp_path)
    assert {value.dtype for value in to.load(tmp_path).model.state_dict().values()} == {kind}
    assert equal(to.load(tmp_path).state_dict(), result.state_dict())


def test_missing_models_and_unknown_clients_are_refused():
    with pytest.raises(to.ConfigurationError, match="clients have no models of their own"):
        experiment(rounds=1).run().personal_model(0)
    result = experiment(algorithm=to.fedavg_p(local=LOCAL, cohort_size=2), rounds=1).run()
    unknown: tuple[Any, ...] = (3, -1, True, "a")
    for client in unknown:
        with pytest.raises(to.ConfigurationError, match=r"client: got .* needed the number of a client, 0 to 2"):
            result.personal_model(client)
    assert result.personal_model(cast("int", np.int64(2))) is not None


def test_folders_without_a_run_are_refused(tmp_path):
    with pytest.raises(to.CheckpointError, match=r"holds no checkpoint\.safetensors"):
        to.load(tmp_path)
