"""Explain arguments that have other names in turnout than in other programs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

_LOCAL, _COHORT = "algorithm=to.fedavg(local=to.Sgd({}))", "algorithm=to.fedavg(cohort_size=10)"
_INSTEAD = {
    **dict.fromkeys(("num_rounds", "n_rounds", "global_rounds", "num_global_rounds", "max_rounds"), "rounds=100"),
    **dict.fromkeys(("learning_rate", "lr", "local_lr", "local_learning_rate"), _LOCAL.format("lr=0.1")),
    **dict.fromkeys(("batch_size", "local_batch_size"), _LOCAL.format("batch_size=16")),
    **dict.fromkeys(("fraction_train", "fraction_fit", "join_ratio", "participation_rate", "client_fraction"), _COHORT),
    **dict.fromkeys(("clients_per_round", "cohort_size", "num_selected", "min_fit_clients"), _COHORT),
    **dict.fromkeys(("local_steps", "steps"), _LOCAL.format("steps=5")),
    **dict.fromkeys(("num_clients", "n_clients"), "data=source.split(to.partition.Dirichlet(alpha=0.1), num_clients=100)"),
    "strategy": "algorithm=to.fedavg()",
    "availability": "population=to.Population(availability=to.availability.Markov())",
    "random_seed": "seed=0",
}  # fmt: skip
"""The text that says what to write instead, by names of Flower, PFLlib, pfl-research and others."""

Class = TypeVar("Class", bound=type)


def explains_other_names(cls: Class) -> Class:
    """Decorate a class so that its error for an unknown keyword argument says what to write instead."""
    init: Callable[..., None] = cls.__init__
    known = set(signature(init).parameters)

    @wraps(init)
    def checked(self: Any, *arguments: Any, **options: Any) -> None:
        for name in options.keys() - known:
            if name in _INSTEAD:
                raise TypeError(
                    f"{cls.__name__}() got an unexpected keyword argument {name!r}: write {_INSTEAD[name]} instead"
                )
        init(self, *arguments, **options)

    cls.__init__ = checked  # type: ignore[misc]
    return cls
