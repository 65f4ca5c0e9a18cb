"""Run a trace, or a loop over one, as a single TorchScript function, without Python between small operations."""

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
"""Type of arguments such as `output_mask`, which select the derivatives to compute."""


def lacking() -> str | None:
    """Return why TorchScript is not available; None if it is."""
    if sys.version_info >= (3, 14):
        return "TorchScript does not support Python 3.14 and later"
    missing = [name for name in ("trace", "freeze", "script", "CompilationUnit") if not hasattr(torch.jit, name)]
    return f"this version of PyTorch has no torch.jit.{missing[0]}" if missing else None


def build(
    traced: Operations, arguments: list[torch.Tensor], changes: tuple[int, ...], fixed: int | None
) -> Callable[..., Any] | None:
    """Return a function that runs the operations (see `Backend.build`); None if TorchScript does not support one."""
    del changes
    operations = _listable(traced)
    with _quiet():
        try:
            run = _once(operations, arguments) if fixed is None else _repeated(operations, arguments, fixed)
        except RuntimeError:
            return None
    # Tensors made in inference mode cannot take part in autograd later; those of a loop do not leave it.
    mode = torch.no_grad if fixed is None else torch.inference_mode

    @contextmanager
    def unoptimized() -> Iterator[None]:
        # What TorchScript optimizes in its first two calls takes as long as the rest of a trace, and makes no step faster.
        with mode(), torch.jit.optimized_execution(False):  # pyright: ignore[reportPrivateImportUsage]
            yield

    return without_derivatives(traced, run, unoptimized)


def _once(operations: Operations, arguments: list[torch.Tensor]) -> Callable[..., Any]:
    """Return a function for a single call."""
    module: Any = torch.jit.trace(operations.module(), tuple(arguments), check_trace=False)
    return _frozen(module).forward


def _repeated(operations: Operations, arguments: list[torch.Tensor], fixed: int) -> Callable[..., Any]:
    """Return a loop over the rows of all arguments except the fixed ones."""
    lists = arguments[:fixed], arguments[fixed:]
    step: Any = torch.jit.trace(_Unpacked(operations.module()).eval(), lists, check_trace=False)
    loop: Any = torch.jit.script(_Loop(step).eval())
    return _frozen(loop).forward


def _frozen(module: Any) -> Any:
    """Inline the module's methods, and leave its tensors what they are.

    As constants they would be folded into copies, which do not follow `Network.rebase`.
    """
    tensors = [name for name, _ in module.named_buffers()]
    return torch.jit.freeze(module, preserved_attrs=tensors, optimize_numerics=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """Ignore warnings of TorchScript, such as the advice to use torch.export, which is for whole programs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _listable(traced: Operations) -> Operations:
    """Return the same operations in forms that TorchScript can express and does not rewrite."""
    root = nn.Module()
    for name, tensor in traced.root.named_buffers():
        root.register_buffer(name, tensor)
    operations = Operations(copy.deepcopy(traced.graph), root)
    for node in list(operations.graph.nodes):
        if node.kwargs:
            continue
        if isinstance(node.target, OpOverload) and _WANTED in {str(a.type) for a in node.target._schema.arguments}:
            _compile(operations, node)
        elif node.target is _aten.addmm.default:
            _keep_whole(operations, node)
    return operations


def _compile(operations: Operations, node: Node) -> None:
    """Replace an operation by a compiled function that calls it, because `torch.jit.trace` cannot record its arguments."""
    assert isinstance(node.target, OpOverload)
    names = {argument: f"x{number}" for number, argument in enumerate(node.all_input_nodes)}
    parts = ", ".join(names[a] if isinstance(a, Node) else repr(a) for a in node.args)
    users = list(node.users)  # unused derivatives may be None
    values = "".join(f"values[{user.args[1]}], " for user in users)
    name = f"torch.ops.{node.target.namespace}.{node.target._opname}"
    source = f"def call({', '.join(names.values())}):\n    values = {name}({parts})\n    return ({values})\n"
    graph = operations.graph
    operations.root.add_module(node.name, _Compiled(torch.jit.CompilationUnit(source).call))
    with graph.inserting_before(node):
        call = graph.call_module(node.name, tuple(names))
        for number, user in enumerate(users):
            value = graph.call_function(operator.getitem, (call, number))
            value.meta = dict(user.meta)
            user.replace_all_uses_with(value)
            graph.erase_node(user)
    graph.erase_node(node)


class _Compiled(nn.Module):
    """A compiled function as a module, which a graph can call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: torch.Tensor) -> Any:
        """Return the function's value."""
        return self.function(*arguments)


def _keep_whole(operations: Operations, node: Node) -> None:
    """Replace `addmm` by its form with an output argument.

    TorchScript splits the usual form into a product and a sum, which rounds in between.
    """
    kind, graph = node.meta["kind"], operations.graph
    with graph.inserting_before(node):
        out = graph.call_function(_aten.empty.memory_format, (list(kind.shape),), {"dtype": kind.dtype})
        whole = graph.call_function(_aten.addmm.out, node.args, {"out": out})
    whole.meta = dict(node.meta)
    node.replace_all_uses_with(whole)
    graph.erase_node(node)


class _Unpacked(nn.Module):
    """A function of tensors as a function of two lists of tensors."""

    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        self.function = function

    def forward(self, fixed: list[torch.Tensor], columns: list[torch.Tensor]) -> torch.Tensor:
        """Return the function's value."""
        return self.function(*fixed, *columns)


class _Loop(nn.Module):
    """A loop over the rows of the tensors in the second list."""

    def __init__(self, step: nn.Module) -> None:
        super().__init__()
        self.step = step

    def forward(self, fixed: list[torch.Tensor], columns: list[torch.Tensor]) -> int:
        """Repeat the function for its side effects; return the number of repetitions."""
        steps = [rows.unbind() for rows in columns]
        for i in range(len(steps[0])):
            self.step(fixed, [rows[i] for rows in steps])
        return len(steps[0])
