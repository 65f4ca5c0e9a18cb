"""Encode the answers to evaluations and queries, sums with a leading axis of 1, and decode and check them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from turnout.core.checks import ConfigurationError
from turnout.core.types import State
from turnout.evaluation.queries import Question
from turnout.evaluation.sums import SumsForm
from turnout.protocol.answer_sum import AnswerLayout, AnswerSum
from turnout.protocol.counts import MAX_COUNT, needed_count
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.edge import read_object
from turnout_serve.wire.format import NAMES, Manifest, Spec, WireError, decode, encode, is_finite

LARGEST = 1e100
"""Maximum of a sum other than a number of examples, with which squares of sums over all clients do not overflow."""
_COUNTS = ("num_examples", "group_examples", "counts")
_SHARES = {"score": "num_examples", "shared_score": "num_examples", "group_score": "group_examples"}
"""Sums of numbers from 0 to 1 where examples have labels, and the number of examples of each."""
SURVEY = "survey"
"""Name of the input of a task in a masked sum that has the number of the evaluation or query."""
_UNIT = ("appeal_train", "appeal_test", "preferred")
"""Names of numbers from 0 to 1."""


@dataclass(frozen=True)
class SumsFormat:
    """Format of the answers to an evaluation or query.

    Attributes:
        manifest: types and shapes of the tensors.
        labeled: True where scores are numbers of correctly classified examples, and not squared errors.
        noised: True where clients without examples answer, too, because the server must not learn that they have none.
        max_examples: maximum number of examples; None is 2^40.
    """

    manifest: Manifest
    labeled: bool = True
    noised: bool = False
    max_examples: int | None = None

    @classmethod
    def of_evaluation(cls, form: SumsForm, noised: bool = False) -> SumsFormat:
        """Return the format of the answers to an evaluation."""
        return cls(manifest_of(form.shapes), form.metric == "accuracy", noised)

    @classmethod
    def of_query(cls, question: Question, widths: Mapping[str, int], noised: bool = False) -> SumsFormat:
        """Return the format of the answers to a query; see `Question.shapes`."""
        return cls(manifest_of(question.shapes(widths)), noised=noised)

    def read(self, body: bytes, *, checked: bool = False) -> dict[str, Any]:
        """Decode and check an answer; return its sums as plain values.

        Args:
            body: bytes of the answer.
            checked: True for an answer that was checked before, perhaps by a server with another `max_examples`.

        Raises:
            WireError: if there are other tensors, NaN, infinity, numbers beyond 1e100, or sums that no examples can
                have.
        """
        tensors = decode(body, self.manifest)
        for name, value in tensors.items():
            _check_number(name, value, None if checked else self.max_examples)
        _check_counts(tensors, may_be_empty=self.noised)
        if self.labeled:
            _check_shares(tensors)
        return {name: value[0].tolist() for name, value in tensors.items()}


def manifest_of(shapes: Mapping[str, tuple[int, ...]]) -> Manifest:
    """Return the manifest of sums: numbers of examples are int64, all others float64."""
    kinds = {name: torch.int64 if name in _COUNTS else torch.float64 for name in shapes}
    return {name: Spec(NAMES[kinds[name]], (1, *shape)) for name, shape in shapes.items()}


def layout_of(sums: AnswerSum, question: Question | None, form: SumsForm, widths: Mapping[str, int]) -> AnswerLayout:
    """Return the layout of the answers to a query, or to an evaluation without a question, as vectors that are summed.

    Args:
        sums: the options of sums of answers.
        question: question of a query.
        form: the sums of an evaluation.
        widths: see `Question.shapes`.

    Raises:
        ConfigurationError: if answers to the question cannot be summed.
    """
    if question is None:
        return sums.layout(form.shapes, labeled=form.metric == "accuracy")
    return sums.of_query(question.kind, question.shapes(widths), question.bound)


def sums_body(sums: Mapping[str, Any]) -> bytes:
    """Encode the sums of one client, numbers or nested lists."""
    kinds = {name: torch.int64 if name in _COUNTS else torch.float64 for name in sums}
    return encode({name: torch.tensor(value, dtype=kinds[name])[None] for name, value in sums.items()})


def question_tensor(question: Mapping[str, Any]) -> torch.Tensor:
    """Encode the question of a query as the bytes of JSON, ``U8 [n]``."""
    return torch.tensor(list(json.dumps(question, sort_keys=True).encode()), dtype=torch.uint8)


def question_of(task: Assignment) -> Question:
    """Return the question of the task of a query.

    Raises:
        WireError: if it cannot be read.
    """
    try:
        return Question(**read_object(bytes(task.tensors()["question"][0].tolist())))
    except (KeyError, ValueError, TypeError, ConfigurationError) as error:
        raise WireError(f"the server's task is no query: {error}") from None


def survey_of(task: Assignment) -> int:
    """Return the number of the survey of a task.

    Raises:
        WireError: if the task has none.
    """
    try:
        return int(task.tensors()[SURVEY][0])
    except (LookupError, ArithmeticError, ValueError, RuntimeError):
        raise WireError("the server's task does not say which evaluation or query it is of") from None


def _check_number(name: str, value: torch.Tensor, max_examples: int | None) -> None:
    """Check that a sum is finite, and that numbers of examples are within their limit."""
    if not is_finite(value):
        raise WireError(f"{name} holds NaN or infinity")
    if bool((value.double().abs() > LARGEST).any()):
        raise WireError(f"{name} is beyond 1e100")
    if name in _COUNTS and not bool(((value >= 0) & (value <= (max_examples or MAX_COUNT))).all()):
        raise WireError(f"{name} is {value.flatten().tolist()[:3]}, needed {needed_count(max_examples)}")


def _check_counts(tensors: State, may_be_empty: bool) -> None:
    """Check that a client has examples, and that their counts add up to their number."""
    if "num_examples" in tensors and int(tensors["num_examples"][0]) == 0 and not may_be_empty:
        raise WireError("num_examples is 0: a client without examples declines")
    if "counts" in tensors and not bool((tensors["counts"].sum(dim=-1) == tensors["num_examples"]).all()):
        raise WireError("counts do not add up to num_examples")


def _check_shares(tensors: State) -> None:
    """Check that scores are at most the number of examples, and shares from 0 to 1."""
    for name, of in _SHARES.items():
        if name in tensors and not bool(((tensors[name] >= 0) & (tensors[name] <= tensors[of])).all()):
            raise WireError(f"{name} is {tensors[name].flatten().tolist()[:3]}, needed 0 to {of}")
    for name in _UNIT:
        if name in tensors and not 0.0 <= float(tensors[name][0]) <= 1.0:
            raise WireError(f"{name} is {float(tensors[name][0])}, needed 0 to 1")
