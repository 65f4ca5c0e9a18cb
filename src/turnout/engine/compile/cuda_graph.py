"""Record the operations of a trace as a CUDA graph, and replay it on the memory of the recording."""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from turnout.engine.compile.compare import alike
from turnout.engine.compile.recording import Record, Recording, num_bytes
from turnout.engine.compile.room import Reservation, Room, room_of

LOG = logging.getLogger(__name__)

_LARGE = 1 << 20  # bytes; larger arguments that stay the same tensor are not copied
_WARM_UP = 3  # calls before a recording, in which libraries choose kernels and reserve memory
_TRIALS = 2  # replays whose results are compared with those of the operations
_MOST_RECORDINGS = 3  # recordings of one function, if arguments that are read in place are replaced


class Graphed:
    """A function of tensors that is recorded in its second call, compared, and then replayed.

    An argument of more than a megabyte that is the same tensor as in the previous call, such as the data, is read
    without a copy; if it is replaced, a new recording is made. All other arguments are copied. The first replays are
    compared with the function. A function is called directly if it cannot be recorded, if its replay differs, or while
    there is no room for its copies; the log gives the reason.

    Args:
        function: function of tensors that returns tensors, with the same operations in every call.
        changes: indices of the arguments that it changes in place.
        record: function that makes a recording.
        room: limit on the memory of all recordings; None is that of the device of the first argument.
        unit: what is handed to the GPU one at a time without a recording, for the log.

    Attributes:
        refused: the reason why it is not replayed; None if it may be.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        changes: tuple[int, ...],
        record: Record | None = None,
        room: Room | None = None,
        unit: str = "operation",
    ) -> None:
        self._function, self._changes, self._record, self._room = function, changes, record or on_gpu, room
        self._unit = unit
        self._before: list[weakref.ref[torch.Tensor]] | None = None
        self._recording: Recording | None = None
        self._reserved: Reservation | None = None
        self._trials = self._recordings = 0
        self._waits = False
        self.refused: str | None = None

    def __call__(self, *arguments: torch.Tensor) -> Any:
        """Return the function's value."""
        self._prepare([], list(arguments))  # copies all arguments, because the next call may have other tensors
        return self._once(*arguments)

    def repeat(self, fixed: list[torch.Tensor], columns: list[torch.Tensor]) -> None:
        """Call ``function(*fixed, *(rows[i] for rows in columns))`` for every i, for its changes in place."""
        self._prepare(fixed, [rows[0] for rows in columns])
        for i in range(len(columns[0])):
            if self._recording is not None and self.is_trusted:
                self._recording.repeat(fixed, [rows[i:] for rows in columns])
                return
            self._once(*fixed, *(rows[i] for rows in columns))

    @property
    def is_trusted(self) -> bool:
        """True if there is a recording that gave the same numbers as the function in all comparisons."""
        return self._recording is not None and self._trials == _TRIALS

    def replay(self, fixed: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
        """Call ``function(*fixed, *others)`` for its changes in place if it is recorded, and return whether it is.

        Large tensors in `fixed` that stay the same are read without a copy.
        """
        self._prepare(fixed, others)
        if self._recording is None:
            return False
        self._once(*fixed, *others)
        return True

    def _prepare(self, fixed: list[torch.Tensor], others: list[torch.Tensor]) -> None:
        """Make a recording in the second call, and if an argument that is read without a copy was replaced."""
        if self.refused is not None:
            return
        if self._recording is not None and self._recording.fits(fixed):
            assert self._reserved is not None
            self._room_of([*fixed, *others]).use(self._reserved)
            return
        before = self._before if self._recording is None else None
        self._recording, self._before = None, [weakref.ref(argument) for argument in fixed]
        if before is None:
            return
        never_moves = (
            i
            for i, (argument, last) in enumerate(zip(fixed, before, strict=False))
            if last() is argument and i not in self._changes and num_bytes(argument) >= _LARGE
        )
        self._make([*fixed, *others], frozenset(never_moves))

    def _make(self, arguments: list[torch.Tensor], still: frozenset[int]) -> None:
        """Make a recording, or store the reason why that is impossible."""
        self._recordings, self._trials = self._recordings + 1, 0
        needed = sum(num_bytes(a) for i, a in enumerate(arguments) if i not in still)
        if self._recordings > _MOST_RECORDINGS:
            self._refuse("its data are replaced again and again")
        elif not (room := self._room_of(arguments)).has(needed):
            self._recordings -= 1
            self._wait(f"copies of its arguments take {needed:,} bytes, and recordings have {room.left:,} left")
        else:
            try:
                self._recording = Recording(self._function, arguments, self._changes, still, self._record)
            except RuntimeError as error:
                self._refuse(f"recording failed: {error.__context__ or error}")
            else:
                # By a weak reference, because the room of a device outlives all functions.
                delete = weakref.WeakMethod(self._delete)
                self._reserved = room.take(needed, self._recording, lambda: (method := delete()) and method())

    def _once(self, *arguments: torch.Tensor) -> Any:
        """Return the value of one call.

        The first replays are only compared with the function, whose value is returned.
        """
        recording = self._recording
        if recording is None or not recording.fits(list(arguments)):
            return self._function(*arguments)
        if self._trials == _TRIALS:
            return recording(*arguments)
        copies = [a.clone() if i in self._changes else a for i, a in enumerate(arguments)]
        value, replayed = self._function(*arguments), recording(*copies)
        self._trials += 1
        expected, actual = (
            [*tree_leaves(values), *(changed[i] for i in self._changes)]
            for values, changed in ((value, arguments), (replayed, copies))
        )
        if not all(alike(one, other) for one, other in zip(expected, actual, strict=True)):
            self._refuse("a replay gave other numbers than the operations themselves")
        return value

    def _room_of(self, arguments: list[torch.Tensor]) -> Room:
        """Return the limit on the memory of recordings."""
        return self._room or room_of(arguments[0].device)

    def _delete(self) -> None:
        """Delete the recording, because others need its memory; another one may be made later."""
        self._recording, self._reserved, self._before = None, None, None
        self._recordings -= 1

    def _wait(self, reason: str) -> None:
        """Call the function directly until there is room, and log the reason once."""
        if not self._waits:
            LOG.info("local steps are handed to the GPU one %s at a time, for now: %s", self._unit, reason)
        self._waits = True

    def _refuse(self, reason: str) -> None:
        """Call the function directly from now on."""
        self.refused, self._recording = reason, None
        LOG.info("local steps are handed to the GPU one %s at a time: %s", self._unit, reason)


def on_gpu(run: Callable[[], Any], device: torch.device) -> tuple[Callable[[], object], Any]:
    """Record a CUDA graph.

    Args:
        run: function that starts operations on the current stream of the device, without synchronizing.
        device: the GPU.

    Returns:
        A function that replays the operations, and their value: memory that every replay overwrites, also that of
            another recording.

    Raises:
        RuntimeError: if an operation cannot be recorded.
    """
    if device.type != "cuda":  # versions of PyTorch raise different errors
        raise RuntimeError(f"a CUDA graph records what runs on a GPU, and this runs on {device}")
    stream, pool = _side(device)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.device(device):
            stream.wait_stream(torch.cuda.current_stream())
            # Entered here as well, because a recording that fails does not leave the stream.
            try:
                with torch.cuda.stream(stream):
                    for _ in range(_WARM_UP):
                        run()
                    with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                        value = run()
            finally:  # its memory may be reused as soon as the stream is done
                torch.cuda.current_stream().wait_stream(stream)
    except RuntimeError:
        _side.cache_clear()  # the memory pool of a failed recording cannot be used again
        raise
    return graph.replay, value


@functools.cache
def _side(device: torch.device) -> tuple[torch.cuda.Stream, Any]:
    """Return the stream on which a device's recordings are made, and their common memory pool.

    They can share the pool because they are replayed one after the other, and the value of a replay is copied at once.
    """
    return torch.cuda.Stream(device), torch.cuda.graph_pool_handle()
