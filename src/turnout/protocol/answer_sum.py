"""Sums of clients' answers to evaluations and queries of which the server is to learn no single one, or nothing exact."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch

from turnout.core.checks import ConfigurationError
from turnout.pieces.base.algorithm import Algorithm
from turnout.privacy.answers import Answers
from turnout.privacy.discrete import COARSEST, WIDEST, discrete_gaussian
from turnout.protocol.secure.fixed_point import FixedPoint
from turnout.protocol.secure.masked_sum import Masking
from turnout.protocol.secure.masks import secret_uniform

_BITS, _FRACTION_BITS, _LARGEST = 64, 20, 2.0**29  # room for 16,383 clients


@dataclass(frozen=True)
class MaskingOfAnswers:
    """The options of a secure sum of answers: those of the run's own, with numbers of 64 bits.

    Attributes:
        of_updates: the options of the run's own secure sum.
        code: how numbers are written.
    """

    of_updates: Masking
    code: FixedPoint
    weights: tuple[float, ...] | None = (1.0, 1.0)

    @property
    def bits(self) -> int:
        """Bits of the modulus."""
        return self.code.bits

    @property
    def degree(self) -> int | None:
        """Neighbours of a client; None joins all to all."""
        return self.of_updates.degree

    @property
    def threshold(self) -> float:
        """The share of a client's neighbours whose help it takes to take off its masks."""
        return self.of_updates.threshold

    @property
    def min_clients(self) -> int:
        """Fewest clients of a sum."""
        return self.of_updates.min_clients

    def num_neighbours(self, num_clients: int) -> int:
        """Return k among so many clients."""
        return self.of_updates.num_neighbours(num_clients)


class BoundQuestion(Protocol):
    """A query as its sums see it (see `turnout.evaluation.queries.Question`)."""

    @property
    def kind(self) -> str:
        """What is asked."""
        ...

    @property
    def bound(self) -> float | None:
        """The distance from the center to which values are clipped."""
        ...

    def shapes(self, widths: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Return the shape of each sum."""
        ...


@dataclass(frozen=True)
class AnswerSum:
    """Say how the answers of a run's clients are added up.

    Attributes:
        masking: the options of the run's secure sum; None where the server receives single answers.
        noise: bounds and noise of answers; None where the sum is exact.
        shares: of how many clients the noise is made, which add it under their masks; None has the server add it.
    """

    masking: Masking | None
    noise: Answers | None
    shares: int | None = None

    @classmethod
    def of(cls, algorithm: Algorithm) -> AnswerSum | None:
        """Return how the answers of a run are added up; None where the server sees each client's, or none is asked for."""
        masking: Masking | None = getattr(algorithm.aggregation, "masking", None)
        plan = algorithm.privacy
        if plan is None or not plan.is_noised:
            return None if masking is None else cls(masking, None)
        if plan.answers is None:
            return None
        shares = algorithm.aggregation.noise_shares  # type: ignore[attr-defined]
        return cls(masking, plan.answers, None if shares is None else shares - algorithm.aggregation.dropouts)  # type: ignore[attr-defined]

    def layout(self, shapes: Mapping[str, tuple[int, ...]], *, labelled: bool = True) -> AnswerLayout:
        """Return how the sums of an evaluation, of these shapes, are laid out as a vector."""
        return AnswerLayout(self, dict(shapes), labelled=labelled)

    def of_query(self, question: BoundQuestion, widths: Mapping[str, int]) -> AnswerLayout:
        """Return how the sums of a query are laid out as a vector; see `Question.shapes` for `widths`.

        Raises:
            ConfigurationError: for values without a bound where there is noise, and for what these data have not.
        """
        shapes = question.shapes(widths)
        if self.noise is not None and "sums" in shapes and question.bound is None:
            raise ConfigurationError(
                f"{question.kind}: this run adds noise for values that are clipped, and the question has no bound: write "
                "--bound 10, the distance from --center to which values are clipped"
            )
        return AnswerLayout(self, shapes, question.bound)


_HUGE = 1e100  # whose square is a number, too
_ONES = ("appeal_train", "appeal_test", "preferred", "client_bins")
_LOSSES = ("loss", "shared_loss")
_SCORES = ("score", "shared_score", "group_score")


@dataclass(frozen=True)
class AnswerLayout:
    """Write the sums of a client as a vector, and read figures from the sum of such vectors.

    Attributes:
        sums: how answers are added up.
        shapes: of the sums, by name.
        bound: to which values of features are clipped.
        labelled: whether scores are numbers of right answers, in place of squared errors.
    """

    sums: AnswerSum
    shapes: Mapping[str, tuple[int, ...]]
    bound: float | None = None
    labelled: bool = True

    @property
    def size(self) -> int:
        """The numbers of the vector."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @cached_property
    def scales(self) -> dict[str, float]:
        """What each sum is divided by: the most that it can be with noise, and 1 without."""
        if (noise := self.sums.noise) is None:
            return dict.fromkeys(self.shapes, 1.0)
        found = dict.fromkeys(self.shapes, float(noise.examples))
        found |= {name: 1.0 for name in _ONES if name in found}
        of_loss = _LOSSES if self.labelled else (*_LOSSES, *_SCORES)
        found |= {name: noise.examples * noise.largest_loss for name in of_loss if name in found}
        if self.bound is not None:
            found |= {
                name: noise.examples * self.bound**power
                for name, power in (("sums", 1), ("squares", 2))
                if name in found
            }
        return found

    @property
    def lengths(self) -> dict[str, float]:
        """The length to which each sum, divided by its scale, is clipped: the root of the number of its columns."""
        columns = {"sums": 0, "squares": 0, "counts": 0}
        return {
            name: math.sqrt(shape[columns[name]]) if name in columns else 1.0 for name, shape in self.shapes.items()
        }

    @property
    def norm(self) -> float:
        """S, the length of the vector of a client at most."""
        return math.sqrt(sum(length**2 for length in self.lengths.values()))

    @property
    def deviation(self) -> float:
        """The deviation of the noise in each place, ``z S``; 0 without noise."""
        return 0.0 if self.sums.noise is None else self.sums.noise.noise_multiplier * self.norm

    @property
    def server_deviation(self) -> float:
        """The deviation of the noise that the server adds to the sum of vectors; 0 where clients have added it."""
        return 0.0 if self.sums.shares is not None else self.deviation

    @property
    def least_examples(self) -> float:
        """Examples that a mean is divided by at least: as many as one client counts for, where there is noise."""
        return 1.0 if self.sums.noise is None else float(self.sums.noise.examples)

    @property
    def deviations(self) -> dict[str, float]:
        """The deviation of the noise in each sum over the clients, in its own unit."""
        return {name: self.deviation * scale for name, scale in self.scales.items()}

    def vector(self, answer: Mapping[str, Any] | None) -> np.ndarray:
        """Return the vector of a client's sums, float64; with noise, at most `norm` long.

        Args:
            answer: numbers, or lists of them, by name; None of a client that holds nothing that could be summed.
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
                # A client may send anything: what is no number counts as 0, and squares must not overflow.
                part = np.nan_to_num(part, nan=0.0, posinf=_HUGE, neginf=-_HUGE).clip(-_HUGE, _HUGE)
                part = part if name in _ONES else share * part
                length = float(np.linalg.norm(part))
                part = part * min(1.0, lengths[name] / length) if length else part
            parts.append(part)
        return np.concatenate(parts)

    def totals(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Return sums over clients by name, in their own unit, of the sum of their vectors."""
        found, begin = {}, 0
        for name, shape in self.shapes.items():
            end = begin + math.prod(shape)
            found[name] = vector[begin:end].reshape(shape) * self.scales[name]
            begin = end
        return found

    @cached_property
    def masking(self) -> MaskingOfAnswers:
        """The options of the secure sum of such vectors.

        Raises:
            ConfigurationError: where rounding to fixed point would use up the length of a vector.
        """
        assert self.sums.masking is not None
        if self.sums.noise is None:
            return MaskingOfAnswers(self.sums.masking, FixedPoint(_BITS, _FRACTION_BITS, _LARGEST))
        deviation, bits, largest = self._share_deviation, 30, self.norm
        if deviation:
            bits = min(bits, math.floor(math.log2(COARSEST / deviation)))
            largest += WIDEST * deviation
        if self.size**0.5 * 2.0**-bits > self.norm:
            raise ConfigurationError(
                f"an answer of {self.size:,} numbers with this noise is rounded to {bits} bits behind the point, which would "
                "use up more than half of its length: ask for a column, or for fewer edges"
            )
        return MaskingOfAnswers(self.sums.masking, FixedPoint(_BITS, bits, largest))

    @property
    def _share_deviation(self) -> float:
        """The deviation of the noise that each client adds under its mask; 0 where clients add none."""
        return 0.0 if self.sums.shares is None else self.deviation / math.sqrt(self.sums.shares)

    def encoded(self, answer: Mapping[str, Any] | None) -> np.ndarray:
        """Return the codes of a client's vector, with its noise, as they are masked.

        Raises:
            ConfigurationError: for a number that is too large for a sum without noise.
        """
        code, vector = self.masking.code, self.vector(answer)
        if self.sums.noise is not None:
            # Rounding moves a vector by sqrt(P) 2^(-f-1) at most, which is left for it.
            room = self.norm - math.sqrt(self.size) * 2.0 ** (-code.fraction_bits - 1)
            length = float(np.linalg.norm(vector))
            vector = vector * (room / length) if length > room else vector
        if deviation := self._share_deviation:
            unit = 2.0**code.fraction_bits
            chance = torch.from_numpy(secret_uniform(self.size))
            vector = np.rint(vector * unit) / unit + discrete_gaussian(chance, deviation * unit).numpy() / unit
        return code.encode(vector)
