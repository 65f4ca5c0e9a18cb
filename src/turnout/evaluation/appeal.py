"""Measure the appeal of a model: how many clients find it worth joining, and their accuracies (MaxFL, section 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from turnout.core.other_names import ExplainsArguments
from turnout.core.ranges import Whole
from turnout.population.requirement import BoundRequirement


@dataclass(frozen=True)
class AppealMetrics(ExplainsArguments):
    """Columns about the requirements of clients, computed at every evaluation.

    For the clients that train, and with the prefix ``unseen_`` for those that never do:

    - ``appeal_test``, ``appeal_train``: GM-Appeal, ``mean_k 1{F_k(w) < rho_k}`` (definition 1), over test examples of the
      clients that have some, and over training examples of all clients;
    - ``client_accuracy``: the mean over clients of their test accuracies, if targets are class labels;
    - ``preferred_accuracy``: the same, if clients whose requirement is not met on their test examples use the local model
    from
      which their requirement derives.

    Args:
        tuning_steps: adds the same columns with the prefix ``tuned_`` (``unseen_tuned_``) for models that each client has
            fitted to its training data by this number of local steps; 0 leaves them out. All clients take these steps at each
            evaluation.

    Reference: Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024.
    """

    tuning_steps: Whole = 0


def content(scores: Mapping[str, np.ndarray], requirement: BoundRequirement, split: str) -> np.ndarray:
    """Return which requirements are met on clients' ``"train"`` or ``"test"`` examples, bool ``[N]``; NaN meets none."""
    required = requirement.of(split)
    assert required is not None
    return requirement.gap(scores[f"{split}_loss"], scores.get(f"{split}_accuracy"), required) < 0


def appeal_figures(
    scores: Mapping[str, np.ndarray], requirement: BoundRequirement, tested: np.ndarray, prefix: str = ""
) -> dict[str, float]:
    """Return the columns of `AppealMetrics` for a group of clients.

    Args:
        scores: the scores of the model for each client: ``train_loss``, ``train_accuracy`` and, if they have test examples,
            the same of ``test``, ``[N]``.
        requirement: the requirements of the clients.
        tested: the clients with test examples, bool ``[N]``.
        prefix: the prefix of the columns.
    """
    figures = {"appeal_train": content(scores, requirement, "train").mean()}
    if tested.any():
        is_met, accuracy = content(scores, requirement, "test"), scores.get("test_accuracy")
        figures["appeal_test"] = is_met[tested].mean()
        if accuracy is not None:
            figures["client_accuracy"] = accuracy[tested].mean()
        if accuracy is not None and requirement.solo_accuracy is not None:
            preferred = np.where(is_met, accuracy, requirement.solo_accuracy)
            figures["preferred_accuracy"] = preferred[tested].mean()
    return {f"{prefix}{name}": float(value) for name, value in figures.items() if not np.isnan(value)}
