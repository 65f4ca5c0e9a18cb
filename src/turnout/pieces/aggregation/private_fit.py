"""Check that a private sum is all that an algorithm's server learns from its clients' data.

Each error states the mathematical reason.
"""

from __future__ import annotations

from typing import Any

import torch

from turnout.base import ScalesByReports, Server, ShortensSteps, Slots
from turnout.base.selection import reads_data
from turnout.core.checks import ConfigurationError
from turnout.pieces.aggregation.private_quantile import check_count
from turnout.pieces.aggregation.private_shares import check_secure, check_shares
from turnout.pieces.guard.clip import ClipControls
from turnout.pieces.selection.uniform import Poisson, Uniform
from turnout.pieces.weighting import DivideByClients, DivideByCurvature, DivideByParticipants
from turnout.pieces.weighting.normalize import ByOneNumber


def check_fit(algorithm: Slots, piece: Any) -> None:
    """Raise an error for an algorithm that reads more than a `PrivateSum` with one contribution of each client's own data."""
    _check_controls(algorithm, piece.control_norm)
    _check_sums(algorithm)
    _check_weights(algorithm)
    _check_divisor(algorithm, piece.cohort)
    check_count(algorithm, piece)
    if piece.sampling_rate is not None:
        _check_coins(algorithm, piece.sampling_rate)
    if piece.sampled_from is not None:
        _check_fixed_size(algorithm, piece.cohort)
    check_shares(algorithm, piece)
    if piece.secure is not None:
        check_secure(algorithm)


def _check_sums(algorithm: Slots) -> None:
    """Raise an error if the server reads anything about clients' data but noised sums."""
    if reads_data(algorithm.selection):
        raise ConfigurationError(
            f"PrivateSum: {type(algorithm.selection).__name__} selects the cohort by measurements of clients' data, so "
            "the cohort itself reveals them, and noise in the sum does not hide that"
        )
    if isinstance(algorithm.server, ScalesByReports):
        raise ConfigurationError(
            f"PrivateSum: {type(algorithm.server).__name__} reads the norm of every update, which has no noise"
        )


def _check_controls(algorithm: Slots, norm: float | None) -> None:
    """Raise an error for control variates without noise, or with clipping that differs between clients and server."""
    if not algorithm.keeps:
        if norm is not None:
            raise ConfigurationError("control_norm: clients keep no control variates: leave it out")
        return
    if norm is None:
        raise ConfigurationError(
            f"PrivateSum: clients also send the change of {algorithm.keeps[0]}, which the server sums without "
            "noise: write control_norm=1.0 and add ClipControls(norm=1.0) to the pieces, or use an algorithm that sends "
            "only updates"
        )
    if any(correction.asks_everyone for correction in algorithm.keeping):
        raise ConfigurationError(
            "control_norm: before the first round all clients send gradients, in a sum without noise: write "
            "initial='zeros'"
        )
    if len(algorithm.keeps) > 1:
        raise ConfigurationError(
            f"control_norm: clients keep {' and '.join(algorithm.keeps)}, and noise is "
            "supported for one of them: leave one out"
        )
    if not any(isinstance(guard, ClipControls) and guard.norm == norm for guard in algorithm.guard):
        raise ConfigurationError(
            f"control_norm: got {norm}, and clients do not clip their control variates to it, so the server's mean would "
            "differ from theirs: add ClipControls with that norm to the pieces"
        )


def _check_weights(algorithm: Slots) -> None:
    """Raise an error for weights that depend on the data of other clients."""
    *chain, last = algorithm.weighting
    for piece in algorithm.weighting:
        if isinstance(piece, DivideByCurvature):
            raise ConfigurationError(
                "PrivateSum: DivideByCurvature divides by a sum of losses and norms, which has no bound and no noise: add "
                "DivideByNoisyCurvature with the same q and lr, which replaces it"
            )
        if piece.reads == "others":
            raise ConfigurationError(
                f"PrivateSum: {type(piece).__name__} computes a client's weight from other clients' data, so one "
                "client changes the weights of all, and its influence has no bound"
            )
    if not isinstance(last, ByOneNumber):
        raise ConfigurationError(f"PrivateSum: {type(last).__name__} has a divisor per report: use DivideByClients")
    if any(piece.reads == "own" for piece in chain) and not last.divisor_is_public:
        raise ConfigurationError(
            f"PrivateSum: {type(last).__name__} divides by a sum over clients' data, which has no noise: use "
            "DivideByClients, DivideByParticipants or DivideByNoisySum; in place of ByExamples use ExamplesUpTo, or a "
            "recipe in which clients have equal weights, such as average_participating"
        )


def _check_divisor(algorithm: Slots, cohort: int | None) -> None:
    """Raise an error if `cohort` is missing, or if it is given although weights are divided by all N clients."""
    last = algorithm.weighting[-1]
    if not isinstance(last, DivideByClients) and cohort is None:
        raise ConfigurationError(
            f"PrivateSum: with {type(last).__name__}, noise is added to a sum over a cohort: write cohort=, the "
            "expected number of reports in a step"
        )
    if isinstance(last, DivideByClients) and cohort is not None:
        raise ConfigurationError("PrivateSum: the chain divides by all N clients: leave cohort out")


def _check_coins(algorithm: Slots, rate: float) -> None:
    """Raise an error if Poisson sampling is counted, but cohorts are drawn otherwise or their size is used.

    With Poisson sampling, each client is drawn independently with the same probability, and the number of clients drawn
    is private.
    """
    if algorithm.selection != Poisson(rate):
        raise ConfigurationError(
            f"sampling_rate: got {rate}, and {type(algorithm.selection).__name__} does not sample clients at that rate: add "
            "Poisson with that rate to the pieces, or leave sampling_rate out"
        )
    others = [piece for piece in algorithm.weighting[:-1] if piece.participation == "others"]
    others += [algorithm.server] if _depends_on_delays(algorithm.server) else []
    if others:
        raise ConfigurationError(
            f"sampling_rate: {type(others[0]).__name__} treats a client's report by which other clients were drawn, in this "
            "round or earlier, which is private, so a client would affect rounds in which it was not drawn: use weights "
            "that depend on a client's own participation, such as Participation without groups"
        )
    if not isinstance(algorithm.weighting[-1], DivideByClients):
        raise ConfigurationError(
            f"sampling_rate: the number of sampled clients is private, and {type(algorithm.weighting[-1]).__name__} "
            "divides by it: use DivideByClients, as average_all and fedau do"
        )


def _check_fixed_size(algorithm: Slots, cohort: int | None) -> None:
    """Raise an error if sampling of fixed size is counted, but cohorts are drawn otherwise or rounds are dependent.

    With samples of fixed size, the participants of a round reveal who did not participate. If the contribution of a
    client depends on the rounds in which it was drawn before, then the samples of different rounds are not independent
    given the published models, which composition over rounds requires.
    """
    if algorithm.selection != Uniform(cohort or 1):
        raise ConfigurationError(
            f"sampled_from: {type(algorithm.selection).__name__} does not draw cohort={cohort} of all clients: add "
            "Uniform with that cohort_size to the pieces, or leave sampled_from out"
        )
    if not isinstance(last := algorithm.weighting[-1], DivideByParticipants):
        raise ConfigurationError(
            f"sampled_from: a sum over a cohort of fixed size is divided by that size, and {type(last).__name__} divides "
            "by another number: use DivideByParticipants"
        )
    if remembering := _of_earlier_rounds(algorithm):
        raise ConfigurationError(
            f"sampled_from: with {remembering}, a client's contribution depends on the rounds in which it was drawn before, "
            "which are private, so rounds are not independent samples: leave sampled_from out, or use Poisson with "
            "sampling_rate; Sgd(sampling='fresh') and keep_state=False make rounds independent"
        )


def _depends_on_delays(server: Server) -> bool:
    """Return whether the participation of clients changes the length of the server's steps."""
    return isinstance(server, ShortensSteps) and server.shortens


def _of_earlier_rounds(algorithm: Slots) -> str | None:
    """Return the name of the first piece that makes contributions depend on earlier participation; None without."""
    *chain, _ = algorithm.weighting
    remembers = (
        *((piece, piece.participation != "none") for piece in chain),
        (algorithm.server, _depends_on_delays(algorithm.server)),
        (algorithm.personal, algorithm.personal is not None),
        *((piece, bool(piece.memory(1, torch.float32))) for piece in (*algorithm.guard, *algorithm.corrections)),
        *((piece, True) for piece in algorithm.keeping),
        (algorithm.local, bool(algorithm.local.memory(1, torch.float32))),
    )
    return next((type(piece).__name__ for piece, does in remembers if does), None)
