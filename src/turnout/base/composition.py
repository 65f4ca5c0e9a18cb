"""Check that pieces fit together in one algorithm."""

from __future__ import annotations

from turnout.base.local import LOCAL_PARTS, Correction, LossTerm, Measurement, OfTraining
from turnout.base.piece import Slots
from turnout.base.weighting import Normalizer, Weighting, has_factors
from turnout.core.checks import ConfigurationError


def check_composition(algorithm: Slots) -> None:
    """Raise an error if pieces contradict each other, or if a piece reads what no other piece provides.

    Raises:
        ConfigurationError: with the reason, and what to write instead.
    """
    _check_weightings(algorithm)
    _check_corrections(algorithm)
    _check_needs(algorithm)


def _check_weightings(algorithm: Slots) -> None:
    """Raise an error unless every weighting changes weights, one at most by participation rates, and the last normalizes."""
    chain = algorithm.weighting
    normalizers = [w for w in chain if isinstance(w, Normalizer)]
    if len(normalizers) != 1 or normalizers[0] is not chain[-1]:
        written = " -> ".join(type(w).__name__ for w in chain) or "nothing"
        raise ConfigurationError(
            f"the weighting chain is {written}; it must end in exactly one normalizer, because the papers differ in "
            "what weights are divided by: DivideByClients, DivideByParticipants or DivideBySum"
        )
    idle = [type(w).__name__ for w in chain if not has_factors(w) and type(w).apply is Weighting.apply]
    if idle:
        raise ConfigurationError(
            f"{idle[0]} does not change weights: write its factors(), by which weights are multiplied, or its apply() if a "
            "weight depends on the other reports of a step"
        )
    estimates = [type(w).__name__ for w in chain if w.undoes_participation]
    if len(estimates) > 1:
        raise ConfigurationError(
            f"{' and '.join(estimates)} both weigh a client by 1/p_n; together they would weigh it by 1/p_n^2, which "
            "biases the objective to rare clients: keep one"
        )


def _check_corrections(algorithm: Slots) -> None:
    """Raise an error unless every correction changes gradients, terms of the loss are possible, and kept vectors differ."""
    for piece in algorithm.corrections:
        term = isinstance(piece, LossTerm) and type(piece).slope is not LossTerm.slope
        if not term and all(getattr(type(piece), name) is getattr(Correction, name) for name in ("correct", "begin")):
            raise ConfigurationError(
                f"{type(piece).__name__} does not change gradients: write its correct(), or its begin() if the change "
                "differs by client"
            )
    terms = [type(correction).__name__ for correction in algorithm.corrections if isinstance(correction, LossTerm)]
    if terms and not algorithm.local.traits.of_one_minibatch:
        raise ConfigurationError(
            f"{terms[0]} adds a term to the loss on the minibatch of a local step, and a step of {algorithm.local} does not "
            "use a single one: use Sgd or AdamW with accumulate=1"
        )
    if terms:
        refuse_of_training(algorithm, f"by gradients that lack the term of {terms[0]}")
    if len(set(algorithm.keeps)) < len(algorithm.keeps):
        names = " and ".join(type(correction).__name__ for correction in algorithm.keeping)
        raise ConfigurationError(
            f"{names} both keep {algorithm.keeps[0]!r} at every client, and one would undo what the other does: leave one out"
        )


def refuse_of_training(algorithm: Slots, why: str) -> None:
    """Raise an error if clients measure the result of training, with the reason why that is meaningless."""
    for piece in (*algorithm.measurements, *algorithm.selection.measurements):
        if isinstance(piece, OfTraining):
            raise ConfigurationError(f"{type(piece).__name__} measures the result of training, {why}: leave one out")


def _check_needs(algorithm: Slots) -> None:
    """Raise an error if a weighting or the selection reads a name that no client reports."""
    sent = {name for piece in (algorithm.local, *algorithm.measurements) for name in piece.gives}
    for piece in (*algorithm.weighting, algorithm.selection):
        if missing := [name for name in piece.needs if name not in sent]:
            kinds = [kind for kind in LOCAL_PARTS.values() if isinstance(kind, type) and issubclass(kind, Measurement)]
            given_by = {name: f"{kind.__name__}()" for kind in kinds for name in kind.gives}
            givers = [given_by.get(name, f"what gives {name}") for name in missing]
            raise ConfigurationError(
                f"{type(piece).__name__} reads {', '.join(missing)} of every report, and no client sends it: add "
                f"{' and '.join(givers)} to the pieces"
            )
