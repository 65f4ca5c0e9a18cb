"""Encode reports as bytes, plain or compressed, decode and check them, and decode the messages of extra phases."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from turnout.base.algorithm import Algorithm
from turnout.base.guard import Compression, code_bytes, nth, row_keys, shaped
from turnout.core.types import Report, State, Task
from turnout.engine.objective import Objective
from turnout.protocol.counts import CountLimits
from turnout.protocol.secure.masked_vectors import Form, Shapes
from turnout.protocol.secure.masks import check_public
from turnout.protocol.secure.messages import KEY_BYTES, ProtocolError
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import NAMES, Manifest, Spec, WireError, decode, encode, is_finite, length, manifest

_CODE = "code."
_MOST_FIGURE = 1e12  # of a loss or another figure of a client


@dataclass(frozen=True)
class Coding:
    """Compression of the vectors of reports.

    Attributes:
        compression: last guard of the algorithm.
        seed: seed of the run.
        num_params: number of parameters of the shared part of the model.
        dtype: type of the model.
    """

    compression: Compression
    seed: int
    num_params: int
    dtype: torch.dtype

    @classmethod
    def of(cls, algorithm: Algorithm, seed: int, objective: Objective) -> Coding | None:
        """Return the compression of an algorithm; None without one."""
        last, layout = algorithm.guard[-1] if algorithm.guard else None, objective.layout
        if not isinstance(last, Compression):
            return None
        return cls(shaped(last, lambda: layout.shared_shapes), seed, layout.num_shared, objective.initial.dtype)

    def again(self, report: Report, task: Task) -> Report:
        """Return a report that was changed after its guards, compressed again."""
        keys = self._keys(report.client, task.draws(len(report)))
        vectors = {"": report.delta, **report.extra}
        assert report.codes is not None
        codes = {
            name: self.compression.encode(vectors[name].nan_to_num(), nth(keys, i))
            for i, name in enumerate(sorted(vectors))
            if name in report.codes
        }
        return replace(report, codes=codes)

    def decoded(self, tensors: State, client: int, draw: int) -> tuple[State, int]:
        """Return the tensors of a report with decompressed vectors, and the bytes of their codes.

        Raises:
            WireError: if a code cannot be decompressed.
        """
        codes, vectors = dict[str, State](), dict[str, torch.Tensor]()
        for name, value in tensors.items():
            if name.startswith(_CODE):
                name, _, part = name.removeprefix(_CODE).rpartition(".")
                codes.setdefault(name, {})[part] = value
            else:
                vectors[name] = value
        keys = self._keys(np.array([client]), np.array([draw]))
        # In the order of `Compression.apply`, which draws random numbers by it: the update, then the other vectors by name.
        order = ["delta", *sorted(name for name in (*codes, *vectors) if name.startswith("extra."))]
        for name, code in codes.items():
            try:
                vectors[name] = self.compression.decode(code, self.num_params, nth(keys, order.index(name)), self.dtype)
            except (RuntimeError, IndexError, ValueError):
                raise WireError(f"{name} is no code of {self.num_params} numbers") from None
        return vectors, code_bytes(codes)

    def _keys(self, clients: np.ndarray, draws: np.ndarray) -> torch.Tensor:
        return row_keys(
            self.compression, self.seed, draws.astype(np.int64), clients.astype(np.int64), torch.device("cpu")
        )


@dataclass(frozen=True)
class ReportFormat:
    """Format of the reports of one phase.

    Attributes:
        manifest: types and shapes of the tensors.
        coding: compression; None without one.
        takes_nan: True where NaN and infinity are passed on to the server step, which replaces such a report by zeros.
        max_norm: maximum norm of the update, and of each vector that is only summed; None has no limit.
        counts: limits of the numbers of examples and steps.
    """

    manifest: Manifest
    coding: Coding | None = None
    takes_nan: bool = False
    max_norm: float | None = None
    counts: CountLimits = field(default_factory=CountLimits)

    def read(self, body: bytes | Path, client: int, version: int, repeat: int = 0, *, checked: bool = False) -> Report:
        """Decode and check a report.

        Args:
            body: bytes, or a file.
            client: number of the client.
            version: version of the model that it was trained from.
            repeat: number of earlier tasks of the client from this version.
            checked: True for a report that was checked before, of which only the format is checked again.

        Raises:
            WireError: if there are other tensors, NaN or infinity, too large a norm, counts beyond the limits, or keys
                of low order.
        """
        tensors, nbytes = decode(body, self.manifest), None
        limits = CountLimits() if checked else self.counts  # those of a server may change when it is started again
        if not checked:
            check_keys(tensors.get("keys"))
        checked = checked or self.takes_nan
        _check_finite({} if checked else tensors)
        if self.coding is not None and any(name.startswith(_CODE) for name in tensors):
            tensors, nbytes = self.coding.decoded(tensors, client, version + (repeat << 40))
            _check_finite({} if checked else tensors)
        _check_norms({} if checked else tensors, self.max_norm)
        report = Report(
            np.array([client], dtype=np.int64),
            np.array([version], dtype=np.int64),
            tensors.pop("num_examples").numpy(),
            tensors.pop("num_steps").numpy(),
            tensors.pop("delta", torch.zeros((1, 0))),  # a masked update comes in a later phase
            _under("extra.", tensors),
            _under("seen.", tensors),
            vector_bytes=nbytes,
        )
        if (reason := limits.refusal(report)) is not None:
            raise WireError(reason)
        return report

    def blank(self, clients: np.ndarray, versions: np.ndarray, params: torch.Tensor) -> Report:
        """Return blank reports: all vectors and scalars are zero, and the numbers of examples and steps 1.

        Args:
            clients: numbers of the clients, int64 ``[B]``.
            versions: that each was trained from, int64 ``[B]``.
            params: a vector of the size of an update.
        """
        of_params = manifest({"": params[None]})[""]
        names = {name.removeprefix(_CODE).rpartition(".")[0] for name in self.manifest if name.startswith(_CODE)}
        specs = {name: spec for name, spec in self.manifest.items() if not name.startswith(_CODE)}
        vectors = specs | dict.fromkeys(names, of_params)
        tensors = {name: spec.zeros(len(clients)) for name, spec in vectors.items()}
        ones, delta = np.ones(len(clients), dtype=np.int64), of_params.zeros(len(clients))
        return Report(clients, versions, ones, ones, delta, _under("extra.", tensors), _under("seen.", tensors))


class PhaseFormat:
    """Format of the messages of one extra phase.

    Args:
        form: types and shapes of the tensors of the message.

    Attributes:
        manifest: types and shapes of the tensors.
    """

    def __init__(self, form: Form) -> None:
        self.manifest: Manifest = {name: Spec(NAMES[dtype], shape) for name, (dtype, shape) in form.items()}

    def read(self, body: bytes) -> State:
        """Return the tensors of a message.

        Raises:
            WireError: if there are other tensors, or public keys of low order.
        """
        tensors = decode(body, self.manifest)
        check_keys(tensors.get("keys"))
        return tensors


def input_shapes(task: Assignment) -> Shapes:
    """Return the shapes of the inputs of a task, on which the format of its message depends."""
    return {name: tuple(shape) for name, (_, shape, _) in task.told.items()}


def _under(prefix: str, tensors: State) -> State:
    """Return the tensors whose names have a prefix, by the rest of the name."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def report_body(report: Report) -> bytes:
    """Encode the report of one client: tensors with a leading axis of 1, without the number of the client.

    Compressed vectors are sent as their codes. A code cannot represent NaN or infinity, so for such a report all numbers of
    the code are NaN.
    """
    assert len(report) == 1, f"a message carries one report, got {len(report)}"
    counts = {"num_examples": report.num_examples, "num_steps": report.num_steps}
    tensors = {name: torch.from_numpy(np.array(value, dtype=np.int64)) for name, value in counts.items()}
    codes = report.codes or {}
    for name, vector in {"": report.delta, **report.extra}.items():
        key = f"extra.{name}" if name else "delta"
        if (code := codes.get(name)) is not None:
            tensors |= {f"{_CODE}{key}.{part}": value for part, value in _sendable(code, report).items()}
        else:
            assert isinstance(vector, torch.Tensor)
            tensors[key] = vector
    return encode(tensors | {f"seen.{name}": value for name, value in report.seen.items()})


def _sendable(code: State, report: Report) -> State:
    """Return the code of a vector; of a report that holds NaN or infinity, with NaN for all of its floating numbers."""
    if report.finite()[0]:
        return code
    return {
        part: value.new_full(value.shape, torch.nan) if value.is_floating_point() else value
        for part, value in code.items()
    }


def check_keys(keys: torch.Tensor | None) -> None:
    """Check that public keys are not of low order, with which an observer could compute the shared secret."""
    if keys is None:
        return
    key_bytes = keys.numpy().tobytes()
    try:
        check_public(key_bytes[:KEY_BYTES], key_bytes[KEY_BYTES:])
    except ProtocolError as error:
        raise WireError(f"keys: {error}") from None


def _check_finite(tensors: State) -> None:
    """Check that no tensor holds NaN or infinity."""
    for name, value in tensors.items():
        if value.is_floating_point() and not is_finite(value):
            raise WireError(f"{name} holds NaN or infinity")


def _check_norms(tensors: State, most: float | None) -> None:
    """Check the norms of vectors: a single huge one would ruin the model or the state of the server."""
    for name, value in tensors.items():
        if most is None or not value.is_floating_point():
            continue
        norm = length(value)
        if name.startswith("seen.") and value[0].numel() == 1:
            if norm > _MOST_FIGURE:
                raise WireError(f"{name} is {norm:.3g}, needed at most {_MOST_FIGURE:g}")
            continue
        if norm > most:
            raise WireError(
                f"{name} has norm {norm:.3g}, and this server takes at most {most:.3g} (max_norm, serve --max-norm)"
            )
