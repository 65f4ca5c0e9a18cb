"""Declarations of reproductions are runnable."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from turnout import Sgd
from turnout.cli import layers
from turnout.cli.settings import Settings
from turnout.cli.variants import Layers, seeds_of
from turnout.pieces.personalization import Personal
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.workbench.reproduction import panels
from turnout.workbench.reproduction.declaration import Reproduction
from turnout.workbench.reproduction.reading import names, read

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "reproductions"


def load(name: str) -> Reproduction:
    declared = read(FOLDER / f"{name}.toml", name)
    assert isinstance(declared, Reproduction)
    return declared


RUNNABLE = [name for name in names(FOLDER) if not read(FOLDER / f"{name}.toml", name).is_computed]


def settings_of(name: str) -> dict[str, dict[str, Settings]]:
    reproduction = load(name)
    every = panels.plans(reproduction, list(reproduction.panels), [], Path("runs"))
    return {plan.panel.name: dict(plan.settings) for plan in every}


@pytest.mark.parametrize("name", RUNNABLE)
def test_settings_are_valid_and_claims_have_panels(name: str) -> None:
    reproduction = load(name)
    for plan in panels.plans(reproduction, list(reproduction.panels), [], Path("runs")):
        assert plan.seeds
        assert all(settings.algorithm().name == algorithm for algorithm, settings in plan.settings.items())
    assert reproduction.claims
    assert len({claim.text for claim in reproduction.claims}) == len(reproduction.claims)
    for claim in reproduction.claims:
        where = claim.panels or reproduction.panels
        assert all(set(claim.check.algorithms) <= set(reproduction.of(reproduction.panels[each])) for each in where)
        assert not claim.check.across or len(where) > 1


def test_templates_are_package_data_and_declarations_are_not() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        patterns = tomllib.load(file)["tool"]["setuptools"]["package-data"]["turnout"]
    package = ROOT / "src" / "turnout"
    packed = {path for pattern in patterns for path in package.glob(pattern)}
    assert set((package / "reporting").glob("*.html")) <= packed
    names = "cli/defaults.toml", "data/downloads.toml", "workbench/benchmark/v1.toml"
    assert set(package.rglob("*.toml")) == {package / name for name in names} <= packed


def test_phones_are_the_comparison_of_the_demo() -> None:
    demo = Layers.of([layers.read(ROOT / "examples" / "demo.toml")])
    (ours,) = settings_of("participation/phones").values()
    assert list(ours) == demo.names
    assert all(ours[name].table == demo.settings(name).table for name in demo.names)
    assert load("participation/phones").seeds == demo.seeds


def test_folb_and_fedprox_differ_only_by_weights() -> None:
    """What a comparison of weights rests on: everything but the weighting is the same, mu included in the figures.

    In the table FOLB's mu is searched, on seeds that the table does not have, as the paper does.
    """
    for name in ("folb/table-1", "folb/figure-3", "folb/figure-4", "folb/figure-5", "folb/figure-6"):
        for made in settings_of(name).values():
            if "folb" not in made or "fedprox" not in made:
                continue
            folb, fedprox = made["folb"].algorithm(), made["fedprox"].algorithm()
            assert folb.local == fedprox.local
            assert folb.selection == fedprox.selection
            if name == "folb/table-1":
                assert [type(piece) for piece in folb.corrections] == [type(piece) for piece in fedprox.corrections]
            else:
                assert folb.corrections == fedprox.corrections
            assert {key: value for key, value in made["folb"].table.items() if key in ("data", "model", "rounds")} == {
                key: value for key, value in made["fedprox"].table.items() if key in ("data", "model", "rounds")
            }


def test_folbs_mu_is_searched_on_seeds_apart_and_on_the_data_of_the_table() -> None:
    reproduction = load("folb/table-1")
    made = settings_of("folb/table-1")
    for name, panel in reproduction.panels.items():
        if name.startswith("search_"):
            reported = reproduction.panels[name.removeprefix("search_")]
            assert not set(seeds_of(panel.seeds)) & set(seeds_of(reported.seeds or reproduction.seeds))
            searched = {algorithm.table["also"]["prox"]["mu"]: algorithm for algorithm in made[name].values()}
            assert sorted(searched) == [1e-4, 1e-3, 1e-2, 1e-1, 1.0]
            chosen = made[reported.name]["folb"].table
            like = searched[chosen["also"]["prox"]["mu"]].table
            assert all(chosen[key] == like[key] for key in ("data", "model", "local", "algorithm"))


def test_panel_replaces_the_whole_table_of_data() -> None:
    """Another data set replaces the whole table of data, with its partition and its tests."""
    for made in settings_of("personalization/label-clusters").values():
        for settings in made.values():
            data = settings.table["data"]
            assert (data["partition"]["name"], data["client_test_fraction"]) == ("label_clusters", 0.4)
    for figure in ("figure-1", "figure-2"):
        for made in settings_of(f"personalization/{figure}").values():
            for settings in made.values():
                data = settings.table["data"]
                assert (data["partition"]["name"], data["client_test_fraction"]) == ("by_id", 0.0)
                assert not data.get("test_fraction")


def test_personalization_step_sizes_have_one_gamma() -> None:
    """gamma = gamma_u eta_u = gamma_v eta_v, in every panel."""
    for figure in ("figure-1", "figure-2"):
        for panel, made in settings_of(f"personalization/{figure}").items():
            for name, settings in made.items():
                algorithm = settings.algorithm()
                local, server, own = algorithm.local, algorithm.server, algorithm.personal
                assert isinstance(local, Sgd), panel
                assert isinstance(server, ServerSgd), panel
                assert isinstance(own, Personal), panel
                assert own.lr_factor * own.outer_lr == pytest.approx(server.lr, rel=1e-5), (panel, name)
                gamma = local.lr * server.lr  # type: ignore[operator]
                few = {"gamma_4": 2.0, "gamma_1": 0.5}.get(name, 0.5 if name.startswith("full") else 1.0)
                assert gamma == pytest.approx((0.001 if "mnist" in panel else 0.01) * few, rel=1e-5), (panel, name)
