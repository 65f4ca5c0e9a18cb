"""The comparison table."""

import csv as csv_format
import io
import math

import pytest
from rich.console import Console

from turnout.core.checks import ConfigurationError
from turnout.record.query import History
from turnout.results.column import COLUMNS, Measured
from turnout.results.formats import csv, markdown
from turnout.results.records import RunRecord, by_algorithm, client_split
from turnout.results.table import cells, comparison, rich_table

ALGORITHMS = ("fedau", "average_participating", "average_all", "known_statistics", "fedvarp", "mifa")


def one_round(algorithm, seed, clients=None, **values):
    history = History()
    history.record(round=1, **values)
    if clients:
        history.set_clients(**clients)
    return RunRecord(algorithm, seed, history)


def test_mean_and_sample_deviation_over_seeds():
    rows = comparison([one_round("a", seed, test_accuracy=x) for seed, x in enumerate([0.5, 0.7, 0.9])])
    assert rows[0].num_seeds == 3
    assert rows[0].figures["test_accuracy"].mean == pytest.approx(0.7)
    assert rows[0].figures["test_accuracy"].std == pytest.approx(0.2)  # n would give 0.163
    assert comparison([one_round("a", 0, test_accuracy=0.5)])[0].figures["test_accuracy"] == Measured(0.5, None)


def test_markdown_output():
    records = [
        one_round("fedau", 0, test_accuracy=0.771, test_loss=0.5, seconds=1.25),
        one_round("fedau", 1, test_accuracy=0.779, test_loss=0.6, seconds=1.25),
        one_round("fedau", 2, test_accuracy=0.775, test_loss=0.55, seconds=1.25),
        one_round("mifa", 0, test_accuracy=0.701, test_loss=0.43, seconds=0.5),
        one_round("mifa", 1, test_accuracy=0.711, test_loss=0.52, seconds=0.5),
        one_round("mifa", 2, test_accuracy=0.706, test_loss=0.46, seconds=0.5),
    ]
    assert markdown(comparison(records)) == (
        "| algorithm | test accuracy (%) | test accuracy (%), difference from fedau | test loss | time (s) |\n"
        "|---|---:|---:|---:|---:|\n"
        "| fedau | **77.5 ± 0.4** | – | 0.550 ± 0.050 | 1.2 |\n"
        "| mifa | 70.6 ± 0.5 | -6.9 (p &lt; 0.001) | **0.470 ± 0.046** | 0.5 |\n"
    )


LOW = (0.70, 0.72, 0.71)


@pytest.mark.parametrize(
    ("values", "bold"),
    [
        ({"a": (0.80, 0.82, 0.83), "b": LOW, "c": (0.5, 0.9, 0.7)}, []),  # c spreads over all of them
        ({"a": (0.80, 0.82, 0.83), "b": LOW, "c": (0.1, math.nan, 0.1)}, ["a"]),  # a run that diverged does not count
        ({"a": (0.80, 0.82, 0.83), "b": LOW}, ["a"]),
        ({"b": LOW, "a": (0.80, 0.82, 0.83)}, ["a"]),
        ({"a": (0.60, 0.70, 0.80), "b": (0.58, 0.68, 0.785)}, ["a"]),  # paired: ahead on each seed, within the spread
        ({"a": (0.80, 0.82, 0.81), "b": (0.79, 0.83, 0.80)}, []),
        ({"a": (0.8, 0.8, 0.8), "b": (0.8, 0.8, 0.8)}, []),
        ({"a": (0.8, 0.82), "b": (0.7, 0.71)}, []),  # too few seeds
        ({"a": (0.8,), "b": (0.7,)}, []),
        ({"a": (0.8, 0.82, 0.83)}, []),
    ],
)
def test_figure_that_is_significantly_better_than_every_other_is_bold(values, bold):
    records = [one_round(name, seed, test_accuracy=x) for name, seeds in values.items() for seed, x in enumerate(seeds)]
    _, lines = cells(comparison(records))
    assert [name for name, (figure, *_) in zip(values, lines, strict=True) if figure[1]] == bold


@pytest.mark.parametrize(("metric", "sign"), [("test_accuracy", 1), ("test_rmse", -1)])
def test_only_a_better_difference_is_bold(metric, sign):
    values = {"first": LOW, "better": (0.80, 0.82, 0.83), "worse": (0.60, 0.63, 0.61), "same": (0.70, 0.73, 0.70)}
    records = [
        one_round(name, seed, **{metric: sign * x}) for name, seeds in values.items() for seed, x in enumerate(seeds)
    ]
    keys, lines = cells(comparison(records), [metric])
    assert keys == [metric, f"gap_of_{metric}_to_first"]
    assert {name: line[1][1] for name, line in zip(values, lines, strict=True)} == {
        "first": False, "better": True, "worse": False, "same": False,
    }  # fmt: skip


def test_differences_are_corrected_for_their_number():
    """p = 0.034 is significant for one comparison, and not for the least of two (Holm: 0.068)."""
    values = {"a": (0.7, 0.7, 0.7), "b": (0.73, 0.76, 0.75), "c": (0.7, 0.72, 0.69)}
    records = [one_round(name, seed, test_accuracy=x) for name, seeds in values.items() for seed, x in enumerate(seeds)]
    assert cells(comparison(records[:6]), ["test_accuracy"])[1][1][1] == ("+4.7 (p 0.034)", True)
    assert cells(comparison(records), ["test_accuracy"])[1][1][1] == ("+4.7 (p 0.034)", False)


def test_diverged_run_is_not_averaged():
    seeds = [one_round("a", seed, test_accuracy=x) for seed, x in enumerate([0.5, math.nan])]
    assert "| a | nan |" in markdown(comparison(seeds)), "a run that diverged is not averaged away"


def test_missing_figures_are_dashes_and_empty_columns_are_omitted():
    text = markdown(comparison([one_round("a", 0, test_accuracy=0.5), one_round("b", 0, train_accuracy=0.5)]))
    assert text.splitlines()[0] == "| algorithm | training accuracy (%) | test accuracy (%) |"
    assert "| a | – | 50.0 |" in text
    assert comparison([RunRecord("a", 0, History())])[0].figures == {}


def test_exceptional_columns_appear_only_if_nonzero():
    keys = ("test_accuracy", "num_dropped")
    quiet = comparison([one_round("a", 0, test_accuracy=0.5, num_dropped=0)])
    loud = comparison([one_round("a", 0, test_accuracy=0.5, num_dropped=3)])
    assert "dropped" not in markdown(quiet, keys)
    assert "dropped" in markdown(loud, keys)


def test_client_figures_do_not_mix_test_and_training_accuracy():
    tested = one_round("a", 0, clients={"test_accuracy": [0.2, 0.6], "train_accuracy": [1.0, 1.0]})
    trained = one_round("b", 0, clients={"train_accuracy": [0.5, 0.9]})
    assert client_split([tested, trained]) == "test"
    rows = comparison([tested, trained])
    assert rows[0].figures["client_test_mean"].mean == pytest.approx(0.4)
    assert "client_test_mean" not in rows[1].figures
    assert comparison([trained])[0].figures["client_train_spread"].mean == pytest.approx(0.2)


def test_window_applies_to_figures(make_run):
    record = make_run(rounds=100, every=10)
    _, values = record.history.column("test_accuracy")
    assert comparison([record], window=30)[0].figures["test_accuracy"].mean == pytest.approx(values[-3:].mean())


def test_csv_has_full_precision_and_round_trips(six_by_three):
    rows = comparison(six_by_three)
    read = list(csv_format.DictReader(csv(rows).splitlines()))
    assert [line["algorithm"] for line in read] == [row.algorithm for row in rows]
    for line, row in zip(read, rows, strict=True):
        assert float(line["test_accuracy_mean"]) == row.figures["test_accuracy"].mean
        assert float(line["client_test_worst_std"]) == row.figures["client_test_worst"].std
    single = list(csv_format.DictReader(csv(comparison(six_by_three[:1])).splitlines()))
    assert single[0]["test_accuracy_std"] == ""


def test_rich_table_shows_all_figures_and_marks_significant_ones(make_runs):
    rows = comparison(make_runs(5))
    console = Console(width=140, record=True, force_terminal=True, file=io.StringIO())
    console.print(rich_table(rows))
    text = console.export_text(styles=True)
    for row in rows:
        assert row.algorithm in text
    best = max(row.figures["test_accuracy"].mean for row in rows)
    assert f"\x1b[1m{100 * best:.1f} ± " in text
    assert "mean ± standard deviation over 5 seeds" in text
    assert "bold: significantly better than every other algorithm, or for differences, than the first algorithm" in text
    assert all(row.figures.keys() >= {"test_accuracy", "client_test_worst", "seconds"} for row in rows)
    assert "client_train_worst" not in rows[0].figures, "one split for all"


def test_narrow_terminal_stacks_columns_without_wrapping(six_by_three):
    rows = comparison(six_by_three)
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(rich_table(rows))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 60
    named = [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in ALGORITHMS]
    assert named == [row.algorithm for row in rows] * (len(named) // len(rows))
    assert len(named) > len(rows), "stacked"
    for row in rows:
        figure = row.figures["client_test_worst"]
        assert figure.mean is not None
        assert figure.std is not None
        assert f"{100 * figure.mean:.1f} ± {100 * figure.std:.1f}" in "\n".join(lines)


def test_columns_and_captions_name_examples_and_windows(six_by_three):
    assert COLUMNS["client_train_worst"].title == "training accuracy, worst 10 % of clients (%)"
    assert COLUMNS["client_test_worst"].short == "test %,\nworst 10 %"
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(rich_table(comparison(six_by_three[:1])))
    assert "means over the last tenth of the rounds" in console.export_text()


def test_csv_gives_bytes_as_bytes():
    (line,) = csv_format.DictReader(csv(comparison([one_round("a", 0, bytes_up=40, bytes_down=1)])).splitlines())
    assert (line["bytes_up_mean"], line["bytes_down_mean"]) == ("40.0", "1.0")
    assert not [title for title in line if "megabytes" in title]


def test_invalid_records_are_refused(make_run):
    with pytest.raises(ConfigurationError, match="there are no runs to report: give at least one RunRecord"):
        comparison([])
    with pytest.raises(ConfigurationError, match="two runs of 'fedau' have seed 0: give them different names"):
        by_algorithm([make_run(), make_run()])
    with pytest.raises(ConfigurationError, match="algorithm: got '_hidden', needed a name of printable characters"):
        RunRecord("_hidden", 0, History())
