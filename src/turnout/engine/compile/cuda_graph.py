"""Operations that are handed to a GPU once and replayed from then on, on the very memory they were recorded with."""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from turnout.engine.compile import plain
from turnout.engine.compile.tracer import Operations

LOG = logging.getLogger(__name__)

Record = Callable[[Callable[[], Any], torch.device], tuple[Callable[[], object], Any]]
"""Runs a function once or more, and gives what repeats its operations on the same memory, and its value there."""

_LARGE = 1 << 20  # bytes from which an argument that never moves is read where it is
_WARM_UP = 3  # calls before a recording, in which libraries choose their kernels and reserve their memory
_TRIALS = 2  # replays that are held against the operations themselves
_MOST_RECORDINGS = 3  # of one function, if what was read in place turns out to move


class Room:
    """Bytes that all recordings together may hold beside their arguments.

    Args:
        size: how many.
    """

    def __init__(self, size: int) -> None:
        self.left = size

    def take(self, size: int, holder: object) -> None:
        """Take so many, until the holder is gone."""
        self.left -= size
        weakref.finalize(holder, self._give, size)

    def _give(self, size: int) -> None:
        self.left += size


ROOM = Room(1 << 30)


class Recording:
    """A function of tensors that was recorded on memory of its own: arguments are copied into it, and what changes out of it.

    Args:
        function: takes tensors and returns tensors.
        arguments: what it is recorded with; stays as it is.
        changes: numbers of the arguments that it changes in place.
        still: numbers of the arguments that it reads where they are, and that are kept for it.
        record: how to record.
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
        self._places = [a if i in still else _place(a) for i, a in enumerate(arguments)]
        self._take(arguments)
        self._replay, self._value = record(lambda: function(*self._places), arguments[0].device)

    def fits(self, arguments: list[torch.Tensor]) -> bool:
        """Whether what it reads in place is still what these arguments are; the first of them suffice."""
        return all(i >= len(arguments) or arguments[i] is kept for i, kept in self._still.items())

    def __call__(self, *arguments: torch.Tensor) -> Any:
        """Return the function's value, in memory of its own or, where it is an argument that changed, in that."""
        self._take(list(arguments))
        self._replay()
        self._give_back(list(arguments))
        changed = {self._places[i].data_ptr(): arguments[i] for i in self._changes}
        return tree_map(lambda value: _own(value, changed), self._value)

    def repeat(self, fixed: list[torch.Tensor], each: list[torch.Tensor]) -> None:
        """Call it for what it changes in `fixed`, once for every row of `each`: only rows move in between."""
        self._take(fixed)
        for i in range(len(each[0])):
            self._take([rows[i] for rows in each], len(fixed))
            self._replay()
        self._give_back(fixed)

    def _take(self, arguments: list[torch.Tensor], first: int = 0) -> None:
        """Copy arguments, of which this is the number of the first, to where they are read."""
        for i, argument in enumerate(arguments, first):
            if i not in self._still:
                _whole(self._places[i]).copy_(_whole(argument))

    def _give_back(self, arguments: list[torch.Tensor]) -> None:
        """Copy what has changed to where it came from."""
        for i in self._changes:
            arguments[i].copy_(self._places[i])


def build(
    traced: Operations, arguments: list[torch.Tensor], changes: tuple[int, ...], fixed: int | None
) -> Callable[..., Any]:
    """Return what records the operations when it is called again, and replays them; see `Backend.build`."""
    of = Graphed(plain.build(traced, arguments, changes, None), changes)
    return of if fixed is None else of.repeat


class Graphed:
    """A function of tensors that is recorded when it is asked for a second time, tried, and replayed from then on.

    What is repeated with an argument of more than a megabyte that was the same tensor the time before, such as the data,
    reads it where it is; should another come in its place, there is a new recording. All other arguments are copied. The
    first replays are compared with the function itself. A function that cannot be recorded, or whose replay differs, is
    called as it is from then on, and the log says why; so is one for which there is no room.

    Args:
        function: takes tensors and returns tensors; the same operations at every call.
        changes: numbers of the arguments that it changes in place.
        record: how to record.
        room: where memory comes from.

    Attributes:
        refused: why it is not replayed; None as long as nothing speaks against it.
    """

    def __init__(
        self, function: Callable[..., Any], changes: tuple[int, ...], record: Record | None = None, room: Room = ROOM
    ) -> None:
        self._function, self._changes, self._record, self._room = function, changes, record or on_gpu, room
        self._before: list[weakref.ref[torch.Tensor]] | None = None
        self._recording: Recording | None = None
        self._trials = self._recordings = 0
        self.refused: str | None = None

    def __call__(self, *arguments: torch.Tensor) -> Any:
        """Return the function's value."""
        self._meet([], list(arguments))  # of single calls, the next may come with other tensors in any case
        return self._once(*arguments)

    def repeat(self, fixed: list[torch.Tensor], each: list[torch.Tensor]) -> None:
        """Call the function for what it changes: ``function(*fixed, *(rows[i] for rows in each))`` for every i."""
        self._meet(fixed, [rows[0] for rows in each])
        for i in range(len(each[0])):
            if self._recording is not None and self._trials == _TRIALS:
                self._recording.repeat(fixed, [rows[i:] for rows in each])
                return
            self._once(*fixed, *(rows[i] for rows in each))

    def _meet(self, fixed: list[torch.Tensor], others: list[torch.Tensor]) -> None:
        """Make a recording if it is time to, for arguments some of which may stay what and where they are."""
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
        """Record, if nothing speaks against it."""
        self._recordings, self._trials = self._recordings + 1, 0
        needed = sum(_bytes(a) for i, a in enumerate(arguments) if i not in still)
        if self._recordings > _MOST_RECORDINGS:
            self._refuse("its data are elsewhere again and again")
        elif needed > self._room.left:
            self._refuse(f"copies of its arguments take {needed:,} bytes, and recordings have {self._room.left:,} left")
        else:
            try:
                self._recording = Recording(self._function, arguments, self._changes, still, self._record)
            except RuntimeError as error:
                self._refuse(f"recording failed: {error.__context__ or error}")
            else:
                self._room.take(needed, self._recording)

    def _once(self, *arguments: torch.Tensor) -> Any:
        """One call. The first replays are for comparison alone: what counts is then the function itself."""
        recording = self._recording
        if recording is None or not recording.fits(list(arguments)):
            return self._function(*arguments)
        if self._trials == _TRIALS:
            return recording(*arguments)
        copies = [a.clone() if i in self._changes else a for i, a in enumerate(arguments)]
        value, found = self._function(*arguments), recording(*copies)
        self._trials += 1
        there, here = (
            [*tree_leaves(of), *(c[i] for i in self._changes)] for of, c in ((value, arguments), (found, copies))
        )
        if not all(_alike(one, other) for one, other in zip(there, here, strict=True)):
            self._refuse("a replay gave other numbers than the operations themselves")
        return value

    def _refuse(self, reason: str) -> None:
        """Call the function as it is from now on."""
        self.refused, self._recording = reason, None
        LOG.info("local steps are handed to the GPU one operation at a time: %s", reason)


def on_gpu(run: Callable[[], Any], device: torch.device) -> tuple[Callable[[], object], Any]:
    """Record a CUDA graph.

    Args:
        run: hands operations to the device, all on the present stream, and waits for none of them.
        device: which.

    Returns:
        What replays them, and their value: memory that every replay writes anew, and replays of other recordings, too.

    Raises:
        RuntimeError: where something cannot be recorded.
    """
    if device.type != "cuda":  # versions of PyTorch differ in what they raise
        raise RuntimeError(f"a CUDA graph records what runs on a GPU, and this runs on {device}")
    stream, pool = _side(device)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.device(device):
            stream.wait_stream(torch.cuda.current_stream())
            # Around `graph` as well, which does not leave the stream by itself if a recording fails.
            try:
                with torch.cuda.stream(stream):
                    for _ in range(_WARM_UP):
                        run()
                    with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                        value = run()
            finally:  # what it worked on may be given away as soon as this stream is done
                torch.cuda.current_stream().wait_stream(stream)
    except RuntimeError:
        _side.cache_clear()  # memory of a recording that failed takes no other
        raise
    return graph.replay, value


@functools.cache
def _side(device: torch.device) -> tuple[torch.cuda.Stream, Any]:
    """Return the stream on which a device's recordings are made, and the memory that they share.

    They may share it because they are replayed one after the other, and what a replay leaves there is copied at once.
    """
    return torch.cuda.Stream(device), torch.cuda.graph_pool_handle()


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of an expanded tensor that is in memory."""
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _bytes(tensor: torch.Tensor) -> int:
    """Return what a tensor takes in memory."""
    return _whole(tensor).numel() * tensor.element_size()


def _place(tensor: torch.Tensor) -> torch.Tensor:
    """Memory for a tensor of this shape and order."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def _own(value: Any, changed: dict[int, torch.Tensor]) -> Any:
    """Return a value that no later replay writes to: the argument that it is, or a copy."""
    if not isinstance(value, torch.Tensor):
        return value
    argument = changed.get(value.data_ptr())
    return argument if argument is not None and argument.shape == value.shape else value.clone()


def _alike(one: Any, other: Any) -> bool:
    """Whether two values agree as far as sums in another order do; wherever one is NaN, both are."""
    if not isinstance(one, torch.Tensor) or not one.is_floating_point():
        return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
    near = torch.finfo(one.dtype).eps ** 0.5
    largest = one.nan_to_num(0.0, 0.0, 0.0).abs().max() if one.numel() else 0.0
    return torch.allclose(one, other, rtol=near, atol=float(near * largest), equal_nan=True)
