"""Experiments from settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turnout.algorithms import ALGORITHMS
from turnout.cli import defaults
from turnout.cli.layers import override
from turnout.cli.names import AVAILABILITY, PARTITIONS, SELECTIONS
from turnout.cli.settings import Settings
from turnout.core.checks import ConfigurationError
from turnout.core.schedule import ByStep, Cosine, LinearWarmup
from turnout.data import SOURCES
from turnout.models import MODELS, Cnn, Mlp
from turnout.pieces.local import Adam, AdamW, Prox, Sgd
from turnout.pieces.selection import AllAvailable, Uniform
from turnout.pieces.server_optimizer.momentum import ServerNesterov
from turnout.pieces.weighting import Participation
from turnout.population import Bernoulli, Cyclic, Markov
from turnout.protocol.pace import Buffered, Rounds
from turnout.record.describe import describe


def settings(*overrides: str) -> Settings:
    return Settings.of(*map(override, overrides))


def test_default_is_fedau_on_digits() -> None:
    experiment = settings().experiment()
    assert experiment.data.name == "digits"
    assert experiment.data.recipe["num_clients"] == 100
    assert experiment.algorithm.name == "fedau"
    assert experiment.model == Mlp(hidden=(64,))
    assert experiment.population.availability == Markov(mean=0.1, correlated_with_labels=0.1)
    assert isinstance(experiment.algorithm.selection, AllAvailable)


def test_every_setting_reaches_the_experiment() -> None:
    experiment = settings(
        "rounds=7", "seed=3", "evaluate_every=2", "evaluation_examples=50", "engine=one_by_one", "memory_budget=2000000",
        "data.num_clients=20", "data.partition=classes_per_client", "data.k=3", "data.test_fraction=0.5",
        "model.hidden=8,4", "model.dropout=0.1", "algorithm.cutoff=none", "algorithm.server_lr=2",
        "local.lr={kind='cosine', initial=1, rounds=7}", "local.epochs=2", "local.steps=none",
        "availability=bernoulli", "availability.mean=0.4", "selection=uniform", "selection.cohort_size=4",
        "also.prox.mu=0.5", "name=mine",
    ).experiment()  # fmt: skip
    assert (experiment.rounds, experiment.seed, experiment.evaluate_every) == (7, 3, 2)
    assert (experiment.evaluation_examples, experiment.engine, experiment.memory_budget) == (50, "one_by_one", 2000000)
    assert experiment.data.num_clients == 20
    assert ((experiment.data.label_counts() > 0).sum(axis=1) <= 3).all()
    assert experiment.data.test is not None
    assert len(experiment.data.test.x) == pytest.approx(1797 / 2, abs=10)
    assert experiment.model == Mlp(hidden=(8, 4), dropout=0.1)
    assert experiment.algorithm.name == "mine"
    assert experiment.algorithm.weighting[0] == Participation(cutoff=None)
    assert experiment.algorithm.local == Sgd(lr=Cosine(1.0, rounds=7), epochs=2, steps=None)
    assert experiment.algorithm.corrections == (Prox(0.5),)
    assert experiment.algorithm.selection == Uniform(4)
    assert experiment.population.availability == Bernoulli(mean=0.4, correlated_with_labels=0.1)


def test_sections_can_be_names_or_tables() -> None:
    short = Settings.of({"availability": "cyclic", "data": {"partition": "iid"}})
    long = Settings.of({"availability": {"name": "cyclic"}, "data": {"partition": {"name": "iid"}}})
    assert short == long


def test_later_layers_have_priority() -> None:
    layers: list[dict[str, Any]] = [{"local": {"lr": 0.1, "steps": 3}, "rounds": 5}, {"local": {"lr": 0.2}}]
    made = Settings.of(*layers, override("local.lr=0.3"))
    assert made.algorithm().local == Sgd(lr=0.3, steps=3)
    assert made.numbers() == {"rounds": 5}


def test_flat_and_nested_partition_options_are_equivalent() -> None:
    assert settings("data.alpha=0.3") == settings("data.partition.alpha=0.3")
    both = settings("data.alpha=0.3", "data.partition.alpha=0.7")
    assert both.table["data"]["partition"] == {"name": "dirichlet", "alpha": 0.7}
    assert settings("data.alpha=0.3", "data.partition=iid").table["data"]["partition"] == {"name": "iid"}


def test_option_of_both_data_and_partition_goes_to_the_data() -> None:
    with pytest.raises(ConfigurationError, match=r"data.partition.min_examples: got -1"):
        settings("data.min_examples=-1")
    with pytest.raises(ConfigurationError, match=r"data.min_examples: got 'x'"):
        settings("data=shakespeare", "data.min_examples=x")


def test_data_sets_have_their_own_defaults() -> None:
    made = settings("data=cifar10")
    assert made.model() == Cnn.cifar10()
    assert made.table["data"] == {
        "name": "cifar10", "num_clients": 250, "partition": {"name": "dirichlet", "alpha": 0.1}, "empty": "drop",
        "augmentation": "cifar",
    }  # fmt: skip
    assert settings("data=cifar10", "data.augmentation=none", "model=mlp").model() == Mlp()
    # What was said of other data does not stick, and what a name stands for comes back with it.
    assert Settings.of({"data": {"name": "mnist", "num_clients": 7}}, {"data": "digits"}) == settings()


NEEDED = {
    "table": ("data.path=a.csv", "data.label=y"),
    "declared": ("data.inputs=4", "data.classes=2"),
    "instructions": ("data.path=a.jsonl",),
}
"""Options without which a data set is none."""


MEASURED = {"oort": ("also.loss_rms={}",)}
"""What a selection needs clients to measure."""


def test_every_name_has_valid_defaults() -> None:
    for name in ALGORITHMS:
        assert settings(f"algorithm={name}").algorithm().name == name
    for name in MODELS:
        assert settings(f"model={name}").model() == MODELS[name]()
    for name in SOURCES:
        assert name in defaults.BY_DATA
        settings(f"data={name}", *NEEDED.get(name, ()))
    for name in SELECTIONS:
        settings(f"selection={name}", *MEASURED.get(name, ()))
    for name in AVAILABILITY.keys() - {"trace", "timed_trace"}:
        settings(f"availability={name}")
    for name in PARTITIONS:
        settings(f"data.partition={name}")


def test_given_rates_are_not_drawn() -> None:
    made = settings("availability.rates=0.5,0.25")
    assert made.availability() == Markov(rates=(0.5, 0.25))


def test_participation_depends_on_labels_except_for_text() -> None:
    assert settings("availability=cyclic").availability() == Cyclic(correlated_with_labels=0.1)
    assert settings("availability.correlated_with_labels=none").availability() == Markov()
    assert settings("data=shakespeare").availability() == Markov()


def test_seed_applies_to_the_partition_by_default() -> None:
    def sizes(*overrides: str) -> np.ndarray:
        return settings("data.num_clients=10", *overrides).data().train.sizes

    assert not np.array_equal(sizes("seed=1"), sizes("seed=2"))
    assert np.array_equal(sizes("seed=1"), sizes("seed=2", "data.seed=1"))


def test_seed_applies_to_random_sources() -> None:
    def draw(*overrides: str) -> np.ndarray:
        data = settings("data=synthetic_iid", *overrides).data()
        assert data.client_test is not None
        return np.concatenate([data.train.sizes, data.client_test.x.numpy().ravel()])

    assert not np.array_equal(draw("seed=1"), draw("seed=2"))
    assert np.array_equal(draw("seed=1"), draw("seed=2", "data.seed=1"))
    assert settings("data=synthetic", "data.num_clients=7").data().num_clients == 7
    with pytest.raises(ConfigurationError, match=r"data\.seed: got 'x', needed a whole number"):
        settings("data=synthetic", "data.seed=x")


def test_alpha_belongs_to_the_data_if_they_have_it() -> None:
    made = settings("data=synthetic", "data.alpha=0.5", "data.beta=2")
    assert made.data().name == "synthetic_0.5_2"
    assert settings("data.alpha=0.5").table["data"]["partition"] == {"name": "dirichlet", "alpha": 0.5}
    both = settings("data=synthetic", "data.alpha=0", "data.partition=dirichlet", "data.partition.alpha=3")
    assert both.table["data"]["alpha"] == 0
    assert both.table["data"]["partition"] == {"name": "dirichlet", "alpha": 3}
    with pytest.raises(ConfigurationError, match=r"unknown option 'data\.beta' of digits"):
        settings("data.beta=2")


def test_clients_without_examples_are_dropped_by_default() -> None:
    crowded = ("data.num_clients=1400", "data.alpha=0.01")
    assert settings(*crowded).data().num_clients < 1400
    with pytest.raises(ConfigurationError, match=r"have no training examples"):
        settings(*crowded, "data.empty=refuse").data()


def test_saved_settings_give_the_same_experiment() -> None:
    made = settings("algorithm.cutoff=inf", "model.hidden=8,4", "local.lr={kind='cosine', initial=1, rounds=7}")
    again = Settings.of(json.loads(json.dumps(made.table)))
    assert again == made
    assert describe(again.experiment()) == describe(made.experiment())


def test_settings_are_a_function_of_the_seed() -> None:
    experiment = settings("data.num_clients=10")(5)
    assert experiment.seed == 5
    assert experiment.data.recipe["seed"] == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rouds=3", "unknown setting 'rouds': did you mean 'rounds'? (known: "),
        ("rounds=ten", "rounds: got 'ten', needed a whole number"),
        ("seed=0.5", "seed: got 0.5, needed a whole number"),
        ("engine=fast", "unknown value of engine 'fast'"),
        ("data=digit", "unknown data set 'digit': did you mean 'digits'? (known: cifar10, "),
        ("data=5", "data: got 5, needed a name or a table"),
        ("data.name=5", "data.name: got 5, needed a text"),
        ("data.num_client=4", "unknown option 'data.num_client' of digits: did you mean 'num_clients'?"),
        ("data.num_clients=some", "data.num_clients: got 'some', needed a whole number, or none"),
        ("data.alpha=-1", "data.partition.alpha: got -1.0, needed a finite number > 0"),
        ("data.alpha=x", "data.partition.alpha: got 'x', needed a number"),
        ("data.partition=dirichle", "unknown partition 'dirichle': did you mean 'dirichlet'?"),
        ("data.partition.alpa=1", "unknown option 'data.partition.alpa' of Dirichlet: did you mean 'alpha'?"),
        ("data.partition=5", "data.partition: got 5, needed a name or a table"),
        ("data.augmentation=cifa", "unknown augmentation 'cifa': did you mean 'cifar'?"),
        ("model=mpl", "unknown model 'mpl': did you mean 'mlp'?"),
        ("model.hidden=ten", "model.hidden: got 'ten', needed a list of whole numbers"),
        ("model.hidden=0", "model.hidden: got (0,), needed a tuple"),
        ("algorithm=feau", "unknown algorithm 'feau': did you mean 'fedau'?"),
        ("algorithm.cutof=3", "unknown option 'algorithm.cutof' of fedau: did you mean 'cutoff'?"),
        ("algorithm.cutoff=ten", "algorithm.cutoff: got 'ten', needed a whole number, or none"),
        ("algorithm.cutoff=0", "algorithm.cutoff: got 0, needed a whole number >= 1"),
        ("algorithm.server_lr=0", "algorithm.server_lr: got 0.0, needed a finite number > 0"),
        ("local=fast", "local: got 'fast', needed a table of options"),
        ("local.lr=-1", "local.lr: got -1.0, needed a finite number > 0"),
        ("local.sampling=slow", "unknown value of local.sampling 'slow'"),
        ("local.solver=addam", "unknown solver 'addam': did you mean 'adam'? (known: adam, adamw, sgd)"),
        (
            "local.beta1=0.8",
            "unknown option 'local.beta1' of Sgd: it is an option of adam, adamw; write local.solver=adam",
        ),
        ("selection=unifrom", "unknown selection 'unifrom': did you mean 'uniform'?"),
        (
            "selection.cohort_size=3",
            "selection has options but no name: write selection=NAME too, one of all_available, by_alignment",
        ),
        ("availability=marko", "unknown availability 'marko': did you mean 'markov'?"),
        ("availability.mean=3", "availability.mean: got 3.0, needed a probability"),
        ("availability=trace", "availability.table is missing: needed a text"),
        ("also.pro.mu=1", "unknown piece 'pro': did you mean 'prox'?"),
        ("also.prox=1", "also.prox: got 1, needed a table of options"),
        ("also.prox.mu=-1", "also.prox.mu: got -1.0, needed a finite number >= 0"),
        ("name=a/b", "name: got 'a/b', needed letters, digits"),
    ],
)
def test_invalid_settings_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        settings(text)
    assert message in str(caught.value)


def test_data_dependent_errors_name_the_setting() -> None:
    with pytest.raises(ConfigurationError, match=r"^data.num_clients: got 5000, needed at most"):
        settings("data.num_clients=5000").data()


def test_named_solver_does_not_inherit_sgd_step_sizes() -> None:
    assert settings("local.lr=0.2").algorithm().local == Sgd(lr=0.2)
    chosen = settings("local.solver=adamw", "local.beta1=0.8", "local.keep_state=true").algorithm()
    assert chosen.local == AdamW(beta1=0.8, keep_state=True)
    assert settings("data=synthetic").algorithm().local == Sgd(lr=0.01)
    assert settings("data=synthetic", "local.solver=adam").algorithm().local == Adam()
    warm = """local.lr={kind="by_step", schedule={kind="linear_warmup", lr=0.1, rounds=2}}"""
    assert settings(warm).algorithm().local == Sgd(lr=ByStep(LinearWarmup(0.1, 2.0)))


def test_algorithm_may_have_a_default_solver() -> None:
    inner = settings("algorithm=diloco", "local.steps=50").algorithm()
    assert inner.local == AdamW(steps=50, weight_decay=0.1, keep_state=True)
    assert inner.server == ServerNesterov(0.7, 0.9)
    assert settings("algorithm=diloco", "data=synthetic").algorithm().local == AdamW(weight_decay=0.1, keep_state=True)
    assert settings("algorithm=diloco", "local.solver=sgd", "local.momentum=0.5").algorithm().local == Sgd(momentum=0.5)
    assert settings("server=nesterov", "server.beta=0.5").algorithm().server == ServerNesterov(beta=0.5)


def test_solver_is_refused_if_the_recipe_requires_sgd() -> None:
    with pytest.raises(
        ConfigurationError, match=r"local.solver: got 'adamw', needed sgd, for perfedavg is about steps of"
    ):
        settings("algorithm=perfedavg", "local.solver=adamw")


BARE = """
from turnout.algorithms.compose import compose
from turnout.base.algorithm import ALGORITHMS

@ALGORITHMS.register
def bare(also=()):
    return compose(*also)
"""


def test_local_rule_is_refused_if_the_recipe_has_none(built_in: Any) -> None:
    built_in("turnout.algorithms", "bare_in_settings", BARE)
    with pytest.raises(ConfigurationError, match=r"local: .* has no local rule with options: leave it out"):
        settings("algorithm=bare", "local.lr=1")


HUGE = "9" * 400


@pytest.mark.parametrize(
    "text",
    [
        *("local.steps=1e12", "local.batch_size=1e12", f"local.steps={HUGE}", f"rounds={HUGE}"),
        *(f"local.lr={HUGE}", f"model.hidden={HUGE}", f"evaluate_every={HUGE}", f"data.num_clients={HUGE}"),
        *(f"memory_budget={HUGE}", f"data.alpha={HUGE}", "rounds=" + "9" * 5000, "local.lr=" + "[" * 5000),
        *('local.steps={kind="uniform", least=1, most=1000000000000}', f"local.momentum={HUGE}"),
    ],
    ids=lambda text: text[:20],
)
def test_out_of_range_numbers_are_refused(text):
    with pytest.raises(ConfigurationError) as caught:
        Settings.of({"data": {"num_clients": 10}}, override(text)).experiment()
    assert len(str(caught.value)) < 700


def test_user_recipe_declares_its_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "import turnout as to\nfrom turnout.algorithms.defaults import Defaults\n"
        "@Defaults(pace={'name': 'buffered', 'buffer_size': 7}, local={'lr': 0.3}, lr={'digits': 0.03})\n"
        "def mine(local: to.Sgd | None = None, also=()):\n    return to.fedavg(local, also=also)\n"
    )
    made = settings("algorithm=mine.py:mine")
    assert made.pace() == Buffered(7)
    assert made.algorithm().local == Sgd(lr=0.3)
    assert isinstance(settings("algorithm=mine.py:mine", "pace=rounds").pace(), Rounds)
