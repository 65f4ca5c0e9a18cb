"""Clients that send finite numbers which no honest client has: the server takes its steps, and stays up."""

import base64
from dataclasses import fields

import pytest
import torch
from safetensors.torch import load
from tests.laws.recipes import RECIPES
from tests.tiny import adapted

from turnout import Experiment, Population
from turnout.models import Mlp
from turnout.population.availability import Everyone
from turnout.population.requirement import WarmUp
from turnout_serve.wire.format import digest, encode

from .world import DATA, LOCAL

KINDS = (
    lambda value: torch.full_like(value, torch.finfo(value.dtype).max),
    lambda value: torch.full_like(value, torch.finfo(value.dtype).min),
    lambda value: torch.full_like(value, -7e3),
    torch.zeros_like,
)
"""What hostile clients make of their numbers in each round, beside the update, whose norm is bounded."""
HOSTILE = 2  # clients


def said(name):
    """The names of what clients of a recipe send beside the update, and the pieces that read it."""
    algorithm = RECIPES[name](LOCAL)
    pieces = {type(getattr(algorithm, field.name)).__name__ for field in fields(algorithm) if field.name != "name"}
    measurements = (*algorithm.measurements, *algorithm.selection.measurements)
    return {given for measurement in measurements for given in measurement.gives}, pieces


def with_measurements():
    """Recipes that between them have every measurement, and every piece beside it."""
    made = {name: said(name) for name in RECIPES if "secure" not in name}
    seen, chosen = set(), []
    for name, (given, pieces) in made.items():
        pairs = {(value, piece) for value in given for piece in pieces}
        if pairs - seen:
            chosen.append(name)
            seen |= pairs
    return chosen


def tampered(world):
    """Replace what hostile clients upload."""
    send, hostile = world.host.send, [f"Bearer {home.state.token}" for home in world.homes[:HOSTILE]]

    def sent(method, path, body=b"", headers=None, cut=None):
        headers = dict(headers or {})
        if method == "PUT" and headers.get("authorization") in hostile:
            kind = KINDS[min(world.host.driver.version, len(KINDS) - 1)]
            tensors = {
                name: kind(value) if value.is_floating_point() and name != "delta" else value
                for name, value in load(body).items()
            }
            body = encode(tensors)
            headers["repr-digest"] = f"sha-256=:{base64.b64encode(bytes.fromhex(digest(body))).decode()}:"
        return send(method, path, body, headers, cut)

    world.host.send = sent


@pytest.mark.parametrize("name", with_measurements())
def test_extreme_numbers_stop_no_server(world, name):
    """All steps are taken, the model stays finite, and figures can be read after every one of them."""
    model = adapted() if "lora" in name else Mlp(hidden=(4,))
    population = Population(Everyone(), requirement=WarmUp(steps=2))
    run = Experiment(DATA, model, RECIPES[name](LOCAL), population, rounds=len(KINDS), evaluate_every=1)
    deployed = world(run)
    tampered(deployed)
    while not all(home.over for home in deployed.homes):
        deployed.round()
        assert [deployed.host.send("GET", path).status for path in ("/v1/status", "/metrics")] == [200, 200]
    assert deployed.host.driver.version == len(KINDS)
    assert deployed.host.service.writer.failure is None
    assert torch.isfinite(deployed.host.driver.params).all()
    history = deployed.host.driver.ledger.history
    taken, dropped = (history.column(column)[1] for column in ("num_participants", "num_dropped"))
    assert all(0 < there > bad for there, bad in zip(taken, dropped, strict=True))  # nobody spoils the others' step
