"""How many clients find a model worth joining, and what it gives them (MaxFL, section 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from turnout.core.checks import count
from turnout.population.requirement import BoundRequirement


@dataclass(frozen=True)
class AppealMetrics:
    """Further columns of the table of rounds, at every evaluation, about what clients require of a model.

    For the clients that train, and with the prefix ``unseen_`` for those that never do:

    - ``appeal_test``, ``appeal_train``: GM-Appeal, ``mean_k 1{F_k(w) < rho_k}`` (definition 1), over the clients with
      test examples on those, and over all clients on training examples;
    - ``client_accuracy``: the mean over clients of their test accuracies, where targets are class labels;
    - ``preferred_accuracy``: the same, where clients whose requirement is not met on their test examples take the model of
      their own with which they found out what to require.

    Args:
        tuning_steps: with the prefix ``tuned_`` (``unseen_tuned_``), the same for models that each client has first fitted to
            its training data by so many local steps; 0 leaves them out. All clients take these steps at each evaluation.

    Reference: Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024.
    """

    tuning_steps: int = 0

    def __post_init__(self) -> None:
        count("tuning_steps", self.tuning_steps, least=0)


def content(scores: Mapping[str, np.ndarray], requirement: BoundRequirement, split: str) -> np.ndarray:
    """Whether each client's requirement is met on its ``"train"`` or ``"test"`` examples, bool ``[N]``; NaN meets none."""
    required = requirement.of(split)
    assert required is not None
    return requirement.gap(scores[f"{split}_loss"], scores.get(f"{split}_accuracy"), required) < 0


def appeal_figures(
    scores: Mapping[str, np.ndarray], requirement: BoundRequirement, tested: np.ndarray, prefix: str = ""
) -> dict[str, float]:
    """Return the columns of `AppealMetrics` for some clients.

    Args:
        scores: how well the model does for each of them: ``train_loss``, ``train_accuracy``, and the same of ``test`` where
            they have test examples, ``[N]``.
        requirement: what they require.
        tested: who has test examples, bool ``[N]``.
        prefix: what the columns' names begin with.
    """
    figures = {"appeal_train": content(scores, requirement, "train").mean()}
    if tested.any():
        happy, accuracy = content(scores, requirement, "test"), scores.get("test_accuracy")
        figures["appeal_test"] = happy[tested].mean()
        if accuracy is not None:
            figures["client_accuracy"] = accuracy[tested].mean()
        if accuracy is not None and requirement.solo_accuracy is not None:
            preferred = np.where(happy, accuracy, requirement.solo_accuracy)
            figures["preferred_accuracy"] = preferred[tested].mean()
    return {f"{prefix}{name}": float(value) for name, value in figures.items() if not np.isnan(value)}
