"""Give each thread its own copy of a module."""

from __future__ import annotations

import copy
import threading
from typing import Any, NamedTuple, cast

from torch import nn

from turnout.engine.dropout import KeyedDropout


class Copy(NamedTuple):
    """The module that one thread calls, and its dropout layers."""

    module: nn.Module
    dropouts: list[KeyedDropout]


class ThreadCopies:
    """One copy of a module per thread, made when the thread asks for it first.

    Copies share the parameters and buffers of the module, because every call replaces them all.

    Args:
        module: the module; must not be changed.
        alone: whether the module is called with the parameters of one client at a time; layers with an attribute of this
            name receive it.

    Example:
        >>> copies = ThreadCopies(nn.Linear(2, 1), alone=False)
        >>> copies.of_thread() is copies.of_thread()
        True
    """

    def __init__(self, module: nn.Module, alone: bool) -> None:
        self._module, self._alone = module, alone
        self._copies = threading.local()

    def of_thread(self) -> Copy:
        """Return the copy of the calling thread."""
        if not hasattr(self._copies, "copy"):
            tensors = {id(value): value for value in (*self._module.parameters(), *self._module.buffers())}
            module = copy.deepcopy(self._module, tensors)
            for layer in module.modules():
                if hasattr(layer, "alone"):
                    cast("Any", layer).alone = self._alone
            self._copies.copy = Copy(module, [m for m in module.modules() if isinstance(m, KeyedDropout)])
        return self._copies.copy
