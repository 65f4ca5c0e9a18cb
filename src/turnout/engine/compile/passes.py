"""Trace a step, share its equal copies and views, and let parameters move layer by layer."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from turnout.engine.compile.tracer import Operations, record

_aten: Any = torch.ops.aten
_NEED_GRAD_MODE = {_aten.mkldnn_rnn_layer.default}
"""Operations that save the inputs of their derivative only in grad mode; a trace has both operations."""


def trace(call: Callable[..., Any], arguments: list[torch.Tensor]) -> Operations:
    """Return the operations of a function for tensors of these shapes, including derivatives; they give the same bits.

    Args:
        call: the function.
        arguments: tensors to call it with, which it may change.
    """
    traced = record(call, arguments)
    simplify(traced)
    _step_by_layer(traced)
    return traced


def needs_grad_mode(traced: Operations) -> bool:
    """Return whether the operations have to run in grad mode."""
    return any(node.target in _NEED_GRAD_MODE for node in traced.graph.nodes)


def _step_by_layer(traced: Operations) -> None:
    """Replace ``params.addcmul_(cat([a, b], 1), lr)`` by one such operation for the columns of each layer.

    Each element takes part in the same product and sum, so the bits are the same. The gradients of the layers are not
    copied into one vector, which takes an eighth of a round of a large model.
    """
    for node in [node for node in traced.graph.nodes if node.target is _aten.addcmul_.default]:
        base, _, factor = node.args
        if not (parts := _gradients(node)):
            continue
        low = 0
        with traced.graph.inserting_before(node):
            for part in parts:
                width = part.meta["kind"].shape[1]
                columns = traced.graph.call_function(_aten.narrow.default, (base, 1, low, width))
                traced.graph.call_function(_aten.addcmul_.default, (columns, part, factor), dict(node.kwargs))
                low += width
        node.replace_all_uses_with(base)
        traced.graph.erase_node(node)
    traced.graph.eliminate_dead_code()


def _gradients(node: Any) -> list[Node]:
    """Return the gradients of layers in an operation that moves parameters; empty if they must stay concatenated."""
    base, joined, _ = node.args
    if base.op != "placeholder" or joined.target is not _aten.cat.default or joined.args[1:] != (1,):
        return []
    # `cat` copies the parameters before the step; a view of them would see changes by the operations of earlier layers.
    if len(joined.users) > 1 or any(_shares_memory(part, base) for part in joined.args[0]):
        return []
    return joined.args[0]


def _shares_memory(node: Node, base: Node) -> bool:
    """Return whether a node is `base`, a view of it, or the result of an in-place operation on these."""
    if node is base:
        return True
    if node.target is operator.getitem:
        return _shares_memory(node.args[0], base)  # type: ignore[arg-type]
    if not isinstance(node.target, OpOverload):
        return False
    pairs = zip(node.args, node.target._schema.arguments, strict=False)
    aliased = [value for value, argument in pairs if argument.alias_info is not None]
    return any(isinstance(value, Node) and _shares_memory(value, base) for value in aliased)


_VIEWS = {
    *(_aten.view.default, _aten._unsafe_view.default, _aten.expand.default),
    *(_aten.permute.default, _aten.transpose.int, _aten.t.default),
}
"""Views that begin with the first element of their argument, so that equal shapes and strides mean the same tensor."""


def simplify(traced: Operations) -> None:
    """Let readers of a copy or view that repeats an earlier one read that one, with the same bits.

    Batched convolutions and pooling, for example, copy their arguments into another layout once for the forward and once for
    the backward pass. PyTorch's passes do not fit: that of `torch.fx` assumes that no operation changes a tensor in place,
    and that of AOTAutograd imports Inductor. Both also share what a model computes again to save memory.
    """
    nodes = list(traced.graph.nodes)
    views = {node for node in nodes if any(_storages(node) & _storages(source) for source in node.all_input_nodes)}
    held = {storage for node in nodes for value in _held(node) for storage in _storages(value)}
    earlier, changes = dict[Hashable, Node](), 0
    for node in nodes:
        if node.op != "call_function":
            continue
        if any(_changed(node)):
            changes += 1
        elif (same := _unchanged(node)) is not None:
            node.replace_all_uses_with(same)
        elif node in views or (node.target is _aten.clone.default and held.isdisjoint(_storages(node))):
            # Copies from before and after a change in place may differ.
            key = (changes, node.target, _key(node.args), _key(node.kwargs))
            if (same := earlier.setdefault(key, node)) is not node:
                node.replace_all_uses_with(same)
    traced.graph.eliminate_dead_code()


def _held(node: Node) -> Iterator[Node]:
    """Yield the tensors that an operation changes in place, or that leave the trace, so that others must not share them."""
    if node.op == "output":
        yield from node.all_input_nodes
    elif node.op == "call_function":
        yield from _changed(node)


def _changed(node: Node) -> Iterator[Node]:
    """Yield the tensors that an operation changes in place."""
    if isinstance(node.target, OpOverload):
        for i, argument in enumerate(node.target._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
                yield from (leaf for leaf in tree_leaves(value) if isinstance(leaf, Node))


def _storages(node: Node) -> set[int]:
    """Return the storages of the tensors that an operation returns."""
    if (storage := node.meta.get("storage")) is not None:
        return {storage}
    return {storage for user in node.users if user.target is operator.getitem for storage in _storages(user)}


def _unchanged(node: Node) -> Node | None:
    """Return a tensor that is the same as a view of it, or a view of a view; None if there is none."""
    base, kind = node, node.meta.get("kind")
    while base.target in _VIEWS:
        base = base.args[0]
        assert isinstance(base, Node)
        if base.meta.get("kind") == kind:
            return base
    return None


def _key(value: Any) -> Hashable:
    """Return a key that is equal for equal arguments of the same types."""
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    if isinstance(value, dict):
        return tuple((name, _key(item)) for name, item in value.items())
    return value if isinstance(value, Node) else (type(value), repr(value))
