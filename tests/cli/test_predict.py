"""``turnout predict``: from a table of clients to predictions for new rows."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import turnout as to

Turnout = Callable[..., Any]
RNG = np.random.default_rng(0)
AGES = RNG.integers(20, 90, 120)
ROWS = [(int(age), "f" if i % 2 else "m", f"h{i % 4}", "ill" if age > 55 else "well") for i, age in enumerate(AGES)]
NEW = [(30, "f"), (85, "m"), (25, "m")]


def write(path: str, header: str, rows: list[Any]) -> None:
    lines = [header, *(",".join(map(str, row)) for row in rows)]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def trained(turnout: Turnout, *more: Any) -> None:
    write("patients.csv", "age,sex,hospital,state", ROWS)
    write("new.csv", "age,sex", NEW)
    found = turnout(
        "run", "--algorithm", "fedavg", "--data", "table", "data.path=patients.csv", "data.label=state",
        "data.client=hospital", "data.scale=true", "data.categories=sex", "--model", "logistic", "--rounds", 60,
        "availability=everyone", "--folder", "run", *more,
    )  # fmt: skip
    assert found.exit_code == 0, found.output


def test_rows_of_a_file_are_predicted_by_the_run_of_a_table(turnout: Turnout) -> None:
    trained(turnout)
    found = turnout("predict", "run", "new.csv")
    assert found.exit_code == 0, found.output
    assert found.stdout == "state\nwell\nill\nwell\n"
    assert to.load("run").predict("new.csv").tolist() == ["well", "ill", "well"]


def test_probabilities_are_written_to_a_file(turnout: Turnout) -> None:
    trained(turnout)
    found = turnout("predict", "run", "new.csv", "--probabilities", "-o", "predicted.csv")
    assert found.stdout == "predicted.csv: 3 rows\n"
    with open("predicted.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["state", "p(ill)", "p(well)"]
    expected = to.load("run").predict_proba("new.csv")
    np.testing.assert_allclose([[float(row["p(ill)"]), float(row["p(well)"])] for row in rows], expected)
    for row in rows:
        assert (row["state"] == "ill") == (float(row["p(ill)"]) > 0.5)


def test_model_of_a_client_is_used_on_request(turnout: Turnout) -> None:
    trained(turnout, "--algorithm", "local")
    own = turnout("predict", "run", "new.csv", "--client", 2, "--probabilities").stdout.splitlines()[1].split(",")
    assert float(own[1]) == pytest.approx(to.load("run").predict_proba("new.csv", 2)[0, 0])
    found = turnout("predict", "run", "new.csv", "--client", 9)
    assert found.exit_code == 2
    assert "client" in found.output


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        ("age", [(30,)], "unknown column 'sex'"),
        ("age,sex", [(30, "x")], "column 'sex' has 'x' in row 1, which is none of"),
    ],
)
def test_tables_that_do_not_fit_are_refused(turnout: Turnout, header: str, rows: list[Any], message: str) -> None:
    trained(turnout)
    write("new.csv", header, rows)
    found = turnout("predict", "run", "new.csv")
    assert found.exit_code == 2
    assert message in " ".join(found.output.split())


def test_runs_on_other_data_are_refused(turnout: Turnout, small: tuple[str, ...]) -> None:
    turnout("run", "--algorithm", "fedavg", "--rounds", 1, "--folder", "run", *small)
    write("new.csv", "age,sex", NEW)
    found = turnout("predict", "run", "new.csv")
    assert found.exit_code == 2
    assert "its data were not a table" in " ".join(found.output.split())
