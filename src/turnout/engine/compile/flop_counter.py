"""Count floating-point operations without importing torch's compiler."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class FlopCounter(TorchDispatchMode):
    """Count floating-point operations by the formulas of `torch.utils.flop_counter.FlopCounterMode`.

    That class imports torch's compiler, which takes two seconds at the start of a run.

    Attributes:
        flops: number of operations so far; a multiplication and an addition count as two.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False without importing torch's compiler."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count it if there is a formula for it."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if (formula := flop_registry.get(func.overloadpacket)) is not None:
            self.flops += formula(*args, **kwargs, out_val=result)
        return result
