"""Federations in memory-mapped files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import turnout as to
from turnout.core.checks import ConfigurationError, DataError
from turnout.simulation.workspace import DeviceData

from ..tiny import classification


def digits() -> to.data.FederatedData:
    return to.data.digits().split(
        to.partition.Dirichlet(1.0),
        8,
        client_test_fraction=0.2,
        validation_fraction=0.1,
        unseen_clients=2,
        empty="drop",
    )


def experiment(data: to.data.FederatedData, **options: Any) -> to.Experiment:
    return to.Experiment(data=data, model=to.models.Logistic(), **{"rounds": 3, "evaluate_every": 1, **options})


def parameters(result: to.Result) -> list[torch.Tensor]:
    return list(result.model.parameters())


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("algorithm", ["fedavg", "ditto"])
def test_results_equal_those_in_memory(tmp_path: Path, mapped: bool, algorithm: str) -> None:
    data, recipe = digits(), to.ALGORITHMS[algorithm]
    options = {"cohort_size": 4} if algorithm == "ditto" else {}
    to.data.store(tmp_path, data)
    again = to.data.stored(tmp_path, mapped=mapped)
    assert again.splits.keys() == data.splits.keys()
    for name, shards in data.splits.items():
        assert torch.equal(again.splits[name].x, shards.x)
        assert torch.equal(again.splits[name].y, shards.y)
        assert np.array_equal(again.splits[name].offsets, shards.offsets)
    one, other = (experiment(each, algorithm=recipe(**options)).run() for each in (data, again))
    assert all(torch.equal(a, b) for a, b in zip(parameters(one), parameters(other), strict=True))
    assert one.clients["test_accuracy"].equals(other.clients["test_accuracy"])


def test_uint8_images_are_normalized_per_minibatch(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    images = [(draw.integers(0, 256, (20, 3, 8, 8), dtype=np.uint8), draw.integers(0, 4, 20)) for _ in range(5)]
    to.data.store(tmp_path, {"train": iter(images), "test": images[:1]}, name="bytes", num_classes=4)
    normalize = to.data.Normalize((0.4, 0.5, 0.6), (0.2, 0.2, 0.2))
    data = to.data.stored(tmp_path, transforms=(normalize,))
    held = DeviceData(data, torch.device("cpu"))
    assert held.train.x.data_ptr() == data.train.x.data_ptr()  # no copy of the inputs
    assert held.transforms == (normalize,)
    one, other = (
        experiment(each, algorithm=to.fedavg(to.Sgd(lr=0.1, steps=2, batch_size=4))).run()
        for each in (data, to.data.stored(tmp_path, transforms=(normalize,), mapped=False))
    )
    for a, b in zip(parameters(one), parameters(other), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_generator_is_written_by_client_and_opening_reads_no_inputs(tmp_path: Path) -> None:
    """The file of inputs is a sparse file of 1 GB."""
    to.data.store(tmp_path, {"train": ((torch.rand(2, 3), torch.tensor([0, 1])) for _ in range(4))})
    index = json.loads((tmp_path / "index.json").read_text())
    if not Path("/proc/self/status").exists():
        pytest.skip("memory is read from /proc, which Linux has")
    clients = 1000
    index["splits"]["train"] |= {
        "clients": clients,
        "examples": clients * 2,
        "x": {"type": "float32", "shape": [2**17]},
    }
    (tmp_path / "index.json").write_text(json.dumps(index))
    with (tmp_path / "train.x.bin").open("r+b") as file:
        file.truncate(clients * 2 * 2**17 * 4)
    np.tile([0, 1], clients).astype(np.int64).tofile(tmp_path / "train.y.bin")
    (np.arange(clients + 1) * 2).astype(np.int64).tofile(tmp_path / "train.offsets.bin")
    before = _resident()
    data = to.data.stored(tmp_path)
    assert data.num_clients == clients
    assert data.train.x[1234].sum() == 0
    assert _resident() - before < 50e6


def _resident() -> float:
    """Bytes of memory of this process, without pages of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def test_invalid_federation_is_refused(tmp_path: Path) -> None:
    x, y = torch.rand(2, 3), torch.tensor([0, 1])
    with pytest.raises(ConfigurationError, match="there are no training clients"):
        to.data.store(tmp_path, {"test": [(x, y)]})
    with pytest.raises(ConfigurationError, match="unknown split 'tset'"):
        to.data.store(tmp_path, {"train": [(x, y)], "tset": [(x, y)]})
    with pytest.raises(ConfigurationError, match="train has no clients"):
        to.data.store(tmp_path, {"train": []})
    with pytest.raises(DataError, match="client 1 of train has 2 inputs and 1 targets"):
        to.data.store(tmp_path, {"train": [(x, y), (x, y[:1])]})
    with pytest.raises(
        DataError, match=r"x of client 1 of train is .*'shape': \[2\].*, of those before .*'shape': \[3\]"
    ):
        to.data.store(tmp_path, {"train": [(x, y), (x[:, :2], y)]})
    with pytest.raises(DataError, match="client 0 of train holds NaN or infinity"):
        to.data.store(tmp_path, {"train": [(x / 0, y)]})
    with pytest.raises(ConfigurationError, match="unknown type 'complex64'"):
        to.data.store(tmp_path, {"train": [(x.to(torch.complex64), y)]})
    weighted = to.data.from_arrays(x, y, weights=[1.0, 2.0]).split(to.partition.Iid(), 1, test_fraction=0.0)
    with pytest.raises(ConfigurationError, match="weights of examples are not stored"):
        to.data.store(tmp_path, weighted)


def test_a_federation_is_replaced_whole(tmp_path: Path) -> None:
    """Whoever has mapped the files reads on, and so does `store` itself where it writes what it reads."""
    to.data.store(tmp_path, classification())
    before, names = to.data.stored(tmp_path), sorted(path.name for path in tmp_path.iterdir())
    x = before.train.x.clone()
    with pytest.raises(DataError, match="client 1 of train has 2 inputs and 1 targets"):
        to.data.store(tmp_path, {"train": [(torch.rand(2, 3), [0, 1]), (torch.rand(2, 3), [0])]})
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert torch.equal(to.data.stored(tmp_path).train.x, x)
    flipped = {"train": [(-x, y) for x, y in map(before.train.client, range(before.num_clients))][::-1]}
    to.data.store(tmp_path, flipped)
    assert torch.equal(before.train.x, x)
    assert torch.equal(to.data.stored(tmp_path).train.client(0)[0], -before.train.client(before.num_clients - 1)[0])
    to.data.store(tmp_path, to.data.stored(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_damaged_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no stored federation"):
        to.data.stored(tmp_path)
    to.data.store(tmp_path, classification())
    whole = (tmp_path / "train.x.bin").read_bytes()
    (tmp_path / "train.x.bin").write_bytes(whole[:-4])
    with pytest.raises(DataError, match=r"train.x.bin is damaged \(.* bytes, needed .*\): write it anew"):
        to.data.stored(tmp_path)
    (tmp_path / "train.x.bin").write_bytes(whole)
    offsets = (tmp_path / "train.offsets.bin").read_bytes()
    (tmp_path / "train.offsets.bin").write_bytes(offsets[:-8])
    with pytest.raises(DataError, match=r"train.offsets.bin has 8 numbers"):
        to.data.stored(tmp_path)
    index = (tmp_path / "index.json").read_text()
    (tmp_path / "index.json").write_text(index.replace('"format": 1', '"format": 9'))
    with pytest.raises(DataError, match="has format 9 of stores, and this version reads 1"):
        to.data.stored(tmp_path)
    (tmp_path / "index.json").write_text("{}")
    with pytest.raises(DataError, match="is damaged"):
        to.data.stored(tmp_path)


def test_other_devices_require_data_in_memory(tmp_path: Path) -> None:
    to.data.store(tmp_path, classification())
    with pytest.raises(ConfigurationError, match=r"device: meta cannot read a stored federation: write .*mapped=False"):
        DeviceData(to.data.stored(tmp_path), torch.device("meta"))


def test_transforms_of_a_stored_federation_are_named(tmp_path: Path) -> None:
    """Training without them would be another experiment."""
    norm = to.data.Normalize(0.5, 0.25)
    data = replace(digits(), transforms=(norm,))
    to.data.store(tmp_path / "s", data)
    with pytest.raises(
        ConfigurationError, match=r"had the transforms Normalize\(mean=0.5, std=0.25\), which are not part"
    ):
        to.data.stored(tmp_path / "s")
    assert to.data.stored(tmp_path / "s", transforms=()).transforms == ()
    again = to.data.stored(tmp_path / "s", transforms=data.transforms)
    for one, other in zip(*(parameters(experiment(of).run()) for of in (data, again)), strict=True):
        assert torch.equal(one, other)
