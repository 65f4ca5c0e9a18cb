"""Sum the answers of clients to evaluations and queries, under masks, with noise, or both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from turnout.base.algorithm import Algorithm
from turnout.core.checks import ConfigurationError
from turnout.core.types import Federation
from turnout.privacy.answers import Answers
from turnout.privacy.gaussian import COARSEST, WIDEST, discrete_gaussian
from turnout.privacy.noise import GridNoise
from turnout.privacy.ranges import check_bound
from turnout.protocol.secure.fixed_point import FixedPoint
from turnout.protocol.secure.masking import Masking
from turnout.protocol.secure.masks import secret_words

_BITS, _FRACTION_BITS, _LARGEST = 64, 20, 2.0**29  # room for 16,383 clients


@dataclass(frozen=True)
class AnswerSum:
    """The options of sums of answers.

    Attributes:
        masking: options of the secure sum; None if the server receives single answers.
        noise: bounds and noise of answers; None if sums are exact.
        shares: number of clients that add the noise under their masks; None if the server adds it.
    """

    masking: Masking | None
    noise: Answers | None
    shares: int | None = None

    @classmethod
    def of(cls, algorithm: Algorithm) -> AnswerSum | None:
        """Return the options for an algorithm; None if the server receives single answers, or answers are forbidden."""
        masking: Masking | None = getattr(algorithm.aggregation, "masking", None)
        if (plan := algorithm.noised_privacy) is None:
            return None if masking is None else cls(masking, None)
        if plan.answers is None:
            return None
        shares = algorithm.aggregation.noise_shares  # type: ignore[attr-defined]
        return cls(masking, plan.answers, None if shares is None else shares - algorithm.aggregation.dropouts)  # type: ignore[attr-defined]

    def layout(self, shapes: Mapping[str, tuple[int, ...]], *, labeled: bool = True) -> AnswerLayout:
        """Return the layout of an evaluation's sums, with these shapes, as a vector."""
        return AnswerLayout(self, dict(shapes), labeled=labeled)

    def of_query(self, kind: str, shapes: Mapping[str, tuple[int, ...]], bound: float | None) -> AnswerLayout:
        """Return the layout of a query's sums as a vector.

        Args:
            kind: kind of the question, for messages.
            shapes: shape of each sum.
            bound: the maximum distance of values from the center, to which they are clipped.

        Raises:
            ConfigurationError: if there is noise, and the values have no bound or an extreme one.
        """
        if self.noise is not None and bound is not None:
            check_bound("bound", bound)
        if self.noise is not None and "sums" in shapes and bound is None:
            raise ConfigurationError(
                f"{kind}: this run adds noise for values that are clipped, and the question has no bound: write "
                "--bound 10, the distance from --center to which values are clipped"
            )
        return AnswerLayout(self, shapes, bound)


_HUGE = 1e100  # its square is finite
_ONES = ("appeal_train", "appeal_test", "preferred", "client_bins")
_LOSSES = ("loss", "shared_loss")
_SCORES = ("score", "shared_score", "group_score")


@dataclass(frozen=True)
class AnswerLayout:
    """The layout of a client's sums as a vector.

    Attributes:
        sums: options of the sums.
        shapes: shape of each sum.
        bound: bound to which values of features are clipped; None without a bound.
        labeled: True if scores are numbers of correct predictions; False if they are squared errors.
    """

    sums: AnswerSum
    shapes: Mapping[str, tuple[int, ...]]
    bound: float | None = None
    labeled: bool = True

    @property
    def size(self) -> int:
        """The length of the vector."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @cached_property
    def scales(self) -> dict[str, float]:
        """The scale of each sum: its maximum with noise, and 1 without."""
        if (noise := self.sums.noise) is None:
            return dict.fromkeys(self.shapes, 1.0)
        largest: dict[str, float] = dict.fromkeys(_ONES, 1.0)
        largest |= dict.fromkeys(_LOSSES if self.labeled else (*_LOSSES, *_SCORES), noise.examples * noise.largest_loss)
        if self.bound is not None:
            largest |= {"sums": noise.examples * self.bound, "squares": noise.examples * self.bound**2}
        return {name: largest.get(name, float(noise.examples)) for name in self.shapes}

    @property
    def lengths(self) -> dict[str, float]:
        """The norm to which each sum, divided by its scale, is clipped: the square root of its number of columns."""
        by_column = ("sums", "squares", "counts")
        return {name: math.sqrt(shape[0]) if name in by_column else 1.0 for name, shape in self.shapes.items()}

    @property
    def norm(self) -> float:
        """S, the maximum norm of the vector of a client."""
        return math.sqrt(sum(length**2 for length in self.lengths.values()))

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise in each element, ``z S``; 0 without noise."""
        return 0.0 if self.sums.noise is None else self.sums.noise.noise_multiplier * self.norm

    @property
    def server_noise(self) -> GridNoise | None:
        """The noise that the server adds, and its grid; None if clients add it, or without noise."""
        if self.sums.noise is None or self.sums.shares is not None:
            return None
        return GridNoise(self.sums.noise.noise_multiplier, self.norm, self.size)

    @property
    def least_examples(self) -> float:
        """Smallest number of examples by which a mean is divided: that of one client with noise, else 1."""
        return 1.0 if self.sums.noise is None else float(self.sums.noise.examples)

    @property
    def deviations(self) -> dict[str, float]:
        """The standard deviation of the noise in each sum over the clients, in its unit."""
        return {name: self.deviation * scale for name, scale in self.scales.items()}

    @property
    def grid(self) -> dict[str, float]:
        """The number of which each sum over the clients is a multiple, with noise, in its unit; empty without noise."""
        if self.sums.noise is None:
            return {}
        noise = self.server_noise
        step = 2.0**-self.masking.code.fraction_bits if noise is None else noise.step
        return {name: step * scale for name, scale in self.scales.items()}

    def vector(self, answer: Mapping[str, Any] | None) -> np.ndarray:
        """Return the vector of a client's sums, float64; with noise, its norm is at most `norm`.

        Args:
            answer: numbers, or lists of them, by name; None for a client without data.
        """
        if answer is None:
            return np.zeros(self.size)
        noise, parts = self.sums.noise, list[np.ndarray]()
        number = float(answer["num_examples"])
        share = 1.0 if noise is None or math.isnan(number) else min(1.0, noise.examples / max(number, 1.0))
        lengths = self.lengths
        for name, shape in self.shapes.items():
            part = np.asarray(answer[name], dtype=np.float64).reshape(math.prod(shape)) / self.scales[name]
            if noise is not None:
                # Clients may send any numbers: NaN counts as 0, and squares must not overflow.
                part = np.nan_to_num(part, nan=0.0, posinf=_HUGE, neginf=-_HUGE).clip(-_HUGE, _HUGE)
                part = part if name in _ONES else share * part
                length = float(np.linalg.norm(part))
                part = part * min(1.0, lengths[name] / length) if length else part
            parts.append(part)
        return np.concatenate(parts)

    def totals(self, vector: np.ndarray, federation: Federation, number: int) -> dict[str, np.ndarray]:
        """Split the sum of clients' vectors into sums by name, in their units, with the server's noise.

        Args:
            vector: the sum.
            federation: the secret of the noise.
            number: number of the evaluation or query.
        """
        if (noise := self.server_noise) is not None:
            vector = noise.noised(torch.from_numpy(vector), "noise of an answer", federation, number).numpy()
        ends = np.cumsum([math.prod(shape) for shape in self.shapes.values()])
        parts = zip(self.shapes.items(), np.split(vector, ends[:-1]), strict=True)
        return {name: part.reshape(shape) * self.scales[name] for (name, shape), part in parts}

    @cached_property
    def masking(self) -> Masking:
        """The options of the secure sum of such vectors, which are not weighted.

        Raises:
            ConfigurationError: if the rounding error of fixed point would exceed half of the norm.
        """
        assert self.sums.masking is not None
        bits, largest = _FRACTION_BITS, _LARGEST
        if self.sums.noise is not None:
            bits, largest = 30, self.norm
            if deviation := self._share_deviation:
                bits = min(bits, math.floor(math.log2(COARSEST / deviation)))
                largest += WIDEST * deviation
            if self.size**0.5 * 2.0**-bits > self.norm:
                raise ConfigurationError(
                    f"an answer of {self.size:,} numbers with this noise is rounded to {bits} bits behind the point, which "
                    "would use up more than half of its length: ask for a column, or for fewer edges"
                )
        return replace(self.sums.masking, code=FixedPoint(_BITS, bits, largest), weights=(1.0, 1.0))

    @property
    def _share_deviation(self) -> float:
        """The standard deviation of the noise that each client adds under its mask; 0 if clients add none."""
        return 0.0 if self.sums.shares is None else self.deviation / math.sqrt(self.sums.shares)

    def encoded(self, answer: Mapping[str, Any] | None) -> np.ndarray:
        """Return the codes of a client's vector with its noise, before masking.

        Raises:
            ConfigurationError: if a number is too large for a sum without noise.
        """
        code, vector = self.masking.code, self.vector(answer)
        if self.sums.noise is not None:
            # Rounding increases the norm by at most sqrt(P) 2^(-f-1), for which room is left.
            room = self.norm - math.sqrt(self.size) * 2.0 ** (-code.fraction_bits - 1)
            length = float(np.linalg.norm(vector))
            vector = vector * (room / length) if length > room else vector
        if deviation := self._share_deviation:
            unit, cpu = 2.0**code.fraction_bits, torch.device("cpu")
            noise = discrete_gaussian(secret_words, self.size, deviation * unit, cpu).numpy()
            most = math.floor(code.largest * unit)
            vector = (np.rint(vector * unit) + noise).clip(-most, most) / unit
        return code.encode(vector)
