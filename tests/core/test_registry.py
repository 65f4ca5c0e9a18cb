"""The registry: a file in the folder of a family defines a piece."""

import importlib.metadata
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

import turnout as to
from turnout import algorithms, base
from turnout.base import Guard
from turnout.cli.groups import PACKAGES
from turnout.cli.names import ALGORITHMS, AVAILABILITY, LOSSES, MODELS, PACES, SOURCES
from turnout.core import registry
from turnout.core.checks import ConfigurationError
from turnout.core.registry import Family, Registered, names_in_source
from turnout.pieces.aggregation.mixing import Mixing
from turnout.pieces.guard import Clip
from turnout.pieces.local import Solver, Work
from turnout.pieces.selection import Uniform

GUARDS = Guard.family
HALVED = '''
from dataclasses import dataclass, replace
from turnout.pieces.aggregation.mixing import Mixing
from turnout import base
from turnout.base import Guard

@dataclass(frozen=True)
class Halved(Guard, name="{name}"):
    """Halve updates."""
    def apply(self, report, task, memory, clients):
        return replace(report, delta=report.delta / 2)
'''


@pytest.fixture
def plugins(monkeypatch, tmp_path) -> Iterator[object]:
    """Declares modules as entry points of another distribution."""

    def declare(**texts: str) -> None:
        points = []
        for module, text in texts.items():
            (tmp_path / f"{module}.py").write_text(text, encoding="utf-8")
            points.append(EntryPoint(name=module, value=module, group=registry.GROUP))
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points if group == registry.GROUP else [])
        registry._plugins.cache_clear()

    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield declare
    for module in set(sys.modules) - before:
        del sys.modules[module]
    registry._plugins.cache_clear()


def test_file_in_a_family_folder_defines_a_piece(built_in):
    assert "halved" not in GUARDS
    before = set(GUARDS)
    built_in("turnout.pieces.guard", "halved_for_registry", HALVED.format(name="halved"))
    assert set(GUARDS) == before | {"halved"}
    assert GUARDS["halved"].__name__ == "Halved"
    assert GUARDS.name_of(GUARDS["halved"]) == "halved"
    assert to.guard.Halved is GUARDS["halved"]


def test_recipe_in_its_own_file_is_public(built_in):
    text = "from turnout.algorithms.fedavg import fedavg\nfrom turnout import ALGORITHMS\n"
    text += "@ALGORITHMS.register\ndef freshly_made(local=None, also=()):\n    return fedavg(local, also=also)\n"
    built_in("turnout.algorithms", "freshly_made_for_registry", text)
    assert to.freshly_made is ALGORITHMS["freshly_made"]
    with pytest.raises(AttributeError, match="no attribute 'freshly_maid'"):
        to.freshly_maid  # noqa: B018


def test_lists_of_names_equal_the_registry():
    families = [piece.family for piece in vars(base).values() if hasattr(piece, "family")]
    for family in (*families, Mixing.family, Work.family, Solver.family):
        for piece in family.values():
            if piece.__module__.startswith("turnout.pieces."):
                package = sys.modules[piece.__module__.rpartition(".")[0]]
                assert any(getattr(package, name) is piece for name in vars(package)), f"{piece} is not in its list"
    listed = {name for name, thing in vars(algorithms).items() if thing in ALGORITHMS.values()}
    assert {*ALGORITHMS} == listed <= {*to.__all__}


def test_duplicate_names_of_built_in_pieces_are_refused(built_in):
    built_in("turnout.pieces.guard", "second_clip", HALVED.format(name="clip"))
    message = (
        r"two guards are called clip, of turnout.pieces.guard.clip and of turnout.pieces.guard.second_clip: rename"
    )
    with pytest.raises(ConfigurationError, match=message):
        GUARDS["clip"]


def test_script_cannot_replace_a_built_in_piece():
    class Mine(Clip, name="clip"):
        pass

    assert GUARDS["clip"] is Clip
    assert GUARDS.name_of(Mine) == "clip"


def test_pieces_of_other_distributions_are_registered(plugins):
    plugins(halving_plugin=HALVED.format(name="halved_elsewhere"))
    assert GUARDS["halved_elsewhere"].__module__ == "halving_plugin"
    assert "halved_elsewhere" not in Uniform.family


def test_distribution_with_import_error_is_omitted_with_a_warning(plugins):
    plugins(broken_plugin="1 / 0")
    with pytest.warns(
        RuntimeWarning, match=r"broken_plugin are left out: broken_plugin cannot be imported: ZeroDivision"
    ):
        assert "clip" in GUARDS


def test_distribution_cannot_use_the_name_of_a_built_in_piece(plugins):
    plugins(clashing_plugin=HALVED.format(name="clip"))
    with pytest.raises(ConfigurationError, match=r"two guards are called clip, .* remove the distribution that has it"):
        list(GUARDS)


@pytest.mark.parametrize(
    ("flag", "family"),
    {
        "algorithm": ALGORITHMS,
        "data": SOURCES,
        "model": MODELS,
        "availability": AVAILABILITY,
        "pace": PACES,
        "loss": LOSSES,
    }.items(),
)
def test_names_read_from_source_equal_the_registry(flag, family):
    assert flag in PACKAGES
    assert names_in_source(*PACKAGES[flag]) == list(family)


def test_families_accept_concrete_classes_and_functions():
    assert GUARDS.takes(Clip)
    assert not GUARDS.takes(Guard)
    assert not GUARDS.takes(Uniform)
    assert not GUARDS.takes(len)
    assert SOURCES.takes(lambda: None)
    assert GUARDS.needs == "a class that derives from Guard"
    assert SOURCES.needs == "a function that returns Source"
    assert MODELS.needs == "a class that derives from ModelSpec, or a function that returns Module"


def test_subclasses_do_not_inherit_a_name():
    class Walk(Registered):
        family = Family("walk", "walks", packages=())

    class Stroll(Walk, name="stroll"):
        pass

    class Amble(Stroll):
        pass

    assert Walk.family.name_of(Stroll) == "stroll"
    assert Walk.family.name_of(Amble) is None
    assert not Walk.family
    assert repr(Walk.family) == "Family('walk')"
