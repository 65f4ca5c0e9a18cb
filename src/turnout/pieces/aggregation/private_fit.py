"""Refuse algorithms that differential privacy excludes, with the mathematical reason."""

from __future__ import annotations

import torch

from turnout.core.checks import ConfigurationError
from turnout.pieces.base import Slots
from turnout.pieces.guard.clip_controls import ClipControls
from turnout.pieces.selection.poisson import Poisson
from turnout.pieces.selection.uniform import Uniform
from turnout.pieces.weighting import DivideByClients, DivideByCurvature, DivideByParticipants
from turnout.pieces.weighting.normalise import ByOneNumber


def check_sums(algorithm: Slots, control_norm: float | None) -> None:
    """Refuse algorithms whose server reads more of clients than sums that are noised."""
    _check_controls(algorithm, control_norm)
    if algorithm.selection.reads_data:
        raise ConfigurationError(
            f"PrivateSum: {type(algorithm.selection).__name__} chooses the cohort by what clients measure on their data, "
            "one by one, and so tells who is in it; no noise in the sum hides that"
        )
    if algorithm.server.of_reports:
        raise ConfigurationError(
            f"PrivateSum: {type(algorithm.server).__name__} reads the length of every update, and its step is not noised"
        )


def _check_controls(algorithm: Slots, norm: float | None) -> None:
    """Refuse control variates that are not noised, or of which clients and server would clip something else."""
    if not algorithm.keeps:
        if norm is not None:
            raise ConfigurationError("control_norm: clients keep no control variates: leave it out")
        return
    if norm is None:
        raise ConfigurationError(
            f"PrivateSum: clients also send the change of {algorithm.keeps[0]}, which the server adds up without "
            "noise: write control_norm=1.0 and add ClipControls(norm=1.0) to the pieces, or use an algorithm that sends the "
            "update alone"
        )
    if any(correction.asks_everyone for correction in algorithm.corrections):
        raise ConfigurationError(
            "control_norm: all clients tell their first gradients before the first round, in a sum that has no noise: write "
            "initial='zeros'"
        )
    if len(algorithm.keeps) > 1:
        raise ConfigurationError(
            f"control_norm: clients keep {' and '.join(algorithm.keeps)}, and one of them can be noised: leave one out"
        )
    if not any(isinstance(guard, ClipControls) and guard.norm == norm for guard in algorithm.guard):
        raise ConfigurationError(
            f"control_norm: got {norm}, and clients do not clip what they keep likewise, so that the server's mean would not "
            "be theirs: add ClipControls with that norm to the pieces"
        )


def check_weights(algorithm: Slots) -> None:
    """Refuse weights in which the data of other clients show."""
    *chain, last = algorithm.weighting
    for piece in algorithm.weighting:
        if isinstance(piece, DivideByCurvature):
            raise ConfigurationError(
                "PrivateSum: DivideByCurvature divides by a sum of losses and lengths, which have no bound and no noise: add "
                "DivideByNoisyCurvature with the same q and lr, which goes in its place"
            )
        if piece.reads == "others":
            raise ConfigurationError(
                f"PrivateSum: {type(piece).__name__} makes a client's weight of what other clients hold, so that one "
                "client moves the share of all and its influence has no bound"
            )
    if not isinstance(last, ByOneNumber):
        raise ConfigurationError(f"PrivateSum: the divisor of {type(last).__name__} differs from report to report")
    if any(piece.reads == "own" for piece in chain) and not last.divisor_is_public:
        raise ConfigurationError(
            f"PrivateSum: {type(last).__name__} divides by a sum of what clients' data say, which is not noised: divide "
            "by DivideByClients or DivideByParticipants, or by DivideByNoisySum; in place of ByExamples take "
            "ExamplesUpTo, or a recipe in which clients count alike, such as average_participating"
        )


def check_divisor(algorithm: Slots, cohort: int | None) -> None:
    """Refuse a cohort where all clients are divided by, and none where they are not."""
    last = algorithm.weighting[-1]
    if not isinstance(last, DivideByClients) and cohort is None:
        raise ConfigurationError(
            f"PrivateSum: with {type(last).__name__}, noise is added to a sum over a cohort: write cohort=, the reports "
            "of a step that you expect"
        )
    if isinstance(last, DivideByClients) and cohort is not None:
        raise ConfigurationError("PrivateSum: the chain divides by all N clients: leave cohort out")


def check_coins(algorithm: Slots, rate: float) -> None:
    """Refuse to count sampling by coins where cohorts are drawn otherwise, or their size shows."""
    if algorithm.selection != Poisson(rate):
        raise ConfigurationError(
            f"sampling_rate: got {rate}, and {type(algorithm.selection).__name__} draws otherwise: add "
            "Poisson with that rate to the pieces, or leave sampling_rate out"
        )
    for piece in (*algorithm.weighting[:-1], algorithm.server):
        if piece.participation == "others":
            raise ConfigurationError(
                f"sampling_rate: {type(piece).__name__} treats a client's report by which other clients were drawn, in this "
                "round or before, and that is private, so that a client shows in rounds in which it was not drawn: use "
                "weights of a client's own participation, such as Participation without groups"
            )
    if not isinstance(algorithm.weighting[-1], DivideByClients):
        raise ConfigurationError(
            f"sampling_rate: how many were drawn by coins is private, and {type(algorithm.weighting[-1]).__name__} "
            "divides by it: use DivideByClients, as average_all and fedau do"
        )


def check_fixed_size(algorithm: Slots, cohort: int | None) -> None:
    """Refuse to count samples of fixed size where cohorts are drawn otherwise, or rounds are not drawn independently.

    Who was drawn in a round says who was not. So where what a client adds depends on the rounds in which it was drawn before,
    rounds are no independent samples given the models that came out, which is what adding up their costs takes.
    """
    if algorithm.selection != Uniform(cohort or 1):
        raise ConfigurationError(
            f"sampled_from: {type(algorithm.selection).__name__} draws otherwise than cohort={cohort} of all clients: add "
            "Uniform with that cohort_size to the pieces, or leave sampled_from out"
        )
    if not isinstance(last := algorithm.weighting[-1], DivideByParticipants):
        raise ConfigurationError(
            f"sampled_from: a sum over equally many clients is divided by these, and {type(last).__name__} divides "
            "otherwise: use DivideByParticipants"
        )
    if remembering := _of_earlier_rounds(algorithm):
        raise ConfigurationError(
            f"sampled_from: with {remembering}, what a client adds depends on the rounds in which it was drawn before, which "
            "are private then, and rounds are no independent samples: leave sampled_from out, or use Poisson with "
            "sampling_rate; of Sgd, sampling='fresh' begins each round anew, and so does keep_state=False"
        )


def _of_earlier_rounds(algorithm: Slots) -> str | None:
    """The first piece by which what a client adds depends on when it took part before, None if there is none."""
    *chain, _ = algorithm.weighting
    remembers = (
        *((piece, piece.participation != "none") for piece in (*chain, algorithm.server)),
        (algorithm.personal, algorithm.personal is not None),
        *((piece, bool(piece.memory(1, torch.float32))) for piece in (*algorithm.guard, *algorithm.corrections)),
        *((piece, bool(piece.keeps)) for piece in algorithm.corrections),
        (algorithm.local, bool(algorithm.local.memory(1, torch.float32))),
    )
    return next((type(piece).__name__ for piece, does in remembers if does), None)
