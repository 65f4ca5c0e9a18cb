"""Federated learning with irregular participation."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from turnout.version import __version__

if TYPE_CHECKING:  # importing PyTorch takes seconds, which `turnout --help` should not wait for
    from turnout.exports import *  # noqa: F403

_MODULES = {
    "aggregation": "turnout.pieces.aggregation",
    "algorithms": "turnout.algorithms",
    "availability": "turnout.population.availability",
    "behaviour": "turnout.population.behaviour",
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
    """Import `turnout.exports` when the first public name is used (PEP 562)."""
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name not in __all__:
        return _recipe(name)
    exports = vars(import_module("turnout.exports"))
    globals().update({each: exports[each] for each in __all__ if each in exports})
    return globals()[name]


def _recipe(name: str) -> Any:
    """Return a recipe that is registered and not listed here.

    Raises:
        AttributeError: if there is none, with the module that has such a piece.
    """
    recipe = None if name.startswith("_") else import_module("turnout.algorithms").ALGORITHMS.get(name)
    if recipe is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_hint(name)}")
    return recipe


def _hint(name: str) -> str:
    """Return which families have such a piece, ``: write turnout.weighting.Participation``; empty where none has."""
    homes = [home for home, path in _MODULES.items() if name in _names(import_module(path))]
    return f": write {' or '.join(f'turnout.{home}.{name}' for home in homes)}" if homes else ""


def _names(module: ModuleType) -> Iterable[str]:
    """Return the public names of a module of pieces."""
    return getattr(module, "__all__", None) or (name for name in dir(module) if not name.startswith("_"))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "ALGORITHMS",
    "AdamW",
    "AfterRound",
    "Algorithm",
    "AppealMetrics",
    "Callback",
    "CheckpointError",
    "ConfigurationError",
    "DataError",
    "Diverged",
    "EarlyStopping",
    "Experiment",
    "GradientMetrics",
    "History",
    "Interrupted",
    "Population",
    "Result",
    "Sgd",
    "Tune",
    "TurnoutError",
    "__version__",
    "ace",
    "aced",
    "aggregation",
    "algorithms",
    "amplified_fedavg",
    "amplified_scaffold",
    "apfl",
    "area",
    "availability",
    "average_all",
    "average_participating",
    "behaviour",
    "ca2fl",
    "centralized",
    "compare",
    "compose",
    "data",
    "delay",
    "diloco",
    "ditto",
    "f3ast",
    "fadas",
    "fedadagrad",
    "fedadam",
    "fedala",
    "fedalt",
    "fedasync",
    "fedau",
    "fedavg",
    "fedavg_p",
    "fedavgm",
    "fedawe",
    "fedbabu",
    "fedbn",
    "fedbuff",
    "feddyn",
    "fedex_lora",
    "fedexp",
    "fedfa",
    "fedlaavg",
    "fednova",
    "fednu",
    "fedper",
    "fedprox",
    "fedrep",
    "fedsim",
    "fedstale",
    "fedstaleweight",
    "fedvarp",
    "fedyogi",
    "flexlora",
    "flora",
    "focus",
    "folb",
    "folb_heterogeneous",
    "folb_two_set",
    "guard",
    "hetlora",
    "keep_large_buffers",
    "known_statistics",
    "load",
    "local",
    "loss",
    "maxfl",
    "metrics",
    "mifa",
    "models",
    "moon",
    "mw_fed",
    "oort",
    "pace",
    "partition",
    "perfedavg",
    "personalization",
    "pfedme",
    "pieces",
    "plot",
    "power_of_choice",
    "privacy",
    "qffl",
    "raflora",
    "rennala",
    "requirement",
    "ringmaster",
    "scaffold",
    "scaffold_p",
    "schedule",
    "search",
    "selection",
    "server",
    "speed",
    "sweep",
    "weighting",
]
