"""Define the messages and records that all slots share. Shape letters: N clients, B reports, P parameters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from turnout.core.adapter import Adapter
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.updates import Updates, join

State = dict[str, torch.Tensor]
"""The state of a piece between rounds: named tensors, so that every state can be saved without pickle."""

WithState = tuple[torch.Tensor, State]
"""The result of a piece, and its new state."""


Vectors = dict[str, Any]
"""Vectors of reports beside the update, by name: tensors ``[B, ...]``, or on the server `Updates` ``[B, P]``."""


@dataclass(frozen=True, eq=False)
class Task:
    """The task that the server sends to a client.

    Attributes:
        params: the model to start from, ``[P]``, or ``[B, P]`` if clients start from different versions.
        version: the version of the model, i.e. its number of server steps; one number, or int64 ``[B]`` on the host.
        seed: the seed of the run; together with version and client it determines all randomness. It is int64 ``[B]`` on the
            host if clients of several runs train together.
        phase: the phase: ``"train"``, or ``"measure"`` for measurements alone.
        shared: tensors that are broadcast beside the model, e.g. Scaffold's c.
        own: inputs of each of the B clients, ``[B]`` by name, e.g. its amount of work.
        repeat_index: how often each client had trained from the same version before, int64 ``[B]`` on the host; None is
            never.
        round: the server's version when the task is sent, if clients continue from models of their own; None is `version`.
    """

    params: torch.Tensor
    version: int | np.ndarray
    seed: int | np.ndarray
    phase: str = "train"
    shared: State = field(default_factory=dict)
    own: State = field(default_factory=dict)
    repeat_index: np.ndarray | None = None
    round: int | None = None

    def draws(self, num_reports: int) -> np.ndarray:
        """Return the part of the random key of B clients beside seed and client, int64 ``[B]``.

        It is the version, combined with the number of times that the client has trained from the same version before.
        """
        versions = self.versions(num_reports)
        return versions if self.repeat_index is None else versions + (self.repeat_index << 40)

    def rounds(self, num_reports: int) -> np.ndarray:
        """Return the round of each of B clients, on which step sizes depend, int64 ``[B]``."""
        return self.versions(num_reports) if self.round is None else np.full(num_reports, self.round)

    def versions(self, num_reports: int) -> np.ndarray:
        """Return the version of each of B clients, int64 ``[B]``."""
        if isinstance(self.version, int):
            return np.full(num_reports, self.version)
        return np.broadcast_to(np.asarray(self.version, dtype=np.int64), (num_reports,))


NUMBERS = ("client", "version", "num_examples", "num_steps")
"""Names of the numbers of a report, int64 ``[B]`` on the host."""


class Seen(Vectors):
    """Vectors that the server reads client by client; an unknown name raises an error that lists the known ones."""

    def __missing__(self, name: str) -> Any:
        raise ConfigurationError(
            f"report.seen has no {name!r}: clients send {', '.join(sorted(self)) or 'nothing'}. Write needs = ({name!r},) in "
            "the piece that reads it, and add what measures it to the algorithm"
        )


@dataclass(frozen=True, eq=False)
class Report:
    """The report of a client; a batch of reports has the leading axis B everywhere.

    Attributes:
        client: the client, int64 ``[B]``, on the host.
        version: the version that it was trained from, int64 ``[B]``, on the host.
        num_examples: size of the client's training data, int64 ``[B]``, on the host.
        num_steps: number of local steps, int64 ``[B]``, on the host.
        delta: the update: parameters after minus parameters before, ``[B, P]``.
        extra: named tensors that the server only sums, ``[B, ...]``.
        seen: named tensors that the server reads client by client, ``[B]`` or ``[B, P]``; they are therefore not private.
        measured: reports of clients that only measured (their updates have no columns), or None.
        model: the server's present model, ``[P]``; set by the server for an aggregation that reads it.
        model_offset: the model that each was trained from minus the server's present model, ``[B, P]``; set by the server for
            an aggregation of models. None if all were trained from the present model.
        vector_bytes: bytes of the update and of `extra` on the wire, if a guard has encoded them; None if they are not
            encoded.
        codes: the encoded tensors, ``[B, ...]``, by name (``""`` is the update) and by name within the code. They are for the
            sender, and are left out when reports are joined.
        good: the reports that the server may use, without NaN, infinity and refused counts, bool ``[B]``, on the host; None
            if unknown.

    On the server, matrices ``[B, P]`` may be `Updates`, whose rows are on other processes or already summed: rules write
    ``report.updates.norms()``, and ``Updates.of(report.seen["start_gradient"])`` for other matrices than the update.

    A client that was drawn twice has two rows, so that it counts twice; vectors that are only summed are in the first of
    them, because they were sent once.
    """

    client: np.ndarray
    version: np.ndarray
    num_examples: np.ndarray
    num_steps: np.ndarray
    delta: torch.Tensor | Updates
    extra: Vectors = field(default_factory=dict)
    seen: Vectors = field(default_factory=dict)
    measured: Report | None = None
    model: torch.Tensor | None = None
    model_offset: torch.Tensor | Updates | None = None
    good: np.ndarray | None = None
    vector_bytes: int | None = None
    codes: dict[str, State] | None = None

    def __post_init__(self) -> None:
        if type(self.seen) is not Seen:
            object.__setattr__(self, "seen", Seen(self.seen))

    def __len__(self) -> int:
        return len(self.client)

    @classmethod
    def empty(cls, params: torch.Tensor) -> Report:
        """Return an empty batch of reports on a model ``[P]``."""
        none = np.zeros(0, dtype=np.int64)
        return cls(none, none, none, none, params.new_zeros((0, len(params))))

    @property
    def updates(self) -> Updates:
        """`delta` with the operations of server rules."""
        return Updates.of(self.delta)

    def take(self, rows: np.ndarray) -> Report:
        """Return the reports at these positions, int64, in this order."""
        index = to_device(rows, self.delta.device)
        numbers = {name: getattr(self, name)[rows] for name in NUMBERS}
        extra, seen = ({name: value[index] for name, value in of.items()} for of in (self.extra, self.seen))
        offset = None if self.model_offset is None else self.model_offset[index]
        good = None if self.good is None else self.good[rows]
        return replace(
            self, **numbers, delta=self.delta[index], extra=extra, seen=seen, model_offset=offset, good=good, codes=None
        )

    def summed_once(self, once: torch.Tensor) -> Report:
        """Return the reports with zeros in `extra` where `once`, bool ``[B]``, is False."""
        once = to_device(once, self.delta.device)
        return replace(self, extra={name: _zeroed(value, once) for name, value in self.extra.items()})

    @classmethod
    def cat(cls, reports: Iterable[Report]) -> Report:
        """Concatenate batches of reports."""
        parts = list(reports)
        if len(parts) == 1:
            return parts[0]
        first, known = parts[0], any(part.good is not None for part in parts)
        client, version, num_examples, num_steps = (
            np.concatenate([getattr(part, name) for part in parts]) for name in NUMBERS
        )
        delta = join([part.delta for part in parts])
        extra = {name: join([part.extra[name] for part in parts]) for name in first.extra}
        seen = {name: join([part.seen[name] for part in parts]) for name in first.seen}
        good = np.concatenate([part.finite() for part in parts]) if known else None
        return cls(
            client, version, num_examples, num_steps, delta, extra, seen, good=good, vector_bytes=first.vector_bytes
        )

    @property
    def nbytes(self) -> int:
        """Bytes of one report on the wire: its tensors, its version and its numbers of examples and steps."""
        vectors = _row_bytes(self.delta, *self.extra.values()) if self.vector_bytes is None else self.vector_bytes
        return 24 + vectors + _row_bytes(*self.seen.values())

    def finite(self) -> np.ndarray:
        """Return which reports hold no NaN or infinity, bool ``[B]``, on the host."""
        if self.good is not None:
            return self.good
        good = torch.ones(len(self), dtype=torch.bool, device=self.delta.device)
        for value in (self.delta, *self.extra.values(), *self.seen.values()):
            good &= Updates.of(value).finite()
        return good.cpu().numpy()

    def sums(self) -> list[torch.Tensor] | None:
        """Return sums, float64 ``[]``, that are finite only if no report, including `measured`, holds NaN or infinity.

        Computing them does not synchronize with the device. None if `good` is known, or if a sum needs an exchange between
        processes.
        """
        if self.good is not None:
            return None
        measured = [] if self.measured is None else self.measured.sums()
        totals = [Updates.of(value).total() for value in (self.delta, *self.extra.values(), *self.seen.values())]
        known = [total.to(self.delta.device) for total in totals if total is not None]
        return None if measured is None or len(known) < len(totals) else known + measured

    def mean_loss(self) -> torch.Tensor | None:
        """Return the mean training loss of the clients that took local steps, ``[]``; None if there are none.

        Computing it does not synchronize with the device.
        """
        rows = np.flatnonzero(self.num_steps > 0)
        if not len(rows) or "loss" not in self.seen:
            return None
        losses = self.seen["loss"]
        return (losses if len(rows) == len(self) else losses[to_device(rows, losses.device)]).nanmean()

    def nulled(self) -> tuple[Report, int]:
        """Return the reports with zeros in those that hold NaN or infinity, and the number of these.

        ``good`` marks the unchanged reports. Numbers of examples and steps are kept.
        """
        good = self.finite()
        if good.all():
            return self, 0
        mask = to_device(torch.from_numpy(good), self.delta.device)
        delta = _zeroed(self.delta, mask)
        extra, seen = ({name: _zeroed(value, mask) for name, value in of.items()} for of in (self.extra, self.seen))
        measured = None if self.measured is None else self.measured.screened()[0]
        return replace(self, delta=delta, extra=extra, seen=seen, measured=measured, good=good), int((~good).sum())

    def screened(self) -> tuple[Report, int]:
        """Return the reports without those that hold NaN or infinity, and the number of these; so is `measured`."""
        good = self.finite()
        screened = self if good.all() else self.take(good.nonzero()[0])
        if self.measured is not None:
            screened = replace(screened, measured=self.measured.screened()[0])
        return screened, int((~good).sum())


def _zeroed(values: torch.Tensor | Updates, mask: torch.Tensor) -> torch.Tensor | Updates:
    """Return values of the same kind, with zeros in the rows where the mask is False."""
    zeroed = Updates.of(values).where(mask)
    return zeroed.gathered() if isinstance(values, torch.Tensor) else zeroed


def _row_bytes(*matrices: torch.Tensor | Updates) -> int:
    """Return the bytes of a row of all matrices together."""
    return sum(rows.shape[1:].numel() * rows.element_size() for rows in matrices)


@dataclass(frozen=True, eq=False)
class Federation:
    """The properties of a federation that are known before the first round. Pieces initialize their state from it.

    Attributes:
        num_clients: N.
        num_params: P.
        rates: the known availability rate of each client, ``[N]``; None if unknown.
        device: the device of parameters and updates.
        dtype: their type.
        seed: the seed of the run.
        adapters: the low-rank adapters of the shared part of the model.
        secret: random bits that the server alone knows, from which the noise of differential privacy is derived between real
            machines; None, in a simulation, derives it from the seed.
        lost_releases: noised releases of a server whose run was restored from an earlier state, as (number of releases before
            the first lost one, number up to the last lost one), one pair for each such server.
        noised_answers: number of evaluations and queries so far that spend the privacy budget.
    """

    num_clients: int
    num_params: int
    rates: np.ndarray | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32
    seed: int = 0
    adapters: tuple[Adapter, ...] = ()
    secret: int | None = field(default=None, repr=False)
    lost_releases: tuple[tuple[int, int], ...] = ()
    noised_answers: int = 0


@dataclass(frozen=True, eq=False)
class ServerState:
    """The state of the server between rounds, without client memory.

    Attributes:
        params: the model, ``[P]``.
        version: number of server steps, including empty ones.
        slots: the state of every piece that has one, by slot (``"weighting.0"``, ``"aggregation"``, ...).
    """

    params: torch.Tensor
    version: int
    slots: dict[str, State]


Info = dict[str, Any]
"""Figures of a server step for logging; they are no part of the state."""
