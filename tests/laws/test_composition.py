"""Every recipe with every guard, aggregation and server optimizer: it runs and keeps the laws, or is refused with a reason.

Aggregations and optimizers are tried by the server's step alone, on random reports; guards by what a client sends. A few
combinations of all are in the table of recipes (`recipes`), which every other law is tried on.
"""

import zlib
from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest
import torch

from turnout import ALGORITHMS, ConfigurationError
from turnout.algorithms.compose import compose
from turnout.cli.names import AGGREGATIONS, SERVER_OPTIMIZERS
from turnout.cli.names import GUARDS as ALL_GUARDS
from turnout.simulation import Simulation

from ..phases import train
from .recipes import BASELINES, LOCAL, RECIPES, SOME, covering, experiment
from .test_reports import batches, reordered, states_after

NEED_MORE = ("clip_controls", "noise_share", "pruned_rank", "truncated_rank")
"""They go with `PrivateSum` or with adapters alone: see tests/pieces/aggregation."""
GUARDS = {name: kind for name, kind in ALL_GUARDS.items() if name not in NEED_MORE}
WITH_TABLES_OF_THEIR_OWN = ("private_sum", "secure_sum")
"""In tests/pieces/aggregation/test_private_sum.py and tests/deployment/test_secure_sum.py."""
LOW_RANK = {"fedex_lora", "flora", "flexlora", "hetlora", "raflora"}
OF_RECIPES = (
    *(
        "aced",
        "area",
        "feddyn",
        "tracked_sum",
        "fedstale",
        "fedvarp",
        "kept_models",
        "mifa",
        "recent_models",
        "weighted_models",
        "weighted_sum",
    ),
    *LOW_RANK,
)
"""What recipes are made of, which the table of laws has."""
REPORTS = batches(rounds=5)
SENT = [name for name in covering("local", "corrections", "measurements", "personal") if "pruned" not in name]
OPTIONS = {"amplified": {"period": 3}}  # less than there are rounds
REFUSED = {
    "aggregation": {
        "is defined by": {
            *("fedvarp", "mifa", "fedlaavg", "fedstale", "fedawe", "fedasync", "ca2fl", "ace", "aced", "area"),
            *("feddyn", "focus", "fedfa"),
            *LOW_RANK,
        },
        "the server also sums control variates": {"scaffold", "scaffold_p", "amplified_scaffold"},
        "weights every client by the mean of all gradients": {"folb", "folb_heterogeneous", "folb_two_set"},
        "chooses the cohort by": {"fednu", "power_of_choice", "oort"},
        "divides by a sum of losses and norms": {"qffl"},
        "has another direction than their mean": {"fedexp"},
    },
    "server": {
        "is defined by": {
            *(
                "fedavgm",
                "fedadam",
                "fedyogi",
                "fedadagrad",
                "fedexp",
                "fadas",
                "amplified_fedavg",
                "amplified_scaffold",
                "diloco",
            ),
        },
        "and ignore its step size": {"fedasync", "fedavg_p", "focus"},
        "determines the model after the step": {"area", "fedfa", *LOW_RANK},
    },
    "fedexp": {
        "has another direction than their mean": {
            *("fedvarp", "mifa", "fedlaavg", "fedstale", "fedawe", "ca2fl", "ace", "aced", "feddyn", "focus"),
        },
    },
}
"""Refused combinations, by a part of the reason."""


def reason(name, slot, piece):
    """Return the reason in the table for which a recipe refuses a piece; None if there is none."""
    if name in ("area", "fedfa", *LOW_RANK) and piece == "sgd":
        return None
    tables = [REFUSED[slot], REFUSED["fedexp"] if piece == "fedexp" else {}]
    return next((why for table in tables for why, names in table.items() if name in names), None)


def composed(name, piece):
    """The recipe's pieces with one of a slot that holds one in the place of its own, as the recipe would have it."""
    own = RECIPES[name](LOCAL)
    pieces = [
        p for place, p in own.pieces().items() if place not in ("aggregation",) or type(p).__name__ != "WeightedSum"
    ]
    return compose(*pieces, also=(piece,), name=name)


@pytest.mark.parametrize("slot", ["aggregation", "server"])
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in BASELINES])
def test_composed_steps_do_not_depend_on_the_order_of_reports(name, slot):
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    shuffled = [reordered(one, rng) for one in REPORTS]
    kinds = AGGREGATIONS if slot == "aggregation" else SERVER_OPTIMIZERS
    kinds = {piece: kind for piece, kind in kinds.items() if piece not in (*WITH_TABLES_OF_THEIR_OWN, *OF_RECIPES)}
    plain = states_after(RECIPES[name](LOCAL), REPORTS)[0].params
    for piece, kind in kinds.items():
        if why := reason(name, slot, piece):
            with pytest.raises(ConfigurationError, match=why):
                composed(name, kind())
            continue
        algorithm = composed(name, kind(**OPTIONS.get(piece, {})))
        state, _ = states_after(algorithm, REPORTS)
        other, _ = states_after(algorithm, shuffled)
        torch.testing.assert_close(other.params, state.params, rtol=0, atol=1e-9)
        assert torch.isfinite(state.params).all()
        assert piece == "sgd" or not torch.equal(state.params, plain), piece


@pytest.mark.parametrize(("guard", "name"), [*zip(cycle(GUARDS), dict.fromkeys([*SENT, *SOME]), strict=False)])
def test_reports_do_not_depend_on_chunks(guard, name):
    """Guards are assigned in turn to recipes with everything that clients compute."""
    run = experiment(name, rounds=2)
    run = replace(run, algorithm=replace(run.algorithm, guard=(GUARDS[guard](),)))
    sent = []
    for lanes in (100, 3):
        simulation = Simulation(run)
        simulation.workspace.lanes = lanes
        sent.append(train(simulation, np.arange(7)))
    one, other = sent
    assert torch.equal(one.updates.gathered(), other.updates.gathered())
    assert one.nbytes == other.nbytes
    assert one.finite().all()


def test_every_guard_is_in_a_composition():
    assert len(dict.fromkeys([*SENT, *SOME])) > 2 * len(GUARDS)
