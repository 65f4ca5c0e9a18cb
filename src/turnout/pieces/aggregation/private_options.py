"""The options of a private sum, and which of them exclude each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from turnout.core.checks import ConfigurationError, count, positive, refuse
from turnout.privacy.accounting import check_deviation
from turnout.privacy.answers import Answers
from turnout.privacy.correlation import Correlation, Independent

_CORRELATIONS = "Independent(), BandedSquareRoot() or BufferedToeplitz()"


def _inside(name: str, value: float) -> None:
    """Refuse numbers that are not strictly between 0 and 1."""
    if not 0 < value < 1:
        raise refuse(name, given=value, needed="a number between 0 and 1")


_CHECKS: dict[str, Callable[[str, Any], object]] = {
    "norm": positive,
    "noise_multiplier": partial(check_deviation, zero=True),
    "quantile_rate": positive,
    **dict.fromkeys(("cohort", "rounds", "most", "sampled_from", "noise_shares", "separation"), count),
    "dropouts": partial(count, least=0),
    "count_deviation": check_deviation,
    **dict.fromkeys(("budget", "control_norm"), positive),
    **dict.fromkeys(("delta", "quantile", "sampling_rate"), _inside),
}
"""The check of each option that is a number; None is not checked."""


def check_options(piece: Any) -> None:
    """Refuse options of a `PrivateSum` that are out of range, or mean nothing together."""
    for name, check in _CHECKS.items():
        if (value := getattr(piece, name)) is not None:
            check(name, value)
    if not isinstance(piece.correlation, Correlation):
        raise refuse("correlation", given=piece.correlation, needed=_CORRELATIONS)
    if piece.answers is not None and not isinstance(piece.answers, Answers):
        raise refuse("answers", given=piece.answers, needed="bounds and noise of the class privacy.Answers, or None")
    if piece.answers is not None and not piece.noise_multiplier:
        raise ConfigurationError(
            "answers: without noise in its updates (noise_multiplier=0) a run promises no privacy, and answers are not "
            "noised: leave answers out, or write a noise_multiplier"
        )
    _check_together(piece)


def check_clients(sampled_from: int | None, delta: float, num_clients: int) -> None:
    """Refuse to count samples of another federation, and a delta that allows to publish one client in full."""
    if delta * num_clients >= 1:
        raise ConfigurationError(
            f"delta: got {delta:g} with {num_clients:,} clients, needed less than 1/{num_clients}: to publish all data of "
            f"one client drawn by chance costs epsilon=0 at that delta; write delta={delta_below(num_clients):g}"
        )
    if sampled_from not in (None, num_clients):
        raise ConfigurationError(
            f"sampled_from: got {sampled_from}, and there are {num_clients} clients to draw from: write "
            f"sampled_from={num_clients}"
        )


def delta_below(num_clients: int) -> float:
    """Return a power of ten that is below ``1 / (10 N)``."""
    return 10.0 ** -(len(str(num_clients)) + 1)


def _check_together(piece: Any) -> None:
    """Refuse options that mean nothing together."""
    correlated = not isinstance(piece.correlation, Independent)
    if correlated and piece.rounds is None:
        raise ConfigurationError(
            f"{type(piece.correlation).__name__} is made for a number of rounds: write rounds=500, as the run has"
        )
    for name in ("quantile", "sampling_rate", "sampled_from"):
        if correlated and getattr(piece, name) is not None:
            raise ConfigurationError(
                f"{name} goes with independent noise alone: of correlated noise, the sensitivity is that of a whole run "
                "with one norm, and sampling adds nothing that this package could count"
            )
    limited = piece.separation > 1 or piece.most is not None
    _check_sampling(piece.sampling_rate, piece.sampled_from, piece.cohort, limited)
    if piece.noise_shares is not None:
        _check_shares(piece, correlated)
    if piece.sampling_rate is not None and piece.quantile is not None:
        raise ConfigurationError(
            "quantile: who was drawn by a coin is private, and so is the share that is not clipped"
        )


def _check_sampling(sampling_rate: float | None, sampled_from: int | None, cohort: int | None, limited: bool) -> None:
    """Refuse options about sampling that mean nothing together."""
    if sampling_rate is None and sampled_from is None:
        return
    if limited:
        name = "sampled_from" if sampling_rate is None else "sampling_rate"
        raise ConfigurationError(f"{name}: a client that was drawn at random cannot be kept from coming back")
    if sampled_from is None:
        return
    if sampling_rate is not None:
        raise ConfigurationError(
            "sampling_rate and sampled_from: a cohort is drawn by coins or of fixed size: leave one out"
        )
    if not 0 < (cohort or 0) <= sampled_from:
        raise refuse(
            "sampled_from",
            given=sampled_from,
            needed=f"all N clients, of which cohort={cohort} are drawn",
            instead="Write both, such as cohort=10, sampled_from=100",
        )


def _check_shares(piece: Any, correlated: bool) -> None:
    """Refuse what clients who add the noise would have to know, or do not add."""
    reasons = {
        "noise_multiplier": ("there is no noise to share", not piece.noise_multiplier),
        "correlation": ("what a round takes away of earlier noise is known to no client", correlated),
        "quantile": ("clients add noise for one norm, and this would move it", piece.quantile is not None),
        "control_norm": ("clients noise their update, and no second vector", piece.control_norm is not None),
        "sampling_rate": ("what the server adds tells how many were drawn", piece.sampling_rate is not None),
        "sampled_from": ("who adds which share is public", piece.sampled_from is not None),
    }
    for name, (why, given) in reasons.items():
        if given:
            raise ConfigurationError(f"noise_shares does not go with {name} as given: {why}: leave one of them out")
