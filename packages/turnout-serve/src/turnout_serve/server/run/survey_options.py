"""Options of an evaluation or query, and the evaluations that a run has on its schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnout.protocol.survey import SurveyPhase
from turnout_serve.server.run.setting import RunSetting


@dataclass(frozen=True)
class SurveyOptions:
    """Options of an evaluation or query.

    Attributes:
        phase: ``"evaluate"`` or ``"query"``.
        share: share of the clients that are asked.
        seconds: until it ends, for clients that join meanwhile; None ends it with the last answer.
        question: question of a query.
        secret: secret of its noise alone, hexadecimal; empty for an evaluation on schedule.
        every: True for an evaluation on schedule, which ends the one before.
    """

    phase: SurveyPhase
    share: float
    seconds: float | None = None
    question: Mapping[str, Any] | None = None
    secret: str = ""
    every: bool = False


def scheduled(setting: RunSetting, version: int, last: bool) -> SurveyOptions | None:
    """Return the evaluation of a new model that the schedule of a run has; None without one.

    Args:
        setting: setting of the run.
        version: version of the model.
        last: True for the last model of the run.
    """
    due = setting.evaluate_share and (last or version % setting.evaluate_every == 0)
    return SurveyOptions("evaluate", setting.evaluate_share, every=True) if due else None
