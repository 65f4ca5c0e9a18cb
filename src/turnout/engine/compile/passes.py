"""Rewrite the operations of a trace: move parameters part by part, and take views once for all steps."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node

from turnout.engine.compile.tracer import Operations, record

_aten: Any = torch.ops.aten
_VIEWS = {_aten.view.default, _aten._unsafe_view.default}
_OF_GRAD_MODE = {_aten.mkldnn_rnn_layer.default}
"""What keeps things for its derivative, which is an operation of the trace, only where torch keeps track of derivatives."""


def trace(call: Callable[..., Any], arguments: list[torch.Tensor]) -> Operations:
    """Return what a function does with tensors of these shapes, derivatives included, as operations with the same bits.

    Args:
        call: the function.
        arguments: tensors that it may change.
    """
    traced = record(call, arguments)
    _step_part_by_part(traced)
    return traced


def needs_grad_mode(traced: Operations) -> bool:
    """Whether some operation does its work only where torch keeps track of derivatives."""
    return any(node.target in _OF_GRAD_MODE for node in traced.graph.nodes)


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
