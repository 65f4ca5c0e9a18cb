"""Any value of an option gives a run of one round or an error of one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from turnout.cli.names import LISTED
from turnout.cli.options import options_of
from turnout.cli.settings import Settings
from turnout.core.checks import TurnoutError
from turnout.data.federated import FederatedData
from turnout.pieces.local import Sgd
from turnout.simulation.simulation import Simulation

EXTREME = [math.nan, math.inf, -math.inf, 1e308, -1e308, 1e-308, 1e20, 1e-20, 0.0, -0.5, 0.5, 1.0, 2.0, 3]
ODD = ["", "x", "nan", "none", True, False, None, -1, 0, 1, 2, 7, [], [1], [0.5, math.nan], {}, {"kind": "x"}]
SLOW = {"steps", "epochs", "warm_up", "table", "directory", "path", "file", "groups", "num_clients", "hidden", "at"}
"""Options whose large numbers are work, and names of files."""

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "algorithms": ("algorithm",),
    "availability": ("availability",),
    "paces": ("pace",),
    "selections": ("selection",),
    "partitions": ("data", "partition"),
    "schedules": ("local", "lr"),
    "requirements": ("population", "requirement"),
    "behaviors": ("population", "behavior"),
    "speeds": ("population", "speed"),
    "delays": ("population", "speed", "compute"),
    "work": ("local", "steps"),
}
BESIDE = ("local", "personalizations", "guards", "weightings")
"""Families whose pieces stand beside those of a recipe, in the section `also`."""
NAMED = {"algorithms", "availability", "paces", "selections", "partitions"}
BUFFERED = {"pace": {"name": "buffered", "buffer_size": 2}}


@st.composite
def layers(draw: st.DrawFn) -> dict[str, Any]:
    """A layer of settings with some options of one piece, or of local training, at extreme values."""
    kind = draw(st.sampled_from([*SECTIONS, *BESIDE, "sgd"]))
    if kind == "sgd":
        return {"local": draw(options(Sgd))}
    name, piece = draw(st.sampled_from(list(LISTED[kind].items())))
    table = draw(options(piece))
    if kind in BESIDE:
        return {"also": {name: table}}
    layer: Any = {"name" if kind in NAMED else "kind": name, **table}
    place = SECTIONS[kind]
    if kind == "delays":
        layer = {"kind": "delays", "compute": layer}
        place = place[:-1]
    for key in reversed(place):
        layer = {key: layer}
    return {**(BUFFERED if kind in ("speeds", "delays") else {}), **layer}


@st.composite
def options(draw: st.DrawFn, piece: Callable[..., Any]) -> dict[str, Any]:
    """Extreme values for one to three options of a piece, and plausible ones for those that it needs."""
    known = [name for name in options_of(piece) if name not in SLOW]
    chosen = draw(st.lists(st.sampled_from(known), unique=True, max_size=3)) if known else []
    return {name: draw(st.sampled_from(EXTREME) | st.sampled_from(ODD)) for name in chosen}


SLOW_CHECKS = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)


@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=SLOW_CHECKS,
    derandomize=True,
)
@given(layers())
@example({"algorithm": {"name": "fedavg", "local": math.nan}})
@example({"algorithm": {"name": "fedavg", "server_lr": 1e308}})
@example({"local": {"lr": {"kind": "cosine", "initial": 1e308, "rounds": 3}}})
@example({**BUFFERED, "population": {"speed": {"kind": "delays", "compute": {"kind": "lognormal", "sigma": 1e20}}}})
def test_extreme_options_run_or_are_refused_in_one_sentence(layer: dict[str, Any]) -> None:
    one_round(layer)


TINY: dict[str, FederatedData] = {}


def one_round(layer: dict[str, Any]) -> None:
    """Build all of it, and do a round."""
    small = {"data": {"name": "digits", "num_clients": 6, "alpha": 1.0}, "model": "logistic", "rounds": 1}
    if "population" in layer and "pace" not in layer:
        layer = {**layer, "pace": {"name": "rounds"}}
    try:
        made = Settings.of(small, layer)
        if "data" not in layer:
            TINY["data"] = TINY.get("data") or Settings.of(small).data()
        experiment = made.experiment(TINY["data"] if "data" not in layer else None)
        Simulation(replace(experiment, evaluation_examples=50)).round()
    except TurnoutError:
        return
