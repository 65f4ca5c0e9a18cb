"""Train on the tables of six hospitals, see which of them gain, and apply the model to new patients.

    pip install '.[digits]' pandas                          # scikit-learn, which has the table
    python examples/journeys/hospitals.py

Hospitals see tumors of different sizes, and code a category in their own words until all declare the same ones. The figures
that are wanted: each hospital's accuracy with the shared model, alone, and with all rows in one place; and the probability
that the tumor of a new patient is malignant.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer

import turnout as to

HOSPITALS = ("Ahlen", "Bonn", "Celle", "Dresden", "Erfurt", "Fulda")


def patients() -> pd.DataFrame:
    """Return the rows of all hospitals: ten measurements, a category with missing values, and a diagnosis."""
    cancer: Any = load_breast_cancer(as_frame=True)
    frame = cancer.data.iloc[:, :10].copy()
    rng = np.random.default_rng(0)
    frame["scanner"] = rng.choice(["mri", "ultrasound", None], len(frame), p=[0.5, 0.4, 0.1])
    frame["diagnosis"] = np.where(cancer.target == 0, "malignant", "benign")
    by_size = np.argsort(frame["mean radius"].rank(pct=True) + rng.normal(0, 0.25, len(frame)))
    frame.loc[by_size, "hospital"] = np.repeat(HOSPITALS, -(-len(frame) // len(HOSPITALS)))[: len(frame)]
    return frame


def main() -> None:
    """Train, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/hospitals"))
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    rows = patients()
    new = rows.sample(6, random_state=0)
    known = rows.drop(index=new.index)
    source = to.data.from_table(
        known, label="diagnosis", client="hospital", classes=("benign", "malignant"),
        categories={"scanner": ("mri", "ultrasound")}, missing="fill", scale=True,
    )  # fmt: skip
    federated = to.Experiment(
        data=source.split(test_fraction=0.0, client_test_fraction=0.3),
        model=to.models.Logistic(),
        algorithm=to.fedavg(to.Sgd(lr=0.1, steps=10, batch_size=16)),
        metrics=("auc",),
        rounds=options.rounds,
    )
    alone = replace(federated, algorithm=to.algorithms.local(to.Sgd(lr=0.1, steps=10, batch_size=16))).run()
    pooled = replace(federated, algorithm=to.centralized(to.Sgd(lr=0.1, steps=10, batch_size=16))).run()
    result = federated.run(options.folder)
    gains = result.gains(local=alone, centralized=pooled).to_pandas()
    print(gains.drop(columns="client").round(3).to_string(index=False))
    gain = gains["gain_over_local"]
    print(f"{(gain > 0).sum()} of {len(gain)} hospitals gain over training alone; mean {100 * gain.mean():+.1f} points")

    exported = result.export(options.folder / "model.safetensors", card=True)
    print(f"the model, its preparation of columns, and a card that says how to apply it: {exported.parent}")
    probability = result.predict_proba(new.drop(columns=["diagnosis", "hospital"]))
    print("probability of a malignant tumor:", ", ".join(f"{p:.2f}" for p in np.asarray(probability)[:, 1]))
    print("diagnosed:                       ", ", ".join(new["diagnosis"]))


if __name__ == "__main__":
    main()
