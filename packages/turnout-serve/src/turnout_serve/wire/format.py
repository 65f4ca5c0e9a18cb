"""Encode named tensors as safetensors, and decode them. No format that could hold code is ever read."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save, save_file

from turnout.core.checks import TurnoutError
from turnout.core.types import State
from turnout_serve.wire.edge import Malformed, read_object

PROTOCOL = 2
"""Version of the protocol; a client and a server of different versions refuse each other."""

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
DTYPES = {name: dtype for dtype, name in NAMES.items()}


class WireError(TurnoutError, ValueError):
    """A message that does not have the expected form; the text says why."""


_PIECE = 1 << 20  # numbers

LARGE = 16 << 20
"""Bytes from which on a message is a file that is mapped into memory, instead of being read."""


class Spec(NamedTuple):
    """The type and the shape of one tensor of a message."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    def zeros(self, num_rows: int) -> torch.Tensor:
        """Return zeros for so many messages, ``[n, ...]``, as an expanded view that takes no memory."""
        return torch.zeros((), dtype=DTYPES[self.dtype]).expand(num_rows, *self.shape[1:])


Manifest = dict[str, Spec]
"""Types and shapes of the tensors of a message, by name; known before it arrives."""


def manifest(tensors: Mapping[str, torch.Tensor]) -> Manifest:
    """Describe the tensors of a message.

    >>> manifest({"delta": torch.zeros(1, 3)})
    {'delta': Spec(dtype='F32', shape=(1, 3))}
    """
    return {name: Spec(NAMES[tensor.dtype], tuple(tensor.shape)) for name, tensor in tensors.items()}


def plain(expected: Manifest) -> dict[str, list[Any]]:
    """Return the type and the shape of each tensor as plain values."""
    return {name: [spec.dtype, list(spec.shape)] for name, spec in expected.items()}


def size_limit(expected: Manifest) -> int:
    """Return the maximum size of a message with these tensors and a header."""
    return sum(spec.nbytes for spec in expected.values()) + _header_limit(expected)


def _header_limit(expected: Manifest) -> int:
    """Return the maximum size of the header of a message with these tensors."""
    return 1024 + 256 * len(expected)


def encode(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Encode named tensors as safetensors."""
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def encode_file(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Encode named tensors into a file, without a copy of all bytes in memory.

    Raises:
        OSError: if it cannot be written.
    """
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:  # what a full disk is called there
        raise OSError(str(error)) from error


def decode(body: bytes | Path, expected: Manifest) -> State:
    """Decode named tensors, and check that they are exactly those that are expected.

    Args:
        body: the message, or its file, which is mapped into memory.
        expected: the tensors.

    Raises:
        WireError: if the bytes are no safetensors, or hold other names, types or shapes.
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
    """Return the tensors of a version that all clients download: the model, and shared vectors, in one type."""
    tensors = {"params": params} | {f"shared.{name}": value for name, value in shared.items()}
    return {name: value.to(dtype) for name, value in tensors.items()}


def split_model(tensors: State) -> tuple[torch.Tensor, State]:
    """Split what `model_tensors` returned into the model and the shared vectors."""
    shared = {name.removeprefix("shared."): value for name, value in tensors.items() if name != "params"}
    return tensors["params"], shared


def digest(body: bytes) -> str:
    """Return the SHA-256 of bytes in hexadecimal digits, which names models and reports."""
    return hashlib.sha256(body).hexdigest()


def repr_digest(digest: str) -> str:
    """Return the value of the header Repr-Digest for a SHA-256 in hexadecimal digits.

    >>> repr_digest("00" * 32)
    'sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:'
    """
    return f"sha-256=:{base64.b64encode(bytes.fromhex(digest)).decode()}:"


def read_manifest(body: bytes, longest: int = 1 << 20, size: int | None = None) -> Manifest:
    """Read the names, types and shapes in the header of a message.

    Args:
        body: the message.
        longest: maximum bytes of the header.
        size: bytes of the message, where `body` is its beginning.

    Raises:
        WireError: if it is no safetensors file.
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
        KeyError: if a type is unknown, or if one is missing.
        TypeError: if it is not a shape.
    """
    dtype, shape = entry["dtype"], tuple(entry["shape"])
    if not all(type(size) is int and size >= 0 for size in shape):
        raise TypeError
    DTYPES[dtype]
    return Spec(dtype, shape)


def compare(actual: Manifest, expected: Manifest) -> None:
    """Check that tensors are exactly those that are expected.

    Raises:
        WireError: if not, with what is missing, not asked for, or of another type or shape.
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


def is_finite(value: torch.Tensor) -> bool:
    """Return whether a tensor holds neither NaN nor infinity."""
    # The sum is finite in nearly all cases, and takes one pass without a mask; only a sum that overflows needs the second.
    return math.isfinite(value.sum().item()) or bool(torch.isfinite(value).all())


def length(value: torch.Tensor) -> float:
    """Return the Euclidean norm of a tensor in float64."""
    # In pieces, because torch would copy the whole tensor to float64.
    pieces = value.reshape(-1).split(_PIECE)
    return math.hypot(*(torch.linalg.vector_norm(piece, dtype=torch.float64).item() for piece in pieces))
