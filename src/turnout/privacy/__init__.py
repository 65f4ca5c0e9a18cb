"""Account for differential privacy: the epsilon of a run, and noise that is correlated over rounds."""

from turnout.privacy.accounting import Release, epsilon, noise_multiplier_for, rounds_within
from turnout.privacy.answers import Answers
from turnout.privacy.buffered_toeplitz import BufferedToeplitz
from turnout.privacy.correlation import BandedSquareRoot, Correlation, Independent
from turnout.privacy.plan import Plan, plan_of
from turnout.privacy.sensitivity import prefix_sum_error, sensitivity

__all__ = [
    "Answers",
    "BandedSquareRoot",
    "BufferedToeplitz",
    "Correlation",
    "Independent",
    "Plan",
    "Release",
    "epsilon",
    "noise_multiplier_for",
    "plan_of",
    "prefix_sum_error",
    "rounds_within",
    "sensitivity",
]
