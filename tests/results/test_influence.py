"""Influence of clients in comparisons, figures and tables."""

from dataclasses import replace

import numpy as np
import pytest

from turnout.core.checks import DataError
from turnout.record.query import History
from turnout.reporting.client_figures import influence_figure
from turnout.reporting.report import write_report
from turnout.results.column import INFLUENCE
from turnout.results.influence import MOST_ROWS, client_table, influence_figures
from turnout.results.records import RunRecord
from turnout.results.table import cells, comparison, rich_tables

CONTRIBUTIONS = np.array([6, 3, 1, 0])
STALENESS = np.array([0.5, 1.0, 4.0, np.nan])


def record(algorithm, influence, seed=0, contributions=CONTRIBUTIONS, staleness=STALENESS):
    history = History()
    history.record(round=1, participants=[0, 1, 2], test_accuracy=0.5, simulated_seconds=3.0)
    history.set_clients(
        contributions=contributions, mean_staleness=staleness, influence=influence, test_accuracy=[0.5] * len(influence)
    )
    return RunRecord(algorithm, seed, history)


PLAIN = record("fedbuff", CONTRIBUTIONS / 10)
FAIR = record("fedstaleweight", np.array([0.4, 0.3, 0.3, 0.0]))


def without(make_run):
    return make_run("fedau", 0)


def test_figures_equal_hand_computed_values():
    found = influence_figures(PLAIN)
    assert found == pytest.approx(
        {"staleness": 1.0, "influence_least": 0.0, "influence_most": 2.4, "influence_beyond": 0.4}
    )


def test_influence_has_columns_and_fairer_is_better():
    both = [replace(each, seed=seed) for each in (PLAIN, FAIR) for seed in range(1, 6)]
    rows = comparison([PLAIN, FAIR, *both])
    keys, lines = cells(rows, INFLUENCE)
    assert keys == list(INFLUENCE)
    best = {row.algorithm: dict(zip(keys, line, strict=True)) for row, line in zip(rows, lines, strict=True)}
    assert best["fedstaleweight"]["influence_most"] == ("1.60 ± 0.00", True)
    assert best["fedbuff"]["influence_beyond"] == ("40.0 ± 0.0", False)
    assert len(rich_tables(rows).renderables) == 2


def test_synchronous_runs_have_no_influence_columns(make_run):
    assert influence_figures(without(make_run)) == {}
    assert client_table([without(make_run)]) is None
    assert len(rich_tables(comparison([without(make_run)])).renderables) == 1
    with pytest.raises(DataError, match="no run was asynchronous, so there is no influence"):
        influence_figure([without(make_run)])


def test_equal_columns_of_clients_are_shown_once():
    found = client_table([PLAIN, FAIR, record("fedbuff", CONTRIBUTIONS / 10, seed=1)])
    assert found is not None
    assert (found.seed, found.num_clients) == (0, 4)
    influences = [f"influence (%), {name}" for name in ("fedbuff", "fedstaleweight")]
    assert found.titles == ["client", "contributions", "mean staleness", "fair share (%)", *influences]
    assert found.rows[0] == ["0", "6", "0.50", "25", "60", "40"]
    assert found.rows[3] == ["3", "0", "–", "25", "0", "0"]


def test_different_columns_of_clients_are_shown_per_run():
    other = record("fedasync", CONTRIBUTIONS[::-1] / 10, contributions=CONTRIBUTIONS[::-1])
    found = client_table([PLAIN, other])
    assert found is not None
    assert found.titles[1:4] == ["contributions, fedbuff", "contributions, fedasync", "mean staleness"]
    assert [row[1:3] for row in found.rows] == [["6", "0"], ["3", "1"], ["1", "3"], ["0", "6"]]


def test_subset_of_many_clients_is_shown():
    many = np.arange(1, 101)
    found = client_table([record("fedbuff", many / many.sum(), contributions=many, staleness=1.0 / many)])
    assert found is not None
    assert len(found.rows) == MOST_ROWS
    assert (found.rows[0][0], found.rows[-1][0]) == ("99", "0")


def test_figure_shows_influence_against_fair_share():
    axes = influence_figure([PLAIN, FAIR]).axes[0]
    plain, fair = (np.asarray(dots.get_offsets()) for dots in axes.collections)
    np.testing.assert_allclose(plain, [[0.4, 0.4], [1.2, 1.2], [2.4, 2.4]])
    np.testing.assert_allclose(fair, [[0.4, 1.2], [1.2, 1.2], [2.4, 1.6]])


def test_report_has_influence_if_recorded(tmp_path):
    page = write_report([PLAIN, FAIR], tmp_path / "report.html").read_text(encoding="utf-8")
    for text in (">Influence</h2>", "Influence of clients", "fair share (%)", "4 of 4 clients", "least influence"):
        assert text in page


@pytest.mark.usefixtures("undrawn")
def test_report_of_synchronous_runs_omits_influence(tmp_path, make_run):
    assert "Influence" not in write_report([without(make_run)], tmp_path / "other.html").read_text(encoding="utf-8")
