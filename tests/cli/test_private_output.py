"""Whole private runs on neighboring data: no file to be published and no line of output tells them apart."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from turnout.core.candidates import Candidates
from turnout.pieces.selection import Poisson

FILE = """
import json, os
import numpy as np
import turnout as to

SCALE = float(os.environ["SCALE_OF_THE_FIRST_CLIENT"])

def patients():
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(6), [5 if SCALE == 1 else 11, 4, 8, 6, 5, 7])
    x, y = np.random.default_rng(1).normal(size=(6, 11, 3)), np.random.default_rng(2).integers(0, 2, (6, 11))
    rows = np.concatenate([np.arange(n) for n in np.bincount(ids)])
    x, y = x[ids, rows].astype(np.float32), y[ids, rows]
    x[ids == 0] *= SCALE
    y[ids == 0] = y[ids == 0] if SCALE == 1 else 1
    return to.data.from_arrays(x, y, client_ids=ids, test_x=rng.normal(size=(9, 3)).astype(np.float32),
                               test_y=np.arange(9) % 2, num_classes=2)

def note(*what):
    with open("heard.txt", "a") as file:
        print(*what, file=file)

class Heard(to.pieces.Tracker):
    def begin(self, config, known, name):
        note(config, known, name)

    def on_round(self, row):
        note({name: value for name, value in row.items() if name != "seconds"})

    def on_work(self, what, done, total):
        note(what, done, total)

    def log(self, round, figures):
        pass

    def end(self, status, figures):
        note(status, {name: value for name, value in figures.items() if "seconds" not in name})
"""
ALGORITHMS = {
    "cohorts": (
        "average_participating",
        "availability=bernoulli",
        "availability.rates=[0.9,0.8,0.7,0.9,0.8,0.6]",
        "selection=uniform",
        "selection.cohort_size=3",
        "aggregation.cohort=3",
    ),
    "coins": (
        "average_all",
        "selection=poisson",
        "selection.rate=0.4",
        "availability=everyone",
        "aggregation.sampling_rate=0.4",
    ),
}
PRIVATE_FILES = {"config.json", "checkpoint.safetensors", "checkpoint.previous.safetensors", "SHA256SUMS"}
"""Files that the guide to privacy tells not to publish."""


def published(folder: Path) -> dict[str, Any]:
    """The contents of the files of a run, but for durations."""
    files: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            files[path.name] = str(table.drop_columns([n for n in table.column_names if n == "seconds"]).to_pydict())
        elif path.is_file() and path.name not in PRIVATE_FILES and path.suffix != ".pyc":  # which has a time
            files[path.name] = timeless(path.read_text(encoding="utf-8", errors="replace"))
    return files


def timeless(text: str) -> str:
    """Replace what depends on the clock; in tables, seconds have one decimal place."""
    durations = r"'seconds': [\d.e-]+|[\d.]+ (s|ms|seconds|rounds?/s)\b|\d\d:\d\d(:\d\d)?|(?<=[\s>])\d+\.\d(?=[\s<])"
    return re.sub(durations, "TIME", text)


@pytest.mark.parametrize(("name", "scale"), [("cohorts", "1e30"), ("coins", "3")])  # with 1e30, training ends at NaN
def test_whole_runs_on_neighboring_data_are_told_apart_by_noised_sums_alone(
    name: str, scale: str, turnout: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum is clipped to so little that the model, which may differ, is the same: all else must not differ at all.

    Where clients are drawn by coins, the first one is never drawn in the second run, as a client that is not there.
    """
    algorithm, *options = ALGORITHMS[name]
    seen, select, drawn = [], Poisson.select, set[int]()

    def others(selection: Poisson, candidates: Candidates) -> np.ndarray:
        drawn.update(cohort := select(selection, candidates))
        return cohort[cohort != 0]

    for value in ("1", scale):
        monkeypatch.setenv("SCALE_OF_THE_FIRST_CLIENT", value)
        if value != "1":
            monkeypatch.setattr(Poisson, "select", others)
        here = tmp_path / value
        here.mkdir()
        monkeypatch.chdir(here)
        (here / "mine.py").write_text(FILE, encoding="utf-8")
        call = ("--algorithm", algorithm, "--data", "mine.py:patients", "--model", "logistic", *options)
        call += (
            "aggregation=private_sum",
            "aggregation.norm=1e-30",
            "aggregation.noise_multiplier=2",
            "data.partition=by_id",
        )
        outputs = [
            turnout("run", *call, "--rounds", 4, "--track", "mine.py:Heard", "--folder", "run"),
            turnout("export", "run", "model.safetensors", "--card"),
            turnout("report", "run"),
            turnout("status", "run"),
        ]
        assert outputs[0].exit_code == 0, outputs[0].output
        text = "\n".join(timeless(output.output) for output in outputs).replace(str(here), "")
        seen.append((text, published(here), (here / "model.safetensors").read_bytes()))
    one, other = seen
    assert name != "coins" or 0 in drawn
    assert one[2] == other[2], "the models differ, so that the rest tells nothing"
    assert one[0] == other[0]
    assert one[1].keys() == other[1].keys() >= {"rounds.parquet", "model-card.md", "heard.txt", "settings.json"}
    for file in one[1]:
        assert one[1][file] == other[1][file], file
