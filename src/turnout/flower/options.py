"""The options of a run over a Flower grid, checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from turnout.core.checks import ConfigurationError, count, positive, refuse
from turnout.flower.refusals import refusal
from turnout.pieces.base.algorithm import Algorithm
from turnout.protocol.fits import check_pace
from turnout.protocol.pace import Pace, Rounds


@dataclass(frozen=True)
class Options:
    """The options of `turnout.flower.Rule`, which has their description."""

    algorithm: Algorithm
    pace: Pace = field(default_factory=Rounds)
    folder: str | Path = "turnout-run"
    min_nodes: int = 2
    seed: int = 0
    evaluate_every: int = 1
    requirement: float | str | None = None
    loss: str = "eval_loss"
    arrays: str = "arrays"
    config: str = "config"
    examples: str = "num-examples"
    steps: str = "num-steps"
    retry: float = 10.0
    poll: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.algorithm, Algorithm):
            raise refuse("algorithm", given=self.algorithm, needed="an algorithm", instead="Write to.fedau()")
        if (why := refusal(self.algorithm)) is not None:
            raise ConfigurationError(f"{self.algorithm.name} does not run on a Flower grid: {why}")
        check_pace(self.pace, self.algorithm)
        for name in ("min_nodes", "evaluate_every"):
            count(name, getattr(self, name))
        for name in ("retry", "poll"):
            positive(name, getattr(self, name))
        if "appeal_gap" in self.losses and self.requirement is None:
            raise ConfigurationError(
                "requirement: AppealGap compares losses with what clients require, and none is given: write requirement=0.5, "
                "or the name of a metric that each client's evaluation has"
            )

    @property
    def losses(self) -> tuple[str, ...]:
        """What is read that follows from the loss of the received model."""
        return tuple(name for piece in self.algorithm.measurements for name in piece.gives)
