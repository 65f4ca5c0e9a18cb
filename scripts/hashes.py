"""Print a digest of the trained model of every recipe, so that a refactoring can show that results stay the same bits.

    python -m scripts.hashes > before.txt     # from the root of a clone, in its environment; less than a minute
    python -m scripts.hashes > after.txt && diff before.txt after.txt

A line is the way of running, the recipe, and the SHA-256 of its parameters, client memory and recorded participation: in
synchronous rounds, with a buffer on virtual time, and served over HTTP requests within one process. Where a way
refuses a recipe, the line has the beginning of the refusal.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from tests.laws.recipes import LOCAL, RATES, RECIPES, experiment, standard, trained
from tests.served import World

from turnout import Population, TurnoutError
from turnout.population import Speed, delay
from turnout.population.availability import Bernoulli, Everyone
from turnout.protocol.pace import Buffered

_LOCAL = replace(LOCAL, steps=3)


def simulated(name: str) -> Iterator[bytes]:
    """Yield the state of six synchronous rounds with clients who come and go."""
    yield from _state(trained(standard(name, _LOCAL, rounds=6, population=Population(Bernoulli(rates=RATES)))))


def buffered(name: str) -> Iterator[bytes]:
    """Yield the state of six steps with a buffer of three reports and clients of unequal speed."""
    population = Population(Everyone(), speed=Speed(compute=delay.Uniform(1, 4)))
    yield from _state(trained(standard(name, _LOCAL, rounds=6, population=population, pace=Buffered(buffer_size=3))))


def served(name: str) -> Iterator[bytes]:
    """Yield the model of two rounds over HTTP requests."""
    run = experiment(name, local=_LOCAL, rounds=2, population=Population(Everyone()))
    with tempfile.TemporaryDirectory() as folder:
        world = World(run, Path(folder))
        try:
            yield world.run().host.driver.params.numpy().tobytes()
        finally:
            world.close()


def _state(simulation) -> Iterator[bytes]:
    yield simulation.state.params.numpy().tobytes()
    for key, value in sorted(simulation.memory.state().items()):
        yield key.encode() + value.numpy().tobytes()
    yield str(simulation.history.participation.to_pylist()).encode()


def digest(way: Callable[[str], Iterator[bytes]], name: str) -> str:
    """Return the digest of a recipe run one way."""
    digests = hashlib.sha256()
    try:
        for part in way(name):
            digests.update(part)
    except TurnoutError as error:
        return f"refused: {str(error)[:100]}"
    return digests.hexdigest()[:16]


def main() -> None:
    """Print all lines."""
    torch.set_num_threads(1)
    for way in (simulated, buffered, served):
        for name in RECIPES:
            if way is served and standard(name).algorithm.privacy is not None:
                continue  # a server draws noise that no seed determines
            print(f"{way.__name__:10} {name:55} {digest(way, name)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
