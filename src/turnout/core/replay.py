"""Call a tensor function without the Python that made it: trace its operations once for each shape, then replay them."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.fx.passes.shape_prop import ShapeProp, TensorMetadata

from turnout.core.crew import Crew

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

    def __call__(self, *arguments: torch.Tensor | None) -> Any:
        """The function's value."""
        shape = tuple(None if a is None else (a.shape, a.dtype, a.is_contiguous() or a.stride()) for a in arguments)
        tensors = [a for a in arguments if a is not None]
        if (traced := self._traced.get(shape)) is not None:
            with torch.no_grad():  # derivatives are operations of the trace by now
                return traced(*tensors)
        cost = _COST * (1 + 20 * self._last.get(shape, 0.0) / 0.1)
        if self._spent.get(shape, 0.0) > cost and len(self._traced) < _MOST:
            self._spent[shape] = -math.inf  # this is enough to be traced once
            self._crew.when_idle(lambda: self._traced.update({shape: self._trace(arguments)}))
        begin = time.perf_counter()
        value = self._function(*arguments)
        if self._spent:  # the very first call loads half of torch, which says nothing of the next ones
            self._last[shape] = time.perf_counter() - begin
            self._spent[shape] = self._spent.get(shape, 0.0) + self._last[shape]
        self._spent.setdefault(shape, 0.0)
        return value

    def _trace(self, arguments: tuple[torch.Tensor | None, ...]) -> Callable[..., Any]:
        """The operations of one call as a function of its tensors."""
        given = [a is not None for a in arguments]

        def call(*tensors: torch.Tensor) -> Any:
            rest = iter(tensors)
            return self._function(*(next(rest) if there else None for there in given))

        def fresh() -> list[torch.Tensor]:  # looking at the function runs it, and must change nothing
            whole = [a.clone() if a is not None and i in self._changes else a for i, a in enumerate(arguments)]
            return [a for a in whole if a is not None]

        traced = make_fx(call)(*fresh())
        ShapeProp(traced).propagate(*fresh())
        _leave_out_idle_views(traced)
        _keep_constants(traced)
        return _without_python(traced, fresh()) if fresh()[0].device.type == "cpu" else traced


def _without_python(traced: GraphModule, tensors: list[torch.Tensor]) -> Callable[..., Any]:
    """The same operations behind one call: handing them to torch one by one takes longer than those of a small model.

    For CPUs only, because elsewhere the interpreter fuses operations, which rounds differently. What it cannot list (the
    gradient of a convolution, so far) stays as it is.
    """
    with warnings.catch_warnings(), torch.no_grad():
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # new versions advise torch.export, for programs
        try:
            listed: Any = torch.jit.trace(traced.eval(), tensors, check_trace=False)
        except RuntimeError:
            return traced
        return torch.jit.freeze(listed, optimize_numerics=False).forward


def _leave_out_idle_views(traced: GraphModule) -> None:
    """Drop operations that give back what they were given: each costs as much as an addition of a small model."""
    for node in list(traced.graph.nodes):
        if node.target in _VIEWS:
            before, after = node.args[0].meta.get("tensor_meta"), node.meta.get("tensor_meta")
            if before is not None and (before.shape, before.stride) == (after.shape, after.stride):
                node.replace_all_uses_with(node.args[0])
    traced.graph.eliminate_dead_code()
    traced.recompile()


def _keep_constants(traced: GraphModule) -> None:
    """Compute once what depends on shapes alone, such as the ones with which a derivative begins."""
    known: dict[Node, torch.Tensor] = {}
    for node in list(traced.graph.nodes):
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
                node.replace_all_uses_with(traced.graph.get_attr(f"constant_{i}"))
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
    return torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype)
