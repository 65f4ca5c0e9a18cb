"""The table of recipes that every law is tried on, and what it takes to try one."""

import os
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch

from turnout import (
    ALGORITHMS,
    AdamW,
    Algorithm,
    Experiment,
    Population,
    Sgd,
    average_participating,
    compose,
    diloco,
    ditto,
    fedadagrad,
    fedadam,
    fedalt,
    fedau,
    fedavg,
    fedavg_p,
    fedavgm,
    fedbn,
    fedexp,
    fednova,
    fednu,
    fedper,
    fedprox,
    fedrep,
    fedsim,
    fedyogi,
    folb,
    folb_heterogeneous,
    folb_two_set,
    maxfl,
    mifa,
    models,
    mw_fed,
    perfedavg,
    qffl,
    scaffold,
    scaffold_p,
)
from turnout.core.schedule import ByStep, LinearWarmup
from turnout.pieces.aggregation import CenteredClipping, Krum, Median, NearestNeighbors, PrivateSum, SecureSum
from turnout.pieces.aggregation.low_rank import LowRank
from turnout.pieces.guard import Clip, ClipControls, PowerSgd, Qsgd, Sign, TopK, TruncatedRank
from turnout.pieces.local import AppealGap, GradientNoise, Prox, Scaffold, Solver, StartGradient
from turnout.pieces.personalization import Ditto, Personal
from turnout.pieces.selection import Uniform, WithReplacement
from turnout.pieces.server_optimizer.adaptive import ServerAdam
from turnout.pieces.server_optimizer.momentum import ServerMomentum
from turnout.pieces.weighting import (
    Alignment,
    Appeal,
    DivideByAbsoluteSum,
    DivideByClients,
    DivideBySum,
    DivideBySumPlus,
    Participation,
)
from turnout.population.availability import Bernoulli
from turnout.population.requirement import WarmUp
from turnout.simulation import Simulation

from ..tiny import SIZES, adapted, classification

N = len(SIZES)
DATA = classification(features=16, classes=16)
DEVICE = os.environ.get("TURNOUT_TEST_DEVICE", "cpu")
"""Where the runs of the laws compute."""

RATES = (0.5, 0.3, 0.6, 0.2, 0.4, 0.3, 0.5, 0.1)
"""Of taking part; with seed 0 and seed 1 some of the first ten rounds are empty."""


def adamw(local: Sgd) -> AdamW:
    """The same minibatches, two for each clipped step of AdamW, whose state clients keep, with a warm-up by step."""
    options = {field.name: getattr(local, field.name) for field in fields(Solver)}
    lr = ByStep(LinearWarmup(0.02, rounds=2.5))
    return AdamW(**options | {"lr": lr, "keep_state": True, "accumulate": 2, "max_norm": 1.0})


BASELINES = ("local", "centralized")
"""Recipes without a federation, which have laws of their own: tests/algorithms/test_baselines.py."""

RECIPES: dict[str, Callable[[Sgd], Algorithm]] = {
    "fedavg": fedavg,
    "fedau": lambda local: fedau(local, cutoff=3),
    "average_participating": average_participating,
    "average_all": ALGORITHMS["average_all"],
    "known_statistics": lambda local: ALGORITHMS["known_statistics"](local, rates=RATES),
    "fedvarp": ALGORITHMS["fedvarp"],
    "mifa": ALGORITHMS["mifa"],
    "fedstale": lambda local: ALGORITHMS["fedstale"](local, rates=RATES),
    "fedstale of learned rates": lambda local: ALGORITHMS["fedstale"](local, beta=0.8, learns_rates=True, cutoff=3),
    "fedawe": lambda local: ALGORITHMS["fedawe"](local, global_lr=0.8),
    "fedlaavg": lambda local: ALGORITHMS["fedlaavg"](local, cohort_size=3),
    "f3ast": lambda local: ALGORITHMS["f3ast"](local, cohort_size=3, beta=0.2),
    "amplified_fedavg": lambda local: ALGORITHMS["amplified_fedavg"](local, period=3),
    "amplified_scaffold": lambda local: ALGORITHMS["amplified_scaffold"](local, period=3),
    "folb": lambda local: folb(local, cohort_size=3),
    "folb_heterogeneous": lambda local: folb_heterogeneous(local, psi=0.5, cohort_size=3, also=(Prox(mu=0.1),)),
    "folb_two_set": lambda local: folb_two_set(local, cohort_size=4),
    "fednu": lambda local: fednu(local, cohort_size=3),
    "fedprox": lambda local: fedprox(local, mu=0.1, cohort_size=3),
    "fednova": lambda local: fednova(local, cohort_size=3),
    "fedavg_p": lambda local: fedavg_p(local, lr_factor=2.0, outer_lr=0.8, cohort_size=3, server_lr=1.2),
    "scaffold_p": lambda local: scaffold_p(local, lr_factor=0.5, cohort_size=3),
    "fedsim": lambda local: fedsim(local, cohort_size=3),
    "fedalt": lambda local: fedalt(local, cohort_size=3),
    "fedrep": lambda local: fedrep(local, share=0.7, cohort_size=3),
    "fedper": lambda local: fedper(local, cohort_size=3),
    "fedbn": lambda local: fedbn(local, personal="head"),
    "ditto": lambda local: ditto(local, proximal=0.5, cohort_size=3),
    "apfl": lambda local: ALGORITHMS["apfl"](local, alpha=0.4, cohort_size=3),
    "pfedme": lambda local: ALGORITHMS["pfedme"](local, proximal=2.0, inner_steps=2, cohort_size=3),
    "fedala": lambda local: ALGORITHMS["fedala"](local, parameters="all", cohort_size=3),
    "fedbabu": lambda local: ALGORITHMS["fedbabu"](local, cohort_size=3),
    "focus": lambda local: ALGORITHMS["focus"](replace(local, lr=0.03) if local.lr == LOCAL.lr else local),
    "scaffold": lambda local: scaffold(local, cohort_size=3),
    "maxfl": lambda local: maxfl(local, cohort_size=3),
    "qffl": lambda local: qffl(local, q=2.0, cohort_size=3),
    "perfedavg": lambda local: perfedavg(local, alpha=0.1, cohort_size=3),
    "mw_fed": lambda local: mw_fed(local, cohort_size=3),
    "fedstaleweight": ALGORITHMS["fedstaleweight"],
    "fedbuff": lambda local: ALGORITHMS["fedbuff"](local, discount="polynomial"),
    "fedasync": ALGORITHMS["fedasync"],
    "fedfa": lambda local: ALGORITHMS["fedfa"](local, window=2),
    "ca2fl": ALGORITHMS["ca2fl"],
    "ace": ALGORITHMS["ace"],
    "aced": lambda local: ALGORITHMS["aced"](local, tau=3),
    "area": ALGORITHMS["area"],
    "fadas": lambda local: ALGORITHMS["fadas"](local, epsilon=0.1, delays="paper", bias_correction=True),
    "rennala": ALGORITHMS["rennala"],
    "ringmaster": ALGORITHMS["ringmaster"],
    "fedavgm": lambda local: fedavgm(local, server_lr=0.5),
    "fedadam": lambda local: fedadam(local, tau=0.1),
    "fedyogi": lambda local: fedyogi(local, tau=0.1),
    "fedadagrad": lambda local: fedadagrad(local, tau=0.1),
    "fedexp": fedexp,
    "power_of_choice": lambda local: ALGORITHMS["power_of_choice"](local, cohort_size=2, candidates=4),
    "oort": lambda local: ALGORITHMS["oort"](local, cohort_size=3, exploration=0.5),
    "feddyn": lambda local: ALGORITHMS["feddyn"](local, alpha=0.3),
    "moon": lambda local: ALGORITHMS["moon"](local, mu=0.5),
    "diloco": lambda local: diloco(local, server_lr=0.5, beta=0.5),
    "fedex_lora": ALGORITHMS["fedex_lora"],
    "flora": lambda local: ALGORITHMS["flora"](local, ranks=(1, 3, 2)),
    "flexlora": ALGORITHMS["flexlora"],
    "hetlora": lambda local: ALGORITHMS["hetlora"](local, ranks=(3, 1)),
    "hetlora, pruned": lambda local: ALGORITHMS["hetlora"](local, ranks=(3, 2), penalty=0.3, decay=0.7),
    "raflora": lambda local: ALGORITHMS["raflora"](local, ranks=(1, 2, 3)),
    # and what can be composed of the same pieces
    "fedau without cutoff": lambda local: fedau(local, cutoff=None, server_lr=1.5),
    "fedau that forgets": lambda local: compose(local, Participation(3, average="exponential"), DivideByClients()),
    "fedawe, clipped": lambda local: ALGORITHMS["fedawe"](local, max_norm=0.05),
    "fedstale by shares": lambda local: ALGORITHMS["fedstale"](
        local, rates=RATES, shares=tuple(SIZES[n] / sum(SIZES) for n in range(len(SIZES)))
    ),
    "fedau of shares": lambda local: compose(local, Participation(4), DivideBySum()),
    "fedau in groups": lambda local: compose(
        local, Participation(3, groups=(0, 0, 1, 1, 2, 2, 2, 0)), DivideByClients()
    ),
    "fedau, clipped": lambda local: fedau(local, also=(Clip(0.5),)),
    "folb by examples": lambda local: folb(local, cohort_size=3, data_weighted=True),
    "folb of two sets by examples": lambda local: folb_two_set(local, cohort_size=4, data_weighted=True),
    "folb with fedau's weights": lambda local: compose(
        local, Uniform(3), StartGradient(), Participation(3), Alignment(), DivideByAbsoluteSum()
    ),
    "fednu with signs": lambda local: fednu(local, signs=True, cohort_size=5),
    "fednu with signs by examples": lambda local: fednu(local, signs=True, data_weighted=True, cohort_size=5),
    "fednu by norm": lambda local: fednu(local, by="norm", cohort_size=3),
    "fednu by inexactness": lambda local: fednu(local, by="alignment_and_inexactness", psi=0.5, cohort_size=3),
    "scaffold, option I": lambda local: scaffold(local, option="I", initial="gradients", cohort_size=3),
    "scaffold_p with fedau's weights": lambda local: compose(
        local, Scaffold(initial="gradients"), Personal("first"), Participation(3), DivideByClients()
    ),
    "mifa with a personal head, clipped": lambda local: mifa(local, also=(Personal(), Clip(0.5))),
    "folb with a personal head": lambda local: folb(local, cohort_size=3, also=(Personal(),)),
    "scaffold, drawn twice, noisy": lambda local: scaffold(
        local, also=(GradientNoise(0.1), Prox(0.1), WithReplacement(4))
    ),
    "scaffold, private": lambda local: scaffold(
        local, cohort_size=3, also=(PrivateSum(0.5, cohort=3, control_norm=0.2), ClipControls(0.2))
    ),
    "scaffold with models of one's own, noisy": lambda local: scaffold(
        local, cohort_size=3, also=(Ditto(0.2), GradientNoise(0.1))
    ),
    "maxfl, tuned": lambda local: maxfl(local, tuning_steps=2, q="sigmoid", cohort_size=3),
    "maxfl with fedau's weights": lambda local: compose(
        local, AppealGap(), Participation(3), Appeal(), DivideBySumPlus(0.1)
    ),
    "maxfl with a personal head": lambda local: maxfl(local, cohort_size=3, also=(Personal(),)),
    "perfedavg, hessian": lambda local: perfedavg(local, alpha=0.1, hessian="difference", cohort_size=3),
    "fedau by krum of neighbors, with adam": lambda local: fedau(
        local, cutoff=3, also=(Krum(0.2, NearestNeighbors()), ServerAdam(tau=0.1))
    ),
    "fedstaleweight by medians, of signs": lambda local: ALGORITHMS["fedstaleweight"](local, also=(Median(), Sign())),
    "scaffold_p, top-k, with momentum": lambda local: scaffold_p(
        local, cohort_size=3, also=(TopK(share=0.3), ServerMomentum(0.5))
    ),
    "maxfl by centered clipping, qsgd": lambda local: maxfl(
        local, cohort_size=3, also=(CenteredClipping(radius=0.5), Qsgd(bits=8))
    ),
    "amplified_scaffold with a personal head, power_sgd": lambda local: ALGORITHMS["amplified_scaffold"](
        local, period=2, gamma=2.0, also=(Uniform(3), Personal(), PowerSgd(rank=2))
    ),
    "power_of_choice by recent losses": lambda local: ALGORITHMS["power_of_choice"](
        local, cohort_size=2, candidates=4, recent=True, shares=tuple((np.arange(N) + 1.0) / (N * (N + 1) / 2))
    ),
    "oort of slow clients": lambda local: ALGORITHMS["oort"](
        local, cohort_size=2, durations=tuple(np.arange(1.0, N + 1)), preferred=3.0, also=(Scaffold(),)
    ),
    "apfl that adapts, clipped": lambda local: ALGORITHMS["apfl"](
        local, adaptive=True, cohort_size=3, also=(Clip(0.3),)
    ),
    "apfl that adapts once a round": lambda local: ALGORITHMS["apfl"](
        local, adaptive=True, adapts_every="round", cohort_size=3
    ),
    "focus of a cohort, compressed": lambda local: ALGORITHMS["focus"](
        local, server_lr=0.02, also=(Uniform(3), TopK(share=0.4))
    ),
    "feddyn of a cohort with a personal head, clipped": lambda local: ALGORITHMS["feddyn"](
        local, also=(Uniform(3), Personal(), Clip(0.3))
    ),
    "fedau of secure sums": lambda local: fedau(local, cutoff=3, also=(SecureSum(largest=64.0, min_clients=2),)),
    "fedau of secure private sums": lambda local: fedau(
        local, cutoff=3, also=(PrivateSum(0.5, secure=SecureSum(largest=1.0, fraction_bits=24, min_clients=2)),)
    ),
    "maxfl of secure sums with a personal head": lambda local: maxfl(
        local, cohort_size=3, also=(Personal(), SecureSum(min_clients=2, degree=2))
    ),
    "fednu, uniform": lambda local: fednu(local, by="uniform", cohort_size=3),
    "diloco, late": lambda local: diloco(local, server_lr=0.5, beta=0.5, every=3, data_weighted=True),
    "fedex_lora with fedau's weights, clipped": lambda local: ALGORITHMS["fedex_lora"](
        local, also=(Participation(3), DivideByClients(), Clip(0.5), TruncatedRank((3, 1)))
    ),
    "scaffold with adamw that clients keep": lambda local: scaffold(
        adamw(local), cohort_size=3, also=(Prox(0.1), Personal())
    ),
}

PLAIN = (
    "area",
    "fedfa",
    "fedex_lora",
    "flora",
    "flexlora",
    "hetlora",
    "hetlora, pruned",
    "raflora",
    "fedex_lora with fedau's weights, clipped",
)
"""Recipes that have no other server step than x + u."""

LOCAL = Sgd(lr=0.3, steps=2, batch_size=16)
MODEL = models.Mlp(hidden=(16,), dropout=0.3)

SOME = (
    "fedau", "fedvarp", "folb_two_set", "fednu by inexactness", "scaffold_p", "ditto", "maxfl, tuned", "mw_fed",
    "perfedavg, hessian", "scaffold, drawn twice, noisy", "mifa with a personal head, clipped", "fedasync", "fedadam",
)  # fmt: skip
"""Recipes that between them have every kind of memory, phase, correction and server state: for laws that cost much."""


def _parts(value: Any, place: str) -> Iterator[str]:
    """Name each piece within `value`, and each choice of an option; of a number, only that it is one."""
    if is_dataclass(value):
        yield f"{place} {type(value).__name__}"
        for field in fields(value):
            if field.name != "name" and field.repr:
                yield from _parts(getattr(value, field.name), f"{place} {type(value).__name__}.{field.name}")
    elif isinstance(value, tuple):
        yield f"{place} {'some' if value else 'none'}"
        for one in value:
            yield from _parts(one, place)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield f"{place} number"
    else:
        yield f"{place} {value!r}"


def covering(*slots: str) -> list[str]:
    """Choose few recipes that between them have every piece and every choice of an option that any recipe has in `slots`.

    For laws that train: the more recipes there are, the fewer of them have something of their own. With the environment
    variable TURNOUT_ALL_RECIPES it is all of them.
    """
    if os.environ.get("TURNOUT_ALL_RECIPES"):
        return list(RECIPES)
    made = {name: make(LOCAL) for name, make in RECIPES.items()}
    parts = {name: {part for slot in slots for part in _parts(getattr(a, slot), slot)} for name, a in made.items()}
    missing, chosen = set().union(*parts.values()), []
    while missing:
        chosen.append(max(parts, key=lambda name: len(parts[name] & missing)))
        missing -= parts[chosen[-1]]
    return chosen


CLIENTS = list(dict.fromkeys([*covering("local", "corrections", "measurements", "guard", "personal"), *SOME]))
"""Recipes with everything that clients do: for laws about engines."""

SERVER = covering("selection", "corrections", "measurements", "weighting", "aggregation", "server")
"""Recipes with everything that a server's step reaches: for laws about steps on made-up reports, where no client computes."""

COVERING = covering(*(field.name for field in fields(Algorithm) if field.name != "name"))
"""Recipes with everything: for laws about whole runs."""


def experiment(name: str, *, local: Any = LOCAL, rounds: int = 10, **options: Any) -> Experiment:
    """Ten rounds of a recipe on eight clients who come and go."""
    population = Population(Bernoulli(rates=RATES), requirement=WarmUp(steps=10))
    options = {"device": DEVICE, "population": population, "model": models.Mlp(hidden=(16,)), **options}
    algorithm = RECIPES[name](local)
    if isinstance(algorithm.aggregation, LowRank):
        options["model"] = adapted()
    return Experiment(DATA, algorithm=algorithm, rounds=rounds, evaluate_every=5, **options)


def standard(name: str, local: Sgd = LOCAL, **options: Any) -> Experiment:
    """Four rounds with dropout and, where the local rule allows it, momentum: the run that most laws are about."""
    without = name in ("fednova", "fedalt", "fedrep") or name.startswith(("apfl", "pfedme"))
    local = local if without else replace(local, momentum=0.5)
    return experiment(name, **{"local": local, "model": MODEL, "rounds": 4, "engine": "vectorized", **options})


@cache
def baseline(name: str) -> Simulation:
    """The standard run of a recipe, trained once for all laws that compare with it; nobody may change it."""
    return trained(standard(name))


def trained(run: Experiment, lanes: int | None = None) -> Simulation:
    """The federation after all rounds; `lanes` clients train at a time."""
    simulation = Simulation(run)
    simulation.workspace.lanes = lanes or simulation.workspace.lanes
    for _ in range(run.rounds):
        simulation.round()
    simulation.finish()
    return simulation


def tables(simulation: Simulation) -> dict[str, Any]:
    """All that was recorded, except what a clock measured."""
    history = simulation.history
    rounds = history.rounds.drop_columns(["seconds"])
    return {"rounds": rounds, "clients": history.clients, "participation": history.participation}


def assert_same_bits(one: Simulation, other: Simulation) -> None:
    """The two federations are in the same state, to the last bit."""
    assert one.state.version == other.state.version
    assert_same_tensors({"params": one.state.params}, {"params": other.state.params})
    assert one.state.slots.keys() == other.state.slots.keys()
    for place in one.state.slots:
        assert_same_tensors(one.state.slots[place], other.state.slots[place])
    assert_same_tensors(one.memory.state(), other.memory.state())
    others = tables(other)
    for name, table in tables(one).items():
        assert table.schema == others[name].schema
        for column in table.column_names:  # as text, in which NaN equals NaN and floats have all their digits
            assert str(table[column].to_pylist()) == str(others[name][column].to_pylist()), (name, column)


def assert_independent_of_lanes(one: Simulation, other: Simulation) -> None:
    """The two federations are in the same state: to the last bit on a CPU, and up to rounding on a GPU.

    There, the library of matrix products chooses its algorithm by the number of clients that are computed together.
    """
    if DEVICE == "cpu":
        assert_same_bits(one, other)
    assert one.state.version == other.state.version
    assert float((one.state.params - other.state.params).norm() / other.state.params.norm()) < 1e-3


def assert_same_tensors(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    """Equal names and equal bits."""
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name].cpu().numpy(), other[name].cpu().numpy(), err_msg=name)
