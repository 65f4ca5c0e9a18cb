"""Explain unknown keyword arguments: those that other programs call otherwise, and those that are misspelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, update_wrapper
from inspect import Parameter, signature
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from turnout.core.checks import nearest
from turnout.core.earlier_names import present
from turnout.core.ranges import check_ranges

_OTHERS = {
    "rounds": ("num_rounds", "n_rounds", "global_rounds", "num_global_rounds", "max_rounds"),
    "lr": ("learning_rate", "local_lr", "local_learning_rate", "client_lr", "eta", "lr0"),
    "server_lr": ("server_learning_rate", "global_lr", "global_learning_rate"),
    "batch_size": ("local_batch_size", "batchsize", "minibatch_size", "bs"),
    "steps": ("local_steps", "num_steps", "num_local_steps", "local_iterations", "local_updates"),
    "epochs": ("local_epochs", "num_epochs", "n_epochs", "num_local_epochs"),
    "max_norm": ("clip_norm", "max_grad_norm", "grad_clip", "clipping_norm", "clipping_bound"),
    "cohort_size": (
        "clients_per_round", "num_selected", "min_fit_clients", "fraction_train", "fraction_fit", "join_ratio",
        "participation_rate", "client_fraction",
    ),
    "num_clients": ("n_clients", "clients", "num_partitions", "client_num_in_total"),
    "mu": ("proximal_mu", "prox_mu"),
    "test_fraction": ("test_size", "test_ratio"), "client": ("client_id", "client_column"), "label": ("target", "labels"),
    "progress": ("verbose", "progress_bar"), "seeds": ("num_seeds", "n_seeds", "repeats"),
    "seed": ("random_seed", "random_state"),
    "algorithm": ("strategy",), "folder": ("output", "output_dir", "out_dir", "save_dir", "log_dir", "results_dir"),
}  # fmt: skip
"""Names of Flower, PFLlib, pfl-research, scikit-learn and others, by ours."""

_OURS = {other: ours for ours, others in _OTHERS.items() for other in others}


def our_name(name: str) -> str:
    """Return our name for an option that other programs call otherwise; other names stay.

    >>> our_name("learning_rate"), our_name("momentum")
    ('lr', 'momentum')
    """
    return _OURS.get(name, name)


_LOCAL = "local=to.Sgd({})"
_INSIDE = {
    "lr": _LOCAL.format("lr=0.1"),
    "batch_size": _LOCAL.format("batch_size=16"),
    "steps": _LOCAL.format("steps=5"),
    "epochs": _LOCAL.format("steps=None, epochs=1"),
    "momentum": _LOCAL.format("momentum=0.9"),
    "weight_decay": _LOCAL.format("weight_decay=0.001"),
    "max_norm": _LOCAL.format("max_norm=1.0"),
    "optimizer": "local=to.AdamW(lr=0.001)",
    "alpha": "partition=to.partition.Dirichlet(alpha=0.1)",
    "cohort_size": "algorithm=to.fedavg(cohort_size=10)",
    "num_clients": "data=source.split(to.partition.Dirichlet(alpha=0.1), num_clients=100)",
    "availability": "population=to.Population(availability=to.availability.Markov())",
}
"""The text that says what to write where an argument is one of another argument's."""

_ATTRIBUTES = {
    "turnout": {
        "to.Experiment(data, model, to.fedavg()).run()": ("run", "fit", "train", "simulate", "start_simulation"),
        "algorithm=to.fedavg(), or another recipe of to.algorithms": ("strategy", "Strategy"),
        "to.fedavg()": ("FedAvg",),
    },
    "Experiment": {"experiment.run()": ("fit", "train", "start")},
    "Result": {
        "result.history.final('test_accuracy')": ("accuracy", "test_accuracy"),
        "result.summary()": ("loss", "metrics"),
        "result.export('model.safetensors'), or experiment.run('runs/demo') to keep all tables": ("save",),
        "result.state_dict()": ("params", "parameters", "weights"),
    },
}
"""Text to write in place of attributes that the module and classes do not have, with the names that users try."""


def in_place_of(owner: str, attribute: str) -> str | None:
    """Return what to write in place of an attribute that a class or the module does not have; None where that is unknown.

    >>> in_place_of("Experiment", "fit")
    'experiment.run()'
    """
    return next((ours for ours, others in _ATTRIBUTES.get(owner, {}).items() if attribute in others), None)


class ExplainsAttributes:
    """Base class of classes whose errors say what to write instead of an attribute that they do not have."""

    if not TYPE_CHECKING:  # a type checker knows the attributes

        def __getattr__(self, name: str) -> Any:
            if (instead := in_place_of(type(self).__name__, name)) is None:
                return object.__getattribute__(self, name)  # which raises the usual error
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}: write {instead}")


Function = TypeVar("Function", bound=Callable[..., Any])


@cache
def _taken(thing: Callable[..., Any]) -> tuple[str, ...] | None:
    """Return the names of the arguments of a function or class; None if it takes any."""
    parameters = signature(thing).parameters.values()
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return tuple(parameter.name for parameter in parameters if parameter.kind is not Parameter.POSITIONAL_ONLY)


def refuse_unknown(thing: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Check the names of keyword arguments of a function or class.

    Raises:
        TypeError: if one is unknown, with what to write instead.
    """
    if not options or (taken := _taken(thing)) is None:
        return
    for name in options:
        if present(name) not in taken:
            raise TypeError(
                f"{thing.__name__}() got an unexpected keyword argument {name!r}{_instead(thing.__name__, name, taken)}"
            )


def _instead(function: str, name: str, taken: tuple[str, ...]) -> str:
    """Return what to write instead of an unknown argument."""
    ours, listed = our_name(name), f"it takes {', '.join(taken)}" if taken else "it takes no arguments"
    if ours in taken:
        return f"; did you mean {ours!r}? ({listed})"
    if (inside := _INSIDE.get(ours)) is not None:
        if inside.startswith("local=") and "local" not in taken and "algorithm" in taken:
            inside = f"algorithm=to.fedavg({inside})"
        if inside.partition("=")[0] in taken:
            return f": write {function}({inside}) ({listed})"
    close = nearest(name, taken).partition("?")[0] if taken else ""
    return f"; {close}? ({listed})" if close.startswith("did you mean") else f"; {listed}"


class ExplainsArguments:
    """Base class of classes whose errors say what to write instead of an unknown argument or a value out of range."""

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Check the names of the options, and the ranges that their types have, before `__init__`."""
        refuse_unknown(cls, options)
        check_ranges(cls, dict(zip(_taken(cls) or (), arguments, strict=False)) | options)
        return super().__new__(cls)


def explains_arguments(function: Function) -> Function:
    """Decorate a function so that its error for an unknown keyword argument says what to write instead."""
    refuse, rename = refuse_unknown, present

    def checked(*arguments: Any, **options: Any) -> Any:
        refuse(function, options)
        return function(*arguments, **{rename(name): value for name, value in options.items()})

    # With the globals of the function, by which doctest recognizes the functions of a module.
    made = FunctionType(checked.__code__, function.__globals__, function.__name__, None, checked.__closure__)
    return update_wrapper(made, function)  # type: ignore[return-value]
