"""The status of a server: each figure is declared once, with its type, and with its Prometheus metric if it has one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from turnout.record.contents import Finite
from turnout_serve.wire.bodies import Body
from turnout_serve.wire.edge import Count, Share

DISTRIBUTIONS = {
    "participation": "Contributions per server step",
    "staleness": "Mean staleness in server steps",
    "influence": "Influence over the fair share",
}
"""Figures of clients whose quantiles `Heard` has."""


_CODES = ("200", "201", "400", "401", "403", "404", "408", "409", "410", "413", "422", "429", "500", "503")


@dataclass(frozen=True)
class Metric:
    """The Prometheus metric of a field.

    Attributes:
        name: without the prefix ``turnout_``.
        kind: ``"counter"`` or ``"gauge"``.
        help: one sentence.
        label: name of a label. Its values are the keys of a field that is a table.
        key: value of the label where the field is one number; fields of the same metric have different keys.
        none: sample of a field that is None; None shows no sample.
        usual: values of the label that are shown from the start, as 0, because a ratio over a missing series is no number.
    """

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    label: str = ""
    key: str = ""
    none: str | None = None
    usual: tuple[str, ...] = ()


def _clients(state: str) -> Metric:
    return Metric("clients", "gauge", "Clients by what they do.", "state", state)


def _evaluated(state: str) -> Metric:
    return Metric("evaluation_clients", "gauge", "Clients of the last evaluation.", "state", state)


class Privacy(Body):
    """The privacy budget that a run has spent; an infinite epsilon is null."""

    epsilon: Annotated[Finite | None, Metric("epsilon", "gauge", "Epsilon that the run has spent.", none="+Inf")]
    delta: Finite
    budget: Finite | None = None
    answers: Annotated[Count, Metric("noised_answers", "gauge", "Noised answers to evaluations and queries.")] = 0
    most_answers: Count = 0


class Heard(Body):
    """Distributions over clients at a version: the share without a contribution, and eleven quantiles of each figure."""

    version: Count = 0
    never: Annotated[
        Share | None, Metric("clients_never_heard", "gauge", "Share of clients that are in no server step.")
    ] = None
    deciles: dict[str, Annotated[list[Finite], Field(min_length=11, max_length=11)]] = Field(default_factory=dict)


class Evaluation(Body):
    """The result of the last evaluation by clients."""

    version: Annotated[Count, Metric("evaluation_version", "gauge", "Version of the last evaluation by clients.")]
    asked: Annotated[Count, _evaluated("asked")]
    answered: Annotated[Count, _evaluated("answered")]
    lost: Annotated[
        dict[str, Any],
        Metric("evaluation_lost", "gauge", "Clients without an answer in the last evaluation.", "reason"),
    ]
    figures: Annotated[dict[str, Finite], Metric("evaluation", "gauge", "Figures of the last evaluation.", "figure")]


class Sums(Body):
    """The secure sums of steps: how many were begun, and how many of them were opened."""

    steps: Annotated[Count, Metric("secure_sums_total", "counter", "Secure sums of steps.")]
    opened: Annotated[Count, Metric("secure_sums_opened_total", "counter", "Secure sums that were opened.")]


class Unusual(Body):
    """The last step whose update was more than ten times as long as the median of those before; null if not finite."""

    step: Annotated[
        Count, Metric("unusual_step", "gauge", "The last step with an update far larger than those before.")
    ]
    norm: Finite | None
    usual: Finite


class Status(Body):
    """The figures of a run."""

    run: str
    algorithm: str
    pace: str
    version: Annotated[Count, Metric("steps_total", "counter", "Server steps taken.")]
    rounds: Annotated[Count, Metric("rounds", "gauge", "Server steps to take.")]
    state: str
    failure: str | None = None
    needed: Count = 0
    enrolled: Annotated[Count, _clients("enrolled")]
    there: Annotated[Count, _clients("there")]
    at_work: Annotated[Count, _clients("at_work")]
    waiting: Annotated[Count, _clients("waiting")] = 0
    healthy: Annotated[bool, Metric("healthy", "gauge", "Whether the journal can be written.")] = True
    seconds: Finite = 0.0
    last_step: Finite | None = None
    journal: Annotated[Count, Metric("journal_entries_total", "counter", "Entries of the journal.")] = 0
    answers: Annotated[
        dict[str, Count], Metric("answers_total", "counter", "Answers by HTTP status.", "code", usual=_CODES)
    ] = Field(default_factory=dict)
    dropped: Annotated[
        dict[str, Count],
        Metric(
            "tasks_dropped_total", "counter", "Tasks that ended without being used.", "reason",
            usual=("died", "late", "left", "unusable"),
        ),
    ] = Field(default_factory=dict)  # fmt: skip
    barred: dict[str, str] = Field(default_factory=dict)
    curves: dict[str, list[tuple[Count, Finite | None]]] = Field(default_factory=dict)
    privacy: Privacy | None = None
    heard: Heard = Heard()
    evaluation: Evaluation | None = None
    sums: Sums | None = None
    unusual: Unusual | None = None

    def fields(self) -> dict[str, Any]:
        """Return all fields as plain values; in nested objects, those that were not set are left out."""
        return {
            name: value.model_dump(exclude_unset=True) if isinstance(value, Body) else value for name, value in self
        }
