"""Check the options of a run over a Flower grid, and derive what is read of its clients."""

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
        """Return what is read in a phase that follows from the metrics of an evaluation, or of training."""
        measurements = {"train": self.algorithm.measurements, "measure": self.algorithm.selection.measurements}
        names = tuple(name for piece in measurements.get(phase, ()) for name in piece.gives if name in LOSSES)
        readers = (*self.algorithm.weighting, self.algorithm.selection) if phase == "train" else ()
        return (*names, "loss") if any("loss" in piece.needs for piece in readers) else names

    def kinds(self, phase: str) -> tuple[str, ...]:
        """Return the types of messages by which clients are asked for a report of a phase."""
        evaluates = bool({*LOSSES} & {*self.losses(phase)})
        names = {name for piece in self.algorithm.selection.measurements for name in piece.gives}
        trains = phase != "measure" or names > {*LOSSES} & names
        return ("evaluate",) * evaluates + ("train",) * trains
