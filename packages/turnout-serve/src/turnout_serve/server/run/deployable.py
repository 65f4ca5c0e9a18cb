"""Check that an experiment can be deployed."""

from __future__ import annotations

import math

from turnout.base.algorithm import Algorithm
from turnout.configuration import Configuration
from turnout.core.checks import ConfigurationError
from turnout.protocol.fits import check_machines


def check(experiment: Configuration) -> None:
    """Check that an experiment has a meaning between real machines.

    Raises:
        ConfigurationError: if not, with the option that has none.
    """
    check_machines(experiment.algorithm)
    _check_options_of_data(experiment)
    if experiment.data.train.weights is not None:
        raise ConfigurationError("weights: examples of clients at home have none: leave those of the data out")
    if experiment.appeal is not None and experiment.appeal.tuning_steps:
        raise ConfigurationError(
            "appeal.tuning_steps: between machines, clients judge the model as it is: leave tuning_steps out"
        )
    _check_noised_answers(experiment)
    opting = experiment.population.opting
    if opting is not None and opting.split == "test":
        raise ConfigurationError("opting: clients at home judge by their training examples: write split='train'")


def _check_options_of_data(experiment: Configuration) -> None:
    """Check that no option looks at the data of all clients, unless clients judge the model by test examples of their own.

    Raises:
        ConfigurationError: if an option does, with the first one.
    """
    judged = ("appeal", "label_groups", "metrics")
    for name in ("gradients", "class_weights", *(() if experiment.evaluate_share else judged)):
        if getattr(experiment, name):
            instead = ", or write evaluate_share=1.0, with which clients judge the model by test examples of their own"
            raise ConfigurationError(
                f"{name}: this looks at the data of all clients, and theirs stay with them: leave it out"
                f"{instead if name in judged else ''}"
            )


def _check_noised_answers(experiment: Configuration) -> None:
    """Check that noise covers the evaluations by clients, and that the budget has room for those on schedule.

    Raises:
        ConfigurationError: if not, with the reason.
    """
    if (plan := experiment.algorithm.noised_privacy) is None:
        return
    if (answers := plan.answers) is None:
        if experiment.evaluate_share:
            raise ConfigurationError(f"evaluate_share: {plan.refuses_answer(0, (), 0)}; or leave evaluate_share out")
        return
    if experiment.evaluate_share and experiment.metrics:
        raise ConfigurationError(
            "metrics: noise needs a bound of what a client adds, and your own metrics have none: leave them out"
        )
    planned = -(-experiment.rounds // experiment.evaluate_every) if experiment.evaluate_share else 0
    if planned > answers.most:
        raise ConfigurationError(
            f"answers.most: got {answers.most}, and {experiment.rounds} rounds with evaluate_every="
            f"{experiment.evaluate_every} ask for {planned} evaluations: write answers.most={planned} or more, or evaluate "
            "less often"
        )


def within_delta(algorithm: Algorithm, most: int, explicit: bool) -> int:
    """Return how many clients may enroll so that the delta of a private run stays below 1/N.

    Args:
        algorithm: algorithm of the run.
        most: maximum number of clients.
        explicit: True where the operator has set that number.

    Raises:
        ConfigurationError: if the operator has set a larger number.
    """
    if (plan := algorithm.privacy) is None or plan.delta * most < 1:
        return most
    fit = math.ceil(1 / plan.delta) - 1
    if explicit:
        raise ConfigurationError(
            f"max_clients: got {most:,}, and delta={plan.delta:g} means something below 1/N alone: write "
            f"--max-clients {fit}, or a smaller delta"
        )
    return fit
