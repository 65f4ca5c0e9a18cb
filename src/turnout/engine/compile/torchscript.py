"""Run a trace, or a loop over one, as a single TorchScript function, without Python between small operations."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from turnout.engine.compile.plain import without_derivatives
from turnout.engine.compile.tracer import Operations


def lacking() -> str | None:
    """Return why TorchScript is not available; None if it is."""
    if sys.version_info >= (3, 14):
        return "TorchScript does not support Python 3.14 and later"
    missing = [name for name in ("CompilationUnit", "optimized_execution") if not hasattr(torch.jit, name)]
    return f"this version of PyTorch has no torch.jit.{missing[0]}" if missing else None


def build(
    traced: Operations, arguments: list[torch.Tensor], changes: tuple[int, ...], fixed: int | None
) -> Callable[..., Any] | None:
    """Return a function that runs the operations (see `Backend.build`); None if TorchScript does not support one."""
    del arguments, changes
    outside = list(traced.root.buffers())
    try:
        compiled = torch.jit.CompilationUnit(_source(traced, fixed)).run
    except RuntimeError:
        return None

    def run(*tensors: Any) -> Any:
        return compiled(list(tensors), outside) if fixed is None else compiled(*tensors, outside)

    # Tensors made in inference mode cannot take part in autograd later; those of a loop do not leave it.
    mode = torch.no_grad if fixed is None else torch.inference_mode

    @contextmanager
    def unoptimized() -> Iterator[None]:
        # What TorchScript optimizes in its first two calls takes as long as the rest of a trace, and makes no step faster.
        with mode(), torch.jit.optimized_execution(False):  # pyright: ignore[reportPrivateImportUsage]
            yield

    return without_derivatives(traced, run, unoptimized)


def _source(traced: Operations, fixed: int | None) -> str:
    """Return the source of a function of a list of tensors, or of `fixed` tensors and a list of columns for a loop."""
    nodes, tensors = list(traced.graph.nodes), [name for name, _ in traced.root.named_buffers()]
    arguments = [node.name for node in nodes if node.op == "placeholder"]
    rows = [] if fixed is None else arguments[fixed:]
    lists: dict[str, str] = {}
    body = [line for node in nodes if node.op == "call_function" for line in _lines(node, lists)]
    start = [f"{name} = fixed[{i}]" for i, name in enumerate(arguments[:fixed])]
    start += [f"{node.name} = outside[{tensors.index(node.target)}]" for node in nodes if node.op == "get_attr"]
    start += [f"{name} = {value}" for value, name in lists.items()]  # made once, and not in every repetition
    if fixed is None:
        head, rest = "fixed: List[Tensor], outside: List[Tensor]", [*body, f"return {_literal(nodes[-1].args[0])}"]
    else:
        head = "fixed: List[Tensor], columns: List[Tensor], outside: List[Tensor]"
        start += [f"{name}_rows = columns[{i}].unbind()" for i, name in enumerate(rows)]
        body = [*(f"{name} = {name}_rows[i]" for name in rows), *body]
        rest = [f"for i in range(len({rows[0]}_rows)):", *(f"    {line}" for line in body)]
    return f"def run({head}):\n" + "".join(f"    {line}\n" for line in (*start, *rest))


def _lines(node: Node, lists: dict[str, str]) -> Iterator[str]:
    """Yield the lines of an operation; the names of constant lists are added to `lists`."""
    if node.target is operator.getitem:
        yield f"{node.name} = {_literal(node.args[0])}[{node.args[1]}]"
        return
    function = node.target
    assert isinstance(function, OpOverload)
    types = {argument.name: str(argument.type) for argument in function._schema.arguments}
    takes_numbers = "Scalar" in function.overloadpacket.overloads()

    def source(value: Any, kind: str) -> str:
        if kind == "Tensor" and isinstance(value, int | float) and not takes_numbers:
            return f"torch.tensor({_literal(value)})"  # `torch.func.vmap` hands numbers to operations of tensors
        if not isinstance(value, list | tuple) or any(isinstance(item, Node) for item in value):
            return _literal(value)
        literal = _literal(list(value)) if value else f"torch.jit.annotate({kind}, [])"  # an empty list has no type
        return lists.setdefault(literal, f"list_{len(lists)}")

    call = [source(value, kind) for value, kind in zip(node.args, types.values(), strict=False)]
    call += [f"{name}={source(value, types[name])}" for name, value in node.kwargs.items()]
    call = f"torch.ops.{function.namespace}.{function._opname}({', '.join(call)})"
    yield f"{node.name} = {call}" if node.users else call


def _literal(value: Any) -> str:
    """Return the source of a value."""
    if isinstance(value, list | tuple):
        items = ", ".join(map(_literal, value))
        return f"[{items}]" if isinstance(value, list) else f"({items},)"
    if isinstance(value, torch.device):
        return f"torch.device('{value}')"
    if isinstance(value, float) and value - value != 0:  # infinite, or no number
        return f"float('{value}')"
    return value.name if isinstance(value, Node) else repr(value)
