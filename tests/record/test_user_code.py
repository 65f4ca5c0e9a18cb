"""A run is resumed only with the functions, classes and files that it began with."""

from __future__ import annotations

import json
import linecache
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import turnout as to
from turnout.cli import user_code as loading
from turnout.core.checks import CheckpointError
from turnout.models.huggingface import HuggingFace
from turnout.population.availability.flash import Flash
from turnout.record.describe import describe, differences
from turnout.record.user_code import code

SOURCE = """
import torch
from torch import nn
import turnout as to

def loss(outputs, targets):
    return SCALE * nn.functional.cross_entropy(outputs, targets, reduction="none")

def sure(outputs, targets):
    return outputs.max() + SHIFT

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(64, 10)

    def forward(self, x):
        return WIDTH * self.last(x.flatten(1))
"""
FIRST = {"SCALE": "1.0", "SHIFT": "0.0", "WIDTH": "1.0"}


def experiment(path: Path, rounds: int = 1, **changed: Any) -> to.Experiment:
    """Write the user's file with these numbers, and return the experiment with what is in it."""
    text = SOURCE
    for name, value in (FIRST | changed).items():
        text = text.replace(name, value)
    path.write_text(text, encoding="utf-8")
    linecache.checkcache()
    loss, sure, net = (loading.loaded(f"{path}:{name}") for name in ("loss", "sure", "Net"))
    torch.manual_seed(0)
    data = to.data.digits().split(to.partition.Iid(), num_clients=5)
    return to.Experiment(data, net(), loss=loss, metrics=(sure,), rounds=rounds, evaluate_every=1)


@pytest.mark.parametrize(("changed", "named"), [
    ({"SCALE": "2.0"}, r"code\.loss: 'crc32 \w+' and 'crc32 \w+'"),
    ({"SHIFT": "1.0"}, r"code\.sure: 'crc32"),
    ({"WIDTH": "3.0"}, r"model\.code\.Net: 'crc32"),
])  # fmt: skip
def test_changed_body_is_noticed(changed: dict[str, str], named: str, tmp_path: Path):
    experiment(tmp_path / "mine.py").run(tmp_path / "run")
    with pytest.raises(CheckpointError, match=named):
        experiment(tmp_path / "mine.py", rounds=2, **changed).run(tmp_path / "run", resume=True)
    experiment(tmp_path / "mine.py", rounds=2).run(tmp_path / "run", resume=True)


HELPER = """
import other
from torch import nn

SCALE, CALLS = 1.0, []

def inner(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none")

class Base(nn.Module):
    @property
    def width(self):
        return 2

def loss(outputs, targets):
    return sum([SCALE * other.again(inner(outputs, targets))])

class Net(Base):
    def forward(self, x):
        CALLS.append(1)
        return super().forward(self.width * x)
"""
OTHER = """
TIMES = (1, 2)

def again(x):
    return TIMES[0] * x
"""


def helped(path: Path, old: str = "", new: str = "") -> dict[str, Any]:
    """Write two modules of a user, with one text in place of another, and describe the first."""
    for name, text in (("helper", HELPER), ("other", OTHER)):
        (path / f"{name}.py").write_text(text.replace(old, new), encoding="utf-8")
        sys.modules.pop(name, None)
    shutil.rmtree(path / "__pycache__", ignore_errors=True)  # whose times are in seconds
    linecache.checkcache()
    sys.path.insert(0, str(path))
    try:
        return code([loading.loaded(f"{path}/helper.py:{name}") for name in ("loss", "Net")])
    finally:
        sys.path.remove(str(path))


@pytest.mark.parametrize(("old", "new", "named"), [
    ("SCALE, CALLS = 1.0", "SCALE, CALLS = 2.0", "used.SCALE: '1.0' and '2.0'"),
    ('reduction="none"', "label_smoothing=0.1", "used.inner: 'crc32"),
    ("TIMES[0]", "TIMES[1]", "used.again: 'crc32"),
    ("(1, 2)", "(3, 2)", "used.TIMES: '(1, 2)' and '(3, 2)'"),
    ("return 2", "return 3", "used.Base: 'crc32"),
])  # fmt: skip
def test_changed_function_or_number_that_a_function_refers_to_is_noticed(
    old: str, new: str, named: str, tmp_path: Path
):
    before = helped(tmp_path)
    assert list(differences(before, helped(tmp_path))) == []
    (difference,) = differences(before, helped(tmp_path, old, new))
    assert difference.startswith(named)
    assert list(differences({"code": before["code"]}, helped(tmp_path, old, new))) == []  # of an older version


SAME = """
import first, second

def loss(outputs, targets):
    return first.scale(outputs) + second.scale(outputs) + len(__file__)
"""


def test_names_of_two_modules_are_both_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whichever module is found first, which differs between processes."""
    monkeypatch.syspath_prepend(str(tmp_path))
    texts = {"first": "ALPHA = 1\ndef scale(x):\n    return ALPHA * x\n"}
    texts |= {"second": "ALPHA = 2\ndef scale(x):\n    return x / ALPHA\n", "same": SAME}

    def described(**changed: str) -> dict[str, Any]:
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        for name, text in (texts | changed).items():
            (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
            sys.modules.pop(name, None)
        linecache.checkcache()
        return code([loading.loaded(f"{tmp_path}/same.py:loss")])

    before = described()
    assert before["used"].keys() == {"ALPHA", "scale"}
    assert before["used"]["ALPHA"] == "1, 2"
    for name, text in texts.items():
        if name != "same":
            (difference,) = differences(before, described(**{name: text.replace("ALPHA = ", "ALPHA = 1")}))
            assert difference.startswith("used.ALPHA")
            (difference,) = differences(before, described(**{name: text.replace(" x", " 3 + x")}))
            assert difference.startswith("used.scale")


def test_what_a_function_refers_to_is_of_users_alone(tmp_path: Path):
    described = helped(tmp_path)
    assert described["code"].keys() == {"loss", "Net"}
    assert described["used"].keys() == {"again", "Base", "inner", "SCALE", "TIMES"}


def test_comments_and_runs_of_older_versions_are_no_difference(tmp_path: Path):
    before = describe(experiment(tmp_path / "mine.py"))
    again = describe(
        experiment(tmp_path / "mine.py", **dict[str, Any]({"return outputs": "# of all\n\n    return outputs"}))
    )
    assert before["code"].keys() == {"loss", "sure"}
    assert not list(differences(before, again))
    older: Any = json.loads(json.dumps(before))
    del older["code"], older["model"]["code"]
    assert not list(differences(older, again))


def test_code_of_packages_is_left_out():
    data = to.data.digits().split(to.partition.Iid(), num_clients=5)
    described = describe(
        to.Experiment(data, torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)), rounds=1)
    )
    assert '"code"' not in json.dumps(described)


def test_files_of_a_base_and_of_a_recording_are_compared(tmp_path: Path):
    base, recording = tmp_path / "base", tmp_path / "Availability" / "flash300_2_state.parquet"
    base.mkdir()
    recording.parent.mkdir()

    def described(weights: bytes, phones: bytes) -> dict[str, Any]:
        (base / "config.json").write_text("{}")
        (base / "model.safetensors").write_bytes(weights)
        recording.write_bytes(phones)
        pieces = {"model": HuggingFace(str(base)), "availability": Flash(directory=str(tmp_path))}
        return {name: describe(piece) for name, piece in pieces.items()}

    first = described(bytes(10_000_000), b"one")
    assert list(differences(first, described(bytes(10_000_000), b"one"))) == []
    changed = list(differences(first, described(bytes(9_990_000) + b"1" * 10_000, b"two")))
    assert sorted(text.partition(":")[0] for text in changed) == [
        "availability.content.flash300_2_state.parquet", "model.content.model.safetensors"
    ]  # fmt: skip
    assert "content" not in describe(HuggingFace("gpt2"))
