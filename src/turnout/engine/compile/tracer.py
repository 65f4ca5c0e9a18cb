"""Operations that a function of tensors hands to torch, recorded as a graph while it runs.

torch's own `make_fx` gives the same graphs in four to five times the time. It makes a fake tensor of each value as well, and
for each of these it notes down the whole stack of Python's calls.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

_aten: Any = torch.ops.aten


class Kind(NamedTuple):
    """All that is known of a tensor before it has numbers."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True, eq=False)
class Operations:
    """What a function of tensors does.

    Attributes:
        graph: its operations in their order; ``meta["kind"]`` of a node is the `Kind` of its tensor.
        root: holds what they call or read beside their arguments.
    """

    graph: Graph
    root: nn.Module

    def module(self) -> GraphModule:
        """Return the function as Python can call it."""
        return GraphModule(self.root, self.graph).eval()


def record(function: Callable[..., Any], arguments: list[torch.Tensor]) -> Operations:
    """Return the operations of one call, those of derivatives included.

    Raises:
        RuntimeError: for a function that reads numbers of tensors: what it does next may depend on them.
    """
    recorder = _Recorder()
    for number, argument in enumerate(arguments):
        recorder.note(argument, recorder.graph.placeholder(f"arg{number}"))
    with recorder:
        value = function(*arguments)
    recorder.graph.output(recorder.nodes(value))
    return Operations(recorder.graph, recorder.root)


class _Recorder(TorchDispatchMode):
    """Writes down every operation of this thread, below transforms and derivatives: what tensors in the end go through."""

    def __init__(self) -> None:
        super().__init__()
        self.graph, self.root = Graph(), nn.Module()
        self._known = WeakTensorKeyDictionary()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from importing its compiler, for seconds, only to tell it not to look at this class."""
        return False

    def note(self, value: Any, node: Node) -> None:
        """Remember which node a value, or each of several, is of; of a tensor that is changed in place, the last one."""
        if isinstance(value, torch.Tensor):
            node.meta["kind"] = Kind(value.shape, value.stride(), value.dtype, value.device)
            self._known[value] = node
        elif isinstance(value, list | tuple):
            for number, part in enumerate(value):
                self.note(part, self.graph.call_function(operator.getitem, (node, number)))

    def nodes(self, values: Any) -> Any:
        """Return the same values with nodes in place of tensors; a tensor that nothing here made is kept as it is."""
        return tree_map_only(torch.Tensor, self._node, values)

    def _node(self, tensor: torch.Tensor) -> Node:
        if tensor not in self._known:
            name = f"outside_{len(self.root.state_dict())}"
            self.root.register_buffer(name, tensor)
            self.note(tensor, self.graph.get_attr(name))
        return self._known[tensor]

    def __torch_dispatch__(self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and write it down."""
        del types
        kwargs = kwargs or {}
        if torch.Tag.data_dependent_output in func.tags:
            raise RuntimeError(f"{func} reads a number, and what is done next may depend on it")
        if func is _aten.lift_fresh.default:
            func = _aten.lift_fresh_copy.default  # of numbers that Python has written, and that may be changed in place
        given = self.nodes(args), self.nodes(kwargs)
        value = func(*args, **kwargs)
        self.note(value, self.graph.call_function(func, *given))
        return value
