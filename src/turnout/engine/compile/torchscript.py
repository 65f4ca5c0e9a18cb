"""Traces behind one call of TorchScript's, because handing over operations one by one takes longer than small ones do."""

from __future__ import annotations

import copy
import operator
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._ops import OpOverload
from torch.fx import Node

from turnout.engine.compile.plain import without_derivatives
from turnout.engine.compile.tracer import Operations

_aten: Any = torch.ops.aten
_WANTED = "List[bool]"
"""The type of an argument that says which derivatives are wanted."""


def lacking() -> str | None:
    """Say why there is no TorchScript here; None if there is."""
    if sys.version_info >= (3, 14):
        return "TorchScript does not support Python 3.14 and later"
    missing = [name for name in ("trace", "freeze", "script", "CompilationUnit") if not hasattr(torch.jit, name)]
    return f"this version of PyTorch has no torch.jit.{missing[0]}" if missing else None


def build(
    traced: Operations, arguments: list[torch.Tensor], changes: tuple[int, ...], fixed: int | None
) -> Callable[..., Any] | None:
    """Return the same operations behind one call, see `Backend.build`; None where TorchScript cannot list one of them."""
    del changes
    own = _listable(traced)
    with _quiet():
        try:
            found = _once(own, arguments) if fixed is None else _repeated(own, arguments, fixed)
        except RuntimeError:
            return None
    # Nothing that a loop makes outlives it, so torch need not prepare for derivatives asked for later.
    return without_derivatives(traced, found, torch.no_grad if fixed is None else torch.inference_mode)


def _once(own: Operations, arguments: list[torch.Tensor]) -> Callable[..., Any]:
    """Return a single call."""
    module: Any = torch.jit.trace(own.module(), tuple(arguments), check_trace=False)
    return torch.jit.freeze(module, optimize_numerics=False).forward


def _repeated(own: Operations, arguments: list[torch.Tensor], fixed: int) -> Callable[..., Any]:
    """Return a loop without Python."""
    step: Any = torch.jit.trace(_Unpacked(own.module()).eval(), (arguments[:fixed], arguments[fixed:]), check_trace=False)
    loop: Any = torch.jit.script(_Loop(step).eval())
    return torch.jit.freeze(loop, optimize_numerics=False).forward


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what TorchScript has to say, such as advice to use torch.export, which is for whole programs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _listable(traced: Operations) -> Operations:
    """Return the same operations as TorchScript can list them, and does not take them apart."""
    root = nn.Module()
    for name, tensor in traced.root.named_buffers():
        root.register_buffer(name, tensor)
    own = Operations(copy.deepcopy(traced.graph), root)
    for node in list(own.graph.nodes):
        if node.kwargs:
            continue
        if isinstance(node.target, OpOverload) and _WANTED in {str(a.type) for a in node.target._schema.arguments}:
            _compile(own, node)
        elif node.target is _aten.addmm.default:
            _keep_whole(own, node)
    return own


def _compile(own: Operations, node: Node) -> None:
    """Replace an operation by a function that calls it: torch's tracer does not know that type."""
    assert isinstance(node.target, OpOverload)
    given = {argument: f"x{number}" for number, argument in enumerate(node.all_input_nodes)}
    parts = ", ".join(given[a] if isinstance(a, Node) else repr(a) for a in node.args)
    looked_at = list(node.users)  # what is not looked at may not be there at all
    values = "".join(f"values[{user.args[1]}], " for user in looked_at)
    name = f"torch.ops.{node.target.namespace}.{node.target._opname}"
    source = f"def call({', '.join(given.values())}):\n    values = {name}({parts})\n    return ({values})\n"
    own.root.add_module(node.name, _Compiled(torch.jit.CompilationUnit(source).call))
    with own.graph.inserting_before(node):
        instead = own.graph.call_module(node.name, tuple(given))
        for number, user in enumerate(looked_at):
            value = own.graph.call_function(operator.getitem, (instead, number))
            value.meta = dict(user.meta)
            user.replace_all_uses_with(value)
            own.graph.erase_node(user)
    own.graph.erase_node(node)


class _Compiled(nn.Module):
    """A compiled function as a layer, which a graph can call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: torch.Tensor) -> Any:
        """Return the function's value."""
        return self.function(*arguments)


def _keep_whole(own: Operations, node: Node) -> None:
    """Write a product with something added to a place of its own: TorchScript would make two operations of it otherwise.

    They would round in between.
    """
    kind = node.meta["kind"]
    with own.graph.inserting_before(node):
        place = own.graph.call_function(_aten.empty.memory_format, (list(kind.shape),), {"dtype": kind.dtype})
        instead = own.graph.call_function(_aten.addmm.out, node.args, {"out": place})
    instead.meta = dict(node.meta)
    node.replace_all_uses_with(instead)
    own.graph.erase_node(node)


class _Unpacked(nn.Module):
    """A function of tensors as a function of two lists of tensors."""

    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        self.function = function

    def forward(self, fixed: list[torch.Tensor], each: list[torch.Tensor]) -> torch.Tensor:
        """Return the function's value."""
        return self.function(*fixed, *each)


class _Loop(nn.Module):
    """Calls a function of two lists of tensors once for every row of those in the second."""

    def __init__(self, step: nn.Module) -> None:
        super().__init__()
        self.step = step

    def forward(self, fixed: list[torch.Tensor], each: list[torch.Tensor]) -> int:
        """Repeat, and return how often; the function counts for what it changes."""
        steps = [rows.unbind() for rows in each]
        for i in range(len(steps[0])):
            self.step(fixed, [rows[i] for rows in steps])
        return len(steps[0])
