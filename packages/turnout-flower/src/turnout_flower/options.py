"""Check the options of a run over a Flower grid, and derive the messages that an algorithm needs of a ClientApp."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Literal

import torch

from turnout.base import InformsClients, KeepingCorrection, LossTerm
from turnout.base.algorithm import Algorithm
from turnout.core.checks import ConfigurationError, count, positive, refuse
from turnout.pieces.aggregation.low_rank import LowRank
from turnout.pieces.local.measurements import Inexactness
from turnout.pieces.local.solver import Solver
from turnout.protocol.fits import check_machines, check_pace
from turnout.protocol.pace import Pace, Rounds

LOSSES = ("start_loss", "start_loss_rms", "appeal_gap")
"""Inputs of pieces that are computed from the metrics of a ClientApp's evaluation of the received model."""


@dataclass(frozen=True)
class Options:
    """The options of `turnout_flower.Rule`; see there."""

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
    max_norm: float | Literal["auto"] | None = "auto"
    max_examples: int | None = None
    max_steps: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.algorithm, Algorithm):
            raise refuse("algorithm", given=self.algorithm, needed="an algorithm", instead="Write to.fedau()")
        if (why := refusal(self.algorithm, self.mod)) is not None:
            with_mod = not self.mod and refusal(self.algorithm, mod=True) is None
            hint = ": write mod=True, and mods=[turnout_flower.mod(...)] in the ClientApp" if with_mod else ""
            raise ConfigurationError(f"{self.algorithm.name} does not run on a Flower grid: {why}{hint}")
        check_pace(self.pace, self.algorithm)
        limits = [name for name in ("max_examples", "max_steps") if getattr(self, name) is not None]
        for name in ("min_nodes", "evaluate_every", *limits):
            count(name, getattr(self, name))
        for name in ("retry", "poll", *(["max_norm"] if self.max_norm not in ("auto", None) else [])):
            positive(name, getattr(self, name))
        if "appeal_gap" in self.losses("train") and self.requirement is None:
            raise ConfigurationError(
                "requirement: AppealGap compares losses with the requirements of clients, and none is given: write "
                "requirement=0.5, or the name of a metric of each client's evaluation"
            )

    def losses(self, phase: str) -> tuple[str, ...]:
        """Return the inputs of pieces in a phase that are computed from metrics of evaluation or training."""
        measurements = {"train": self.algorithm.measurements, "measure": self.algorithm.selection.measurements}
        names = tuple(name for piece in measurements.get(phase, ()) for name in piece.gives if name in LOSSES)
        readers = (*self.algorithm.weighting, self.algorithm.selection) if phase == "train" else ()
        return (*names, "loss") if any("loss" in piece.needs for piece in readers) else names

    def kinds(self, phase: str) -> tuple[str, ...]:
        """Return the types of messages that a client gets in a phase."""
        evaluates = bool({*LOSSES} & {*self.losses(phase)})
        names = {name for piece in self.algorithm.selection.measurements for name in piece.gives}
        trains = phase != "measure" or names > {*LOSSES} & names
        return ("evaluate",) * evaluates + ("train",) * trains


def refusal(algorithm: Algorithm, mod: bool = False) -> str | None:
    """Return why an algorithm cannot run with a ClientApp; None if it can.

    A plain ClientApp sends its parameters after training, its number of examples, and metrics. With `mod`, it also has a
    memory, corrects gradients before each optimizer step, and modifies its update before it is sent.

    >>> import turnout as to
    >>> refusal(to.fedau()) is None
    True
    >>> refusal(to.folb())
    'StartGradient needs start_gradient of every client, and a ClientApp sends only parameters and metrics'
    >>> refusal(to.folb(), mod=True) is None
    True
    """
    try:
        check_machines(algorithm)
    except ConfigurationError as error:
        return str(error)
    reasons = chain(_reasons(algorithm), () if mod else _without_mod(algorithm))
    return next((f"{type(piece).__name__} {why}" for piece, why in reasons), None)


def _reasons(algorithm: Algorithm) -> Iterator[tuple[object, str]]:
    """Yield pieces that a ClientApp cannot carry out, with or without the mod, with the reason."""
    aggregation = algorithm.aggregation
    if Solver.family.name_of(type(algorithm.local)) is None:
        yield algorithm.local, "replaces the local training loop, and a ClientApp has its own"
    for piece in algorithm.weighting:
        if isinstance(piece, InformsClients):
            yield piece, "sets the amount of work of each client, which a ClientApp decides itself"
    for piece in (*algorithm.measurements, *algorithm.selection.measurements):
        if isinstance(piece, Inexactness):
            yield piece, "needs a gradient after training, which a ClientApp does not compute"
        if getattr(piece, "tuning", None) is not None:
            why = "tunes the model before evaluating it (tuning=...), and a ClientApp evaluates the received model"
            yield piece, why
    for piece in algorithm.corrections:
        if isinstance(piece, LossTerm):
            yield piece, "adds a term to the loss of each minibatch, and a ClientApp has its own loss"
    if isinstance(aggregation, LowRank):
        yield (
            aggregation,
            "multiplies pairs of adapter factors, and a ClientApp does not declare which arrays form a pair",
        )
    if phases := algorithm.extra_phases:
        yield aggregation, f"needs further messages from clients after training ({', '.join(phases)})"


def _without_mod(algorithm: Algorithm) -> Iterator[tuple[object, str]]:
    """Yield pieces that need the mod, with the reason."""
    if algorithm.personal is not None:
        yield algorithm.personal, "keeps a part of the model on each client, and a ClientApp sends the entire model"
    for piece in algorithm.corrections:
        names = ", ".join(
            [*(piece.keeps if isinstance(piece, KeepingCorrection) else ()), *piece.memory(1, torch.float32)]
        )
        state = f", with client state ({names})" * bool(names)
        yield piece, f"changes the gradient of every local step{state}, which only the mod can do in a ClientApp"
    for piece in (*algorithm.measurements, *algorithm.selection.measurements):
        if names := ", ".join(name for name in piece.gives if name not in LOSSES):
            yield piece, f"needs {names} of every client, and a ClientApp sends only parameters and metrics"
    for piece in algorithm.guard:
        yield piece, "changes updates before they are sent, and a ClientApp sends them unchanged"
