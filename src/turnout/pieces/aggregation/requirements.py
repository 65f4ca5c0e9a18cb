"""Check that the other slots of an algorithm suit its aggregation."""

from __future__ import annotations

from turnout.base import AddsDirection, Normalizer, Slots
from turnout.core.checks import ConfigurationError


def needs_alone(algorithm: Slots, normalizer: type[Normalizer], why: str) -> None:
    """Raise an error if the weighting is other than `normalizer` alone; `why` is the reason in its message."""
    if len(algorithm.weighting) != 1 or not isinstance(algorithm.weighting[0], normalizer):
        names = " -> ".join(type(piece).__name__ for piece in algorithm.weighting)
        raise ConfigurationError(f"the weighting is {names}, but {why}: use {normalizer.__name__}() alone")


def needs_single_draws(algorithm: Slots, why: str) -> None:
    """Raise an error if the selection may draw a client twice in a round; `why` is the reason in its message."""
    if algorithm.selection.repeats:
        raise ConfigurationError(
            f"{type(algorithm.selection).__name__} draws a client twice, {why}: write also=(Uniform(10),)"
        )


def needs_whole_step(algorithm: Slots, name: str) -> None:
    """Raise an error for a server step other than ``x + u``, with which the model is not the one that `name` determines."""
    if not (isinstance(algorithm.server, AddsDirection) and algorithm.server.lr == 1.0):
        raise ConfigurationError(
            f"{name} determines the model after the step, and {type(algorithm.server).__name__} would move it elsewhere: "
            "leave server_lr at 1.0, and leave out other server optimizers"
        )
