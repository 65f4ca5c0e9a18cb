"""Base classes of guards, which change a report before it leaves the client, and of compressions, which send codes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from turnout.base.piece import ClientPiece, MemoryShapes, Slots
from turnout.core.checks import ConfigurationError, refuse
from turnout.core.device import to_device
from turnout.core.random import fold, stream
from turnout.core.registry import Family
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients


class Guard(ClientPiece, ABC):
    """Change a report before it leaves the client, e.g. by clipping, noise or compression. Guards are chained."""

    slot: ClassVar[str] = "guard"
    family = Family("guard", "guards", ("turnout.pieces.guard",))

    def receive(self, task: Task, memory: State, clients: Clients) -> Task:
        """Return the task as B clients receive it, for guards that also change the download.

        `memory` must not be changed.
        """
        return task

    def memory(self, num_params: int, dtype: torch.dtype, shapes: tuple[tuple[int, ...], ...] = ()) -> MemoryShapes:
        """Return the shape and type of each tensor of client memory that it needs, by name; they are initially zero.

        Args:
            num_params: P.
            dtype: type of updates.
            shapes: shapes of the parameters that an update concatenates.
        """
        return {}

    @abstractmethod
    def apply(self, report: Report, task: Task, memory: State, clients: Clients) -> Report:
        """Return the report as it is sent; the rows ``[B, ...]`` of `memory` may be changed."""


class ChangesDownloadType(ABC):
    """A guard that also compresses the download, by another type of its numbers."""

    @abstractmethod
    def broadcast_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return the type in which the model and the other broadcast tensors are sent to clients."""


@dataclass(frozen=True)
class Compression(Guard):
    """Send a code in place of every vector, with error feedback.

    With the update Delta_b of client b and the error e_b of its earlier reports, initially 0, the client sends the code
    of ``Delta_b + e_b``, which the server decodes to s_b; then ``e_b <- Delta_b + e_b - s_b``. The error waits until
    the client's next report, even if that is many rounds later. Vectors that the server only sums, such as changes of
    control variates, are coded likewise; a client changes its own vector by the decoded code, so nothing is lost there
    either. Measurements are not coded.

    Args:
        error_feedback: whether clients store errors; False sends the code of Delta_b.

    Raises:
        ConfigurationError: if an option is invalid.

    Reference: Seide et al., "1-bit stochastic gradient descent", Interspeech 2014; Stich, Cordonnier and Jaggi,
    "Sparsified SGD with memory", NeurIPS 2018.
    """

    error_feedback: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.error_feedback, bool):
            raise refuse("error_feedback", given=self.error_feedback, needed="true or false")

    def fits(self, algorithm: Slots) -> None:
        """Raise an error if another compression, or another guard behind this one, would change what is coded."""
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
        """Return the code of rows ``[B, P]``: tensors ``[B, ...]`` by name, whose sizes depend on P alone.

        Args:
            rows: finite rows, ``[B, P]``.
            keys: keys of each row's random numbers, int64 ``[B]``; the server knows them, too.
        """

    @abstractmethod
    def decode(self, code: State, num_params: int, keys: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the rows ``[B, P]`` that a code represents."""

    def sent(self, rows: torch.Tensor, keys: torch.Tensor, memory: State | None) -> tuple[State, torch.Tensor]:
        """Return the code of rows, and the rows that it is decoded to.

        Args:
            rows: as in `encode`.
            keys: as in `encode`.
            memory: memory of the clients if the rows are updates, else None; the code may start from it and change it.
        """
        code = self.encode(rows, keys)
        return code, self.decode(code, rows.shape[1], keys, rows.dtype)

    def memory(self, num_params: int, dtype: torch.dtype, shapes: tuple[tuple[int, ...], ...] = ()) -> MemoryShapes:
        """Return the shape of the error e."""
        return {"error": ((num_params,), dtype)} if self.error_feedback else {}

    def apply(self, report: Report, task: Task, memory: State, clients: Clients) -> Report:
        """Return the report as the server decodes it.

        Until `settle`, ``memory["error"]`` holds the uncompressed update.
        """
        coder, delta = shaped(self, lambda: clients.objective.layout.shared_shapes), report.delta
        keys = row_keys(self, task.seed, task.draws(len(report)), report.client, delta.device)
        if self.error_feedback and delta.shape[1]:
            error = memory["error"].to(delta.device)
            delta = error + delta
            good = torch.isfinite(delta).all(dim=1, keepdim=True)
            memory["error"] = delta.where(good, error).to(memory["error"].device)
        codes, vectors = dict[str, State](), {"": delta, **report.extra}
        for i, name in enumerate(sorted(vectors)):
            if (rows := vectors[name]).shape[1]:
                good = torch.isfinite(rows.sum(dim=1, keepdim=True))  # rows that are not finite stay unchanged
                codes[name], arrived = coder.sent(rows.where(good, 0.0), nth(keys, i), None if name else memory)
                vectors[name] = arrived.where(good, rows)
        size = code_bytes(codes)
        return replace(report, delta=vectors.pop(""), extra=vectors, vector_bytes=size, codes=codes)

    def settle(self, memory: State, sent: Report, good: torch.Tensor) -> None:
        """Subtract the sent vectors from the stored ones, which leaves the errors."""
        if self.error_feedback and sent.delta.shape[1]:
            memory["error"] -= sent.delta.to(memory["error"].device).where(good, 0.0)


class OfShapes(ABC):
    """A compression that depends on the shapes of the parameters."""

    shapes: ClassVar[tuple[tuple[int, ...], ...]] = ()
    """Shapes of the parameters that vectors hold one after the other; empty until they are known."""

    @abstractmethod
    def for_shapes(self, shapes: tuple[tuple[int, ...], ...]) -> Compression:
        """Return the same compression for parameters of these shapes."""


def shaped(compression: Compression, shapes: Callable[[], tuple[tuple[int, ...], ...]]) -> Compression:
    """Return the compression for parameters of these shapes; the same one if it does not depend on them, or has them."""
    if isinstance(compression, OfShapes) and not compression.shapes:
        return compression.for_shapes(shapes())
    return compression


def row_keys(
    compression: Compression, seed: int | np.ndarray, draws: np.ndarray, clients: np.ndarray, device: torch.device
) -> torch.Tensor:
    """Return the keys of the random numbers of B reports, int64 ``[B]``.

    `nth` derives the keys of each of their vectors.

    Args:
        compression: the compression.
        seed: seed of the run, or of each client's run, int64 ``[B]``.
        draws: part of the random key that `Task.draws` returns, int64 ``[B]``.
        clients: clients that report, int64 ``[B]``.
        device: device of the rows.
    """
    return to_device(torch.from_numpy(fold(stream(type(compression).__name__, seed), draws, clients)), device)


def nth(keys: torch.Tensor, i: int) -> torch.Tensor:
    """Return the random keys of the i-th vector of each report, int64 ``[B]``.

    Vector 0 is the update. The vectors that are only summed follow, sorted by name.
    """
    return fold(keys, torch.full_like(keys, i))


def code_bytes(codes: Mapping[str, State]) -> int:
    """Return the size of the codes of one report in bytes."""
    tensors = (value for code in codes.values() for value in code.values())
    return sum(value[0].numel() * value.element_size() for value in tensors)
