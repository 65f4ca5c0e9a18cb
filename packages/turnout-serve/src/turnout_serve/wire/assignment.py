"""A task as a client receives it, with the tensors that are meant for this client alone."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from string import hexdigits
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from turnout.core.types import State
from turnout.record.contents import Finite
from turnout_serve.wire.edge import BIG, WHOLE, Count, Digest, Malformed, read
from turnout_serve.wire.format import DTYPES, NAMES, Spec, WireError, digest

PlainTensor = tuple[str, tuple[Count, ...], str]
"""A tensor as plain values: its type, its shape, and its bytes in hexadecimal digits."""


def _check_tensor(value: PlainTensor) -> PlainTensor:
    dtype, shape, text = value
    if dtype not in DTYPES or len(text) != 2 * Spec(dtype, shape).nbytes or not set(text) <= set(hexdigits):
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
        task: number of the task.
        version: version of the model to train from.
        phase: see `Task`.
        repeat: number of earlier tasks of the client from this version.
        model: digest of the model.
        size: bytes of the model.
        heartbeat: seconds between two heartbeats while the client computes.
        told: inputs for this client alone, by name.
    """

    task: Count
    version: Annotated[int, Field(strict=True, ge=-1, le=BIG), WHOLE]
    phase: Annotated[str, Field(pattern="^[a-z_]{1,40}$")]
    repeat: Count
    model: Digest
    size: Count
    heartbeat: Annotated[Finite, Field(gt=0, lt=1e9)]
    told: dict[str, Annotated[PlainTensor, AfterValidator(_check_tensor)]] = field(default_factory=dict)

    __pydantic_config__ = ConfigDict(json_schema_extra=_describe_fingerprint)

    def __post_init__(self) -> None:
        # Clients read a float. 60 and 60.0 are different in JSON, which `fingerprint` is a digest of.
        object.__setattr__(self, "heartbeat", float(self.heartbeat))

    def json(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def fingerprint(self) -> str:
        """Digest that tells tasks with the same number apart, of which a server restored from a copy gives another one."""
        return digest(json.dumps(self.json(), sort_keys=True).encode())[:32]

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> Assignment:
        """Read what `json` returned.

        Raises:
            WireError: if a field is missing or has another type.
        """
        try:
            return read(_ASSIGNMENT.validate_python, table)
        except Malformed as error:
            raise WireError(f"the server's answer is no task: {error}") from None

    def tensors(self) -> State:
        """Return the inputs for this client alone, each with a leading axis of 1."""
        return {name: _tensor(*value)[None] for name, value in self.told.items()}


_ASSIGNMENT = TypeAdapter(Assignment)


def seconds(value: Any, most: float) -> float:
    """Read a number of seconds to wait, and bound it.

    Raises:
        WireError: if it is no number of seconds.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < math.inf:
        raise WireError(f"the server's answer has {str(value)[:80]!r} where a number of seconds belongs")
    return float(min(value, most))


def plain_row(state: State, row: int) -> dict[str, PlainTensor]:
    """Return one row of ``[B, ...]`` tensors as plain values, bit for bit."""
    rows = {name: value[row].cpu().contiguous() for name, value in state.items()}
    return {
        n: (NAMES[v.dtype], tuple(v.shape), v.reshape(-1).view(torch.uint8).numpy().tobytes().hex())
        for n, v in rows.items()
    }


def _tensor(dtype: str, shape: tuple[int, ...], text: str) -> torch.Tensor:
    """Read one tensor of what `plain_row` returned."""
    buffer, kind = bytearray.fromhex(text), DTYPES[dtype]
    flat = torch.frombuffer(buffer, dtype=kind) if buffer else torch.empty(0, dtype=kind)
    return flat.reshape(tuple(shape)).clone()
