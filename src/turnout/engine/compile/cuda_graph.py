"""Record the operations of a trace as a CUDA graph, and replay it on the memory of the recording."""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from turnout.engine.compile import plain
from turnout.engine.compile.room import Room, room_of
from turnout.engine.compile.tracer import Operations

LOG = logging.getLogger(__name__)

Record = Callable[[Callable[[], Any], torch.device], tuple[Callable[[], object], Any]]
"""Function that runs a given function at least once, and returns a function that repeats its operations, and the value.

The repetition uses the same memory.
"""

_LARGE = 1 << 20  # bytes; larger arguments that stay the same tensor are not copied
_WARM_UP = 3  # calls before a recording, in which libraries choose kernels and reserve memory
_TRIALS = 2  # replays whose results are compared with those of the operations
_MOST_RECORDINGS = 3  # recordings of one function, if arguments that are read in place are replaced


class Recording:
    """A recorded function of tensors, with buffers that arguments are copied into and changes are copied out of.

    Args:
        function: function of tensors that returns tensors.
        arguments: tensors to record it with; they are not changed.
        changes: indices of the arguments that it changes in place.
        still: indices of the arguments that it reads without a copy; the recording keeps them alive.
        record: function that makes the recording.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: list[torch.Tensor],
        changes: tuple[int, ...],
        still: frozenset[int],
        record: Record,
    ) -> None:
        self._changes = changes
        self._still = {i: arguments[i] for i in still}
        self._buffers = [a if i in still else _empty_like(a) for i, a in enumerate(arguments)]
        self._copy_in(arguments)
        self._replay, self._value = record(lambda: function(*self._buffers), arguments[0].device)

    def fits(self, arguments: list[torch.Tensor]) -> bool:
        """Return whether arguments, the first ones of a call, include the tensors that are read without a copy."""
        return all(i >= len(arguments) or arguments[i] is argument for i, argument in self._still.items())

    def __call__(self, *arguments: torch.Tensor) -> Any:
        """Return the function's value: copies, or the arguments that it changed."""
        self._copy_in(list(arguments))
        self._replay()
        self._copy_out(list(arguments))
        changed = {self._buffers[i].data_ptr(): arguments[i] for i in self._changes}
        return tree_map(lambda value: _outside(value, changed), self._value)

    def repeat(self, fixed: list[torch.Tensor], columns: list[torch.Tensor]) -> None:
        """Repeat the function for its changes in `fixed`, once for every row of `columns`; only rows are copied."""
        self._copy_in(fixed)
        for i in range(len(columns[0])):
            self._copy_in([rows[i] for rows in columns], len(fixed))
            self._replay()
        self._copy_out(fixed)

    def _copy_in(self, arguments: list[torch.Tensor], first: int = 0) -> None:
        """Copy arguments into the buffers, starting at the buffer with index `first`."""
        for i, argument in enumerate(arguments, first):
            if i not in self._still:
                _stored(self._buffers[i]).copy_(_stored(argument))

    def _copy_out(self, arguments: list[torch.Tensor]) -> None:
        """Copy the changed buffers into their arguments."""
        for i in self._changes:
            arguments[i].copy_(self._buffers[i])


def build(
    traced: Operations, arguments: list[torch.Tensor], changes: tuple[int, ...], fixed: int | None
) -> Callable[..., Any]:
    """Return a function that records the operations in its second call, and replays them; see `Backend.build`."""
    graphed = Graphed(plain.build(traced, arguments, changes, None), changes)
    return graphed if fixed is None else graphed.repeat


class Graphed:
    """A function of tensors that is recorded in its second call, compared, and then replayed.

    An argument of more than a megabyte that is the same tensor as in the previous call, such as the data, is read
    without a copy; if it is replaced, a new recording is made. All other arguments are copied. The first replays are
    compared with the function. A function is called directly if it cannot be recorded, if its replay differs, or if
    there is no room for its copies; the log gives the reason.

    Args:
        function: function of tensors that returns tensors, with the same operations in every call.
        changes: indices of the arguments that it changes in place.
        record: function that makes a recording.
        room: limit on the memory of all recordings; None is that of the device of the first argument.

    Attributes:
        refused: the reason why it is not replayed; None if it may be.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        changes: tuple[int, ...],
        record: Record | None = None,
        room: Room | None = None,
    ) -> None:
        self._function, self._changes, self._record, self._room = function, changes, record or on_gpu, room
        self._before: list[weakref.ref[torch.Tensor]] | None = None
        self._recording: Recording | None = None
        self._trials = self._recordings = 0
        self.refused: str | None = None

    def __call__(self, *arguments: torch.Tensor) -> Any:
        """Return the function's value."""
        self._prepare([], list(arguments))  # copies all arguments, because the next call may have other tensors
        return self._once(*arguments)

    def repeat(self, fixed: list[torch.Tensor], columns: list[torch.Tensor]) -> None:
        """Call ``function(*fixed, *(rows[i] for rows in columns))`` for every i, for its changes in place."""
        self._prepare(fixed, [rows[0] for rows in columns])
        for i in range(len(columns[0])):
            if self._recording is not None and self._trials == _TRIALS:
                self._recording.repeat(fixed, [rows[i:] for rows in columns])
                return
            self._once(*fixed, *(rows[i] for rows in columns))

    def _prepare(self, fixed: list[torch.Tensor], others: list[torch.Tensor]) -> None:
        """Make a recording in the second call, and if an argument that is read without a copy was replaced."""
        if self.refused is not None or (self._recording is not None and self._recording.fits(fixed)):
            return
        before = self._before if self._recording is None else None
        self._recording, self._before = None, [weakref.ref(argument) for argument in fixed]
        if before is None:
            return
        never_moves = (
            i
            for i, (argument, last) in enumerate(zip(fixed, before, strict=False))
            if last() is argument and i not in self._changes and _bytes(argument) >= _LARGE
        )
        self._make([*fixed, *others], frozenset(never_moves))

    def _make(self, arguments: list[torch.Tensor], still: frozenset[int]) -> None:
        """Make a recording, or store the reason why that is impossible."""
        self._recordings, self._trials = self._recordings + 1, 0
        needed = sum(_bytes(a) for i, a in enumerate(arguments) if i not in still)
        if self._recordings > _MOST_RECORDINGS:
            self._refuse("its data are replaced again and again")
        elif needed > (room := self._room or room_of(arguments[0].device)).left:
            self._refuse(f"copies of its arguments take {needed:,} bytes, and recordings have {room.left:,} left")
        else:
            try:
                self._recording = Recording(self._function, arguments, self._changes, still, self._record)
            except RuntimeError as error:
                self._refuse(f"recording failed: {error.__context__ or error}")
            else:
                room.take(needed, self._recording)

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
        if not all(_alike(one, other) for one, other in zip(expected, actual, strict=True)):
            self._refuse("a replay gave other numbers than the operations themselves")
        return value

    def _refuse(self, reason: str) -> None:
        """Call the function directly from now on."""
        self.refused, self._recording = reason, None
        LOG.info("local steps are handed to the GPU one operation at a time: %s", reason)


def on_gpu(run: Callable[[], Any], device: torch.device) -> tuple[Callable[[], object], Any]:
    """Record a CUDA graph.

    Args:
        run: function that starts operations on the current stream of the device, without synchronising.
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


def _stored(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of an expanded tensor that is stored in memory."""
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor in memory."""
    return _stored(tensor).numel() * tensor.element_size()


def _empty_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return an uninitialised tensor of the same shape and strides."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def _outside(value: Any, changed: dict[int, torch.Tensor]) -> Any:
    """Return a value that no later replay overwrites: the argument whose buffer it is in, or a copy."""
    if not isinstance(value, torch.Tensor):
        return value
    argument = changed.get(value.data_ptr())
    return argument if argument is not None and argument.shape == value.shape else value.clone()


def _alike(one: Any, other: Any) -> bool:
    """Return whether two values agree up to rounding of sums in another order; NaN equals NaN."""
    if not isinstance(one, torch.Tensor) or not one.is_floating_point():
        return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
    near = torch.finfo(one.dtype).eps ** 0.5
    largest = one.nan_to_num(0.0, 0.0, 0.0).abs().max() if one.numel() else 0.0
    return torch.allclose(one, other, rtol=near, atol=float(near * largest), equal_nan=True)
