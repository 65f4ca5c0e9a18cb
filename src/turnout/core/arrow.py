"""Read the decompressed size of Arrow messages, which Arrow decompresses without any limit.

Messages and the footer of a file are FlatBuffers, of which Arrow for Python shows only a part. Arrow has verified them
before, so that no offset leads out of its buffer.
"""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

_HEADER, _DATA = 2, 1  # Message.header, DictionaryBatch.data
_BUFFERS, _COMPRESSION = 2, 3  # RecordBatch.buffers, RecordBatch.compression
_BLOCKS = (2, 3)  # Footer.dictionaries, Footer.recordBatches
_END = 10  # bytes behind the footer: its length, and "ARROW1"


class _Table:
    """A table of a FlatBuffer.

    Args:
        buffer: the FlatBuffer.
        position: position of the table; None is the root table.
    """

    def __init__(self, buffer: bytes, position: int | None = None) -> None:
        self._buffer = buffer
        self._position = self._at("<I", 0) if position is None else position
        self._fields = self._position - self._at("<i", self._position)

    def table(self, number: int) -> _Table | None:
        """Return the table that a field refers to; None for a field that is not set."""
        position = self._target(number)
        return None if position is None else _Table(self._buffer, position)

    def structs(self, number: int, form: str) -> list[tuple[Any, ...]]:
        """Return the structs of a vector; none for a field that is not set."""
        if (position := self._target(number)) is None:
            return []
        size, length = struct.calcsize(form), self._at("<I", position)
        content = self._buffer[position + 4 : position + 4 + size * length]
        return list(struct.iter_unpack(form, content))

    def _target(self, number: int) -> int | None:
        """Return the position that a field refers to; None for a field that is not set."""
        entry = 4 + 2 * number
        if entry >= self._at("<H", self._fields) or not (offset := self._at("<H", self._fields + entry)):
            return None
        return self._position + offset + self._at("<I", self._position + offset)

    def _at(self, form: str, position: int) -> int:
        return struct.unpack_from(form, self._buffer, position)[0]


def decompressed_bytes(message: pa.Message) -> int | None:
    """Return the number of bytes to which the buffers of a message decompress; None if they are not compressed."""
    batch = _Table(message.metadata.to_pybytes()).table(_HEADER)
    if batch is not None and message.type == "dictionary":
        batch = batch.table(_DATA)
    if batch is None or message.type not in ("record batch", "dictionary") or batch.table(_COMPRESSION) is None:
        return None
    total = 0
    for start, length in batch.structs(_BUFFERS, "<qq"):
        # A compressed buffer begins with its length before compression; -1 says that it is stored as it was.
        size = int.from_bytes(message.body[start : start + 8].to_pybytes(), "little", signed=True) if length >= 8 else 0
        total += max(size, length)
    return total


def decompressed_bytes_of_file(source: pa.NativeFile) -> int:
    """Return the number of bytes to which the compressed messages of an Arrow file decompress.

    Args:
        source: the file, which Arrow must have opened, and thereby checked, before.
    """
    source.seek(source.size() - _END)
    length = int.from_bytes(source.read(4), "little")
    source.seek(source.size() - _END - length)
    footer, total = _Table(source.read(length)), 0
    for number in _BLOCKS:
        for start, _, _ in footer.structs(number, "<qi4xq"):
            source.seek(start)
            total += decompressed_bytes(pa.ipc.read_message(source)) or 0
    return total
