"""The options of a run over a Flower grid, checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from turnout.core.checks import ConfigurationError, count, positive, refuse
from turnout.flower.refusals import LOSSES, refusal
from turnout.pieces.base.algorithm import Algorithm
from turnout.protocol.fits import check_pace
from turnout.protocol.pace import Pace, Rounds


@dataclass(frozen=True)
class Options:
    """The options of `turnout.flower.Rule`, which has their description."""

    algorithm: Algorithm
    pace: Pace = field(default_factory=Rounds)
    folder: str | Path = "turnout-run"
    mod: bool = False
    min_nodes: int = 2
    seed: int = 0
    evaluate_every: int = 1
    requirement: float | str | None = None
    loss: str = "eval_loss"
    train_loss: str = "train_loss"
    arrays: str = "arrays"
    config: str = "config"
    examples: str = "num-examples"
    steps: str = "num-steps"
    retry: float = 10.0
    poll: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.algorithm, Algorithm):
            raise refuse("algorithm", given=self.algorithm, needed="an algorithm", instead="Write to.fedau()")
        if (why := refusal(self.algorithm, self.mod)) is not None:
            with_mod = not self.mod and refusal(self.algorithm, mod=True) is None
            hint = ": write mod=True, and mods=[turnout.flower.mod(...)] in the ClientApp" if with_mod else ""
            raise ConfigurationError(f"{self.algorithm.name} does not run on a Flower grid: {why}{hint}")
        check_pace(self.pace, self.algorithm)
        for name in ("min_nodes", "evaluate_every"):
            count(name, getattr(self, name))
        for name in ("retry", "poll"):
            positive(name, getattr(self, name))
        if "appeal_gap" in self.losses("train") and self.requirement is None:
            raise ConfigurationError(
                "requirement: AppealGap compares losses with what clients require, and none is given: write requirement=0.5, "
                "or the name of a metric that each client's evaluation has"
            )

    def losses(self, phase: str) -> tuple[str, ...]:
        """Return what clients report in a phase that follows from metrics of their evaluation, or training."""
        asked = {"train": self.algorithm.measurements, "measure": self.algorithm.selection.measurements}.get(phase, ())
        names = tuple(name for piece in asked for name in piece.gives if name in LOSSES)
        reads = phase == "train" and any(
            "loss" in piece.needs for piece in (*self.algorithm.weighting, self.algorithm.selection)
        )
        return (*names, "loss") if reads else names

    def kinds(self, phase: str) -> tuple[str, ...]:
        """Return the types of messages by which clients are asked for a report of a phase."""
        evaluates = any(name in LOSSES for name in self.losses(phase))
        asked = [name for piece in self.algorithm.selection.measurements for name in piece.gives]
        trains = phase != "measure" or any(name not in LOSSES for name in asked)
        return (*(("evaluate",) if evaluates else ()), *(("train",) if trains else ()))
