"""Call a tensor function without the Python that made it: trace its operations once for each shape, then replay them."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from turnout.engine.compile.backends import usable
from turnout.engine.compile.passes import trace
from turnout.engine.threads import ClientThreads

LOG = logging.getLogger(__name__)

_CALLS = 64  # of a shape, before it is traced: of a small model these take about as long as tracing
_MOST = 64  # shapes that are kept
_MOST_SHARED = 16  # functions of which this process keeps traces for runs to come


Traces = dict[Any, Callable[..., Any]]
"""What takes a function's place, by shape and by how it is called."""

_shared: dict[Hashable, Traces] = {}
_sharing = threading.Lock()


def shared(key: Hashable) -> Traces:
    """Traces on CPUs of functions with this key in common, of all runs of this process; those last asked for are kept."""
    with _sharing:
        _shared[key] = traces = _shared.pop(key, {})
        while len(_shared) > _MOST_SHARED:
            del _shared[next(iter(_shared))]
    return traces


class Compiled:
    """A function of tensors that is traced for a shape once it was called so many times with that shape.

    The trace holds the very operations that the function runs, so results are the same bits with and without it, and
    the moment at which it takes over changes nothing. What the function does beside tensor operations happens at the
    time of tracing only. What cannot be traced goes on being called.

    Args:
        function: takes tensors (or None) and returns tensors.
        changes: numbers of the arguments that it changes in place.
        threads: those that may call it; tracing, which changes for a moment what Python warns of, waits for all of them.
        known: what others have traced of what should be the same function. A trace of theirs is used where it gives the
            function's very bits.

    Attributes:
        function: as given.
        backends: what runs each trace, by shape: the name of a `Backend`, or why there is no trace.
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
        self, fixed: tuple[torch.Tensor | None, ...], each: tuple[torch.Tensor | None, ...]
    ) -> Iterator[tuple[torch.Tensor | None, ...]]:
        """Call the function for what it changes: ``function(*fixed, *(rows[i] for rows in each))`` for every i.

        Yields the arguments of calls that go through Python; the caller passes them to `function`. Once that is traced, the
        calls that are left are a single one: threads that repeat something small do not wait for each other's Python.
        """
        stays, moves = [a for a in fixed if a is not None], [rows for rows in each if rows is not None]
        first = (*fixed, *(None if rows is None else rows[0] for rows in each))
        key = _shape(first), len(stays)
        for i in range(len(moves[0])):
            if (traced := self._trace_of(key, first)) is not None:
                traced(stays, [rows[i:] for rows in moves])
                return
            arguments = (*fixed, *(None if rows is None else rows[i] for rows in each))
            self._count_call(key, arguments)
            yield arguments

    def __call__(self, *arguments: torch.Tensor | None) -> Any:
        """Return the function's value."""
        key = _shape(arguments), None
        if (traced := self._trace_of(key, arguments)) is not None:
            return traced(*(a for a in arguments if a is not None))
        self._count_call(key, arguments)
        return self.function(*arguments)

    def _trace_of(self, key: Any, arguments: tuple[torch.Tensor | None, ...]) -> Callable[..., Any] | None:
        """Return the trace to use: this run's, or from the second call on a known one that gives the function's very bits."""
        if (traced := self._traced.get(key)) is not None or key not in self._calls:
            return traced
        known = self._known  # another thread may have found out just now that it is of another function
        if (found := known.get(key)) is None or len(self._traced) >= _MOST:
            return None
        _, fixed = key
        calls = _single(found, fixed), self._of_tensors(arguments)
        if not _same_bits(*(self._outcome(call, arguments, fixed) for call in calls)):
            self._known = {}
            return None
        self._traced[key], self.backends[key] = found, "shared"
        return found

    def _count_call(self, key: Any, arguments: tuple[torch.Tensor | None, ...]) -> None:
        """Count a call that goes through Python, and trace the function for the next time, once there were enough."""
        calls = self._calls.get(key, 0)
        if calls >= _CALLS and len(self._traced) < _MOST:
            calls = -math.inf  # it is tried once
            self._threads.when_idle(lambda: self._try_to_trace(key, arguments))
        self._calls[key] = calls + 1

    def _try_to_trace(self, key: Any, arguments: tuple[torch.Tensor | None, ...]) -> None:
        """Trace; what cannot be traced goes on being called, for whatever reason that is."""
        try:
            self._traced[key] = self._trace(key, arguments)
        except Exception as error:
            self.backends[key] = (
                f"every step goes through Python, for it cannot be traced: {type(error).__name__}: {error}"
            )
            LOG.info(self.backends[key])

    def _trace(self, key: Any, arguments: tuple[torch.Tensor | None, ...]) -> Callable[..., Any]:
        """Return what does the operations of one call, for its tensors, or for lists of them where it is to be repeated."""
        _, fixed = key
        call = self._of_tensors(arguments)
        # Before it is traced, so that what is made at the first call in this thread is no part of the trace.
        expected = self._outcome(call, arguments, fixed)
        traced = trace(call, self._fresh(arguments))
        for backend in usable({a.device.type for a in arguments if a is not None}):
            found = backend.build(traced, self._fresh(arguments), self._changed(arguments), fixed)
            if found is None:
                continue
            self.backends[key] = backend.name
            if not backend.is_tried:
                return found
            once = _single(found, fixed)
            # More than once, because TorchScript rewrites what has been called before.
            if all(_same_bits(self._outcome(once, arguments, fixed), expected) for _ in range(3)):
                if len(self._known) < _MOST:
                    self._known[key] = found
                return found
        raise RuntimeError("no backend runs it")

    def _of_tensors(self, arguments: tuple[torch.Tensor | None, ...]) -> Callable[..., Any]:
        """Return the function, of those of its arguments that are there."""
        given = [a is not None for a in arguments]

        def call(*tensors: torch.Tensor) -> Any:
            rest = iter(tensors)
            return self.function(*(next(rest) if there else None for there in given))

        return call

    def _outcome(
        self, call: Callable[..., Any], arguments: tuple[torch.Tensor | None, ...], fixed: int | None
    ) -> list[torch.Tensor]:
        """Return a call's value, and what it makes of arguments that it changes; of one to be repeated, that alone counts."""
        fresh = self._fresh(arguments)
        value = call(*fresh)
        changed = [fresh[i] for i in self._changed(arguments)]
        return changed if fixed is not None else [*tree_leaves(value), *changed]

    def _changed(self, arguments: tuple[torch.Tensor | None, ...]) -> tuple[int, ...]:
        """Which are changed in place, of those that are there."""
        return tuple(sum(a is not None for a in arguments[:i]) for i in self._changes if arguments[i] is not None)

    def _fresh(self, arguments: tuple[torch.Tensor | None, ...]) -> list[torch.Tensor]:
        """Arguments to look at the function with: that runs it, and must change nothing."""
        whole = [a.clone() if a is not None and i in self._changes else a for i, a in enumerate(arguments)]
        return [a for a in whole if a is not None]


def _single(traced: Callable[..., Any], fixed: int | None) -> Callable[..., Any]:
    """Make a trace a single call of tensors, also if it takes lists: so many that stay, and rows of the others."""
    if fixed is None:
        return traced
    return lambda *tensors: traced(list(tensors[:fixed]), [tensor[None] for tensor in tensors[fixed:]])


def _same_bits(values: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    """Return whether tensors have the same bits: -0.0 is not 0.0, and any NaN is any other."""

    def same(a: torch.Tensor, b: torch.Tensor) -> bool:
        equal = (a == b) & (a.signbit() == b.signbit())
        return bool((equal | (a.isnan() & b.isnan())).all())

    return all(a.shape == b.shape and same(a, b) for a, b in zip(values, others, strict=True))


def _shape(arguments: tuple[torch.Tensor | None, ...]) -> Any:
    """Return what a trace depends on."""
    return tuple(None if a is None else (a.shape, a.dtype, a.is_contiguous() or a.stride()) for a in arguments)
