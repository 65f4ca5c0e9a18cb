"""Unknown keyword arguments lead to ours, for experiments, pieces, recipes and sources."""

from dataclasses import replace
from inspect import signature
from typing import Any

import pytest

import turnout as to
from turnout.base import ALGORITHMS
from turnout.core.other_names import _INSIDE, _OTHERS
from turnout.data.source import SOURCES
from turnout.population.availability import Availability

from ..tiny import classification

DATA = classification()


@pytest.mark.parametrize(
    ("make", "name", "message"),
    [
        (to.Sgd, "learning_rate", r"Sgd\(\) got .*learning_rate.; did you mean 'lr'\? \(it takes lr"),
        (to.Sgd, "local_epochs", r"did you mean 'epochs'\?"),
        (to.Sgd, "momentun", r"did you mean 'momentum'\?"),
        (to.Sgd, "zzz", r"argument 'zzz'; it takes lr, steps, epochs, batch_size"),
        (to.fedavg, "learning_rate", r"fedavg\(\) got .*'learning_rate': write fedavg\(local=to.Sgd\(lr=0.1\)\)"),
        (to.fedavg, "lr", r"write fedavg\(local=to.Sgd\(lr=0.1\)\)"),
        (to.fedavg, "global_lr", r"did you mean 'server_lr'\?"),
        (to.fedavg, "clients_per_round", r"did you mean 'cohort_size'\?"),
        (to.selection.Uniform, "clients_per_round", r"did you mean 'cohort_size'\?"),
        (to.partition.Dirichlet, "aplha", r"did you mean 'alpha'\?"),
        (to.availability.Markov, "rtaes", r"Markov\(\) got .*'rtaes'; did you mean 'rates'\?"),
        (to.models.Mlp, "hiden", r"did you mean 'hidden'\?"),
        (to.Population, "availabilty", r"did you mean 'availability'\?"),
        (to.data.digits, "size", r"digits\(\) got an unexpected keyword argument 'size'"),
        (to.Experiment, "num_rounds", r"Experiment\(\) got .*'num_rounds'; did you mean 'rounds'\?"),
        (to.Experiment, "learning_rate", r"write Experiment\(algorithm=to.fedavg\(local=to.Sgd\(lr=0.1\)\)\)"),
        (to.Experiment, "fraction_train", r"write Experiment\(algorithm=to.fedavg\(cohort_size=10\)\)"),
        (to.Experiment, "strategy", r"did you mean 'algorithm'\?"),
    ],
)  # fmt: skip
def test_names_of_other_programs_lead_to_ours(make, name, message):
    with pytest.raises(TypeError, match=message):
        make(**{name: 3})


def test_replace_explains_as_well():
    """Also beside required arguments."""
    run = to.Experiment(DATA, to.models.Logistic(), to.fedavg())
    options: dict[str, Any] = {"num_rounds": 3}
    with pytest.raises(TypeError, match="did you mean 'rounds'"):
        replace(run, **options)
    assert replace(run, rounds=3).rounds == 3


def test_what_is_suggested_can_be_written():
    """Each suggestion evaluates as an argument of a recipe or of an experiment."""
    names = {"to": to, "source": to.data.digits()}
    for text in _INSIDE.values():
        name, _, value = text.partition("=")
        assert name in {*signature(to.Experiment).parameters, "local", "partition"}
        eval(value, names)
    assert not set(_OTHERS) & {other for others in _OTHERS.values() for other in others}


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_recipe_explains_a_learning_rate(name):
    options: dict[str, Any] = {"learning_rate": 0.1}
    with pytest.raises(TypeError, match=r"(did you mean 'lr'|local=to.Sgd\(lr=0.1\)|; it takes)"):
        ALGORITHMS[name](**options)


@pytest.mark.parametrize("thing", [*SOURCES.values(), *Availability.family.values()])
def test_every_source_and_availability_lists_what_it_takes(thing):
    options: dict[str, Any] = {"no_such_option": 1}
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'no_such_option'; (it takes|did you mean)"):
        thing(**options)
