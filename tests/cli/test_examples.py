"""Settings files in the repository are valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.cli import layers
from turnout.cli.variants import Layers, seeds_of
from turnout.workbench.reproduction.reading import names

ROOT = Path(__file__).parents[2]
DECLARATIONS = {ROOT / "reproductions" / f"{name}.toml" for name in names(ROOT / "reproductions")}
CLAIMS = {ROOT / "reproductions" / "papers.toml"}
"""The tables and figures of the papers, which are no settings; `scripts/reproductions.py` reads them."""
FILES = sorted({*ROOT.glob("examples/*.toml"), *ROOT.glob("reproductions/**/*.toml")} - DECLARATIONS - CLAIMS)


def test_examples_exist() -> None:
    assert {"demo.toml", "late.toml", "run.toml"} <= {path.name for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_example_has_runnable_settings(path: Path) -> None:
    layer = layers.read(path)
    layer.pop("grid", None)  # which turnout sweep takes out
    found = Layers.of([layer])
    assert found.seeds is None or seeds_of(found.seeds)
    made = [found.settings(name) for name in found.names] or [found.settings("fedau")]
    assert all(settings.algorithm().name == settings.name for settings in made)


def test_demo_compares_the_documented_algorithms() -> None:
    found = Layers.of([layers.read(ROOT / "examples" / "demo.toml")])
    assert set(found.names) == {
        "average_participating", "average_all", "fedau", "known_statistics", "fedvarp", "mifa",
    }  # fmt: skip
    experiment = found.settings("fedau")(0)
    assert experiment.data.num_clients == 100
    assert experiment.population.availability == found.settings("mifa").availability()
