"""The script that made byzfl.json: what byzfl 0.0.11 makes of the same vectors.

byzfl imports torchvision, which nothing here needs, so its two modules of aggregators are loaded without the rest::

    pip install --no-deps --target /tmp/byzfl byzfl==0.0.11
    python tests/pieces/aggregation/byzfl.py /tmp/byzfl > tests/pieces/aggregation/byzfl.json

Its Krum looks at ``n - f - 1`` neighbors, the paper's at ``n - f - 2``: it is asked for f + 1. Its minimum-diameter
averaging takes the first of several equal sets: vectors are put in order of their sum of distances to all others.
"""

import json
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

F = 3


def vectors(seed):
    """Eleven vectors, three of them far from the others."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(11, 6)) + 1.0
    x[:F] += 5.0 * rng.normal(size=(F, 6))
    return x


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    package = ModuleType("byzfl")
    package.__path__ = [f"{sys.argv[1]}/byzfl"]
    sys.modules["byzfl"] = package
    aggregators: Any = import_module("byzfl.aggregators")
    attacks: Any = import_module("byzfl.attacks")

    def results(x):
        near = np.argsort(np.linalg.norm(x[:, None] - x, axis=2).sum(axis=1), kind="stable")
        mixed = aggregators.NNM(F)(x)
        honest = x[F:]
        return {
            "median": aggregators.Median()(x),
            "trimmed_mean": aggregators.TrMean(F)(x),
            "krum": aggregators.Krum(F + 1)(x),
            "multi_krum": aggregators.MultiKrum(F + 1)(x),
            "geometric_median": aggregators.GeometricMedian(nu=0.1, T=3)(x),
            "centered_clipping": aggregators.CenteredClipping(L=3, tau=2.0)(x),
            "minimum_diameter": aggregators.MDA(F)(x[near]),
            "nnm, trimmed_mean": aggregators.TrMean(F)(mixed),
            "nnm, krum": aggregators.Krum(F + 1)(mixed),
            "nnm, geometric_median": aggregators.GeometricMedian(nu=0.1, T=3)(mixed),
            "nnm, centered_clipping": aggregators.CenteredClipping(L=3, tau=2.0)(mixed),
            "attack: inner_product": attacks.InnerProductManipulation(tau=2.0)(honest),
            "attack: a_little_is_enough": attacks.ALittleIsEnough(tau=1.5)(honest),
        }

    print(json.dumps([{k: list(v) for k, v in results(vectors(seed)).items()} for seed in range(3)], indent=1))
