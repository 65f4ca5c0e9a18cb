"""Check the options of a private sum."""

from __future__ import annotations

from typing import Annotated, Any

from turnout.core.checks import ConfigurationError, is_finite, refuse
from turnout.pieces.aggregation.private_quantile import FASTEST
from turnout.privacy.answers import Answers
from turnout.privacy.correlation import Correlation, Independent

_CORRELATIONS = "Independent(), BandedSquareRoot() or BufferedToeplitz()"


def _inside(name: str, value: float) -> None:
    """Raise an error unless a number is strictly between 0 and 1."""
    if not is_finite(value) or not 0 < value < 1:
        raise refuse(name, given=value, needed="a number between 0 and 1")


Inside = Annotated[float, _inside]
"""A number between 0 and 1."""


def _rate(name: str, value: float) -> None:
    """Raise an error unless a number is a step size by which a norm can be multiplied in every round."""
    if not is_finite(value) or not 0 < value <= FASTEST:
        needed = f"a number > 0 and at most {FASTEST:g}: a round multiplies the norm by about exp(quantile_rate)"
        raise refuse(name, given=value, needed=needed, instead="The paper's value is 0.2")


QuantileRate = Annotated[float, _rate]
"""A step size by which a norm can be multiplied in every round."""


def check_options(piece: Any) -> None:
    """Raise an error if an option of a `PrivateSum` has the wrong type or excludes another one."""
    if not isinstance(piece.correlation, Correlation):
        raise refuse("correlation", given=piece.correlation, needed=_CORRELATIONS)
    if piece.answers is not None and not isinstance(piece.answers, Answers):
        raise refuse("answers", given=piece.answers, needed="an instance of privacy.Answers, or None")
    if piece.answers is not None and not piece.noise_multiplier:
        raise ConfigurationError(
            "answers: with noise_multiplier=0 a run has no privacy guarantee, and answers have no noise: leave answers "
            "out, or write a noise_multiplier"
        )
    _check_together(piece)


def check_clients(sampled_from: int | None, delta: float, num_clients: int) -> None:
    """Raise an error if samples of another number of clients are counted, or delta is 1/N or more.

    With such a delta, publishing all data of a random client would count as epsilon 0.
    """
    if delta * num_clients >= 1:
        below = 10.0 ** -(len(str(num_clients)) + 1)  # a power of ten below 1 / (10 N)
        raise ConfigurationError(
            f"delta: got {delta:g} with {num_clients:,} clients, needed less than 1/{num_clients}: publishing all data of "
            f"a random client has epsilon=0 at that delta; write delta={below:g}"
        )
    if sampled_from not in (None, num_clients):
        raise ConfigurationError(
            f"sampled_from: got {sampled_from}, and there are {num_clients} clients to draw from: write "
            f"sampled_from={num_clients}"
        )


def _check_together(piece: Any) -> None:
    """Raise an error for options of a `PrivateSum` that exclude each other."""
    correlated = not isinstance(piece.correlation, Independent)
    if correlated and piece.rounds is None:
        raise ConfigurationError(
            f"{type(piece.correlation).__name__} is computed for a number of rounds: write rounds=500 for a run of 500 rounds"
        )
    for name in ("quantile", "sampling_rate", "sampled_from"):
        if correlated and getattr(piece, name) is not None:
            raise ConfigurationError(
                f"{name} requires independent noise: the sensitivity of correlated noise is that of a whole run with a "
                "constant norm, and its amplification by sampling is not supported"
            )
    limited = piece.separation > 1 or piece.most is not None
    _check_sampling(piece.sampling_rate, piece.sampled_from, piece.cohort, limited)
    if piece.noise_shares is not None:
        _check_shares(piece, correlated)
    if piece.sampling_rate is not None and piece.quantile is not None:
        raise ConfigurationError(
            "quantile: with sampling_rate the sampled clients are private, and so is the fraction that is not clipped"
        )


def _check_sampling(sampling_rate: float | None, sampled_from: int | None, cohort: int | None, limited: bool) -> None:
    """Raise an error for options about sampling that exclude each other.

    Args:
        sampling_rate: the rate of Poisson sampling, or None.
        sampled_from: the number of clients from which cohorts of fixed size are drawn, or None.
        cohort: the size of a cohort, or None.
        limited: whether the participation of a client is limited by `separation` or `most`.
    """
    if sampling_rate is None and sampled_from is None:
        return
    if limited:
        name = "sampled_from" if sampling_rate is None else "sampling_rate"
        raise ConfigurationError(
            f"{name}: sampling is independent of earlier rounds, so separation and most cannot hold: leave them out"
        )
    if sampled_from is None:
        return
    if sampling_rate is not None:
        raise ConfigurationError(
            "sampling_rate and sampled_from: cohorts are Poisson samples or of fixed size: leave one out"
        )
    if not 0 < (cohort or 0) <= sampled_from:
        raise refuse(
            "sampled_from",
            given=sampled_from,
            needed=f"all N clients, of which cohort={cohort} are drawn",
            instead="Write both, such as cohort=10, sampled_from=100",
        )


def _check_shares(piece: Any, correlated: bool) -> None:
    """Raise an error for options that exclude noise added by clients."""
    reasons = {
        "noise_multiplier": ("there is no noise to share", not piece.noise_multiplier),
        "correlation": ("no client knows the noise of earlier rounds that a round subtracts", correlated),
        "quantile": ("clients add noise for a constant norm", piece.quantile is not None),
        "control_norm": (
            "clients add noise to their update, and not to a second vector",
            piece.control_norm is not None,
        ),
        "sampling_rate": (
            "the noise that the server adds reveals how many clients were sampled",
            piece.sampling_rate is not None,
        ),
        "sampled_from": ("it is public which clients add noise", piece.sampled_from is not None),
    }
    for name, (why, given) in reasons.items():
        if given:
            raise ConfigurationError(f"noise_shares does not go with {name} as given: {why}: leave one of them out")
