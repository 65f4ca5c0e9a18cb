"""Call a tensor function without the Python that made it: trace its operations once for each shape, then replay them."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.fx.passes.shape_prop import ShapeProp, TensorMetadata

from turnout.core.crew import Crew
from turnout.core.cuda_graph import Graphed
from turnout.core.views import apart

_COST = 0.1  # seconds that tracing a small function takes; a large one takes that of 20 calls more
_VIEWS = {torch.ops.aten.expand.default, torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default}
_OF_SHAPES = {
    torch.ops.aten.ones_like.default,
    torch.ops.aten.zeros_like.default,
    torch.ops.aten.full_like.default,
    torch.ops.aten.new_zeros.default,
    torch.ops.aten.new_ones.default,
    torch.ops.aten.new_full.default,
}
_MOST = 64  # shapes that are kept
_RECORDED = {"cuda"}  # devices to which operations are handed once, and not at every call


class Replayed:
    """A function of tensors that is traced for a shape once calling it with that shape has cost as much as tracing.

    The trace holds the very operations that the function runs, so results are the same bits with and without it, and
    the moment at which it takes over changes nothing. What the function does beside tensor operations happens at the
    time of tracing only.

    Args:
        function: takes tensors (or None) and returns tensors.
        changes: numbers of the arguments that it changes in place.
        crew: threads that may call it; what traces looks at other threads' operations too, so it waits for them.
    """

    def __init__(self, function: Callable[..., Any], changes: tuple[int, ...] = (), crew: Crew | None = None) -> None:
        self._function, self._changes, self._crew = function, changes, crew or Crew(1)
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
                with torch.no_grad():
                    loop([a for a in fixed if a is not None], [rows[i:] for rows in each if rows is not None])
                return
            self(*fixed, *(None if rows is None else rows[i] for rows in each))
        if (graph := self._listed.pop(shape, None)) is not None:
            number = sum(a is not None for a in fixed)
            self._crew.when_idle(lambda: self._loops.update({shape: _looped(graph, self._fresh(first), number)}))

    def __call__(self, *arguments: torch.Tensor | None) -> Any:
        """The function's value."""
        shape = _shape(arguments)
        tensors = [a for a in arguments if a is not None]
        if (traced := self._traced.get(shape)) is not None:
            with torch.no_grad():  # derivatives are operations of the trace by now
                return traced(*tensors)
        cost = _COST * (1 + 20 * self._last.get(shape, 0.0) / 0.1)
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
        given = [a is not None for a in arguments]

        def call(*tensors: torch.Tensor) -> Any:
            rest = iter(tensors)
            return self._function(*(next(rest) if there else None for there in given))

        traced = make_fx(call)(*self._fresh(arguments))
        _Shapes(traced).propagate(*self._fresh(arguments))
        _leave_out_idle_views(traced)
        _keep_constants(traced)
        _step_part_by_part(traced)
        traced.eval()
        devices = {a.device.type for a in arguments if a is not None}
        if devices <= _RECORDED:
            graphed = Graphed(traced.forward, tuple(sum(given[:i]) for i in self._changes if given[i]))
            self._traced[shape], self._loops[shape] = graphed, graphed.repeat
        elif devices == {"cpu"} and (listed := _without_python(traced, self._fresh(arguments))):
            self._traced[shape], self._listed[shape] = listed, traced
        else:
            self._traced[shape] = traced.forward

    def _fresh(self, arguments: tuple[torch.Tensor | None, ...]) -> list[torch.Tensor]:
        """Arguments to look at the function with: that runs it, and must change nothing."""
        whole = [a.clone() if a is not None and i in self._changes else a for i, a in enumerate(arguments)]
        return [a for a in whole if a is not None]


class _Shapes(ShapeProp):
    """Notes the shape, the order and the device of what every operation gives."""

    def run_node(self, n: Node) -> Any:
        """Run an operation."""
        value = super().run_node(n)
        if isinstance(value, torch.Tensor):
            n.meta["device"] = value.device
        return value


def _shape(arguments: tuple[torch.Tensor | None, ...]) -> Any:
    """What a trace depends on."""
    return tuple(None if a is None else (a.shape, a.dtype, a.is_contiguous() or a.stride()) for a in arguments)


def _without_python(traced: torch.nn.Module, arguments: Any) -> Any:
    """The same operations behind one call: handing them to torch one by one takes longer than those of a small model.

    For CPUs only, because elsewhere the interpreter fuses operations, which rounds differently. None where there is
    something that it cannot list (the gradient of a convolution, so far).
    """
    with _quiet():
        try:
            listed: Any = torch.jit.trace(traced, arguments, check_trace=False)
        except RuntimeError:
            return None
        return torch.jit.freeze(listed, optimize_numerics=False).forward


@contextmanager
def _quiet() -> Iterator[None]:
    """Without derivatives, and without advice to use torch.export, which is for whole programs."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        yield


class _Unpacked(torch.nn.Module):
    """A function of tensors as a function of two lists of tensors."""

    def __init__(self, function: torch.nn.Module) -> None:
        super().__init__()
        self.function = function

    def forward(self, fixed: list[torch.Tensor], each: list[torch.Tensor]) -> torch.Tensor:
        """The function's value."""
        return self.function(*fixed, *each)


class _Loop(torch.nn.Module):
    """Calls a function of two lists of tensors once for every row of those in the second."""

    def __init__(self, views: torch.nn.Module, step: torch.nn.Module) -> None:
        super().__init__()
        self.views, self.step = views, step

    def forward(self, fixed: list[torch.Tensor], each: list[torch.Tensor]) -> int:
        """Repeat, and say how often; what counts is what it changes."""
        with_views = fixed + self.views(fixed)
        for i in range(len(each[0])):
            self.step(with_views, [rows[i] for rows in each])
        return len(each[0])


class _Taken(torch.nn.Module):
    """A function of tensors as a function of a list of tensors."""

    def __init__(self, function: torch.nn.Module) -> None:
        super().__init__()
        self.function = function

    def forward(self, fixed: list[torch.Tensor]) -> list[torch.Tensor]:
        """The function's values."""
        return self.function(*fixed)


def _looped(traced: GraphModule, arguments: list[torch.Tensor], fixed: int) -> Callable[..., Any]:
    """The operations of a function, repeated without Python: takes the arguments that stay, and rows of the others."""
    views, rest = apart(traced, fixed)
    taken = _Taken(views).eval()
    stays, each = arguments[:fixed], arguments[fixed:]
    with _quiet():
        before: Any = torch.jit.trace(taken, (stays,), check_trace=False, strict=False)
        given = stays + list(taken(stays))
        step: Any = torch.jit.trace(_Unpacked(rest).eval(), (given, each), check_trace=False)
        loop: Any = torch.jit.script(_Loop(before, step).eval())
        return torch.jit.freeze(loop, optimize_numerics=False).forward


def _leave_out_idle_views(traced: GraphModule) -> None:
    """Drop operations that give back what they were given: each costs as much as an addition of a small model."""
    for node in list(traced.graph.nodes):
        if node.target is torch.ops.aten.mul.Scalar and node.args[1] == 1:
            node.replace_all_uses_with(node.args[0])
        elif node.target in _VIEWS:
            before, after = node.args[0].meta.get("tensor_meta"), node.meta.get("tensor_meta")
            if before is not None and (before.shape, before.stride) == (after.shape, after.stride):
                node.replace_all_uses_with(node.args[0])
    traced.graph.eliminate_dead_code()
    traced.recompile()


def _keep_constants(traced: GraphModule) -> None:
    """Compute once what depends on shapes alone, such as the ones with which a derivative begins."""
    known: dict[Node, torch.Tensor] = {}
    for node in list(traced.graph.nodes):
        if node.target is torch.ops.aten.lift_fresh_copy.default:  # numbers that Python has written
            known[node] = attrgetter(node.args[0].target)(traced)
            continue
        if not isinstance(node.target, OpOverload) or not isinstance(node.meta.get("tensor_meta"), TensorMetadata):
            continue
        if node.target._schema.is_mutable:
            if _changed(node).op != "placeholder":
                return  # of a constant that is changed in place, the second replay would see the first one's
            continue
        looked_at = [] if node.target in _OF_SHAPES else node.all_input_nodes
        if torch.Tag.nondeterministic_seeded not in node.target.tags and all(n in known for n in looked_at):
            arguments = map_arg((node.args, node.kwargs), lambda n: known[n] if n in known else _alike(n))
            known[node] = node.target(*arguments[0], **arguments[1])
    for i, (node, value) in enumerate(known.items()):
        if any(user not in known for user in node.users):
            traced.register_buffer(f"constant_{i}", value.clone(memory_format=torch.preserve_format))
            with traced.graph.inserting_before(node):
                constant = traced.graph.get_attr(f"constant_{i}")
            constant.meta = dict(node.meta)
            node.replace_all_uses_with(constant)
    traced.graph.eliminate_dead_code()
    traced.recompile()


def _step_part_by_part(traced: GraphModule) -> None:
    """Move each parameter by its own gradient, where they would be joined only to move all of them at once: saves a copy.

    ``params.addcmul_(cat([a, b], 1), lr)`` does to each number what it does to those of a and of b.
    """
    aten: Any = torch.ops.aten
    for node in [node for node in traced.graph.nodes if node.target is aten.addcmul_.default]:
        base, joined, factor = node.args
        if base.op != "placeholder" or joined.target is not aten.cat.default or len(joined.users) > 1:
            continue
        parts, low = joined.args[0], 0
        if joined.args[1:] != (1,):
            continue
        with traced.graph.inserting_before(node):
            for part in parts:
                width = part.meta["tensor_meta"].shape[1]
                columns = traced.graph.call_function(aten.narrow.default, (base, 1, low, width))
                traced.graph.call_function(aten.addcmul_.default, (columns, part, factor), dict(node.kwargs))
                low += width
        node.replace_all_uses_with(base)
        traced.graph.erase_node(node)
    traced.graph.eliminate_dead_code()
    traced.recompile()


def _changed(node: Node) -> Node:
    """What an operation in place changes."""
    while isinstance(node.target, OpOverload) and node.target._schema.is_mutable:
        node = node.args[0]  # type: ignore[assignment]
    return node


def _alike(node: Node) -> torch.Tensor:
    """A tensor with the shape and order of a node's value, and any numbers."""
    meta = node.meta["tensor_meta"]
    return torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device=node.meta["device"])
