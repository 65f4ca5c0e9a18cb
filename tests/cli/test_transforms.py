"""Transforms and metrics on the command line, by name and by ``FILE.py:NAME``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import turnout as to
from turnout.cli.layers import override
from turnout.cli.settings import Settings
from turnout.core.checks import ConfigurationError

FILE = """
import numpy as np
import turnout as to

class Centered:
    def __init__(self, shift: float = 0.0):
        self.shift = shift

    def fit(self, frame, y=None):
        self.means = frame[["age"]].mean()

    def transform(self, frame):
        return (frame[["age"]] - self.means + self.shift).to_numpy()

FITTED_LATER = Centered(1.0)

def made(shift: float = 2.0):
    return Centered(shift)

def flipped() -> tuple:
    return (to.data.RandomHorizontalFlip(),)

def number():
    return 3

def sharpness(outputs, targets):
    return outputs.softmax(1).amax(1)
"""


@pytest.fixture
def patients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """A table of patients, and a file of transforms, in the present folder; returns the ages."""
    pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    age, ward, day = rng.integers(20, 90, 60), rng.choice(["a", "b", "c"], 60), rng.integers(1, 28, 60)
    rows = [
        f"{a},{w},2024-01-{d:02},{int(a > 50)},H{i % 3}" for i, (a, w, d) in enumerate(zip(age, ward, day, strict=True))
    ]
    (tmp_path / "patients.csv").write_text("\n".join(["age,ward,day,ill,hospital", *rows]) + "\n")
    (tmp_path / "mine.py").write_text(FILE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return age


def settings(*texts: str) -> Settings:
    base = ("data=table", "data.path=patients.csv", "data.label=ill", "data.client=hospital", "model=logistic")
    return Settings.of(*map(override, (*base, *texts)))


def inputs(*texts: str) -> torch.Tensor:
    data = settings(*texts).data()
    parts = [part.x for part in (data.train, data.test, data.client_test) if part is not None]
    return torch.cat(parts)


@pytest.mark.parametrize(
    ("text", "shift"),
    [
        ("data.transform=mine.py:Centered", 0.0),
        ("data.transform=mine.py:FITTED_LATER", 1.0),
        ("data.transform=mine.py:made", 2.0),
        ('data.transform={kind="mine.py:made", shift=5.0}', 5.0),
    ],
)
def test_transform_from_a_file_makes_the_inputs(text: str, shift: float, patients: np.ndarray) -> None:
    made = settings(text, "data.test_fraction=0.0").data()
    assert made.input_shape == (1,)
    np.testing.assert_allclose(made.train.x.mean().item(), shift, atol=1e-5)
    assert np.ptp(inputs(text).numpy()) == np.ptp(patients)


@pytest.mark.usefixtures("patients")
def test_named_transform_handles_numbers_dates_and_categories() -> None:
    pytest.importorskip("sklearn")
    data = settings("data.transform=mixed", "data.test_fraction=0.0").data()
    assert data.input_shape == (5,)  # age, day and three wards
    x = data.train.x
    np.testing.assert_allclose(x[:, :2].mean(dim=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(x[:, :2].std(dim=0, correction=0), 1.0, atol=1e-6)
    assert torch.equal(x[:, 2:].sum(dim=1), torch.ones(60))
    same = to.data.from_table("patients.csv", label="ill", client="hospital", transform=to.data.mixed_columns())
    assert torch.equal(same.split(test_fraction=0.0).train.x, x)


@pytest.mark.usefixtures("patients")
def test_run_with_a_transform_resumes(turnout: Any) -> None:
    words = (
        "run", "--data", "table", "--model", "logistic", "data.path=patients.csv", "data.label=ill", "--rounds", 2,
        "data.client=hospital", "data.transform=mine.py:made", "--folder", "run", "--availability", "everyone",
    )  # fmt: skip
    assert turnout(*words).exit_code == 0
    refused = turnout("run", "--resume", "run", "--rounds", 3)
    assert refused.exit_code == 2
    assert "run names code, 'mine.py:made'" in refused.stderr
    assert turnout("run", "--resume", "run", "--rounds", 3, "--code", "mine.py").exit_code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data.transform=mixd", r"data.transform: got 'mixd', needed 'mixed', by name or as a table with kind = NAME"),
        ("data.transform=mine.py:number", r"transform: got 3, needed an object with fit\(frame, y\) and transform"),
        ("data.transform=mine.py:np", r"mine.py:np is no transform: needed an object with fit\(frame, y\)"),
        ('data.transform={kind="mine.py:FITTED_LATER", shift=1.0}', "unknown option 'data.transform.shift'"),
        ("data.transform=mine.py:gone", "mine.py has no function or class 'gone'"),
    ],
)
@pytest.mark.usefixtures("patients")
def test_invalid_transform_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        settings(text).data()


@pytest.mark.usefixtures("patients")
def test_metrics_are_names_or_functions_from_a_file() -> None:
    auc, sharpness = settings("metrics=auc,mine.py:sharpness").numbers()["metrics"]
    assert auc == "auc"
    assert sharpness(torch.zeros(3, 2), torch.zeros(3)).tolist() == [0.5, 0.5, 0.5]
    with pytest.raises(ConfigurationError, match=r"mine\.py has no function or class 'gone'"):
        settings("metrics=mine.py:gone")


@pytest.mark.usefixtures("patients")
def test_augmentation_from_a_file_replaces_the_default() -> None:
    made = Settings.of(override("data=digits"), override("data.augmentation=mine.py:flipped"))
    assert made.data().transforms == (to.data.RandomHorizontalFlip(),)
    with pytest.raises(ConfigurationError, match="unknown augmentation 'cifr': did you mean 'cifar'"):
        Settings.of(override("data.augmentation=cifr"))
    with pytest.raises(ConfigurationError, match=r"mine.py:FITTED_LATER is no augmentation: needed .* returns tuple"):
        Settings.of(override("data.augmentation=mine.py:FITTED_LATER"))
