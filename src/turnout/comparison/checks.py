"""Check that experiments can run and will record a metric, before any of them is trained."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from turnout.core.checks import ConfigurationError, TurnoutError, known_name
from turnout.experiment import Experiment
from turnout.record.schema import APPEAL_COLUMNS, CHOOSING, COSTS, JUDGED, ROUND_COLUMNS
from turnout.simulation.simulation import Simulation

LOG = logging.getLogger(__name__)

_FEW = 32
"""The number of evaluation examples with which the names of recorded metrics are determined."""

_EVALUATIONS = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")
_OF_GRADIENTS = ("squared_shared_gradient_norm", "squared_gradient_norm", "squared_personal_gradient_norm")
_OF_APPEAL = ("pool", *(kind + column for kind in JUDGED for column in APPEAL_COLUMNS))
_OF_TIME = ("simulated_seconds", "staleness_mean", "staleness_max", "num_unused")


def check_experiments(
    makes: Mapping[str, Callable[[], Experiment]], metric: str | None = None, target: bool = False
) -> None:
    """Build every experiment and try its model on a minibatch.

    A warning names experiments that are tested on other examples than the rest.

    Args:
        makes: a function that makes each experiment, by name.
        metric: a column that all have to record, or a cost of `schema.COSTS`.
        target: require that all record the same accuracy, for a target.

    Raises:
        ConfigurationError: if an experiment cannot run or will not record the metric, with its name.
    """
    columns: dict[str, frozenset[str]] = {}
    personal: dict[bool, list[str]] = {True: [], False: []}
    for name, make in makes.items():
        try:
            experiment = make()
            if not isinstance(experiment, Experiment):
                raise ConfigurationError(f"got {experiment!r}, needed an Experiment")
            Simulation(experiment)
            if experiment.data.test is not None and experiment.data.client_test is not None:
                personal[experiment.algorithm.personal is not None].append(name)
            if metric is not None or target:
                columns[name] = columns_of(experiment)
            if metric is not None:
                _check_metric(metric, columns[name])
        except TurnoutError as error:
            raise type(error)(f"{name}: {error}") from error
    if target:
        _check_target(columns)
    if personal[True] and personal[False]:
        LOG.warning(
            "%s: tested on the clients' own test examples, and %s on the pooled test, so their test_loss and test_accuracy "
            "are of different examples: split with test_fraction=0.0, and official_test='pool' if there is an official test",
            ", ".join(personal[True]),
            ", ".join(personal[False]),
        )


def columns_of(experiment: Experiment) -> frozenset[str]:
    """Predict the columns of an experiment's table of rounds."""
    tried = Simulation(replace(experiment, evaluation_examples=_FEW, appeal=None, gradients=None))
    columns = set(ROUND_COLUMNS) - set(_EVALUATIONS) | set(tried.evaluate()) | {"server_bytes"}
    # With few examples a metric may have no value, such as AUC of a single class.
    splits = [name.removesuffix("_loss") for name in columns if name.endswith("_loss") and "weighted" not in name]
    columns |= {f"{split}_{metric}" for metric in experiment.named_metrics() for split in splits}
    judged = experiment.appeal is not None or experiment.population.opting is not None
    further = {
        _OF_TIME: experiment.population.speed is not None,
        _OF_APPEAL: judged,
        _OF_GRADIENTS: experiment.gradients is not None,
    }
    columns.update(*(names for names, recorded in further.items() if recorded))
    return frozenset(columns)


def _check_metric(metric: str, columns: Iterable[str]) -> None:
    if metric in COSTS or metric == "rounds":
        needed = COSTS.get(metric, ())
        if needed and not set(needed) & set(columns):
            raise ConfigurationError(f"{metric} will not be recorded: needed clients with a speed")
        return
    known_name("column", metric, columns)


def _check_target(columns: Mapping[str, frozenset[str]]) -> None:
    """Raise an error unless all experiments record the same accuracy."""
    for accuracy in CHOOSING:
        recording = [name for name, recorded in columns.items() if accuracy in recorded]
        if len(recording) == len(columns):
            return
        if recording:
            without = next(name for name in columns if name not in recording)
            raise ConfigurationError(
                f"to_accuracy: {recording[0]} will record {accuracy}, and {without} will not: give all the same tests"
            )
    raise ConfigurationError("to_accuracy: no accuracy will be recorded, as targets are no labels")
