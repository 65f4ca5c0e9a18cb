"""Replay functions of tensors: trace their operations once for each shape, then run these without Python and autograd."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from turnout.engine.compile.arguments import Arguments, row_of, shape_of, single, tensors_of
from turnout.engine.compile.backends import usable
from turnout.engine.compile.compare import agree, same_bits
from turnout.engine.compile.passes import trace
from turnout.engine.compile.tracer import DependsOnValuesError
from turnout.engine.threads import ClientThreads

LOG = logging.getLogger(__name__)

_CALLS = 8  # calls with a shape before it is traced; with a small model, about as many take as long as tracing
_TRIALS = 2  # calls in which a trace is compared with its function before it replaces it
_MOST = 64  # traced shapes of a function
_LIGHT = 1 << 14  # bytes of frozen weights and buffers that a trace of a finished run may keep in memory
_MOST_SHARED = 16  # functions whose traces this process keeps for later runs
_IN_PYTHON = "every step runs in Python, which is slower"

Traces = dict[Any, Callable[..., Any]]
"""Replacements of a function, by shape and by how it is called (see `shape_of`)."""

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
    the trace takes over. Other side effects of the function happen only while it is traced. In its first calls, a trace
    only runs beside the function, whose results are used. A function whose trace gives other results, or whose
    operations depend on values of its arguments, is always called directly; so is one that cannot be traced.

    Args:
        function: function of tensors (or None) that returns tensors.
        changes: indices of the arguments that it changes in place.
        threads: threads that may call it; tracing waits for all of them, because it changes Python's warning filters.
        known: traces of other runs under the same key.

    Attributes:
        function: the function.
        refused: the reason why no call is replayed; None if calls may be.
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
        self._calls: Counter[Any] = Counter()
        self._tried: set[Any] = set()  # shapes that were traced, or will be when threads are idle
        self._traced: Traces = {}
        self._trials: Counter[Any] = Counter()  # comparisons that the trace of a shape has passed
        self._may_share: set[Any] = set()
        self.refused: str | None = None
        self.backends: dict[Any, str] = {}

    def replay(self, fixed: Arguments, columns: Arguments) -> Iterator[Arguments]:
        """Call ``function(*fixed, *(rows[i] for rows in columns))`` for every i, for its changes in place.

        Yields the arguments of the calls that go through Python; the caller passes them to `function`. Once there is a
        trace, the remaining calls are a single one, in which threads do not wait for each other's turn in Python.
        """
        tensors, tensor_columns = tensors_of(fixed), tensors_of(columns)
        key = shape_of((*fixed, *row_of(columns, 0))), len(tensors)
        for i in range(len(tensor_columns[0])):
            traced, arguments = self._trace_of(key), (*fixed, *row_of(columns, i))
            if traced is not None and self._trials[key] >= _TRIALS:
                self._calls[key] += len(tensor_columns[0]) - i
                traced(tensors, [rows[i:] for rows in tensor_columns])
                return
            result = self._tried_out(traced, key, arguments)
            yield arguments
            if result is not None:
                self._judge(key, result, self._changed(arguments))

    def __call__(self, *arguments: torch.Tensor | None) -> Any:
        """Return the function's value."""
        key = shape_of(arguments), None
        traced = self._trace_of(key)
        if traced is not None and self._trials[key] >= _TRIALS:
            self._calls[key] += 1
            return traced(*tensors_of(arguments))
        result = self._tried_out(traced, key, arguments)
        value = self.function(*arguments)
        if result is not None:
            self._judge(key, result, [*tree_leaves(value), *self._changed(arguments)])
        return value

    def _trace_of(self, key: Any) -> Callable[..., Any] | None:
        """Return the trace for a shape, of this run or, from the second call on, of another; None without one."""
        if (traced := self._traced.get(key)) is not None or self.refused is not None or not self._calls[key]:
            return traced
        if (traced := self._known.get(key)) is not None and len(self._traced) < _MOST:
            # The same key suggests the same function, but code that was changed in a notebook also has the same key.
            self._traced[key], self.backends[key] = traced, "shared"
        return self._traced.get(key)

    def _tried_out(
        self, traced: Callable[..., Any] | None, key: Any, arguments: Arguments
    ) -> list[torch.Tensor] | None:
        """Count a call in Python, and return the outcome of the trace on copies of its arguments; None without one.

        After enough calls, the function is traced for the next one.
        """
        calls, fixed = self._calls[key], key[1]
        self._calls[key] += 1
        if traced is not None:
            try:
                return self._outcome(single(traced, fixed), arguments, fixed)
            except Exception as error:
                self._reject(key, f"{type(error).__name__}: {error}")
        elif calls >= _CALLS and key not in self._tried and self.refused is None and self._has_room(calls):
            self._tried.add(key)  # tracing is tried once
            self._threads.when_idle(lambda: self._try_to_trace(key, arguments))
        return None

    def _outcome(self, call: Callable[..., Any], arguments: Arguments, fixed: int | None) -> list[torch.Tensor]:
        """Return the tensors that a call returns and those that it changes; only the latter if the call is repeated."""
        fresh = self._fresh(arguments)
        value = call(*tensors_of(fresh))
        changed = self._changed(fresh)
        return changed if fixed is not None else [*tree_leaves(value), *changed]

    def _changed(self, arguments: Arguments) -> list[torch.Tensor]:
        """Return the arguments of a call that it has changed in place."""
        return tensors_of(arguments[i] for i in self._changes)

    def _fresh(self, arguments: Arguments) -> Arguments:
        """Return the arguments, with copies of those that the function changes."""
        return tuple(a.clone() if a is not None and i in self._changes else a for i, a in enumerate(arguments))

    def _has_room(self, calls: int) -> bool:
        """Return whether there is room for the trace of a shape with this number of calls.

        The least used trace makes room for a shape that was called twice as often; for less, traces could replace each
        other in turns.
        """
        traced = list(self._traced)
        if len(traced) < _MOST:
            return True
        least = min(traced, key=self._calls.__getitem__, default=None)
        if least is None or 2 * self._calls[least] > calls:
            return False
        self._forget(least)
        return True

    def _forget(self, key: Any) -> None:
        """Drop the trace of a shape."""
        for of_key in (self._traced, self._trials, self.backends):
            of_key.pop(key, None)
        self._tried.discard(key)

    def _judge(self, key: Any, result: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
        """Compare the outcome of a trace with that of its function."""
        if not agree(result, expected):
            self._reject(key, "a trace of its operations gives other results for the next minibatches")
            return
        self._trials[key] += 1
        traced = self._traced.get(key)
        if self._trials[key] == _TRIALS and key in self._may_share and traced is not None and len(self._known) < _MOST:
            self._known[key] = traced

    def _reject(self, key: Any, reason: str) -> None:
        """Stop using the trace of a shape: all traces of another run, or, if it is of this run, tracing as such."""
        if self.backends.get(key) == "shared":
            self._known = {}
            self._forget(key)
        else:
            self._refuse(reason)

    def _refuse(self, reason: str) -> None:
        """Call the function directly from now on."""
        if self.refused is None:
            self.refused = f"{_IN_PYTHON}: {reason}"
            LOG.warning("%s", self.refused)
        self._traced, self.backends = {}, dict.fromkeys(self._tried, self.refused)

    def _try_to_trace(self, key: Any, arguments: Arguments) -> None:
        """Trace the function, and record the reason if that fails."""
        if self.refused is not None:  # since this was called for
            return
        try:
            self._traced[key] = self._trace(key, arguments)
        except DependsOnValuesError as error:
            self._refuse(str(error))
        except Exception as error:
            self.backends[key] = f"{_IN_PYTHON}, because it cannot be traced: {type(error).__name__}: {error}"
            LOG.info(self.backends[key])

    def _trace(self, key: Any, arguments: Arguments) -> Callable[..., Any]:
        """Return a function that runs the traced operations, on tensors, or on lists of them if it is repeated."""
        _, fixed = key
        is_tensor = [a is not None for a in arguments]

        def call(*tensors: torch.Tensor) -> Any:
            rest = iter(tensors)
            return self.function(*(next(rest) if tensor else None for tensor in is_tensor))

        # Call it before tracing, so that the trace contains no operations of a first call, such as making this thread's copy
        # of a module.
        expected = self._outcome(call, arguments, fixed)
        operations = trace(call, tensors_of(self._fresh(arguments)))
        places = tuple(sum(is_tensor[:i]) for i in self._changes if is_tensor[i])
        for backend in usable({a.device.type for a in arguments if a is not None}):
            traced = backend.build(operations, tensors_of(self._fresh(arguments)), places, fixed)
            if traced is None:
                continue
            self.backends[key] = backend.name
            if not backend.is_tried:
                return traced
            if same_bits(self._outcome(single(traced, fixed), arguments, fixed), expected):
                if operations.num_bytes <= _LIGHT:
                    self._may_share.add(key)
                return traced
        raise AssertionError("the last backend runs every trace")
