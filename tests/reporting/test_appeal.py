"""Requirements of clients in tables, figures and the page."""

import io
import re

import pytest
from rich.console import Console

from turnout.record.query import History
from turnout.reporting.curves import curves
from turnout.reporting.report import write_report
from turnout.results.column import COLUMNS
from turnout.results.formats import csv
from turnout.results.measure import Measure
from turnout.results.names import label
from turnout.results.records import RunRecord
from turnout.results.table import appeal_cells, comparison, rich_tables

from .test_report import Page

SEEN = {"appeal_test": 0.375, "appeal_train": 0.4, "client_accuracy": 0.701, "preferred_accuracy": 0.883}


def run(algorithm="maxfl", seed=0, rounds=20, pool=43, **others):
    """A run whose appeal is recorded every ten rounds, its pool in every one."""
    history = History()
    for round in range(1, rounds + 1):
        figures = {**SEEN, **others, "test_accuracy": 0.6} if round % 10 == 0 else {}
        history.record(round=round, pool=pool + round % 2, **figures)
    return RunRecord(algorithm, seed, history)


def text_of(records):
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(rich_tables(comparison(records)))
    return console.export_text()


def test_columns_use_the_papers_names():
    assert label("appeal_test") == "GM-Appeal (test)"
    assert label("unseen_appeal_train") == "GM-Appeal (train), unseen"
    assert label("tuned_preferred_accuracy") == "preferred-model accuracy, tuned (%)"
    assert label("unseen_tuned_client_accuracy") == "mean test accuracy of clients, unseen, tuned (%)"
    assert label("pool") == "clients in the pool"
    assert label("unseen_test_accuracy") == "unseen test accuracy (%)", "no column of appeal"


def test_comparison_shows_requirements_below_its_results():
    text = text_of([run(), run("fedavg", pool=2, appeal_test=0.04)])
    assert "Requirements of clients" in text
    assert re.search(r"maxfl +0\.38 +0\.40 +70\.1 +88\.3 +44", text), "the pool is a whole number: 43.5 rounds to even"
    assert re.search(r"fedavg +0\.04 +0\.40 +70\.1 +88\.3 +2\b", text)
    assert "Unseen" not in text
    assert "tuning" not in text


def test_each_kind_of_clients_has_a_table():
    record = run(unseen_appeal_test=0.39, tuned_appeal_test=0.55, unseen_tuned_appeal_test=0.56)
    found = appeal_cells(comparison([record]))
    assert [(keys[0], lines[0][0][0]) for keys, lines in found.values()] == [
        ("appeal_test", "0.38"),
        ("unseen_appeal_test", "0.39"),
        ("tuned_appeal_test", "0.55"),
        ("unseen_tuned_appeal_test", "0.56"),
    ]
    assert list(found)[1] == "Unseen clients"


def test_runs_without_requirements_show_none(six_by_three):
    assert "GM-Appeal" not in text_of(six_by_three)
    assert appeal_cells(comparison(six_by_three)) == {}


def test_final_figures_are_means_over_the_window():
    record = run()
    rows = comparison([record])
    assert rows[0].figures["appeal_test"].mean == 0.375
    assert rows[0].figures["pool"].mean == 43.5
    assert comparison([record], window=1)[0].figures["pool"].mean == 43
    assert "appeal_test_mean" in csv(rows)


def test_best_value_is_marked_and_larger_pools_are_better():
    others = [run("fedavg", seed, pool=2, appeal_test=0.04) for seed in range(6)]
    rows = comparison([*(run(seed=seed) for seed in range(6)), *others])
    (keys, lines), *_ = appeal_cells(rows).values()
    best = [{key: best for key, (_, best) in zip(keys, line, strict=True)} for line in lines]
    assert best[0]["appeal_test"]
    assert best[0]["pool"]
    assert not any(best[1].values())
    assert not best[0]["client_accuracy"], "both are equal there"


@pytest.mark.parametrize(("metric", "text"), [("pool", "44"), ("appeal_test", "0.375"), ("client_accuracy", "70.1")])
def test_measures_have_their_number_formats(metric, text):
    measure = Measure("final", metric)
    assert measure.number(measure.of(run())) == text


def test_pool_axis_has_integer_ticks():
    axes = curves([run(pool=1)], "pool").axes[0]
    assert axes.get_ylabel() == "clients in the pool"
    assert all(tick == round(tick) for tick in axes.get_yticks())


def test_page_has_tables_and_figures_of_requirements(tmp_path):
    records = [run(unseen_appeal_test=0.39), run("fedavg", pool=2, unseen_appeal_test=0.07)]
    page = write_report(records, tmp_path / "r.html").read_text(encoding="utf-8")
    whole = Page(page)  # every tag is closed
    assert len(whole.ids) == len(set(whole.ids))
    assert ">Requirements of clients</h2>" in page
    assert "<caption>Unseen clients</caption>" in page
    for name in ("appeal_test", "preferred_accuracy", "unseen_appeal_test", "pool"):
        assert f'<th scope="col">{COLUMNS[name].title}</th>' in page
        assert re.search(rf'(?i)aria-label="{re.escape(label(name).removesuffix(" (%)"))} against rounds', page)


@pytest.mark.usefixtures("undrawn")
def test_page_without_requirements_omits_them(tmp_path, six_by_three):
    assert "Requirements of clients" not in write_report(six_by_three, tmp_path / "o.html").read_text(encoding="utf-8")
