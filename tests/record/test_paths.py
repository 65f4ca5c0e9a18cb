"""Paths that the system does not accept are errors of the configuration, for every function that reads or writes a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import turnout as to
from turnout.core.checks import ConfigurationError
from turnout.core.system import check_path
from turnout.record import storage

from ..tiny import classification

LONG = "x" * 300


def experiment(seed: int = 0, lr: float = 0.1) -> to.Experiment:
    return to.Experiment(
        classification(), to.models.Logistic(), to.fedavg(to.Sgd(lr=lr, steps=1, batch_size=2)), rounds=1, seed=seed
    )


USES: dict[str, Callable[[Path], Any]] = {
    "run": lambda path: experiment().run(path),
    "resume": lambda path: experiment().run(path, resume=True),
    "compare": lambda path: to.compare({"a": experiment}, 1, path, jobs=1),
    "sweep": lambda path: to.sweep(experiment, {"lr": [0.1, 0.2]}, 1, path, jobs=1),
    "load": to.load,
    "file": lambda path: storage.replace_files({path: lambda part: part.write_text("x")}),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", [LONG, f"folder/{LONG}/seed-0", "/".join(["x" * 200] * 30), "ä" * 150])
def test_long_names_are_refused(use: str, name: str, tmp_path: Path) -> None:
    """Nothing is created, and the message says how long a name may be."""
    with pytest.raises(
        ConfigurationError, match=r"the name '.*'\.\.\. is too long: its longest part has \d+ bytes\. .*255"
    ):
        USES[use](tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_length_is_that_of_the_encoded_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="its longest part has 300 bytes"):
        check_path(tmp_path / ("ä" * 150))
    check_path(tmp_path / "missing" / ("ä" * 127))


def test_room_for_the_name_of_a_temporary_file_is_part_of_the_length(tmp_path: Path) -> None:
    """``.NAME.part`` is longer than the name."""
    with pytest.raises(ConfigurationError, match=r"is too long: its longest part has 254 bytes"):
        USES["file"](tmp_path / ("x" * 254))


def test_long_names_of_algorithms_are_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is too long"):
        to.compare({"a": experiment, LONG: experiment}, 1, tmp_path / "comparison", jobs=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("use", USES)
def test_null_characters_are_refused(use: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="needed a path without null characters"):
        USES[use](tmp_path / "a\0b")
