"""Base classes of pieces, to derive your own from: one for each slot of an algorithm, and what clients and paces are made of.

A piece is a frozen dataclass that derives from the base class of its slot. This one counts clients by the inverse of their
number of examples, ``w_b <- w_b / n_b``:

>>> from dataclasses import dataclass
>>> import torch, turnout as to
>>> @dataclass(frozen=True)
... class ByFewExamples(to.pieces.Weighting):
...     def factors(self, report, version, state, federation):
...         return 1.0 / torch.from_numpy(report.num_examples).double()
>>> to.compose(ByFewExamples(), to.weighting.DivideBySum()).name
'custom'
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # at run time by `__getattr__`: pieces themselves live in this folder, and import what is below it
    from turnout.pieces.bases import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Load a base class, or the list `__all__`, when it is first used (PEP 562)."""
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    bases = vars(import_module("turnout.pieces.bases"))
    if name == "__all__":
        return sorted(each for each, thing in bases.items() if isinstance(thing, type))
    if name not in bases or isinstance(bases[name], ModuleType):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return bases[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
