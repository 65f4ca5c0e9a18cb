"""Call a tensor function without the Python that made it: trace its operations once for each shape, then replay them."""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

from turnout.core.crew import Crew
from turnout.core.cuda_graph import Graphed
from turnout.core.script import listed, looped
from turnout.core.trace import needs_grad_mode, trace

_COST = 0.06  # seconds that tracing takes of a function that takes no time itself; twice that where a call takes 3 ms
_MOST = 64  # shapes that are kept
_RECORDED = {"cuda"}  # devices to which operations are handed once, and not at every call
_MOST_SHARED = 16  # functions of which this process keeps traces for runs to come


@dataclass(frozen=True, eq=False)
class Traces:
    """What was traced of a function on a CPU, by shape: single calls, the graphs behind them, and calls of many steps."""

    calls: dict[Any, Callable[..., Any]] = field(default_factory=dict)
    graphs: dict[Any, GraphModule] = field(default_factory=dict)
    loops: dict[Any, Callable[..., Any]] = field(default_factory=dict)


_shared: dict[Hashable, Traces] = {}
_sharing = threading.Lock()


def shared(key: Hashable) -> Traces:
    """Traces of functions that have this key in common, in whichever run of this process; those last asked for are kept."""
    with _sharing:
        _shared[key] = traces = _shared.pop(key, None) or Traces()
        while len(_shared) > _MOST_SHARED:
            del _shared[next(iter(_shared))]
    return traces


class Replayed:
    """A function of tensors that is traced for a shape once calling it with that shape has cost as much as tracing.

    The trace holds the very operations that the function runs, so results are the same bits with and without it, and
    the moment at which it takes over changes nothing. What the function does beside tensor operations happens at the
    time of tracing only.

    Args:
        function: takes tensors (or None) and returns tensors.
        changes: numbers of the arguments that it changes in place.
        crew: threads that may call it; what traces looks at other threads' operations too, so it waits for them.
        known: what others have traced of what should be the same function. A trace of theirs is used where it gives the
            function's very bits.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        changes: tuple[int, ...] = (),
        crew: Crew | None = None,
        known: Traces | None = None,
    ) -> None:
        self._function, self._changes, self._crew = function, changes, crew or Crew(1)
        self._known = known or Traces()
        self._spent: dict[Any, float] = {}
        self._last: dict[Any, float] = {}
        self._traced: dict[Any, Callable[..., Any]] = {}
        self._listed: dict[Any, GraphModule] = {}
        self._loops: dict[Any, Callable[..., Any]] = {}

    def repeat(self, fixed: tuple[torch.Tensor | None, ...], each: tuple[torch.Tensor | None, ...]) -> None:
        """Call the function for what it changes: ``function(*fixed, *(rows[i] for rows in each))`` for every i.

        Once it is traced, this is a single call: threads that repeat something small do not wait for each other's Python.
        """
        first = (*fixed, *(None if rows is None else rows[0] for rows in each))
        shape = _shape(first)
        for i in range(next(len(rows) for rows in each if rows is not None)):
            if (loop := self._loops.get(shape)) is not None:
                loop([a for a in fixed if a is not None], [rows[i:] for rows in each if rows is not None])
                return
            self(*fixed, *(None if rows is None else rows[i] for rows in each))
        if (graph := self._listed.pop(shape, None)) is not None:
            self._crew.when_idle(lambda: self._loop(shape, graph, first, sum(a is not None for a in fixed)))

    def __call__(self, *arguments: torch.Tensor | None) -> Any:
        """The function's value."""
        shape = _shape(arguments)
        tensors = [a for a in arguments if a is not None]
        if (traced := self._traced.get(shape)) is not None:
            return traced(*tensors)
        if shape in self._spent and self._takes_over(shape, arguments):
            return self._traced[shape](*tensors)
        cost = _COST * (1 + self._last.get(shape, 0.0) / 0.003)
        if self._spent.get(shape, 0.0) > cost and len(self._traced) < _MOST:
            self._spent[shape] = -math.inf  # this is enough to be traced once
            self._crew.when_idle(lambda: self._try_to_trace(shape, arguments))
        begin = time.perf_counter()
        value = self._function(*arguments)
        if self._spent:  # the very first call loads half of torch, which says nothing of the next ones
            self._last[shape] = time.perf_counter() - begin
            self._spent[shape] = self._spent.get(shape, 0.0) + self._last[shape]
        self._spent.setdefault(shape, 0.0)
        return value

    def _try_to_trace(self, shape: Any, arguments: tuple[torch.Tensor | None, ...]) -> None:
        """Trace; what cannot be traced goes on being called, for whatever reason that is."""
        try:
            self._trace(shape, arguments)
        except Exception as error:
            warnings.warn(
                f"every step goes through Python, for it cannot be traced: {type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=2,
            )

    def _trace(self, shape: Any, arguments: tuple[torch.Tensor | None, ...]) -> None:
        """Keep the operations of one call as a function of its tensors."""
        call = self._of_tensors(arguments)
        # Before it is traced, so that what is made at the first call in this thread is no part of the trace.
        expected = self._outcome(call, arguments)
        traced = trace(call, self._fresh(arguments))
        run = _without_derivatives(traced, traced.forward)
        devices = {a.device.type for a in arguments if a is not None}
        if devices <= _RECORDED:
            graphed = Graphed(run, self._changed(arguments))
            self._traced[shape], self._loops[shape] = graphed, graphed.repeat
            return
        self._traced[shape] = run
        if devices == {"cpu"} and (found := listed(traced, self._fresh(arguments))) is not None:
            found = _without_derivatives(traced, found)
            # More than once, because TorchScript rewrites what has been called before.
            if all(_same_bits(self._outcome(found, arguments), expected) for _ in range(3)):
                self._traced[shape], self._listed[shape] = found, traced
                if len(self._known.calls) < _MOST:
                    self._known.graphs[shape], self._known.calls[shape] = traced, found

    def _takes_over(self, shape: Any, arguments: tuple[torch.Tensor | None, ...]) -> bool:
        """Use a trace that is known, if it gives the function's very bits."""
        known = self._known  # another thread may have found out just now that it is of another function
        found = known.calls.get(shape)
        if found is None or len(self._traced) >= _MOST:
            return False
        if not _same_bits(self._outcome(found, arguments), self._outcome(self._of_tensors(arguments), arguments)):
            self._known = Traces()
            return False
        self._traced[shape] = found
        if shape in known.loops:
            self._loops[shape] = known.loops[shape]
        else:
            self._listed[shape] = known.graphs[shape]
        return True

    def _of_tensors(self, arguments: tuple[torch.Tensor | None, ...]) -> Callable[..., Any]:
        """The function, of those of its arguments that are there."""
        given = [a is not None for a in arguments]

        def call(*tensors: torch.Tensor) -> Any:
            rest = iter(tensors)
            return self._function(*(next(rest) if there else None for there in given))

        return call

    def _loop(self, shape: Any, graph: GraphModule, first: tuple[torch.Tensor | None, ...], fixed: int) -> None:
        """Keep the operations of one call as those of many, of which these arguments stay."""
        # Nothing that it makes outlives it, so torch need not prepare for derivatives that somebody might ask for later.
        loop = _without_derivatives(graph, looped(graph, self._fresh(first), fixed), torch.inference_mode)
        self._loops[shape] = loop
        if shape in self._known.calls:
            self._known.loops[shape] = loop

    def _outcome(self, function: Callable[..., Any], arguments: tuple[torch.Tensor | None, ...]) -> list[torch.Tensor]:
        """What a function of the arguments that are there gives, and what it makes of those that it changes."""
        fresh = self._fresh(arguments)
        return [*tree_leaves(function(*fresh)), *(fresh[i] for i in self._changed(arguments))]

    def _changed(self, arguments: tuple[torch.Tensor | None, ...]) -> tuple[int, ...]:
        """Which are changed in place, of those that are there."""
        return tuple(sum(a is not None for a in arguments[:i]) for i in self._changes if arguments[i] is not None)

    def _fresh(self, arguments: tuple[torch.Tensor | None, ...]) -> list[torch.Tensor]:
        """Arguments to look at the function with: that runs it, and must change nothing."""
        whole = [a.clone() if a is not None and i in self._changes else a for i, a in enumerate(arguments)]
        return [a for a in whole if a is not None]


def _without_derivatives(
    traced: GraphModule,
    function: Callable[..., Any],
    without: Callable[[], AbstractContextManager[Any]] = torch.no_grad,
) -> Callable[..., Any]:
    """Call a trace: derivatives are operations of it by now, so nobody keeps track of others."""
    mode = torch.enable_grad if needs_grad_mode(traced) else without

    def call(*arguments: Any) -> Any:
        with mode():
            return function(*arguments)

    return call


def _same_bits(values: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    """Whether tensors are equal, NaN to NaN."""
    return all(
        a.shape == b.shape and torch.allclose(a, b, rtol=0.0, atol=0.0, equal_nan=True)
        for a, b in zip(values, others, strict=True)
    )


def _shape(arguments: tuple[torch.Tensor | None, ...]) -> Any:
    """What a trace depends on."""
    return tuple(None if a is None else (a.shape, a.dtype, a.is_contiguous() or a.stride()) for a in arguments)
