"""Refuse pieces that do not fit into one algorithm."""

from __future__ import annotations

from turnout.core.checks import ConfigurationError
from turnout.pieces.base.local import Correction
from turnout.pieces.base.piece import Slots
from turnout.pieces.base.weighting import Normaliser, Weighting

_GIVEN_BY = {
    "start_loss": "StartLoss",
    "start_loss_rms": "LossRms",
    "appeal_gap": "AppealGap",
    "start_gradient": "StartGradient",
    "start_gradient_norm": "GradientNorm",
    "inexactness": "Inexactness",
}
"""The measurement behind each name that weightings and selections read."""


def check_composition(algorithm: Slots) -> None:
    """Refuse slots that contradict each other, or in which one piece reads what no other provides.

    Raises:
        ConfigurationError: with the reason, and what to write instead.
    """
    _check_weighting(algorithm)
    _check_links(algorithm)
    _check_terms(algorithm)
    _check_estimates(algorithm)
    _check_measurements(algorithm)
    _check_needs(algorithm)
    _check_keeps(algorithm)


def _check_weighting(algorithm: Slots) -> None:
    """Refuse a chain of weightings without its end."""
    normalisers = [w for w in algorithm.weighting if isinstance(w, Normaliser)]
    if len(normalisers) != 1 or normalisers[0] is not algorithm.weighting[-1]:
        written = " -> ".join(type(w).__name__ for w in algorithm.weighting) or "nothing"
        raise ConfigurationError(
            f"the weighting chain is {written}; it must end in exactly one normaliser, because the papers differ in "
            "what weights are divided by: DivideByClients, DivideByParticipants or DivideBySum"
        )


def _check_terms(algorithm: Slots) -> None:
    """Refuse terms of the loss on a minibatch beside steps whose direction is not the gradient of one."""
    terms = [type(correction).__name__ for correction in algorithm.corrections if correction.of_minibatch]
    if terms and not algorithm.local.of_one_minibatch:
        raise ConfigurationError(
            f"{terms[0]} is a term of the loss on the minibatch of a local step, and a step of {algorithm.local} is not of "
            "one: use Sgd or AdamW with accumulate=1"
        )


def _check_links(algorithm: Slots) -> None:
    """Refuse weightings and corrections that define none of their hooks."""
    for piece in algorithm.corrections:
        if all(getattr(type(piece), name) is getattr(Correction, name) for name in ("correct", "begin", "slope")):
            raise ConfigurationError(
                f"{type(piece).__name__} says nothing of gradients: write its correct(), or where that differs by client "
                "its begin()"
            )
    idle = [piece for piece in algorithm.weighting if not piece.has_factors and type(piece).apply is Weighting.apply]
    if idle:
        raise ConfigurationError(
            f"{type(idle[0]).__name__} says nothing of weights: write its factors(), which weights are multiplied by, or "
            "where these need the other reports of a step, its apply()"
        )


def _check_estimates(algorithm: Slots) -> None:
    """Refuse two estimates of the same participation rates."""
    estimates = [type(w).__name__ for w in algorithm.weighting if w.undoes_participation]
    if len(estimates) > 1:
        raise ConfigurationError(
            f"{' and '.join(estimates)} both weigh a client by 1/p_n; together they would weigh it by 1/p_n^2, which "
            "biases the objective to rare clients: keep one"
        )


def _check_measurements(algorithm: Slots) -> None:
    """Refuse measurements of training beside corrections that they do not see."""
    about_training = [
        piece for piece in (*algorithm.measurements, *algorithm.selection.measurements) if piece.of_training
    ]
    for correction in algorithm.corrections:
        why = correction.hides_training
        if correction.of_minibatch:
            why = f"by gradients that lack the term of {type(correction).__name__}"
        if about_training and why:
            raise ConfigurationError(
                f"{type(about_training[0]).__name__} measures what training did, {why}: leave one out"
            )


def _check_needs(algorithm: Slots) -> None:
    """Refuse weights, and a selection, that read what no client sends."""
    sent = {name for piece in (algorithm.local, *algorithm.measurements) for name in piece.gives}
    for piece in (*algorithm.weighting, algorithm.selection):
        if missing := [name for name in piece.needs if name not in sent]:
            givers = [f"{_GIVEN_BY[name]}()" if name in _GIVEN_BY else f"what gives {name}" for name in missing]
            raise ConfigurationError(
                f"{type(piece).__name__} reads {', '.join(missing)} of every report, and no client sends it: add "
                f"{' and '.join(givers)} to the pieces"
            )


def _check_keeps(algorithm: Slots) -> None:
    """Refuse two corrections that keep a vector of the same name."""
    if len(set(algorithm.keeps)) < len(algorithm.keeps):
        names = " and ".join(type(correction).__name__ for correction in algorithm.corrections if correction.keeps)
        raise ConfigurationError(
            f"{names} both keep {algorithm.keeps[0]!r} at every client, and one would undo what the other does: leave one out"
        )
