"""The pace in settings, and its defaults."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from turnout.algorithms import ALGORITHMS
from turnout.cli.layers import override
from turnout.cli.settings import Settings
from turnout.cli.variants import Layers
from turnout.core.checks import ConfigurationError
from turnout.population import Everyone, Markov, Speed, delay
from turnout.population.speed.distributions import UNEQUAL
from turnout.population.speed.groups import Group
from turnout.protocol.pace import Buffered, Rounds
from turnout.record.query import History
from turnout.simulation.simulation import Simulation

from ..tiny import LOW_RANK


def settings(*overrides: str) -> Settings:
    return Settings.of(*map(override, overrides))


def test_default_pace_is_rounds() -> None:
    assert settings().pace() == Rounds()
    assert settings().population().speed is None
    assert settings("pace.over_selection=1.3", "pace.deadline=5").pace() == Rounds(5.0, 1.3)


@pytest.mark.parametrize("name", ["fedstaleweight", "fedbuff", "fedasync"])
def test_asynchronous_algorithms_default_to_a_buffer_and_unequal_delays(name: str) -> None:
    made = settings(f"algorithm={name}")
    speed = made.population().speed
    assert made.pace() == Buffered()
    assert isinstance(speed, Speed)
    assert speed.spread == 1.0
    assert made.population().availability == Everyone()


@pytest.mark.parametrize(
    ("name", "pace"),
    [
        ("fadas", Buffered()),
        ("area", Buffered()),
        ("ca2fl", Buffered(waits="always")),
        ("ace", Buffered(1, starts_with_all=True)),
        ("aced", Buffered(1, starts_with_all=True)),
        ("rennala", Buffered(max_staleness=0)),
        ("ringmaster", Buffered(1, max_staleness=9)),
    ],
)
def test_algorithms_defined_by_a_buffer_have_it(name: str, pace: Buffered) -> None:
    assert settings(f"algorithm={name}").pace() == pace
    assert settings(f"algorithm={name}", "pace=rounds").pace() == Rounds()
    assert settings(f"algorithm={name}", "pace.buffer_size=7").pace() == replace(pace, buffer_size=7)


def test_buffer_works_for_any_algorithm() -> None:
    made = settings("pace=buffered", "pace.buffer_size=5", "pace.waits=if_current", "pace.concurrency=none")
    assert made.pace() == Buffered(5, waits="if_current")
    assert isinstance(made.population().speed, Speed)


def test_explicit_settings_have_priority() -> None:
    assert settings("algorithm=fedbuff", "pace=rounds").pace() == Rounds()
    assert settings("algorithm=fedbuff", "pace=rounds").population().speed is None
    made = settings("algorithm=fedbuff", "population.speed={kind='delays', compute={kind='constant', seconds=2}}")
    assert made.population().speed == Speed(compute=delay.Constant(2.0))
    own = settings("algorithm=fedbuff", "availability=markov", "population.seconds_per_round=60").population()
    assert isinstance(own.availability, Markov)
    assert own.seconds_per_round == 60
    assert settings("algorithm=fedbuff", "availability=diurnal").population().round_seconds == 600
    with pytest.raises(ConfigurationError, match=r"leave it out, and write Diurnal\(seconds_per_round=60\)"):
        settings("algorithm=fedbuff", "availability=diurnal", "population.seconds_per_round=60").population()


def test_one_option_of_speeds_keeps_the_other_defaults() -> None:
    speed, default = (settings("algorithm=fedbuff", *over).population().speed for over in (
        ("population.speed.spread=0.5",), ()
    ))  # fmt: skip
    assert isinstance(speed, Speed)
    assert isinstance(default, Speed)
    assert speed == replace(default, spread=0.5)
    with pytest.raises(ConfigurationError, match=r"population\.speed\.sprad"):
        settings("algorithm=fedbuff", "population.speed.sprad=0.5").population()


def test_groups_of_clients_are_a_list_of_tables() -> None:
    groups = "[{share=10, compute={kind='uniform', low=1, high=2}}, {share=5, upload_bandwidth=100}]"
    made = settings("algorithm=fedbuff", f"population.speed={{kind='delays', groups={groups}}}")
    assert made.population().speed == Speed(
        groups=(Group(10, compute=delay.Uniform(1.0, 2.0)), Group(5, upload_bandwidth=100.0))
    )
    with pytest.raises(ConfigurationError, match=r"unknown option 'population.speed.groups.0.shar' of Group"):
        settings("population.speed={kind='delays', groups=[{shar=10}]}")


def test_saved_settings_are_equal() -> None:
    for made in (settings("algorithm=fedasync"), settings("pace=buffered"), settings()):
        assert Settings.of(made.table).table == made.table


def test_all_algorithms_of_a_comparison_share_one_pace() -> None:
    names = ["fedavg", "fedstaleweight"]
    plan = Layers.of([{}], names).plan(names)
    assert all(made.pace() == Buffered() for made in plan.values())
    assert plan["fedavg"].population() == plan["fedstaleweight"].population()
    plan = Layers.of([{"pace": "rounds"}], names).plan(names)
    assert all(made.pace() == Rounds() for made in plan.values())


@pytest.mark.parametrize("names", [["fedavg", "fedbuff"], ["fedbuff", "fedavg"], ["fedavg", "late"]])
def test_options_of_a_default_pace_apply_to_all_algorithms(names: list[str]) -> None:
    layers = [{"algorithms": {"late": {"algorithm": "fedbuff"}}}, override("pace.buffer_size=3")]
    plan = Layers.of(layers, names).plan(names)
    assert [made.pace() for made in plan.values()] == [Buffered(3)] * 2
    with pytest.raises(
        ConfigurationError, match=r"unknown option 'pace\.buffer_size' of Rounds: it is an option of buffered"
    ):
        Layers.of([override("pace.buffer_size=3")], ["fedavg", "fedau"]).plan(["fedavg", "fedau"])


@pytest.mark.parametrize("names", [["fedavg", "fedbuff"], ["fedbuff", "fedavg"]])
def test_synchronous_and_buffered_runs_have_the_same_clients(names: list[str]) -> None:
    layers = [override("fedavg.pace=rounds"), override("pace.buffer_size=3"), override("population.speed.spread=0.5")]
    plan = Layers.of(layers, names).plan(names)
    assert plan["fedavg"].pace() == Rounds()
    assert plan["fedbuff"].pace() == Buffered(3)
    assert plan["fedavg"].population() == plan["fedbuff"].population()
    assert plan["fedavg"].population().speed is not None
    assert Settings.of(plan["fedavg"].table).table == plan["fedavg"].table
    table = {"algorithms": {"fedavg": {"pace": {"name": "rounds", "deadline": 4}}, "fedbuff": {}}}
    made = Layers.of([table, override("fedavg.pace.over_selection=1.3")]).plan(names)
    assert made["fedavg"].pace() == Rounds(4.0, 1.3)
    with pytest.raises(
        ConfigurationError,
        match=r"unknown option 'pace\.deadline' of Buffered: it is an option of buffered_groups, rounds; write pace=",
    ):
        Layers.of([override("fedavg.pace.deadline=4")], names).plan(names)


def test_comparison_of_both_shows_simulated_seconds(
    turnout: Callable[..., Any], small: tuple[str, ...], tmp_path: Path
) -> None:
    call = (
        "compare",
        "fedavg",
        "fedbuff",
        "fedavg.pace=rounds",
        *small,
        "--seeds",
        "1",
        "--jobs",
        "1",
        "--rounds",
        "8",
    )
    call = (*call, "pace.buffer_size=3", "--every", "1", "--to-accuracy", "0.1", "--no-report", "--folder", tmp_path)
    result = turnout(*call)
    assert result.exit_code == 0, result.output
    assert "simulated time (s)" in result.stdout
    seconds = {
        name: History.load(tmp_path / name / "seed-0").total("simulated_seconds") for name in ("fedavg", "fedbuff")
    }
    assert seconds["fedavg"] > 2 * seconds["fedbuff"] > 0
    assert "pace rounds and buffered" in result.output


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("pace=buffer", "unknown pace 'buffer': did you mean 'buffered'"),
        (
            "pace.buffer_size=5",
            "unknown option 'pace.buffer_size' of Rounds: it is an option of buffered, buffered_groups; write pace=buffered",
        ),
        ("pace.buffer_siz=5", "unknown option 'pace.buffer_siz' of Rounds: known: deadline"),
        (
            "availability.period=5",
            "unknown option 'availability.period' of Markov: it is an option of cyclic, interleaved_sine, sine, staircase; ",
        ),
        ("pace={name='buffered', buffer_size=0}", "pace.buffer_size: got 0, needed a whole number >= 1"),
        ("pace={name='buffered', waits='sometimes'}", "unknown value of pace.waits 'sometimes'"),
    ],
)
def test_invalid_pace_is_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        settings(override)


def test_run_with_a_clock_resumes(turnout: Callable[..., Any], tmp_path: Path) -> None:
    options = ("--pace", "buffered", "pace.buffer_size=3", "data.num_clients=6", "--quiet")
    for folder, rounds in (("whole", "6"), ("half", "3")):
        assert turnout("run", *options, "--rounds", rounds, "--folder", tmp_path / folder).exit_code == 0
    result = turnout("run", "--resume", tmp_path / "half", "--rounds", "6", "--quiet")
    assert result.exit_code == 0, result.output
    one, other = (History.load(tmp_path / folder) for folder in ("whole", "half"))
    for name in ("simulated_seconds", "staleness_mean", "update_norm"):
        assert one.column(name)[1].tolist() == other.column(name)[1].tolist()
    assert "buffered" in turnout("list", "paces").stdout


@pytest.mark.parametrize("others", [[], ["pace=rounds"]])
def test_buffer_for_one_algorithm_beside_rounds_is_refused(others):
    layers = Layers.of([override(text) for text in ("fedavg.pace=buffered", *others)], ["fedavg", "fedau"])
    with pytest.raises(
        ConfigurationError, match=r"fedavg\.pace: got buffered.* write pace=buffered, and NAME.pace=rounds"
    ):
        layers.plan(["fedavg", "fedau"])


def test_unnamed_algorithm_is_refused():
    with pytest.raises(ConfigurationError, match=r"algorithm\.name: got \[1\], needed a text"):
        Layers.of([override("late.algorithm=[1]")], ["late"]).plan(["late"])


REFUSED = {
    "scaffold": "corrects local steps by the server's mean",
    "scaffold_p": "corrects local steps by the server's mean",
    "amplified_scaffold": "corrects local steps by the server's mean",
    "fedlaavg": "LongestAbsent chooses the cohort of a round",
    "f3ast": "LeastServed chooses the cohort of a round",
    "fedawe": "they continue from the one that they kept",
    "mw_fed": "tells clients what depends on all reports so far",
    "folb_two_set": "measures before it chooses",
    "fednu": "measures before it chooses",
    "power_of_choice": "measures before it chooses",
    "oort": "Oort chooses the cohort of a round",
}


def test_all_compatible_algorithms_run_with_a_clock() -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/asynchronous.md").read_text("utf-8")
    refused = guide.partition("## Which algorithms can run asynchronously")[2].partition("These support synchronous")[0]
    loaded: dict[str, Any] = {}
    for name in ALGORITHMS.keys() - LOW_RANK:  # which need another model
        made = Settings.of({"algorithm": name, "pace": "buffered", "model": "mlp", "data": {"num_clients": 10}})
        key = json.dumps(made.table["data"])
        loaded[key] = loaded.get(key) or made.data()
        if name not in REFUSED:
            Simulation(made.experiment(loaded[key]))
            continue
        with pytest.raises(ConfigurationError, match=REFUSED[name]):
            Simulation(made.experiment(loaded[key]))
        assert f"`{name}`" in refused, "the guide says so"


def test_explicit_cohort_size_is_refused_with_a_buffer() -> None:
    made = Settings.of({"algorithm": {"name": "folb", "cohort_size": 3}, "pace": "buffered"})
    with pytest.raises(ConfigurationError, match="Uniform chooses the cohort of a round"):
        Simulation(made.experiment())


def test_default_speed_equals_that_of_python() -> None:
    assert Settings.of({"algorithm": "fedbuff"}).population().speed == UNEQUAL


def test_explicit_rounds_restore_the_cohort_of_the_recipe() -> None:
    plan = Layers.of([{"fedprox": {"pace": "rounds"}}], ["fedprox", "fedbuff"]).plan(["fedprox", "fedbuff"])
    assert "selection" not in plan["fedprox"].table


def test_asynchronous_algorithms_use_their_tuned_step_sizes() -> None:
    names = ["fedstaleweight", "fedbuff", "fedasync"]

    def step_sizes(*layers, algorithms=names):
        plan = Layers.of(list(layers), algorithms).plan(algorithms)
        return [settings.algorithm().local.lr for settings in plan.values()]  # type: ignore[attr-defined]

    assert step_sizes({}) == [0.1, 0.2, 0.4]
    assert step_sizes(override("local.lr=0.3")) == [0.3, 0.3, 0.3]
    assert step_sizes(override("fedbuff.local.lr=0.3")) == [0.1, 0.3, 0.4]
    assert step_sizes(override("data.name=mnist")) == [0.1, 0.1, 0.1]
    assert step_sizes(override("pace=rounds")) == [0.1, 0.1, 0.1]
