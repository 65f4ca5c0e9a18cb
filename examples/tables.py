"""Tables of several holders: regression of a patient's progress, and the AUC of a diagnosis with unequal classes.

    pip install '.[digits]'        # scikit-learn, which has both tables
    python examples/tables.py
    turnout run --data table data.path=patients.csv data.label=progress data.client=clinic --loss squared_error

Columns are scaled with means and deviations of the rows that train. `transform=` takes a ColumnTransformer of scikit-learn
instead.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
from sklearn.datasets import load_breast_cancer, load_diabetes

import turnout as to


def tables() -> tuple[pa.Table, pa.Table]:
    """Return patients with their progress and clinics, and tumours with a diagnosis, where they were seen, and weights."""
    diabetes: Any = load_diabetes(scaled=False)
    cancer: Any = load_breast_cancer()
    x, names = diabetes.data, diabetes.feature_names
    # Clinics see patients of different ages, so that their rows are not alike.
    clinic = np.digitize(x[:, 0], np.quantile(x[:, 0], np.linspace(0, 1, 9)[1:-1]))
    patients = {name: x[:, column] for column, name in enumerate(names)} | {"progress": diabetes.target / 100}
    values, benign = cancer.data, cancer.target
    hospital = np.digitize(values[:, 0], np.quantile(values[:, 0], np.linspace(0, 1, 9)[1:-1]))
    tumours = {f"feature_{column}": values[:, column] for column in range(10)}
    tumours |= {"malignant": np.where(benign == 0, "yes", "no"), "hospital": [f"hospital {k}" for k in hospital]}
    return pa.table(patients | {"clinic": [f"clinic {k}" for k in clinic]}), pa.table(tumours)


def regression(path: Path, rounds: int) -> dict[str, float]:
    """Predict progress; return RMSE, R2 and mean absolute error of clinics' test rows."""
    source = to.data.from_table(path, label="progress", client="clinic", scale=True)
    data = source.split(client_test_fraction=0.25, validation_fraction=0.1, test_fraction=0.0)
    result = to.Experiment(
        data=data,
        model=to.models.Logistic(),  # one output: linear regression
        loss=to.loss.squared_error,
        metrics=("r2", "mae"),
        algorithm=to.fedavg(to.Sgd(lr=0.02, steps=10, batch_size=16)),
        rounds=rounds,
    ).run()
    return {name: result.summary()[f"test_{name}"] for name in ("rmse", "r2", "mae")}


def diagnosis(path: Path, rounds: int, class_weights: str | None) -> dict[str, float]:
    """Predict whether a tumour is malignant; return AUC and balanced accuracy of hospitals' test rows."""
    source = to.data.from_table(path, label="malignant", client="hospital", scale=True)
    data = source.split(client_test_fraction=0.25, test_fraction=0.0)
    result = to.Experiment(
        data=data,
        model=to.models.Logistic(),
        metrics=("auc", "balanced_accuracy"),
        class_weights=class_weights,  # type: ignore[arg-type]
        algorithm=to.scaffold(to.Sgd(lr=0.1, steps=5, batch_size=16), cohort_size=5),
        rounds=rounds,
    ).run()
    return {name: result.summary()[f"test_{name}"] for name in ("auc", "balanced_accuracy")}


def main() -> None:
    """Write both tables as CSV and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/tables"))
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    paths = [options.folder / name for name in ("patients.csv", "tumours.csv")]
    for table, path in zip(tables(), paths, strict=True):
        csv.write_csv(table, path)
    print("progress: ", _text(regression(paths[0], options.rounds)))
    for weights in (None, "balanced"):
        print(f"diagnosis, class weights {weights}: ", _text(diagnosis(paths[1], options.rounds, weights)))


def _text(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in figures.items())


if __name__ == "__main__":
    main()
