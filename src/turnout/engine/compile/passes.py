"""The operations of a function of tensors, for one shape of its arguments, without those that do nothing."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Container
from operator import attrgetter
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from turnout.engine.compile.tracer import Operations, record

_aten: Any = torch.ops.aten
_VIEWS = {_aten.expand.default, _aten.view.default, _aten._unsafe_view.default}
_TURNS = {_aten.t.default, _aten.transpose.int}
_OF_SHAPES = {
    _aten.ones_like.default,
    _aten.zeros_like.default,
    _aten.full_like.default,
    _aten.new_zeros.default,
    _aten.new_ones.default,
    _aten.new_full.default,
}
_OF_GRAD_MODE = {_aten.mkldnn_rnn_layer.default}
"""What keeps things for its derivative, which is an operation of the trace, only where torch keeps track of derivatives."""


def trace(call: Callable[..., Any], arguments: list[torch.Tensor]) -> Operations:
    """Return what a function does with tensors of these shapes, derivatives included, as operations with the same bits.

    Args:
        call: the function.
        arguments: tensors that it may change.
    """
    traced = record(call, arguments)
    _leave_out_idle_views(traced)
    _keep_constants(traced)
    _divide_by_constants(traced)
    _step_part_by_part(traced)
    return traced


def needs_grad_mode(traced: Operations) -> bool:
    """Whether some operation does its work only where torch keeps track of derivatives."""
    return any(node.target in _OF_GRAD_MODE for node in traced.graph.nodes)


def _leave_out_idle_views(traced: Operations) -> None:
    """Drop operations that give back what they were given: each costs as much as an addition of a small model."""
    for node in list(traced.graph.nodes):
        if (node.target is _aten.mul.Scalar and node.args[1] == 1) or node.target is _aten.detach.default:
            node.replace_all_uses_with(node.args[0])
        elif node.target in _TURNS and node.args[0].target is node.target and node.args[0].args[1:] == node.args[1:]:
            node.replace_all_uses_with(node.args[0].args[0])
        elif node.target in _VIEWS:
            before, after = node.args[0].meta.get("kind"), node.meta.get("kind")
            if before is not None and (before.shape, before.stride) == (after.shape, after.stride):
                node.replace_all_uses_with(node.args[0])
    traced.graph.eliminate_dead_code()


def _keep_constants(traced: Operations) -> None:
    """Compute once what depends on shapes alone, such as the ones with which a derivative begins."""
    known: dict[Node, torch.Tensor] = {}
    for node in list(traced.graph.nodes):
        if node.target is _aten.lift_fresh_copy.default:  # numbers that Python has written
            known[node] = attrgetter(node.args[0].target)(traced.root)
            continue
        if not isinstance(node.target, OpOverload) or "kind" not in node.meta:
            continue
        if node.target._schema.is_mutable:
            if _owner(node).op != "placeholder":
                return  # of a constant that is changed in place, the second replay would see the first one's
            continue
        if _is_constant(node, known):
            arguments = map_arg((node.args, node.kwargs), lambda n: known[n] if n in known else _alike(n))
            known[node] = node.target(*arguments[0], **arguments[1])
    used = [(i, node, value) for i, (node, value) in enumerate(known.items()) if not known.keys() >= node.users.keys()]
    for i, node, value in used:
        traced.root.register_buffer(f"constant_{i}", value.clone(memory_format=torch.preserve_format))
        with traced.graph.inserting_before(node):
            constant = traced.graph.get_attr(f"constant_{i}")
        constant.meta = dict(node.meta)
        node.replace_all_uses_with(constant)
    traced.graph.eliminate_dead_code()


def _is_constant(node: Node, known: Container[Node]) -> bool:
    """Whether an operation draws nothing at random and looks at the numbers of nothing but constants."""
    looked_at = [] if node.target in _OF_SHAPES else node.all_input_nodes
    assert isinstance(node.target, OpOverload)
    return torch.Tag.nondeterministic_seeded not in node.target.tags and all(each in known for each in looked_at)


def _divide_by_constants(traced: Operations) -> None:
    """Write a mean on a CPU as what it is there, a sum and a division, by a number that is not made anew every time."""
    for i, node in enumerate(node for node in traced.graph.nodes if node.target is _aten.mean.dim):
        values = node.args[0].meta["kind"]
        if values.device.type != "cpu" or values.dtype not in (torch.float32, torch.float64) or node.kwargs:
            continue
        number = math.prod(values.shape[dim] for dim in node.args[1])
        traced.root.register_buffer(f"number_{i}", torch.tensor(number, dtype=values.dtype))
        with traced.graph.inserting_before(node):
            total = traced.graph.call_function(_aten.sum.dim_IntList, node.args)
            mean = traced.graph.call_function(_aten.div.Tensor, (total, traced.graph.get_attr(f"number_{i}")))
        mean.meta = dict(node.meta)
        node.replace_all_uses_with(mean)
        traced.graph.erase_node(node)


def _step_part_by_part(traced: Operations) -> None:
    """Move each parameter by its own gradient, where they would be joined only to move all of them at once: saves a copy.

    ``params.addcmul_(cat([a, b], 1), lr)`` does to each number what it does to those of a and of b.
    """
    for node in [node for node in traced.graph.nodes if node.target is _aten.addcmul_.default]:
        base, joined, factor = node.args
        if base.op != "placeholder" or joined.target is not _aten.cat.default or len(joined.users) > 1:
            continue
        parts, low = joined.args[0], 0
        if joined.args[1:] != (1,):
            continue
        with traced.graph.inserting_before(node):
            for part in parts:
                width = part.meta["kind"].shape[1]
                columns = traced.graph.call_function(_aten.narrow.default, (base, 1, low, width))
                moved = (columns, part, factor)
                shape = list(part.args[0].meta["kind"].shape) if part.target in _VIEWS else []
                if shape[:1] == [part.meta["kind"].shape[0]] and factor.meta["kind"].shape[1:] == (1,):
                    # By its gradient as it is: these views are of what stays, and taken once.
                    columns = traced.graph.call_function(_aten.view.default, (columns, shape))
                    each = traced.graph.call_function(_aten.view.default, (factor, [-1] + [1] * (len(shape) - 1)))
                    moved = (columns, part.args[0], each)
                traced.graph.call_function(_aten.addcmul_.default, moved, dict(node.kwargs))
                low += width
        node.replace_all_uses_with(base)
        traced.graph.erase_node(node)
    traced.graph.eliminate_dead_code()


def hoist_views(traced: Operations, fixed: int) -> tuple[Operations, Operations]:
    """Split a trace in two: views of its first `fixed` arguments (one at least), taken once for all steps, and the rest.

    A view has no numbers of its own, so it may be taken before the first step even of a tensor that every step changes.
    Each costs half a microsecond or more, a layer's parameters need three, and a step of a small model is over in fifty.

    Returns:
        From the first `fixed` arguments a list of views of them; and from these arguments, the views and the other
        arguments what the whole trace computed.
    """
    nodes = list(traced.graph.nodes)
    arguments = [node for node in nodes if node.op == "placeholder"]
    moved = _views_of(arguments[:fixed], nodes)
    known = {*arguments[:fixed], *moved}
    # TorchScript knows no list of nothing.
    needed = [node for node in moved if not known >= node.users.keys()] or arguments[:1]

    before, after = Graph(), Graph()
    copies = _copied(arguments[:fixed] + moved, before, {})
    before.output([copies[node] for node in needed])
    given = _copied(arguments[:fixed], after, {}) | {node: after.placeholder(f"{node.name}_") for node in needed}
    _copied([node for node in nodes if node not in known], after, given)
    return Operations(before, traced.root), Operations(after, traced.root)


def _views_of(arguments: list[Node], nodes: list[Node]) -> list[Node]:
    """Return the nodes that are views of some arguments and of nothing else, directly or through other views."""
    views: dict[Node, None] = {}
    for node in nodes:
        if is_view(node) and all(each in views or each in arguments for each in node.all_input_nodes):
            views[node] = None
    return list(views)


def _copied(nodes: list[Node], graph: Graph, known: dict[Node, Node]) -> dict[Node, Node]:
    """Copy nodes into a graph that holds what they need, or will; returns the copies of all."""
    copies = dict(known)
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    return copies


def is_view(node: Node) -> bool:
    """Whether a node only looks at another's numbers."""
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, OpOverload):
        return False
    returned = [value.alias_info for value in node.target._schema.returns]
    return bool(returned) and all(alias is not None and not alias.is_write for alias in returned)


def _owner(node: Node) -> Node:
    """Whose numbers an operation in place changes."""
    while is_view(node) or (isinstance(node.target, OpOverload) and node.target._schema.is_mutable):
        node = node.args[0]  # type: ignore[assignment]
    return node


def _alike(node: Node) -> torch.Tensor:
    """Return a tensor with the shape and order of a node's value, and any numbers."""
    kind = node.meta["kind"]
    return torch.empty_strided(kind.shape, kind.stride, dtype=kind.dtype, device=kind.device)
