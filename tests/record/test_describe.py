import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import recipe
from torch import nn

from turnout import ALGORITHMS, Experiment, Population, Sgd, data, fedau, fedavg, models, partition
from turnout.core.schedule import Cosine, Halving
from turnout.engine.loss import cross_entropy
from turnout.pieces.local import Prox
from turnout.pieces.selection import Uniform
from turnout.pieces.weighting import Participation
from turnout.population.availability import Markov, TimedTrace, Trace
from turnout.population.requirement import GivenRequirement
from turnout.population.speed import RecordedSpeed, Speed
from turnout.record.describe import describe, differences


def test_pieces_are_described_by_kind_and_options():
    assert describe(Participation(3, groups=(0, 1))) == {
        "kind": "Participation",
        "cutoff": 3,
        "average": "mean",
        "rate": 0.1,
        "groups": [0, 1],
    }
    assert describe(Sgd(lr=Halving(0.1, 5, 10)))["lr"] == {
        "kind": "Halving", "initial": 0.1, "start": 5, "every": 10, "most": 10, "counted_from": None,
    }  # fmt: skip


def test_algorithms_are_described_by_slots():
    found = describe(fedau(also=(Uniform(4), Prox(0.2))))
    assert found["name"] == "fedau"
    assert found["selection"] == {"kind": "Uniform", "cohort_size": 4}
    assert found["correction.0"] == {"kind": "Prox", "mu": 0.2}
    assert found["weighting.0"]["kind"] == "Participation"
    assert found["weighting.1"] == {"kind": "DivideByClients"}


def test_values_are_described_as_plain_values():
    array = np.arange(6.0).reshape(2, 3)
    assert describe(np.float64(0.5)) == 0.5
    assert describe((1, None, "a", True)) == [1, None, "a", True]
    assert describe({1: Path("a/b")}) == {"1": "a/b"}
    assert describe(cross_entropy) == "cross_entropy"
    assert describe(array) == {"kind": "array", "shape": [2, 3], "crc32": describe(array.copy())["crc32"]}
    assert describe(array) != describe(array + 1)


def test_modules_differ_by_shape_and_first_values():
    torch.manual_seed(0)
    one, other = nn.Linear(3, 2), nn.Linear(3, 2)
    found = describe(one)
    assert found["kind"] == "Linear"
    assert found["parameters"] == {"weight": [2, 3], "bias": [2]}
    assert describe(other) != found
    other.load_state_dict(one.state_dict())
    assert describe(other) == found


def test_modules_differ_by_layers_and_by_what_is_not_trained():
    class Scaled(nn.Module):
        def __init__(self, scale: float = 1.0, path: str = "here") -> None:
            super().__init__()
            self.layer, self.scale, self.path = nn.Linear(3, 2), scale, path

    def net(*more: nn.Module, frozen: float = 1.0) -> nn.Module:
        torch.manual_seed(0)
        first, last = nn.Linear(3, 4), nn.Linear(4, 2)
        first.weight.requires_grad_(False).fill_(frozen)
        return nn.Sequential(first, *more, last)

    one = json.loads(json.dumps(describe(net(nn.ReLU(), nn.Dropout(0.5)))))
    assert list(differences(one, describe(net(nn.ReLU(), nn.Dropout(0.5)).eval()))) == []
    assert list(differences(one, describe(net(nn.Tanh(), nn.Dropout(0.1))))) == [
        "layers.1: 'ReLU(inplace=False)' and 'Tanh()'",
        "layers.2: 'Dropout(inplace=False, p=0.5)' and 'Dropout(inplace=False, p=0.1)'",
    ]
    assert "approximate='tanh'" in describe(net(nn.GELU(approximate="tanh")))["layers"]["1"]
    assert "kernel_size=(3, 3)" in describe(nn.Conv2d(1, 1, 3))["layers"]["whole"]
    (found,) = differences(one, describe(net(nn.ReLU(), nn.Dropout(0.5), frozen=2.0)))
    assert found.startswith("fixed_crc32: ")
    for added in ("fixed_crc32", "layers"):
        del one[added]  # as of earlier versions
    assert list(differences(one, describe(net(nn.Tanh(), nn.Dropout(0.5), frozen=2.0)))) == []
    torch.manual_seed(0)
    own = describe(Scaled())
    torch.manual_seed(0)
    assert [text.partition(":")[0] for text in differences(own, describe(Scaled(2.0, "there")))] == ["layers.whole"]


def test_data_differ_by_the_clients_examples(tiny):
    moved = tiny.train.offsets.copy()
    moved[1] += 1
    assert describe(tiny) == describe(replace(tiny))
    assert describe(tiny) != describe(replace(tiny, train=replace(tiny.train, offsets=moved)))
    assert describe(tiny)["num_clients"] == 8
    assert describe(tiny)["example"] == [16]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_descriptions_survive_json(tiny, name):
    """A saved description equals a fresh one: only so can a run be resumed."""
    lr = 0.1 if name == "pfedme" else Cosine(0.1, 50)  # whose personal model has no schedule
    local = Sgd(lr=lr, steps=None, epochs=1)
    experiment = Experiment(tiny, models.Mlp(), recipe(name, local), Population(Markov(correlated_with_labels=0.1)))
    found = describe(experiment)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert list(differences(json.loads(json.dumps(found)), describe(replace(experiment)))) == []


def test_differences_are_named_by_path(tiny):
    one = Experiment(tiny, models.Mlp(), fedau(Sgd(lr=0.1)), rounds=10)
    other = replace(one, algorithm=fedau(Sgd(lr=0.2, momentum=0.9)), rounds=20)
    assert list(differences(describe(one), describe(other))) == [
        "algorithm.local.lr: 0.1 and 0.2",
        "algorithm.local.momentum: 0.0 and 0.9",
        "rounds: 10 and 20",
    ]
    assert "algorithm.name: 'fedau' and 'fedavg'" in differences(
        describe(one), describe(replace(one, algorithm=fedavg()))
    )
    assert list(differences({"a": 1}, {"b": 2})) == ["a: 1 and None", "b: None and 2"]


def test_missing_field_of_a_description_had_its_default(tiny):
    one = Experiment(tiny, models.Mlp(), fedau())
    saved = json.loads(json.dumps(describe(one)))
    del saved["pace"], saved["rounds"], saved["algorithm"]["local"]["momentum"], saved["population"]["availability"]
    assert list(differences(saved, describe(one))) == list(differences(describe(one), saved)) == []
    other = replace(one, rounds=7, algorithm=fedau(Sgd(momentum=0.9)), population=Population(Markov()))
    found = list(differences(saved, describe(other)))
    assert found[0] == "algorithm.local.momentum: 0.0 and 0.9"
    assert "population.availability.kind: 'Everyone' and 'Markov'" in found
    assert found[-1] == "rounds: 100 and 7"
    # Without a default, nothing says what it was.
    assert list(differences({"kind": "Halving", "initial": 0.1, "every": 10}, describe(Halving(0.1, 5, 10)))) == [
        "start: None and 5"
    ]


@pytest.mark.parametrize("make", [Trace, TimedTrace, RecordedSpeed, GivenRequirement, lambda path: Speed(groups=path)])
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_tables_that_options_name_differ_by_their_content(make: Callable[[str], Any], ending: str, tmp_path: Path):
    path = tmp_path / f"table{ending}"
    path.write_bytes(b"client,from,to\n0,0,5\n")
    before = json.loads(json.dumps(describe(make(str(path)))))
    assert list(differences(before, describe(make(str(path))))) == []
    path.write_bytes(b"client,from,to\n0,0,7\n")
    (found,) = differences(before, describe(make(str(path))))
    assert found.startswith(f"content.{'groups' if 'groups' in before else 'table'}: 'crc32 ")
    del before["content"]  # as of earlier versions
    assert list(differences(before, describe(make(str(path))))) == []
    path.unlink()
    assert "content" not in describe(make(str(path)))


@pytest.mark.parametrize("split", ["test", "client_test", "validation", "unseen_test"])
def test_data_differ_by_the_labels_of_held_out_examples(split: str):
    source = data.from_arrays(
        torch.rand(60, 3), torch.arange(60) % 2, test_x=torch.rand(9, 3), test_y=torch.ones(9).long()
    )
    fractions = {"client_test_fraction": 0.3, "validation_fraction": 0.3, "unseen_clients": 1}
    whole = source.split(partition.Iid(), num_clients=4, **fractions)
    shards = getattr(whole, split)
    other = replace(whole, **{split: replace(shards, y=1 - shards.y)})
    before = json.loads(json.dumps(describe(whole)))
    assert [text.partition(":")[0] for text in differences(before, describe(other))] == [f"held_out.{split}"]
    del before["held_out"]  # as of earlier versions
    assert list(differences(before, describe(other))) == []
