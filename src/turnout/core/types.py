"""The messages and records that all slots share. Shape letters: N clients, B reports, P parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from turnout.core.adapter import Adapter
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.updates import Updates, join

State = dict[str, torch.Tensor]
"""What one piece carries from round to round: named tensors, so that every state can be saved without pickle."""


Vectors = dict[str, Any]
"""What reports hold beside the update, by name: tensors ``[B, ...]``, or on the server `Updates` ``[B, P]``."""


@dataclass(frozen=True, eq=False)
class Task:
    """What the server sends to a client.

    Attributes:
        params: the model to start from, ``[P]``, or ``[B, P]`` where lanes start from different versions.
        version: number of server steps that made it; one number, or int64 ``[B]`` on the host.
        seed: the run's seed; with version and client it determines all randomness.
        phase: what is asked for: ``"train"``, or ``"measure"`` for the measurements alone.
        shared: what else is broadcast, e.g. Scaffold's c.
        own: what each of the B clients is told alone, ``[B]`` by name, e.g. how much work it is to do.
        repeat_index: how often each had been given the same version before, int64 ``[B]`` on the host; None is never.
        round: the server's version when the task is given, where clients go on from models that they kept; None is `version`.
    """

    params: torch.Tensor
    version: int | np.ndarray
    seed: int
    phase: str = "train"
    shared: State = field(default_factory=dict)
    own: State = field(default_factory=dict)
    repeat_index: np.ndarray | None = None
    round: int | None = None

    def draws(self, num_reports: int) -> np.ndarray:
        """Return on what random numbers of B lanes depend beside seed and client, int64 ``[B]``: its version, and a
        number of its own each time that a client comes back with the same one.
        """
        versions = self.versions(num_reports)
        return versions if self.repeat_index is None else versions + (self.repeat_index << 40)

    def rounds(self, num_reports: int) -> np.ndarray:
        """Return the round of each of B lanes, by which step sizes change, int64 ``[B]``."""
        return self.versions(num_reports) if self.round is None else np.full(num_reports, self.round)

    def versions(self, num_reports: int) -> np.ndarray:
        """Return the version of each of B lanes, int64 ``[B]``."""
        if isinstance(self.version, int):
            return np.full(num_reports, self.version)
        return np.broadcast_to(np.asarray(self.version, dtype=np.int64), (num_reports,))


@dataclass(frozen=True, eq=False)
class Lanes:
    """The order in which a local rule has its B clients, e.g. by falling number of steps, and how many each does.

    Attributes:
        order: the client's row of each lane, int64 ``[B]``, on the host.
        num_steps: the local steps of each lane, int64 ``[B]``, on the host.
    """

    order: np.ndarray
    num_steps: np.ndarray

    def of(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows ``[B, ...]`` of the clients in the order of the lanes."""
        return rows[to_device(self.order, rows.device)]


class Seen(Vectors):
    """What the server reads client by client, by name; an unknown name is an error that lists those that were sent."""

    def __missing__(self, name: str) -> Any:
        raise ConfigurationError(
            f"report.seen has no {name!r}: clients send {', '.join(sorted(self)) or 'nothing'}. Write needs = ({name!r},) in "
            "the piece that reads it, and add what measures it to the algorithm"
        )


@dataclass(frozen=True, eq=False)
class Report:
    """What comes back from a client; a batch of reports has the leading axis B everywhere.

    Attributes:
        client: who sent it, int64 ``[B]``, on the host.
        version: the version it was trained from, int64 ``[B]``, on the host.
        num_examples: size of the client's training data, int64 ``[B]``, on the host.
        num_steps: local steps that were done, int64 ``[B]``, on the host.
        delta: parameters after minus parameters before, ``[B, P]``.
        extra: named tensors that the server only ever sums, ``[B, ...]``.
        seen: named tensors that the server reads client by client, ``[B]`` or ``[B, P]``; so never private.
        measured: reports of clients who were asked for measurements alone (their updates have no columns), or None.
        model: the server's present model, ``[P]``; the server fills it in, for an aggregation that `reads_model`.
        model_offset: what each was trained from minus the server's present model, ``[B, P]``; the server fills it in, for an
            aggregation of models. None where all were trained from the present one, or nobody asks.
        vector_bytes: bytes of the update and of `extra` on the wire, where a guard has coded them; None is as they are.
        codes: what is sent in their place then, tensors ``[B, ...]`` by name (``""`` is the update) and name in the code.
            They are for who sends, and stay behind when reports are put together.
        good: which reports hold no NaN or infinity, bool ``[B]``, on the host, where that is known already; or None.

    On the server matrices ``[B, P]`` may be `Updates`, whose rows other processes hold or which are summed already: rules
    write ``report.updates.norms()``, and ``Updates.of(report.seen["start_gradient"])`` for other matrices than the update.

    A client that was drawn twice has two rows, so that whatever counts reports counts it twice; what is only summed is in
    the first of them, for it was sent once.
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
    def of_nobody(cls, params: torch.Tensor) -> Report:
        """Return a batch of no reports on a model ``[P]``."""
        none = np.zeros(0, dtype=np.int64)
        return cls(none, none, none, none, params.new_zeros((0, len(params))))

    @property
    def updates(self) -> Updates:
        """`delta` with the operations of server rules."""
        return Updates.of(self.delta)

    def take(self, rows: np.ndarray) -> Report:
        """Return the reports in `rows` (int64 positions), in that order."""
        index = to_device(rows, self.delta.device)
        return Report(
            self.client[rows],
            self.version[rows],
            self.num_examples[rows],
            self.num_steps[rows],
            self.delta[index],
            {name: value[index] for name, value in self.extra.items()},
            {name: value[index] for name, value in self.seen.items()},
            self.measured,
            self.model,
            None if self.model_offset is None else self.model_offset[index],
            None if self.good is None else self.good[rows],
            self.vector_bytes,
        )

    def summed_once(self, once: torch.Tensor) -> Report:
        """Return the same reports, with zeros in what the server sums where `once`, bool ``[B]``, is False."""
        once = to_device(once, self.delta.device)
        return replace(self, extra={name: _zeroed(value, once) for name, value in self.extra.items()})

    @classmethod
    def cat(cls, reports: Iterable[Report]) -> Report:
        """Several batches of reports as one batch."""
        parts = list(reports)
        if len(parts) == 1:
            return parts[0]
        numbers = ("client", "version", "num_examples", "num_steps")
        client, version, num_examples, num_steps = (
            np.concatenate([getattr(part, name) for part in parts]) for name in numbers
        )
        return cls(
            client,
            version,
            num_examples,
            num_steps,
            join([part.delta for part in parts]),
            {name: join([part.extra[name] for part in parts]) for name in parts[0].extra},
            {name: join([part.seen[name] for part in parts]) for name in parts[0].seen},
            good=np.concatenate([part.finite() for part in parts]) if parts[0].good is not None else None,
            vector_bytes=parts[0].vector_bytes,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of one report on the wire: its tensors, its version and its numbers of examples and of steps."""
        vectors = _row_bytes(self.delta, *self.extra.values()) if self.vector_bytes is None else self.vector_bytes
        return 24 + vectors + _row_bytes(*self.seen.values())

    def finite(self) -> np.ndarray:
        """Which reports hold no NaN or infinity anywhere, bool ``[B]``, on the host."""
        if self.good is not None:
            return self.good
        good = torch.ones(len(self), dtype=torch.bool, device=self.delta.device)
        for value in (self.delta, *self.extra.values(), *self.seen.values()):
            good &= Updates.of(value).finite()
        return good.cpu().numpy()

    def sums(self) -> list[torch.Tensor] | None:
        """Return sums, float64 ``[]``, that are finite only if no report holds NaN or infinity, the measured ones included.

        Nobody waits for a device by asking for them. None where what is known of the reports is better than that.
        """
        if self.good is not None:
            return None
        measured = [] if self.measured is None else self.measured.sums()
        found = [Updates.of(value).total() for value in (self.delta, *self.extra.values(), *self.seen.values())]
        known = [total.to(self.delta.device) for total in found if total is not None]
        return None if measured is None or len(known) < len(found) else known + measured

    def nulled(self) -> tuple[Report, int]:
        """Return the reports with zeros for the vectors and scalars of those that hold NaN or infinity; and their number.

        ``good`` says which ones are left as they were. Numbers of examples and of steps stay.
        """
        good = self.finite()
        if good.all():
            return self, 0
        kept = to_device(torch.from_numpy(good), self.delta.device)
        delta = _zeroed(self.delta, kept)
        extra, seen = ({name: _zeroed(value, kept) for name, value in each.items()} for each in (self.extra, self.seen))
        measured = None if self.measured is None else self.measured.screened()[0]
        return replace(self, delta=delta, extra=extra, seen=seen, measured=measured, good=good), int((~good).sum())

    def screened(self) -> tuple[Report, int]:
        """Return the reports without those that hold NaN or infinity, also among the measured; and how many were left out."""
        good = self.finite()
        kept = self if good.all() else self.take(good.nonzero()[0])
        if self.measured is not None:
            kept = replace(kept, measured=self.measured.screened()[0])
        return kept, int((~good).sum())


def _zeroed(values: torch.Tensor | Updates, kept: torch.Tensor) -> torch.Tensor | Updates:
    """Values of the same kind, with zeros in other rows."""
    zeroed = Updates.of(values).where(kept)
    return zeroed.gathered() if isinstance(values, torch.Tensor) else zeroed


def _row_bytes(*matrices: torch.Tensor | Updates) -> int:
    """Bytes of a row of each."""
    return sum(rows.shape[1:].numel() * rows.element_size() for rows in matrices)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Whom a selection can choose from in a round, and what its random choice depends on.

    Attributes:
        available: which of the clients with these numbers are there, bool ``[n]`` from int64 ``[n]``.
        num_clients: N.
        round: rounds done so far.
        seed: the run's seed.
        measured: reports of those who were asked for measurements first; None before that, or if nobody was.
        record: what the selection has noted of past rounds, if it does.
    """

    available: Callable[[np.ndarray], np.ndarray]
    num_clients: int
    round: int
    seed: int
    measured: Report | None = None
    record: State = field(default_factory=dict)

    def everyone(self) -> np.ndarray:
        """All who are there, ascending, int64; asks all N."""
        return np.flatnonzero(self.available(np.arange(self.num_clients)))


@dataclass(frozen=True, eq=False)
class Federation:
    """What the server knows of its federation before the first round; every piece is initialised with it.

    Attributes:
        num_clients: N.
        num_params: P.
        rates: how often each client is there, ``[N]``, if it is known; None if not.
        device: where parameters and updates live.
        dtype: their type.
        seed: the run's seed.
        adapters: the low-rank updates of the shared part of the model.
        secret: random bits that the server alone knows, which the noise of differential privacy is made of between real
            machines; None, in a simulation, has it made of the seed.
        lost_releases: noised releases that were made by a server whose run this one was restored from, as far as it does not
            know them: (how many came before the first, how many with the last) for each such server.
        noised_answers: evaluations and queries that spend the privacy budget beside the rounds, so far.
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
    """All that the server carries from round to round, except what lives with the clients.

    Attributes:
        params: the model, ``[P]``.
        version: how many server steps were taken, empty ones included.
        slots: the state of every piece that has one, by its place (``"weighting.0"``, ``"aggregation"``, ...).
    """

    params: torch.Tensor
    version: int
    slots: dict[str, State]


Info = dict[str, Any]
"""What one may look at after a server step; nothing of it is carried on."""
