"""Replay functions of tensors: trace their operations once for each shape, then run these without Python and autograd."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from turnout.engine.compile.backends import usable
from turnout.engine.compile.passes import trace
from turnout.engine.threads import ClientThreads

LOG = logging.getLogger(__name__)

_CALLS = 64  # calls with a shape before it is traced; with a small model, they take about as long as tracing
_CALLS_ON_GPU = 8  # the same on a GPU, where a call takes longer because the host starts each of its operations
_MOST = 64  # traced shapes of a function
_MOST_SHARED = 16  # functions whose traces this process keeps for later runs


Traces = dict[Any, Callable[..., Any]]
"""Replacements of a function, by shape and by how it is called (see `_shape`)."""

_shared: dict[Hashable, Traces] = {}
_sharing = threading.Lock()


def shared(key: Hashable) -> Traces:
    """Return the traces that all runs of this process share under a key; least recently used keys are dropped."""
    with _sharing:
        _shared[key] = traces = _shared.pop(key, {})
        while len(_shared) > _MOST_SHARED:
            del _shared[next(iter(_shared))]
    return traces


class Compiled:
    """Trace a function of tensors for each shape with which it is called often, and then replay the trace.

    A trace has the operations of the function in their order, so results have the same bits and do not depend on when
    the trace takes over. Other side effects of the function happen only while it is traced. A function that cannot be
    traced is called directly.

    Args:
        function: function of tensors (or None) that returns tensors.
        changes: indices of the arguments that it changes in place.
        threads: threads that may call it; tracing waits for all of them, because it changes Python's warning filters.
        known: traces of other runs under the same key; one is used only after it has given the same bits as this
            function.

    Attributes:
        function: the function.
        backends: name of the trace's `Backend` by shape, or the reason why there is no trace.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        changes: tuple[int, ...] = (),
        threads: ClientThreads | None = None,
        known: Traces | None = None,
    ) -> None:
        self.function, self._changes, self._threads = function, changes, threads or ClientThreads(1)
        self._known = {} if known is None else known
        self._calls: dict[Any, float] = {}
        self._traced: Traces = {}
        self.backends: dict[Any, str] = {}

    def replay(
        self, fixed: tuple[torch.Tensor | None, ...], columns: tuple[torch.Tensor | None, ...]
    ) -> Iterator[tuple[torch.Tensor | None, ...]]:
        """Call ``function(*fixed, *(rows[i] for rows in columns))`` for every i, for its changes in place.

        Yields the arguments of the calls that go through Python; the caller passes them to `function`. Once there is a
        trace, the remaining calls are a single one, in which threads do not wait for each other's turn in Python.
        """
        tensors, tensor_columns = _tensors(fixed), _tensors(columns)
        first = (*fixed, *_row(columns, 0))
        key = _shape(first), len(tensors)
        for i in range(len(tensor_columns[0])):
            if (traced := self._trace_of(key, first)) is not None:
                traced(tensors, [rows[i:] for rows in tensor_columns])
                return
            arguments = (*fixed, *_row(columns, i))
            self._count_call(key, arguments)
            yield arguments

    def __call__(self, *arguments: torch.Tensor | None) -> Any:
        """Return the function's value."""
        key = _shape(arguments), None
        if (traced := self._trace_of(key, arguments)) is not None:
            return traced(*_tensors(arguments))
        self._count_call(key, arguments)
        return self.function(*arguments)

    def _trace_of(self, key: Any, arguments: tuple[torch.Tensor | None, ...]) -> Callable[..., Any] | None:
        """Return the trace for a shape, of this run or, from the second call on, of another; None without one."""
        if (traced := self._traced.get(key)) is not None or key not in self._calls:
            return traced
        known = self._known  # read once, because another thread may replace it
        if (traced := known.get(key)) is None or len(self._traced) >= _MOST:
            return None
        _, fixed = key
        # The same key suggests the same function, but code that was changed in a notebook also has the same key.
        calls = _single(traced, fixed), self._of_tensors(arguments)
        if not _same_bits(*(self._outcome(call, arguments, fixed) for call in calls)):
            self._known = {}
            return None
        self._traced[key], self.backends[key] = traced, "shared"
        return traced

    def _count_call(self, key: Any, arguments: tuple[torch.Tensor | None, ...]) -> None:
        """Count a call in Python; after enough of them, trace the function for the next call."""
        calls = self._calls.get(key, 0)
        enough = calls >= _CALLS or (calls >= _CALLS_ON_GPU and _on_gpu(arguments))
        if enough and len(self._traced) < _MOST:
            calls = -math.inf  # tracing is tried once
            self._threads.when_idle(lambda: self._try_to_trace(key, arguments))
        self._calls[key] = calls + 1

    def _try_to_trace(self, key: Any, arguments: tuple[torch.Tensor | None, ...]) -> None:
        """Trace the function, and record the reason if that fails."""
        try:
            self._traced[key] = self._trace(key, arguments)
        except Exception as error:
            self.backends[key] = (
                f"every step runs in Python, because it cannot be traced: {type(error).__name__}: {error}"
            )
            LOG.info(self.backends[key])

    def _trace(self, key: Any, arguments: tuple[torch.Tensor | None, ...]) -> Callable[..., Any]:
        """Return a function that runs the traced operations, on tensors, or on lists of them if it is repeated."""
        _, fixed = key
        call = self._of_tensors(arguments)
        # Call it before tracing, so that the trace contains no operations of a first call, such as making this thread's copy
        # of a module.
        expected = self._outcome(call, arguments, fixed)
        operations = trace(call, self._fresh(arguments))
        for backend in usable({a.device.type for a in arguments if a is not None}):
            traced = backend.build(operations, self._fresh(arguments), self._changed(arguments), fixed)
            if traced is None:
                continue
            self.backends[key] = backend.name
            if not backend.is_tried:
                return traced
            once = _single(traced, fixed)
            # Three times, because TorchScript optimises a function in its second call.
            if all(_same_bits(self._outcome(once, arguments, fixed), expected) for _ in range(3)):
                if len(self._known) < _MOST:
                    self._known[key] = traced
                return traced
        raise RuntimeError("no backend runs it")

    def _of_tensors(self, arguments: tuple[torch.Tensor | None, ...]) -> Callable[..., Any]:
        """Return the function of only those arguments that are tensors; the others stay None."""
        is_tensor = [a is not None for a in arguments]

        def call(*tensors: torch.Tensor) -> Any:
            rest = iter(tensors)
            return self.function(*(next(rest) if tensor else None for tensor in is_tensor))

        return call

    def _outcome(
        self, call: Callable[..., Any], arguments: tuple[torch.Tensor | None, ...], fixed: int | None
    ) -> list[torch.Tensor]:
        """Return the tensors that a call returns and those that it changes; only the latter if the call is repeated."""
        fresh = self._fresh(arguments)
        value = call(*fresh)
        changed = [fresh[i] for i in self._changed(arguments)]
        return changed if fixed is not None else [*tree_leaves(value), *changed]

    def _changed(self, arguments: tuple[torch.Tensor | None, ...]) -> tuple[int, ...]:
        """Return the indices of the arguments that are changed in place, among those that are tensors."""
        return tuple(sum(a is not None for a in arguments[:i]) for i in self._changes if arguments[i] is not None)

    def _fresh(self, arguments: tuple[torch.Tensor | None, ...]) -> list[torch.Tensor]:
        """Return the arguments that are tensors, with copies of those that the function changes."""
        copies = [a.clone() if a is not None and i in self._changes else a for i, a in enumerate(arguments)]
        return _tensors(copies)


def _on_gpu(arguments: Iterable[torch.Tensor | None]) -> bool:
    """Return whether an argument is on a GPU."""
    return any(a is not None and a.device.type == "cuda" for a in arguments)


def _tensors(arguments: Iterable[torch.Tensor | None]) -> list[torch.Tensor]:
    """Return the arguments that are tensors."""
    return [a for a in arguments if a is not None]


def _row(columns: Iterable[torch.Tensor | None], i: int) -> tuple[torch.Tensor | None, ...]:
    """Return row i of each argument."""
    return tuple(None if rows is None else rows[i] for rows in columns)


def _single(traced: Callable[..., Any], fixed: int | None) -> Callable[..., Any]:
    """Return a trace as a function of the tensors of one call, even if it takes lists: `fixed` tensors, and rows."""
    if fixed is None:
        return traced
    return lambda *tensors: traced(list(tensors[:fixed]), [tensor[None] for tensor in tensors[fixed:]])


def _same_bits(values: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    """Return whether tensors have the same bits. -0.0 differs from 0.0; all NaNs are equal."""

    def same(a: torch.Tensor, b: torch.Tensor) -> bool:
        equal = (a == b) & (a.signbit() == b.signbit())
        return bool((equal | (a.isnan() & b.isnan())).all())

    return all(a.shape == b.shape and same(a, b) for a, b in zip(values, others, strict=True))


def _shape(arguments: tuple[torch.Tensor | None, ...]) -> Any:
    """Return the key of a trace: shapes, types, and the strides of tensors that are not contiguous."""
    return tuple(None if a is None else (a.shape, a.dtype, a.is_contiguous() or a.stride()) for a in arguments)
