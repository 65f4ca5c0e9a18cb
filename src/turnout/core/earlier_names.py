"""Read the names of earlier versions, in files and in the arguments of scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

EARLIER = {
    "behaviour": "behavior", "CentredClipping": "CenteredClipping", "centred_clipping": "centered_clipping",
    "colours": "colors", "NearestNeighbours": "NearestNeighbors",
    "nearest_neighbours": "nearest_neighbors", "Normalise": "Normalize", "Normaliser": "Normalizer",
    "realised_rate": "realized_rate", "standardise": "standardize", "vectorised": "vectorized",
}  # fmt: skip
"""Names of earlier versions, and what they are called now."""

_OF_USERS = ("categories", "classes", "client", "columns", "features", "fitted", "label", "mean", "std", "weight")
"""Keys below which names are those of columns, classes and clients."""

Class = TypeVar("Class", bound=type)


def present(name: Any) -> Any:
    """Return the present name for one of an earlier version; other values unchanged.

    >>> present("vectorised"), present("auto"), present(3)
    ('vectorized', 'auto', 3)
    """
    return EARLIER.get(name, name) if isinstance(name, str) else name


def with_present_names(value: Any) -> Any:
    """Return plain values with present names, as keys and as texts, but for the names of users' columns and classes.

    >>> with_present_names({"engine": "vectorised", "population": [{"behaviour": None}], "data": {"label": "behaviour"}})
    {'engine': 'vectorized', 'population': [{'behavior': None}], 'data': {'label': 'behaviour'}}
    """
    if isinstance(value, Mapping):
        return {present(key): part if key in _OF_USERS else with_present_names(part) for key, part in value.items()}
    return [with_present_names(part) for part in value] if isinstance(value, list) else present(value)


def takes_earlier_names(cls: Class) -> Class:
    """Decorate a class so that it takes its keyword arguments by their earlier names, too."""
    init: Callable[..., None] = cls.__init__

    @wraps(init)
    def renamed(self: Any, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **{present(name): value for name, value in options.items()})

    cls.__init__ = renamed
    return cls
