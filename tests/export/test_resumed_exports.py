"""A run that was interrupted exports the files of one that was not, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import turnout as to

from ..tiny import adapted

LOCAL = to.Sgd(lr=0.1, steps=2, batch_size=8)
RULES = {
    "fedadam": to.fedadam(local=LOCAL),
    "fedrep": to.fedrep(local=LOCAL),
    "scaffold_p": to.scaffold_p(local=LOCAL),
    "apfl": to.apfl(local=LOCAL),
    "fedala": to.fedala(local=LOCAL),
}
ADAPTERS = ("fedex_lora", "flora", "flexlora", "raflora")


def patients():
    """The table of three sites, with numbers that are scaled and a category."""
    rng, rows = np.random.default_rng(0), np.arange(60)
    table = {
        "site": rows % 3,
        "age": rng.normal(50, 9, 60),
        "sex": np.array(["f", "m"])[rows % 2],
        "ill": rng.integers(0, 2, 60),
    }
    source = to.data.from_table(table, label="ill", client="site", scale=True, categories=("sex",))
    return source.split(test_fraction=0.2)


@pytest.mark.parametrize("rule", RULES)
def test_resumed_run_exports_the_same_files(rule, tmp_path):
    run = to.Experiment(patients(), to.models.Mlp(hidden=(4,)), RULES[rule], rounds=4)
    run.run(tmp_path / "whole")
    replace(run, rounds=2).run(tmp_path / "resumed")
    run.run(tmp_path / "resumed", resume=True)
    written = []
    for name in ("whole", "resumed"):
        result, folder = to.load(tmp_path / name), tmp_path / f"files of {name}"
        folder.mkdir()
        result.export(folder / "model.safetensors")
        result.export(folder / "model.pt")
        if rule != "fedadam":
            result.export(folder / "client.safetensors", client=1)
        written.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert {"model.safetensors", "model.pt", "preprocessing.json"} <= written[0].keys()
    assert written[0] == written[1]


@pytest.mark.parametrize("name", ADAPTERS)
def test_adapters_after_an_interruption_are_those_without_one(name, tmp_path):
    run = to.Experiment(patients(), adapted(3, 2), to.ALGORITHMS[name](LOCAL), rounds=4)
    whole = run.run(tmp_path / "whole")
    replace(run, rounds=2).run(tmp_path / "resumed")
    resumed = run.run(tmp_path / "resumed", resume=True)
    for result, folder in ((whole, "whole"), (resumed, "resumed")):
        result.export(tmp_path / f"{folder}.safetensors")
    assert (tmp_path / "whole.safetensors").read_bytes() == (tmp_path / "resumed.safetensors").read_bytes()
    x = run.data.train.x[:5]
    with torch.no_grad():
        assert torch.equal(resumed.model(x), whole.model(x))
