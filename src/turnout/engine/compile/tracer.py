"""Record the operations of a function of tensors as a graph while it runs, or count them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakTensorKeyDictionary

_aten: Any = torch.ops.aten
_READS: dict[Any, str] = {
    getattr(torch.Tensor, name): name for name in ("tolist", "numpy", "__array__") if hasattr(torch.Tensor, name)
}
"""Functions that hand the values of a tensor to Python without an operation."""

_MASKS = (torch.bool, torch.uint8)
_OF_LENGTHS = {_aten._pack_padded_sequence.default}
"""Operations whose results have shapes that depend on values, but which lack PyTorch's tag for it."""


class DependsOnValuesError(RuntimeError):
    """The operations of a function depend on values of tensors, so that a trace of one call is wrong for others."""


class Kind(NamedTuple):
    """The metadata of a tensor."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True, eq=False)
class Operations:
    """The operations of a function of tensors.

    Attributes:
        graph: the operations in their order; ``meta["kind"]`` of a node is the `Kind` of its tensor, and
            ``meta["storage"]`` a number that tensors with common memory share.
        root: module that holds the tensors and modules that they use beside the arguments.
    """

    graph: Graph
    root: nn.Module

    @property
    def num_bytes(self) -> int:
        """Size of the tensors that the operations use beside the arguments, such as frozen weights."""
        return sum(tensor.nbytes for tensor in self.root.buffers())

    def module(self) -> GraphModule:
        """Return a module that runs the operations."""
        return GraphModule(self.root, self.graph).eval()


def record(function: Callable[..., Any], arguments: list[torch.Tensor]) -> Operations:
    """Return the operations of one call, including those of derivatives.

    `torch.fx.experimental.proxy_tensor.make_fx` gives the same graphs in four to five times the time: it also makes a fake
    tensor of each value, and records Python's call stack for each of them.

    Raises:
        DependsOnValuesError: if the function reads values of a tensor, because its next operations may depend on them, or
            if the shape of a result depends on values.
    """
    recorder = _Recorder()
    for number, argument in enumerate(arguments):
        recorder.note(argument, recorder.graph.placeholder(f"arg{number}"))
    with _Readers(), recorder:
        value = function(*arguments)
    recorder.graph.output(recorder.nodes(value))
    return Operations(recorder.graph, recorder.root)


class _Mode(TorchDispatchMode):
    """A dispatch mode that does not import torch's compiler, which takes seconds."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class _Recorder(_Mode):
    """Record every operation of this thread.

    A dispatch mode is below `torch.func` transforms and autograd, so it sees the final operations: batched ones, and
    those of derivatives.
    """

    def __init__(self) -> None:
        super().__init__()
        self.graph, self.root = Graph(), nn.Module()
        # By identity and with weak references, because the identity of a deleted tensor may be used again.
        self._nodes = WeakTensorKeyDictionary()
        self._storages: dict[StorageWeakRef, int] = {}

    def note(self, value: Any, node: Node) -> None:
        """Store the node of a value, or of each element of a sequence."""
        if isinstance(value, torch.Tensor):
            node.meta["kind"] = Kind(value.shape, value.stride(), value.dtype, value.device)
            # A weak reference keeps the identity from being used again, and not the memory.
            storage = StorageWeakRef(value.untyped_storage())
            node.meta["storage"] = self._storages.setdefault(storage, len(self._storages))
            # An in-place operation returns the tensor that it changed, which is now the value of that operation's node. Later
            # operations thus depend on the change, and stay behind it when dead code is eliminated.
            self._nodes[value] = node
        elif isinstance(value, list | tuple):
            for number, part in enumerate(value):
                self.note(part, self.graph.call_function(operator.getitem, (node, number)))

    def nodes(self, values: Any) -> Any:
        """Return the values with nodes in place of tensors."""
        return tree_map_only(torch.Tensor, self._node, values)

    def _node(self, tensor: torch.Tensor) -> Node:
        if tensor not in self._nodes:  # neither an argument nor a result, e.g. a buffer of a layer
            name = f"outside_{len(self.root.state_dict())}"
            self.root.register_buffer(name, tensor)
            self.note(tensor, self.graph.get_attr(name))
        return self._nodes[tensor]

    def __torch_dispatch__(self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run and record an operation."""
        kwargs = kwargs or {}
        if torch.Tag.data_dependent_output in func.tags:
            raise DependsOnValuesError(f"{func} reads a number, on which the next operations may depend")
        if _has_dynamic_shape(func, args):
            raise DependsOnValuesError(f"the shape of what {func} returns depends on values")
        if func is _aten.lift_fresh.default:
            # A tensor made from Python numbers. Without a copy, an in-place operation would change it for all replays.
            func = _aten.lift_fresh_copy.default
        # Before the operation runs, because an in-place operation changes its argument's node.
        arguments = self.nodes(args), self.nodes(kwargs)
        value = func(*args, **kwargs)
        self.note(value, self.graph.call_function(func, *arguments))
        return value


class _Readers(TorchFunctionMode):
    """Refuse functions that read the values of a tensor without an operation, so that no dispatch mode sees them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of PyTorch, unless it reads values."""
        if (name := _READS.get(func)) is not None:
            raise DependsOnValuesError(f"Tensor.{name}() reads values, on which the next operations may depend")
        return func(*args, **(kwargs or {}))


def _has_dynamic_shape(func: OpOverload, args: Any) -> bool:
    """Return whether the shape of an operation's result depends on values of its arguments."""
    if func is _aten.index.Tensor:
        return any(index is not None and index.dtype in _MASKS for index in args[1])
    return func in _OF_LENGTHS or torch.Tag.dynamic_output_shape in func.tags


class FlopCounter(_Mode):
    """Count floating-point operations by the formulas of `torch.utils.flop_counter.FlopCounterMode`.

    That class imports torch's compiler, which takes two seconds at the start of a run.

    Attributes:
        flops: number of operations so far; a multiplication and an addition count as two.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count it if there is a formula for it."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if (formula := flop_registry.get(func.overloadpacket)) is not None:
            self.flops += formula(*args, **kwargs, out_val=result)
        return result
