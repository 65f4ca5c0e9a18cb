"""Declare settings that suit a recipe: the defaults of the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from turnout.base import Algorithm

Recipe = TypeVar("Recipe", bound=Callable[..., Algorithm])


@dataclass(frozen=True)
class Defaults:
    """Declare settings that suit a recipe, as a decorator above the one that registers it.

    Args:
        pace: name and options of the pace; empty for synchronous rounds.
        local: options of local training, instead of those that suit the data.
        lr: local step size for each data set, for asynchronous training.
        model: options that the recipe needs of a model, by the model's name.

    Example:
        >>> from turnout.algorithms import fedavg
        >>> @Defaults(pace={"name": "buffered", "buffer_size": 4})
        ... def impatient(local=None, *, also=()):
        ...     return fedavg(local, also=also).named("impatient")
        >>> Defaults.of(impatient).pace
        {'name': 'buffered', 'buffer_size': 4}
        >>> Defaults.of(fedavg).pace
        {}
    """

    pace: Mapping[str, Any] = field(default_factory=dict)
    local: Mapping[str, Any] = field(default_factory=dict)
    lr: Mapping[str, float] = field(default_factory=dict)
    model: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    _declared: ClassVar[dict[Any, Defaults]] = {}

    def __call__(self, recipe: Recipe) -> Recipe:
        """Declare these settings for `recipe`, and return it."""
        self._declared[recipe] = self
        return recipe

    @classmethod
    def of(cls, recipe: Callable[..., Any] | None) -> Defaults:
        """Return the settings that were declared for a recipe, or empty settings."""
        return cls._declared.get(recipe, cls())
