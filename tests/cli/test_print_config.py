"""Printed settings, YAML files and dry runs."""

import json
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout import ALGORITHMS
from turnout.cli.compare import planned as planned_comparison
from turnout.cli.dry_run import planned
from turnout.cli.layers import read
from turnout.cli.print_config import completed, toml
from turnout.cli.settings import Settings
from turnout.core.checks import ConfigurationError
from turnout.record.query import History

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40)
@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_written_settings_are_read_back(table) -> None:
    assert tomllib.loads(toml(table)) == table


@pytest.mark.parametrize("algorithm", ["fedau", "fedstaleweight", "scaffold_p", "ditto", "maxfl"])
def test_printed_settings_equal_those_of_the_run(algorithm: str, turnout) -> None:
    schedule = 'local.lr={kind="halving", initial=0.1, start=200, every=100}'
    asked = ("run", "--algorithm", algorithm, "--rounds", 3, "data.num_clients=20", "model.hidden=8,8")
    asked = asked if algorithm in ("scaffold_p", "ditto") else (*asked, schedule)
    printed = turnout(*asked, "--print-config")
    assert printed.exit_code == 0, printed.output
    Path("all.toml").write_text(printed.stdout)
    assert turnout("run", "--config", "all.toml", "--print-config").stdout == printed.stdout
    assert not Path("runs").exists()


def test_run_of_printed_settings_is_the_same_run(turnout, small) -> None:
    turnout("run", "--rounds", 2, "--folder", "one", "--pace", "buffered", *small)
    Path("all.toml").write_text(toml(json.loads(Path("one/settings.json").read_text())))
    assert turnout("run", "--config", "all.toml", "--folder", "other").exit_code == 0
    assert Path("one/config.json").read_bytes() == Path("other/config.json").read_bytes()
    one, other = (json.loads(Path(name, "settings.json").read_text()) for name in ("one", "other"))
    assert one == other


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_explicit_defaults_change_nothing(algorithm: str) -> None:
    for layer in (
        {},
        {"availability": {"name": "diurnal"}, "model": {"name": "logistic"}, "local": {"steps": None, "epochs": 2}},
    ):
        plain = Settings.of({"algorithm": {"name": algorithm}, **layer})
        table = completed(plain.table)
        assert {"rounds", "seed", "evaluate_every"} <= table.keys()
        assert {"lr", "steps", "batch_size"} <= table["local"].keys()
        again = Settings.of(tomllib.loads(toml(table)))
        assert (again.algorithm(), again.population(), again.pace()) == (
            plain.algorithm(),
            plain.population(),
            plain.pace(),
        )
        assert again.model() == plain.model()
        assert toml(completed(again.table)) == toml(table)


def test_printed_comparison_reproduces_it(turnout) -> None:
    asked = (
        "compare", "fedau", "short", "short.algorithm=fedau", "short.cutoff=5", "short.local.lr=0.3", "fedstaleweight",
        "fedavg", "fedavg.pace=rounds", "--seeds", "0,3", "--to-accuracy", 0.5,
    )  # fmt: skip
    printed = turnout(*asked, "--print-config")
    assert printed.exit_code == 0, printed.output
    table = tomllib.loads(printed.stdout)
    assert (table["seeds"], table["to_accuracy"], table["rounds"]) == ("0,3", 0.5, 100)
    assert table["algorithms"]["short"].items() >= {"algorithm": "fedau", "cutoff": 5}.items()
    assert table["algorithms"]["short"]["local"]["lr"] == 0.3
    Path("all.toml").write_text(printed.stdout)
    assert turnout("compare", "--config", "all.toml", "--print-config").stdout == printed.stdout
    _, one = planned_comparison([], [read(Path("all.toml")), {}])
    _, other = planned_comparison([*asked[1:9]], [{}])
    for name, found in other.items():
        again = one[name]
        assert (again.algorithm(), again.population(), again.pace()) == (
            found.algorithm(), found.population(), found.pace(),
        )  # fmt: skip
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "asked",
    [
        ("-g", "local.lr=0.1,0.2", "-g", "also.prox.mu=0,1", "--algorithm", "fedavg", "--seeds", 2),
        ("-g", "local.lr=0.001..1:log", "-g", "model.hidden=[4],[8,4]", "--seeds", "3,", "--to-accuracy", 0.5),
        ("-g", "algorithm=fedau,fedvarp", "-g", "local.steps=1..5", "--rounds", 7),
    ],
)
def test_printed_sweep_reproduces_it(asked, turnout) -> None:
    printed = turnout("sweep", *asked, "--print-config")
    assert printed.exit_code == 0, printed.output
    Path("all.toml").write_text(printed.stdout)
    assert turnout("sweep", "--config", "all.toml", "--print-config").stdout == printed.stdout
    trials = ("--trials", 4) if ".." in str(asked) else ()
    shown = [turnout("sweep", *given, *trials, "--dry-run").stdout for given in (asked, ("--config", "all.toml"))]
    assert shown[0] == shown[1]
    assert "runs" in shown[0]


def test_dry_run_of_several_runs_shows_common_and_different_settings(turnout, small) -> None:
    shown = turnout("compare", "fedau", "fedvarp", "scaffold", "--seeds", 2, "--dry-run", *small).stdout
    common, _, each = shown.partition("algorithm ")
    assert _row(common, "runs") == "6"
    assert _row(common, "engine") == "vectorized"
    assert "bytes down" not in common
    up = {name: _row(each, name).split()[-1] for name in ("fedau", "fedvarp", "scaffold")}
    assert up["fedau"] == up["fedvarp"] != up["scaffold"]
    grid = turnout("sweep", "-g", "local.steps=1,3", "-g", "local.lr=0.1,0.2", "--seeds", 3, "--dry-run", *small).stdout
    assert _row(grid, "runs") == "12"
    assert _row(grid, "steps-3_lr-0.2") == "3"
    search = ("sweep", "-g", "local.steps=1..3", "--trials", 5, "--seeds", 3, "--dry-run", *small)
    assert _row(turnout(*search).stdout, "runs") == "15"
    refused = turnout("sweep", "-g", "model.hidden=[8],[0]", "--dry-run", *small)
    assert refused.exit_code == 2
    assert "hidden" in refused.output
    assert not Path("runs").exists()


def _row(shown: str, name: str) -> str:
    """Return the value of a row of a table."""
    line = next(line.strip() for line in shown.splitlines() if line.strip().startswith(f"{name} "))
    return line.removeprefix(name).strip()


@pytest.mark.parametrize("suffix", ["yaml", "yml"])
def test_settings_may_be_in_yaml(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="an extra: pip install '.[yaml]'")
    path = tmp_path / f"run.{suffix}"
    path.write_text("algorithm: {name: fedau, cutoff: null}\nrounds: 3\nlocal:\n  lr: 1e-3\nmodel:\n  hidden: [8, 8]\n")
    inline = {"algorithm": {"name": "fedau", "cutoff": None}, "rounds": 3, "local": {"lr": 1e-3}}
    made = Settings.of(read(path))
    assert made.experiment().algorithm == Settings.of(inline).algorithm()
    assert made.table["model"]["hidden"] == [8, 8]


def test_invalid_yaml_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("rounds: [3\n")
    with pytest.raises(ConfigurationError, match=r"run.yaml is no YAML file: .* line 2"):
        read(path)
    path.write_text("- 3\n")
    with pytest.raises(ConfigurationError, match="holds no settings: got list"):
        read(path)
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigurationError) as caught:
        read(path)
    needed = "settings in YAML need PyYAML: pip install '.[yaml]' in a clone of turnout, or write TOML"
    assert str(caught.value) == f"{path}: {needed}"


@pytest.mark.parametrize("algorithm", ["fedau", "scaffold", "ditto"])
def test_dry_run_predicts_messages_and_leaves_no_files(algorithm: str, turnout, small) -> None:
    asked = ("run", "--algorithm", algorithm, "--rounds", 1, "--availability", "everyone", *small)
    shown = turnout(*asked, "--dry-run")
    assert shown.exit_code == 0, shown.output
    assert not Path("runs").exists()
    turnout(*asked, "--folder", "run")
    settings = Settings.of(json.loads(Path("run/settings.json").read_text()))
    figures, rounds = planned(settings.experiment()), History.load("run").rounds.to_pylist()[0]
    assert rounds["bytes_up"] == rounds["num_participants"] * figures["bytes up per client and round"]
    assert rounds["bytes_down"] == rounds["num_participants"] * figures["bytes down per client and round"]
    assert figures["clients"] == 10
    assert [f"{figures['parameters']:,}" in shown.stdout, figures["rounds"]] == [True, 1]
