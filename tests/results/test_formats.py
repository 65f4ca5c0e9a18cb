"""Exported tables: exact output, escaping, and confidence intervals."""

import csv as csv_format
import math

import numpy as np
import pytest
from scipy import stats

from turnout.record.query import History
from turnout.results.column import COLUMNS
from turnout.results.formats import csv, html, latex, markdown
from turnout.results.records import RunRecord
from turnout.results.statistics import Measured, margin, quantile
from turnout.results.table import comparison


def rows(values):
    records = []
    for name, accuracies in values.items():
        for seed, accuracy in enumerate(accuracies):
            history = History()
            history.record(round=1, test_accuracy=accuracy)
            records.append(RunRecord(name, seed, history))
    return comparison(records)


TWO = rows({"fedau": (0.771, 0.779, 0.775), "average_all|": (0.701, 0.711, 0.701)})


def test_latex_output():
    assert latex(TWO) == (
        r"\begin{table}" "\n"
        r"\centering" "\n"
        r"\caption{Mean $\pm$ standard deviation over 3 seeds, of means over the last tenth of the rounds. "
        r"Differences with p of a paired t-test over the same seeds. Bold: significantly better than every other algorithm, "
        r"or for differences, than the first algorithm (paired t-tests over seeds, Holm's correction, p $<$ 0.05).}" "\n"
        r"\begin{tabular}{lrr}" "\n"
        r"\toprule" "\n"
        r"algorithm & test accuracy (\%) & test accuracy (\%), difference from fedau \\" "\n"
        r"\midrule" "\n"
        r"fedau & \textbf{77.5 $\pm$ 0.4} & -- \\" "\n"
        r"average\_all| & 70.4 $\pm$ 0.6 & $-$7.1 (p $<$ 0.001) \\" "\n"
        r"\bottomrule" "\n"
        r"\end{tabular}" "\n"
        r"\end{table}" "\n"
    )  # fmt: skip


def test_latex_escapes_every_special_character():
    text = latex(rows({r"a_b&c%d$e#f{g}h~i^j\k": (0.5,)}))
    assert r"a\_b\&c\%d\$e\#f\{g\}h\textasciitilde{}i\textasciicircum{}j\textbackslash{}k & 50.0 \\" in text


def test_html_output():
    assert html(rows({"a<b>": (0.5,)})) == (
        "<table>\n"
        '<thead><tr><th scope="col">algorithm</th><th scope="col">test accuracy (%)</th></tr></thead>\n'
        "<tbody>\n"
        '<tr><th scope="row">a&lt;b&gt;</th><td>50.0</td></tr>\n'
        "</tbody>\n"
        "</table>\n"
    )


def test_markdown_escapes_bars_and_shows_intervals():
    text = markdown(TWO, interval=True)
    assert r"| average_all\| | 70.4 [69.0, 71.9] | -7.1 [-7.8, -6.3] (p &lt; 0.001) |" in text


@pytest.mark.parametrize("number", [2, 3, 5, 30])
def test_margins_use_students_distribution(number):
    assert margin(2.0, number) == pytest.approx(stats.t.ppf(0.975, number - 1) * 2.0 / math.sqrt(number), rel=1e-9)
    assert quantile(0.99, number) == pytest.approx(stats.t.ppf(0.995, number), rel=1e-9)


def test_no_interval_for_one_seed_or_a_diverged_run():
    assert Measured.over([0.5]).margin is None
    assert COLUMNS["test_accuracy"].show(Measured.over([0.5]), interval=True) == "50.0"
    assert COLUMNS["test_accuracy"].show(Measured.over([0.5, math.nan]), interval=True) == "nan"


def test_intervals_have_nominal_coverage():
    """Of 2,000 comparisons of five seeds, 95 % +- 1.5 % of the intervals cover the true mean."""
    samples = np.random.default_rng(0).normal(0.7, 0.1, size=(2000, 5))
    measured = [Measured.over(list(sample)) for sample in samples]
    covered = np.mean([abs(each.mean - 0.7) <= (each.margin or 0.0) for each in measured])
    assert covered == pytest.approx(0.95, abs=0.015)


def test_csv_of_selected_columns():
    text = csv(rows({"a": (0.5, 0.7), "b": (0.4, 0.8)}), keys=["test_accuracy"])
    first, second = csv_format.DictReader(text.splitlines())
    assert list(first) == [
        "algorithm", "seeds", "test_accuracy_mean", "test_accuracy_std", "test_accuracy_margin",
        "gap_of_test_accuracy_to_a_mean", "gap_of_test_accuracy_to_a_margin", "gap_of_test_accuracy_to_a_p",
    ]  # fmt: skip
    assert float(first["test_accuracy_margin"]) == pytest.approx(12.7062 * math.sqrt(0.02) / math.sqrt(2), rel=1e-5)
    assert float(second["gap_of_test_accuracy_to_a_mean"]) == pytest.approx(0.0, abs=1e-12)


def test_latex_caption_names_intervals_and_windows_and_needs_no_bold_for_one_algorithm():
    records = [RunRecord("a", seed, History()) for seed in range(4)]
    for seed, record in enumerate(records):
        record.history.record(round=1, test_accuracy=0.5 + 0.01 * seed)
    assert r"\caption{Mean [95 \% confidence interval] over 4 seeds, of means over the last 30 rounds.}" in latex(
        comparison(records, window=30), interval=True
    )
    assert r"\caption{Means over the last tenth of the rounds.}" in latex(comparison(records[:1]))
