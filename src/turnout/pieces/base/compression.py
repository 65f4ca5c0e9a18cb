"""Base class of compressions: codes in place of vectors, and error feedback."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, refuse
from turnout.core.device import to_device
from turnout.core.random import fold, stream
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients
from turnout.pieces.base.guard import Guard
from turnout.pieces.base.piece import MemoryShapes, Slots


@dataclass(frozen=True)
class Compression(Guard):
    """Send a code of every vector: ``code(Delta_b + e_b)``, then ``e_b <- Delta_b + e_b - what was sent``.

    Clients remember what the code lost (e, 0 at first) and add it to their next update, however much later they come. What
    is only summed, such as changes of control variates, is coded likewise; what a client keeps of it moves by what was
    sent, so nothing of it is lost either. Measurements are sent as they are.

    Args:
        error_feedback: whether clients remember what was lost; False sends ``code(Delta_b)`` alone.

    Reference: Seide et al., "1-bit stochastic gradient descent", Interspeech 2014; Stich, Cordonnier and Jaggi, "Sparsified
    SGD with memory", NeurIPS 2018.
    """

    codes: ClassVar[bool] = True

    error_feedback: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.error_feedback, bool):
            raise refuse("error_feedback", given=self.error_feedback, needed="true or false")

    def fits(self, algorithm: Slots) -> None:
        """Refuse two compressions: the second would code all P numbers that the first stands for, and not its code."""
        names = [type(guard).__name__ for guard in algorithm.guard if isinstance(guard, Compression)]
        last = algorithm.guard[-1]
        if len(names) == 1 and not isinstance(last, Compression):
            raise ConfigurationError(
                f"{type(last).__name__} behind {names[0]} changes what the server decodes, so that its code is no longer "
                f"what is sent: write {names[0]} as the last guard"
            )
        if len(names) > 1:
            raise ConfigurationError(
                f"{' and '.join(names)} both code the same vectors, and the second would code what the first is decoded to: "
                "keep one of them"
            )

    @abstractmethod
    def encode(self, rows: torch.Tensor, keys: torch.Tensor) -> State:
        """Return what is sent of rows ``[B, P]``: tensors ``[B, ...]`` by name, of a size that P alone decides.

        Args:
            rows: finite numbers.
            keys: of each row's random numbers, int64 ``[B]``; the server knows them, too.
        """

    @abstractmethod
    def decode(self, code: State, num_params: int, keys: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the rows ``[B, P]`` that a code stands for."""

    def for_shapes(self, shapes: tuple[tuple[int, ...], ...]) -> Compression:
        """Return the same compression, with the shapes of the parameters that vectors hold, if it asks for them."""
        return self

    def for_clients(self, clients: Clients) -> Compression:
        """Return the same compression, with the shapes of these clients' parameters, if it asks for them."""
        return self

    def sent(self, rows: torch.Tensor, keys: torch.Tensor, memory: State | None) -> tuple[State, torch.Tensor]:
        """Return what is sent of rows, and what it is decoded to.

        Args:
            rows: as in `encode`.
            keys: as in `encode`.
            memory: what clients remember, if the rows are updates; the code may start from it, and change it.
        """
        code = self.encode(rows, keys)
        return code, self.decode(code, rows.shape[1], keys, rows.dtype)

    def memory(self, num_params: int, dtype: torch.dtype, shapes: tuple[tuple[int, ...], ...] = ()) -> MemoryShapes:
        """Return the shape of e."""
        return {"error": ((num_params,), dtype)} if self.error_feedback else {}

    def apply(self, report: Report, task: Task, memory: State, clients: Clients) -> Report:
        """Return the report as the server decodes it; ``memory["error"]`` holds the uncompressed update until `settle`."""
        coder = self.for_clients(clients)
        keys, delta = self.keys(task.seed, task.draws(len(report)), report.client, report.delta.device), report.delta
        if self.error_feedback and delta.shape[1]:
            error = memory["error"].to(delta.device)
            delta = error + delta
            good = torch.isfinite(delta).all(dim=1, keepdim=True)
            memory["error"] = delta.where(good, error).to(memory["error"].device)
        codes, vectors = dict[str, State](), {"": delta, **report.extra}
        for i, name in enumerate(sorted(vectors)):
            if vectors[name].shape[1]:
                vectors[name], codes[name] = coder._coded(vectors[name], nth(keys, i), None if name else memory)
        size = code_bytes(codes)
        return replace(report, delta=vectors.pop(""), extra=vectors, vector_bytes=size, codes=codes)

    def keys(self, seed: int, draws: np.ndarray, clients: np.ndarray, device: torch.device) -> torch.Tensor:
        """Return the keys of the random numbers of B reports, int64 ``[B]``; `nth` derives those of each of their vectors.

        Args:
            seed: the run's seed.
            draws: as `Task.draws` has them.
            clients: whose reports they are.
            device: where the rows are.
        """
        return to_device(torch.from_numpy(fold(stream(type(self).__name__, seed), draws, clients)), device)

    def settle(self, memory: State, sent: Report, good: torch.Tensor) -> None:
        """Subtract what was sent from the memory of errors."""
        if self.error_feedback and sent.delta.shape[1]:
            memory["error"] -= sent.delta.to(memory["error"].device).where(good, 0.0)

    def _coded(self, rows: torch.Tensor, keys: torch.Tensor, memory: State | None) -> tuple[torch.Tensor, State]:
        """Return the rows as they arrive, and what is sent of each; rows that are not finite stay as they are.

        Args:
            rows: updates, or what is only summed.
            keys: of their random numbers.
            memory: what clients remember, of updates; None for what is only summed.
        """
        good = torch.isfinite(rows.sum(dim=1, keepdim=True))
        code, arrived = self.sent(rows.where(good, 0.0), keys, memory)
        return arrived.where(good, rows), code


def nth(keys: torch.Tensor, i: int) -> torch.Tensor:
    """Return the keys of the i-th vector of reports: 0 is the update, what is only summed follows by name."""
    return fold(keys, torch.full_like(keys, i))


def code_bytes(codes: Mapping[str, State]) -> int:
    """Return the bytes of a report's codes."""
    tensors = (value for code in codes.values() for value in code.values())
    return sum(value[0].numel() * value.element_size() for value in tensors)
