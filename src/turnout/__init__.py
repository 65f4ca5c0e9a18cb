"""Federated learning with irregular participation."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from turnout.version import __version__ as __version__

if TYPE_CHECKING:  # importing PyTorch takes seconds, which `turnout --help` should not wait for
    from turnout.exports import *  # noqa: F403

_MODULES = {
    "aggregation": "turnout.pieces.aggregation",
    "algorithms": "turnout.algorithms",
    "availability": "turnout.population.availability",
    "behavior": "turnout.population.behavior",
    "data": "turnout.data",
    "delay": "turnout.population.delay",
    "guard": "turnout.pieces.guard",
    "local": "turnout.pieces.local",
    "loss": "turnout.engine.loss",
    "metrics": "turnout.evaluation.metrics",
    "models": "turnout.models",
    "pace": "turnout.protocol.pace",
    "partition": "turnout.data.partition",
    "personalization": "turnout.pieces.personalization",
    "pieces": "turnout.pieces",
    "privacy": "turnout.privacy",
    "requirement": "turnout.population.requirement",
    "schedule": "turnout.core.schedule",
    "search": "turnout.results.range",
    "selection": "turnout.pieces.selection",
    "server": "turnout.pieces.server_optimizer",
    "speed": "turnout.population.speed",
    "weighting": "turnout.pieces.weighting",
}
"""Modules that hold pieces by family, as in `turnout.availability.Markov`, by their public names."""


def __getattr__(name: str) -> Any:
    """Import `turnout.exports` when the first public name, or `__all__`, is used (PEP 562)."""
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name == "behaviour":  # in scripts for earlier versions
        return import_module(_MODULES["behavior"])
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    exports = vars(import_module("turnout.exports")).items()
    public = {each: thing for each, thing in exports if each in _MODULES or _is_public(each, thing)}
    globals().update(public, __all__=sorted([*public, "__version__"]))
    return globals()[name] if name in globals() else _recipe(name)


def _is_public(name: str, thing: object) -> bool:
    """Return whether a module offers what it has under a name, and does not only need it."""
    return not name.startswith("_") and not isinstance(thing, ModuleType)


def _recipe(name: str) -> Any:
    """Return a recipe that is registered and not listed here.

    Raises:
        AttributeError: if there is none, with the module that has such a piece.
    """
    recipe = import_module("turnout.algorithms").ALGORITHMS.get(name)
    if recipe is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_hint(name)}")
    return recipe


def _hint(name: str) -> str:
    """Return which families have such a piece, ``: write turnout.weighting.Participation``; empty where none has."""
    from turnout.core.other_names import in_place_of

    if (instead := in_place_of("turnout", name)) is not None:
        return f": write {instead}"
    homes = [home for home, path in _MODULES.items() if name in _names(import_module(path))]
    return f": write {' or '.join(f'turnout.{home}.{name}' for home in homes)}" if homes else ""


def _names(module: ModuleType) -> Iterable[str]:
    """Return the public names of a module of pieces."""
    return getattr(module, "__all__", None) or (name for name in dir(module) if _is_public(name, getattr(module, name)))


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
