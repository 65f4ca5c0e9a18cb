"""Evaluate a model on the test examples of one client: sums of losses and scores, of the shared and the personal model."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from turnout.base import Personalization
from turnout.core.types import State
from turnout.data.shards import Shards
from turnout.engine.cohort import Clients
from turnout.engine.full_batch import full_scores
from turnout.evaluation.appeal import content
from turnout.evaluation.evaluate import evaluate
from turnout.evaluation.sums import SumsForm, metric_sums, scored
from turnout.population.requirement import BoundRequirement
from turnout_serve.client.opting import arrays_of


def evaluation_sums(
    form: SumsForm,
    client: Clients,
    test: Shards,
    personal: Personalization | None,
    params: torch.Tensor,
    memory: State,
    required: BoundRequirement | None,
) -> dict[str, Any] | None:
    """Return the sums of an evaluation by one client; None where one is not finite.

    Args:
        form: form of the sums.
        client: its training examples, and the objective.
        test: its test examples, in the same row.
        personal: personalization of the algorithm; None without personal parameters.
        params: the shared parameters, ``[P_u]``.
        memory: memory of the client.
        required: requirement of the client, by its row; None where the evaluation does not report on it.
    """
    objective, transforms, row = client.objective, client.transforms, int(client.rows[0])
    examples = Shards.pooled(*test.client(row))
    model, sums = params, dict[str, Any]()
    if personal is not None:
        model = personal.serving(params, {name: value[None] for name, value in memory.items()})[0]
        first = personal.first(objective.initial, len(params))
        shared = evaluate(objective, personal.newcomer(params, first), examples, transforms)
        sums |= {"shared_loss": float(shared.loss.sum()), "shared_score": float(shared.score.sum())}
    scores = evaluate(objective, model, examples, transforms, outputs=bool(form.metrics))
    sums |= scored(scores, examples.y.cpu().numpy(), form.groups, form.bins)
    if form.metrics:
        sums |= metric_sums(form.metrics, *scores.pairs[0])
    if form.appeal:
        assert required is not None
        sums |= _appeal(form, client, test, model, required)
    return sums if all(math.isfinite(value) for name in sums for value in np.atleast_1d(sums[name])) else None


def _appeal(
    form: SumsForm, client: Clients, test: Shards, model: torch.Tensor, required: BoundRequirement
) -> dict[str, float]:
    """Return whether a model meets the requirement on each split, and the accuracy of the model that the client prefers."""
    values, row = dict[str, np.ndarray](), int(client.rows[0])
    for split, shards in (("train", client.shards), ("test", test)):
        loss, score = (tensor.cpu().numpy() for tensor in full_scores(replace(client, shards=shards), model))
        values |= {f"{split}_loss": loss, f"{split}_accuracy": score}
    requirement = replace(required, **{name: value[[row]] for name, value in arrays_of(required).items()})
    meets = {split: bool(content(values, requirement, split)[0]) for split in ("train", "test")}
    sums = {f"appeal_{split}": float(value) for split, value in meets.items()}
    if form.alone:
        assert requirement.solo_accuracy is not None
        sums["preferred"] = float((values["test_accuracy"] if meets["test"] else requirement.solo_accuracy)[0])
    return sums
