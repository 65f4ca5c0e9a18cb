"""Scripts and settings of earlier versions, with the names of those."""

import json

import pytest
import torch

import turnout as to
from turnout.cli.layers import read
from turnout.record.contents import parse

from .tiny import classification

DATA = classification()


def test_arguments_of_earlier_versions():
    attack = to.behaviour.sign_flipping(fraction=0.2)
    population = to.Population(behaviour=attack)  # type: ignore[call-arg]
    assert population == to.Population(behavior=to.behavior.sign_flipping(fraction=0.2))
    options = {"data": DATA, "model": torch.nn.Linear(16, 4), "algorithm": to.fedavg(to.Sgd(steps=1)), "rounds": 1}
    assert to.Experiment(**options, engine="vectorised").engine == "vectorized"  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected keyword argument 'behaviours'"):
        to.Population(behaviours=attack)  # type: ignore[call-arg]


def test_settings_of_earlier_versions(tmp_path):
    (tmp_path / "old.toml").write_text('engine = "vectorised"\n[behaviour]\nname = "sign_flipping"\n')
    assert read(tmp_path / "old.toml") == {"engine": "vectorized", "behavior": {"name": "sign_flipping"}}


def test_columns_and_classes_of_users_keep_their_names(tmp_path):
    section = {"label": "behaviour", "categories": {"colours": ["vectorised"]}, "classes": ["Normalise", "behaviour"]}
    (tmp_path / "mine.json").write_text(json.dumps({"data": section}))
    assert read(tmp_path / "mine.json") == {"data": section} == parse(json.dumps({"data": section}))
