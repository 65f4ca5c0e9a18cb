"""Messages as bytes: safetensors for tensors and JSON for the rest. Nothing that could be code is ever read."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save, save_file

from turnout.core.checks import TurnoutError
from turnout.core.types import State
from turnout.deployment.wire.edge import BIG, WHOLE, Count, Digest, Malformed, Number, read, read_object

PROTOCOL = 2
"""The version of the protocol; a client and a server of different versions refuse each other."""

NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_TYPES = {name: dtype for dtype, name in NAMES.items()}


class WireError(TurnoutError, ValueError):
    """A message that is not what was asked for; it says why."""


_PIECE = 1 << 20  # numbers

LARGE = 16 << 20
"""Bytes from which on the file of a message is mapped into memory, one message at a time, in place of being read."""


class Spec(NamedTuple):
    """The type and the shape of one tensor of a message."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return math.prod(self.shape) * _TYPES[self.dtype].itemsize

    def zeros(self, num_rows: int) -> torch.Tensor:
        """Return zeros for so many messages ``[n, ...]``, which take no memory: all of them are one number."""
        return torch.zeros((), dtype=_TYPES[self.dtype]).expand(num_rows, *self.shape[1:])


Manifest = dict[str, Spec]
"""The tensors of a message by name, known before it arrives."""


def manifest(tensors: Mapping[str, torch.Tensor]) -> Manifest:
    """Describe the tensors of a message.

    >>> manifest({"delta": torch.zeros(1, 3)})
    {'delta': Spec(dtype='F32', shape=(1, 3))}
    """
    return {name: Spec(NAMES[tensor.dtype], tuple(tensor.shape)) for name, tensor in tensors.items()}


def size_limit(expected: Manifest) -> int:
    """Return the most bytes that a message with these tensors can have: their own, and a header for their names."""
    return sum(spec.nbytes for spec in expected.values()) + _header_limit(expected)


def _header_limit(expected: Manifest) -> int:
    """Return the most bytes that the header of a message with these tensors can have."""
    return 1024 + 256 * len(expected)


def encode(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Write named tensors as safetensors."""
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def encode_file(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write the bytes that `encode` returns into a file, from where the tensors are.

    Raises:
        OSError: where it cannot be written.
    """
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:  # what a full disk is called there
        raise OSError(str(error)) from error


def decode(body: bytes | Path, expected: Manifest) -> State:
    """Read named tensors, exactly those that are expected.

    Args:
        body: the message, or a file of it, which is mapped into memory: the tensors take none of their own.
        expected: the tensors.

    Raises:
        WireError: where the bytes are no safetensors, or hold other names, types or shapes.
    """
    head, size = body, None
    if isinstance(body, Path):
        with body.open("rb") as file:
            head, size = file.read(8 + _header_limit(expected)), body.stat().st_size
    assert isinstance(head, bytes)
    compare(read_manifest(head, _header_limit(expected), size), expected)
    try:
        return load_file(body) if isinstance(body, Path) else load(body)
    except (SafetensorError, ValueError, RuntimeError) as error:
        raise WireError(f"the body is no safetensors file: {error}") from None


def model_tensors(params: torch.Tensor, shared: State, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Return what is broadcast with a version, in the type that goes over the wire: the model, and what else all are told."""
    tensors = {"params": params} | {f"shared.{name}": value for name, value in shared.items()}
    return {name: value.to(dtype) for name, value in tensors.items()}


def split_model(tensors: State) -> tuple[torch.Tensor, State]:
    """Return the model and what else is broadcast, of what `model_tensors` made."""
    shared = {name.removeprefix("shared."): value for name, value in tensors.items() if name != "params"}
    return tensors["params"], shared


def digest(body: bytes) -> str:
    """Return the SHA-256 of some bytes in hexadecimal digits, by which models and reports are named."""
    return hashlib.sha256(body).hexdigest()


def repr_digest(digest: str) -> str:
    """Return the value of the header Repr-Digest for a SHA-256 in hexadecimal digits.

    >>> repr_digest("00" * 32)
    'sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:'
    """
    return f"sha-256=:{base64.b64encode(bytes.fromhex(digest)).decode()}:"


def read_manifest(body: bytes, longest: int = 1 << 20, size: int | None = None) -> Manifest:
    """Return the names, types and shapes that a message says it holds.

    Args:
        body: the message.
        longest: bytes that its header may have.
        size: bytes of the message, where `body` is its beginning.

    Raises:
        WireError: where it is no safetensors file.
    """
    length = int.from_bytes(body[:8], "little") if len(body) >= 8 else -1
    if not 0 <= length <= (len(body) if size is None else size) - 8:
        raise WireError("the body is no safetensors file: it is shorter than its header")
    if length > longest:
        raise WireError(f"the body's header has {length:,} bytes, needed at most {longest:,}")
    try:
        table = read_object(body[8 : 8 + length])
        table.pop("__metadata__", None)
        return {name: _spec(entry) for name, entry in table.items()}
    except (Malformed, KeyError, TypeError):
        raise WireError("the body is no safetensors file: its header cannot be read") from None


def _spec(entry: dict[str, Any]) -> Spec:
    """Read the type and shape of one tensor.

    Raises:
        KeyError: for an unknown type, or where one is missing.
        TypeError: for a shape that is none.
    """
    dtype, shape = entry["dtype"], tuple(entry["shape"])
    if not all(type(size) is int and size >= 0 for size in shape):
        raise TypeError
    _TYPES[dtype]
    return Spec(dtype, shape)


def compare(actual: Manifest, expected: Manifest) -> None:
    """Refuse other tensors than those that are expected.

    Raises:
        WireError: with what is missing, not asked for, or of another type or shape.
    """
    names = ", ".join(sorted(expected)) or "nothing"
    for name in expected.keys() | actual.keys():
        if name not in expected:
            raise WireError(f"nobody asked for {name[:80]!r}: needed {names}")
        if name not in actual:
            raise WireError(f"{name} is missing: needed {names}")
        if actual[name] != expected[name]:
            needed = expected[name]
            spec = actual[name]
            shown = f"{spec.dtype} {str(list(spec.shape))[:80]}"
            raise WireError(f"{name} is {shown}, needed {needed.dtype} {list(needed.shape)}")


Told = tuple[str, tuple[Count, ...], str]
"""A tensor as plain values: its type, its shape, and its bytes in hexadecimal digits."""


def _check_told(value: Told) -> Told:
    dtype, shape, text = value
    if dtype not in _TYPES or len(text) != 2 * Spec(dtype, shape).nbytes:
        raise ValueError("needed a type, a shape, and as many bytes in hexadecimal digits as that takes")
    return value


def _describe_fingerprint(schema: dict[str, Any]) -> None:
    """Add the field that a server sends beside those of a task, so that a client need not compute it."""
    schema["properties"]["fingerprint"] = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
    schema["required"] += ["told", "fingerprint"]


@dataclass(frozen=True)
class Assignment:
    """A task as a client receives it.

    Attributes:
        task: its number.
        version: the version of the model to train from.
        phase: what is asked for, as in `Task`.
        repeat: how often the client had been given this version before.
        model: the digest of the model.
        size: bytes of the model.
        heartbeat: seconds between two signs of life while it works.
        told: what this client alone is told, by name.
    """

    task: Count
    version: Annotated[int, Field(strict=True, ge=-1, le=BIG), WHOLE]
    phase: Annotated[str, Field(pattern="^[a-z_]{1,40}$")]
    repeat: Count
    model: Digest
    size: Count
    heartbeat: Annotated[Number, Field(gt=0, lt=1e9)]
    told: dict[str, Annotated[Told, AfterValidator(_check_told)]] = field(default_factory=dict)

    __pydantic_config__ = ConfigDict(json_schema_extra=_describe_fingerprint)

    def __post_init__(self) -> None:
        # Clients read a float, and 60 and 60.0 are different texts, of which `fingerprint` is made.
        object.__setattr__(self, "heartbeat", float(self.heartbeat))

    def json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    @property
    def fingerprint(self) -> str:
        """A digest that differs from that of another task with the same number, as a server restored from a copy may give."""
        return digest(json.dumps(self.json(), sort_keys=True).encode())[:32]

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> Assignment:
        """Read what `json` gave.

        Raises:
            WireError: where something is missing, or is not what it has to be.
        """
        try:
            return read(_ASSIGNMENT.validate_python, table)
        except Malformed as error:
            raise WireError(f"the server's answer is no task: {error}") from None

    def tensors(self) -> State:
        """Return what this client alone is told, each with a leading axis of 1."""
        return {name: _tensor(*value)[None] for name, value in self.told.items()}


_ASSIGNMENT = TypeAdapter(Assignment)


def seconds(value: Any, most: float) -> float:
    """Return a time to wait as the server says it, no longer than this.

    Raises:
        WireError: where it is no number of seconds.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < math.inf:
        raise WireError(f"the server's answer has {str(value)[:80]!r} where a number of seconds belongs")
    return float(min(value, most))


def is_finite(value: torch.Tensor) -> bool:
    """Return whether there is neither NaN nor infinity; a sum says so in one pass, unless it overflows itself."""
    return math.isfinite(value.sum().item()) or bool(torch.isfinite(value).all())


def length(value: torch.Tensor) -> float:
    """Return the Euclidean length of a tensor: a piece at a time, because torch makes a float64 copy of what it is given."""
    pieces = value.reshape(-1).split(_PIECE)
    return math.hypot(*(torch.linalg.vector_norm(piece, dtype=torch.float64).item() for piece in pieces))


def told(state: State, row: int) -> dict[str, Told]:
    """Return one row of ``[B, ...]`` tensors as plain values, to the last bit."""
    rows = {name: value[row].cpu().contiguous() for name, value in state.items()}
    return {
        n: (NAMES[v.dtype], tuple(v.shape), v.reshape(-1).view(torch.uint8).numpy().tobytes().hex())
        for n, v in rows.items()
    }


def _tensor(dtype: str, shape: tuple[int, ...], text: str) -> torch.Tensor:
    """Read one tensor of what `told` gave."""
    try:
        buffer, kind = bytearray.fromhex(text), _TYPES[dtype]
        flat = torch.frombuffer(buffer, dtype=kind) if buffer else torch.empty(0, dtype=kind)
        return flat.reshape(tuple(shape)).clone()
    except (KeyError, ValueError, RuntimeError, TypeError) as error:
        raise WireError(f"the server's answer holds no tensor: {error}") from None
