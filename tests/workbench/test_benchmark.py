"""The participation benchmark, with a version of two small cells."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from scipy import stats
from typer.testing import CliRunner

from turnout.core.checks import ConfigurationError, DataError
from turnout.results.statistics import gap
from turnout.simulation.running import Interrupted
from turnout.workbench import commands
from turnout.workbench.advise.advice import Participation
from turnout.workbench.benchmark import rows
from turnout.workbench.benchmark.cells import Cell, Version
from turnout.workbench.benchmark.pictures import alike
from turnout.workbench.benchmark.runs import figures_of
from turnout.workbench.benchmark.standings import RANKED, critical_difference, leads, table_of

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "rounds": 6,
    "evaluate_every": 3,
    "local": {"steps": 2, "batch_size": 8, "lr": 0.2},
    "data": {
        "name": "digits", "num_clients": 8, "partition": {"name": "iid"}, "client_test_fraction": 0.2,
        "validation_fraction": 0.2,
    },
    "model": {"name": "logistic"},
}  # fmt: skip
CHANCE = {"availability": {"name": "bernoulli", "mean": 0.3, "correlated_with_labels": "none"}}
BUFFER = {
    "availability": {"name": "everyone"},
    "pace": {"name": "buffered", "buffer_size": 3, "concurrency": 4},
    "population": {"speed": {"kind": "delays", "spread": 0.5}},
}
CELLS = (
    Cell("chance", "small", "unrelated", 0.3, SETTINGS | CHANCE),
    Cell("buffer", "small", "speed", 0.3, SETTINGS | BUFFER),
)
SMALL = Version(
    "v0", (0, 1), (100,), {"small": 10}, "average_participating", {"average_all": {"server_lr": 3.0}}, CELLS
)


@pytest.fixture(scope="module")
def row(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "row.json"
    return rows.compute("average_participating", SMALL, SMALL.cells, path), path


def test_version_tunes_with_seeds_that_it_does_not_report_and_has_twelve_small_cells():
    version = Version.read("v1")
    assert not set(version.seeds) & set(version.tuning_seeds)
    assert len(version.seeds) == 20
    assert len(version.of_tier("small")) == 12
    assert len({cell.name for cell in version.cells}) == len(version.cells)
    assert {cell.rates for cell in version.cells} == {"unrelated", "labels", "speed"}
    with pytest.raises(ConfigurationError, match="version"):
        Version.read("v99")


def test_published_rows_are_of_the_declared_cells():
    version = Version.read("v1")
    hashes, full = {cell.name: cell.hash for cell in version.of_tier("small")}, version.of_tier("full")
    published = rows.published(version)
    for each in published:
        small = {name: cell["hash"] for name, cell in each["cells"].items() if name in hashes}
        assert small == hashes, each["rule"]
        assert each["cells"].keys() - hashes <= {cell.name for cell in full}
        assert not any(rows.missing_seeds(cell, version) for cell in each["cells"].values())
    if published:
        assert version.reference in {each["rule"] for each in published}


def test_published_figures_of_the_full_tier_are_of_the_declared_cells():
    version = Version.read("v1")
    published = [row["cells"] for row in rows.published(version)]
    for cell in version.of_tier("full"):
        if not (found := {cells[cell.name]["hash"] for cells in published if cell.name in cells}):
            continue
        try:
            assert found <= {cell.hash}
        except DataError as error:
            pytest.skip(f"{cell.name}: {str(error).splitlines()[0]}")


def test_hash_depends_on_settings_target_splits_and_cohorts():
    cell = CELLS[0]
    again = Cell(cell.name, cell.tier, cell.rates, cell.target, dict(cell.settings))
    assert cell.hash == again.hash
    rarer = {"availability": {**CHANCE["availability"], "mean": 0.2}}
    assert len({cell.hash, replace(cell, target=0.4).hash, replace(cell, settings=SETTINGS | rarer).hash}) == 3


def test_searched_options_are_the_local_step_size_and_that_of_the_server():
    cell = CELLS[0]
    assert SMALL.axes("average_participating", cell) == {"local.lr": (0.1, 0.2, 0.4), "server_lr": (1.0, 2.0, 4.0)}
    assert SMALL.axes("average_all", cell)["server_lr"] == (3.0, 6.0, 12.0)
    assert SMALL.axes("amplified_fedavg", cell)["gamma"] == (1.5, 3.0, 6.0)
    assert SMALL.axes("area", cell) == {"local.lr": (0.1, 0.2, 0.4)}
    assert SMALL.options("fedprox") == {"cohort_size": None}
    assert SMALL.options("average_all") == {}


def test_figures_of_a_run_are_those_of_its_tables():
    experiment = CELLS[0].experiment("average_participating", {"local.lr": 0.3}, 1)
    result = experiment.run()
    figures = figures_of(result, target=0.0)
    own = np.array(result.clients["test_accuracy"].to_pylist())
    assert figures["test_accuracy"] == result.rounds["test_accuracy"].to_pylist()[-1]
    assert figures["client_accuracy"] == pytest.approx(own.mean())
    assert figures["worst_tenth"] == own.min()
    share = np.array(result.clients["participations"].to_pylist()) / 6
    away = own[share < 0.2]
    assert figures["absent"] == (pytest.approx(away.mean()) if len(away) else None)
    assert figures["rounds_to_target"] == 3.0  # the first evaluation
    assert figures["updates_to_target"] == sum(result.rounds["num_participants"].to_pylist()[:3])
    assert figures["bytes"] == sum(result.rounds["bytes_up"].to_pylist()) + sum(result.rounds["bytes_down"].to_pylist())
    assert figures_of(result, target=1.1)["rounds_to_target"] is None
    of_own_models = figures_of(result, target=0.0, personal=True)
    shared = {"test_accuracy", "rounds_to_target", "updates_to_target"}  # figures of a model for the examples of all
    assert {name for name, value in of_own_models.items() if value != figures[name]} == shared
    assert {of_own_models[name] for name in shared} == {None}


def test_row_has_tuned_options_and_figures_of_all_seeds(row):
    computed, path = row
    assert json.loads(path.read_text()) == computed
    assert computed["cells"].keys() == {"chance", "buffer"}
    for cell in computed["cells"].values():
        assert cell["runs"].keys() == {"0", "1"}
        assert cell["options"].keys() == {"local.lr", "server_lr"}
    again = CELLS[0].experiment("average_participating", computed["cells"]["chance"]["options"], 1).run()
    assert figures_of(again, 0.3) == computed["cells"]["chance"]["runs"]["1"]


def test_row_resumes_with_the_cells_that_it_lacks(row, tmp_path):
    computed, _ = row
    path, lines = tmp_path / "row.json", []
    rows.save({**computed, "cells": {"chance": computed["cells"]["chance"]}}, path)
    again = rows.compute("average_participating", SMALL, SMALL.cells, path, jobs=2, tell=lines.append)
    assert again == computed
    assert [line.partition(":")[0] for line in lines] == ["average_participating, buffer"]
    with pytest.raises(
        ConfigurationError, match="has a row of rule 'average_participating', needed 'fedau': give another"
    ):
        rows.compute("fedau", SMALL, SMALL.cells, path)


def test_rule_that_a_cell_excludes_says_why(tmp_path):
    computed = rows.compute("scaffold", SMALL, SMALL.cells, tmp_path / "row.json")
    assert "runs" in computed["cells"]["chance"]
    assert "buffer" in computed["cells"]["buffer"]["undefined"].lower()


def test_rule_with_a_model_for_each_client_has_figures_of_clients_alone(tmp_path):
    lines = []
    computed = rows.compute("ditto", SMALL, SMALL.cells, tmp_path / "row.json", tell=lines.append)
    assert lines[0].startswith("ditto, chance: accuracy of clients on their own examples ")
    for run in computed["cells"]["chance"]["runs"].values():
        assert run["test_accuracy"] is None
        assert 0.0 < run["client_accuracy"] <= 1.0
    assert "runs" in computed["cells"]["buffer"]  # all clients take part, so that no selection excludes the cell


def test_rule_that_needs_another_model_is_not_defined(tmp_path):
    mlp = replace(CELLS[0], settings={**CELLS[0].settings, "model": {"name": "mlp", "hidden": [4]}})
    with pytest.raises(ConfigurationError, match=r"it needs Mlp\(.*batch_norm=True.*\), and the cell has Mlp\(.*\)\)"):
        rows.compute("fedbn", replace(SMALL, cells=(mlp,)), (mlp,), tmp_path / "row.json")


def test_rule_that_no_cell_can_run_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.py").write_text(
        "import turnout as to\n\ndef bare(*, also=()):\n    return to.fedavg(also=also)\n"
    )
    with pytest.raises(
        ConfigurationError, match=r"rules.py:bare is defined in no cell \(rules.py:bare is not a recipe"
    ):
        rows.compute("rules.py:bare", SMALL, SMALL.cells, tmp_path / "row.json")


def test_check_recomputes_a_run_and_notices_changes(row):
    computed, _ = row
    assert "equal, bit for bit" in rows.check(computed, SMALL)
    other = json.loads(json.dumps(computed))
    for cell in other["cells"].values():
        for run in cell["runs"].values():
            run["test_accuracy"] += 1e-9
    with pytest.raises(ConfigurationError, match="the row is not of this version"):
        rows.check(other, SMALL)
    other["machine"] = {"processor": "another"}
    assert "within" in rows.check(other, SMALL)
    for cell in other["cells"].values():
        for run in cell["runs"].values():
            run["test_accuracy"] += 0.1
    with pytest.raises(ConfigurationError, match=r"accuracies differ by 0\.100, needed at most 0\.02"):
        rows.check(other, SMALL)
    with pytest.raises(ConfigurationError, match="version: got 'v0', needed 'v7'"):
        rows.check(computed, replace(SMALL, name="v7"))
    with pytest.raises(ConfigurationError, match="its hash is"):
        rows.check(computed, replace(SMALL, cells=tuple(replace(cell, target=0.9) for cell in CELLS)))


def made(rule, chance, buffer=None):
    """A row with these test accuracies by seed."""

    def cell(name, accuracies):
        runs = {str(seed): {"test_accuracy": value, "absent": None} for seed, value in enumerate(accuracies)}
        return {"hash": {cell.name: cell.hash for cell in CELLS}[name], "options": {}, "edges": [], "runs": runs}

    cells = {"chance": cell("chance", chance)}
    excluded = {"hash": CELLS[1].hash, "undefined": "needs rounds"}
    return {"rule": rule, "version": "v0", "cells": cells | {"buffer": cell("buffer", buffer) if buffer else excluded}}


def test_standings_are_paired_corrected_and_ranked():
    reference = made("average_participating", (0.5, 0.6, 0.7), (0.5, 0.6, 0.7))
    better = made("fedau", (0.6, 0.71, 0.8), (0.5, 0.6, 0.7))
    alike = made("mifa", (0.52, 0.58, 0.71), (0.4, 0.5, 0.6))
    table = table_of([reference, better, alike, made("scaffold", (0.5, 0.6, 0.7))], SMALL, "small")
    standing = table.standings["fedau"]["chance"]
    assert standing.gap is not None
    alone = gap(dict(enumerate((0.6, 0.71, 0.8))), dict(enumerate((0.5, 0.6, 0.7))))
    assert alone is not None
    assert standing.gap.mean == pytest.approx(0.31 / 3)
    assert standing.gap.p == pytest.approx(2 * alone.p)  # of three rivals, one of which has no p-value
    assert standing.is_better
    assert not table.standings["mifa"]["chance"].is_better
    assert table.standings["average_participating"]["chance"].gap is None
    assert [table.standings[rule]["chance"].rank for rule in table.standings] == [3.5, 1.0, 2.0, 3.5]
    assert table.nobody == ("buffer",)
    assert table.undefined["scaffold"] == {"buffer": "needs rounds"}
    assert "scaffold" not in table.ranks  # it lacks half of the cells
    assert list(table.ranks) == ["fedau", "average_participating", "mifa"]
    assert table.ranks["fedau"] == pytest.approx((1 + 1.5) / 2)
    assert table.ranked_in == ("chance", "buffer")


def test_leads_are_means_over_cells_paired_by_seed():
    reference = made("average_participating", (0.5, 0.6, 0.7), (0.3, 0.3, 0.3))
    better = made("fedau", (0.6, 0.7, 0.8), (0.4, 0.41, 0.42))
    mixed = made("mifa", (0.38, 0.52, 0.6), (0.45, 0.45, 0.45))
    table = table_of([reference, better, mixed, made("scaffold", (0.9, 0.9, 0.9))], SMALL, "small")
    found = leads(table, "average_participating", CELLS)
    assert list(found) == ["fedau", "mifa"]  # scaffold lacks half of the cells
    differences = [(0.1 + 0.1) / 2, (0.1 + 0.11) / 2, (0.1 + 0.12) / 2]
    expected = stats.ttest_rel(differences, [0.0, 0.0, 0.0])
    lead = found["fedau"]
    assert lead.gap.mean == pytest.approx(0.105)
    assert lead.gap.p == pytest.approx(2 * expected.pvalue)  # Holm's correction for two rules
    assert (lead.ahead, lead.cells, lead.gap.is_better) == (2, 2, True)
    assert found["mifa"].gap.mean == pytest.approx(0.025)
    assert (found["mifa"].ahead, found["mifa"].cells) == (1, 2)
    assert list(leads(table, "average_participating", CELLS[:1])) == ["scaffold", "fedau", "mifa"]
    assert not leads(table, "average_participating", [])


def test_seeds_that_a_row_lacks_are_computed_with_its_options(row, tmp_path, monkeypatch):
    computed, _ = row
    path = tmp_path / "row.json"
    rows.save(computed, path)
    monkeypatch.setattr(rows, "tuned", None)  # would be called by a search
    more = rows.compute("average_participating", replace(SMALL, seeds=(0, 1, 2, 3)), CELLS, path)
    for name, cell in more["cells"].items():
        assert {seed: cell["runs"][seed] for seed in ("0", "1")} == computed["cells"][name]["runs"]
        (place,) = [each for each in CELLS if each.name == name]
        alone = place.experiment("average_participating", cell["options"], 2).run()
        assert cell["runs"]["2"] == figures_of(alone, place.target, personal=False)
    again = rows.compute("average_participating", SMALL, CELLS, path, tell=pytest.fail)
    assert again == more


def test_baselines_are_compared_and_not_ranked():
    reference, better = made("average_participating", (0.5, 0.6, 0.7)), made("fedau", (0.6, 0.71, 0.8))
    version = replace(SMALL, baselines=("centralized",))
    alone = table_of([reference, better], version, "small")
    table = table_of([reference, better, made("centralized", (0.9, 0.92, 0.97))], version, "small")
    assert table.standings == alone.standings
    assert (table.ranks, table.nobody) == (alone.ranks, alone.nobody)
    standing = table.everyone["centralized"]["chance"]
    assert standing.gap is not None
    assert standing.gap.mean == pytest.approx(0.33)
    assert not standing.is_better
    assert math.isnan(standing.rank)


def test_rules_are_ranked_by_the_figures_that_they_have():
    reference, personal = made("average_participating", (0.5, 0.6)), made("ditto", (0.5, 0.6))
    for row, accuracies in ((reference, (0.5, 0.6)), (personal, (0.7, 0.9))):
        for seed, accuracy in enumerate(accuracies):
            row["cells"]["chance"]["runs"][str(seed)]["client_accuracy"] = accuracy
    for run in personal["cells"]["chance"]["runs"].values():
        run["test_accuracy"] = None
    assert table_of([reference, personal], SMALL, "small").standings.keys() == {"average_participating"}
    by_client = table_of([reference, personal], SMALL, "small", "client_accuracy")
    assert by_client.standings["ditto"]["chance"].rank == 1.0
    assert list(by_client.ranks) == ["ditto", "average_participating"]


def test_rows_that_cannot_be_compared_are_refused():
    reference = made("average_participating", (0.5, 0.6))
    with pytest.raises(ConfigurationError, match="got two rows, needed one"):
        table_of([reference, reference], SMALL, "small")
    with pytest.raises(ConfigurationError, match="got none of average_participating"):
        table_of([made("fedau", (0.5, 0.6))], SMALL, "small")
    with pytest.raises(ConfigurationError, match="got a row of v9, needed v0"):
        table_of([{**reference, "version": "v9"}], SMALL, "small")
    with pytest.raises(ConfigurationError, match="none of the full tier: write one by turnout benchmark run aver"):
        table_of([reference], SMALL, "full")
    with pytest.raises(ConfigurationError, match=r"chance: it lacks the seeds \[2\]: compute them by turnout benchm"):
        table_of([reference], replace(SMALL, seeds=(0, 1, 2)), "small")
    reference["cells"]["chance"]["hash"] = "0"
    with pytest.raises(ConfigurationError, match="so that its data or cohorts differ"):
        table_of([reference], SMALL, "small")


def test_cells_without_rows_are_left_out_of_the_table():
    rows = [made("average_participating", (0.5, 0.6)), made("fedau", (0.6, 0.7))]
    for row in rows:
        del row["cells"]["buffer"]
    table = table_of(rows, SMALL, "small")
    assert [cell.name for cell in table.cells] == ["chance"]
    assert table.ranked_in == ("chance",)


def test_cells_are_chosen_by_name():
    assert SMALL.of_tier("small", ["buffer"]) == [CELLS[1]]
    with pytest.raises(ConfigurationError, match="unknown cell of the small tier 'writers': known: buffer, chance"):
        SMALL.of_tier("small", ["writers"])


@pytest.mark.parametrize(("rules", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_critical_difference_is_that_of_the_published_table(rules, q):
    assert critical_difference(rules, 14) == pytest.approx(q * math.sqrt(rules * (rules + 1) / (6 * 14)), abs=2e-3)
    assert critical_difference(1, 14) is None


def test_diagram_joins_rules_that_differ_by_less_than_the_critical_difference():
    assert alike([1.0, 1.5, 2.2, 2.4, 4.0], 1.0) == [(0, 1), (1, 3)]
    assert alike([1.0, 2.0], 1.0) == []
    assert alike([1.0, 1.1, 1.2], 1.0) == [(0, 2)]


def test_commands_compute_show_check_and_submit(monkeypatch, tmp_path):
    monkeypatch.setattr(Version, "read", lambda: SMALL)
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    commands.add_to(app)

    def call(*words):
        ended = CliRunner().invoke(app, ["benchmark", *words])
        assert ended.exit_code == 0, (ended.output, ended.exception)
        return ended.output

    (tmp_path / "rules.py").write_text(
        "import turnout as to\n\ndef halved(local: to.local.Solver | None = None, *, server_lr: float = 0.5, also=()):\n"
        "    return to.average_participating(local, server_lr=server_lr, also=also).named('halved')\n"
    )
    assert "row: mine.json" in call(
        "run", "rules.py:halved", "--output", "mine.json", "--cells", "buffer, chance,buffer"
    )
    assert "page: base.html" in call("run", "average_participating", "--output", "base.json")
    page = call("show", "mine.json", "base.json", "--output", "all.html")
    assert "page: all.html" in page
    text = (tmp_path / "all.html").read_text()
    assert "rules.py:halved" in text
    for figure in ("test accuracy", "accuracy of clients on their own examples"):
        assert f"In 2 of 2 cells no rule is significantly better than average_participating by {figure}" in text
    assert '<input type="search" id="filter"' in text
    assert text.count('<table class="sortable') == 4
    assert text.count("<svg") >= 3  # ranks by both figures, and accuracy against absence
    assert '<th scope="col">tau_max</th><th scope="col">tau_avg</th>' in text
    seen = Participation.of(CELLS[0].present)
    assert f"<td>{seen.tau_max:.3g}</td><td>{seen.tau_avg:.3g}</td>" in text
    assert '<tr><th scope="row">buffer</th><td>–</td>' in text  # speeds decide who takes part
    assert "equal, bit for bit" in call("check", "mine.json")
    assert "add this file to a pull request: v0/halved.json" in call("submit", "mine.json")
    monkeypatch.setattr(Version, "read", lambda: replace(SMALL, seeds=(0, 1, 2)))
    refused = CliRunner().invoke(app, ["benchmark", "submit", "mine.json"])
    assert "mine.json lacks chance, buffer: run turnout benchmark run rules.py:halved" in " ".join(
        refused.stderr.split()
    )


def test_recipe_of_the_guide_gets_its_row(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/guides/pieces.md").read_text("utf-8"), re.DOTALL)
    recipe = next(block for block in blocks if block.startswith("def by_loss"))
    (tmp_path / "mine.py").write_text(f"{blocks[0]}\n\n{recipe}")
    row = rows.compute("mine.py:by_loss", SMALL, SMALL.cells, tmp_path / "row.json")
    assert all("runs" in cell for cell in row["cells"].values())


def test_files_that_are_no_rows_are_refused(tmp_path):
    for text in ("{}", "[1", '{"rule": 3, "cells": {}}'):
        (tmp_path / "row.json").write_text(text)
        with pytest.raises(
            ConfigurationError, match="is not a row of the benchmark: write it by turnout benchmark run"
        ):
            rows.load(tmp_path / "row.json")
    with pytest.raises(ConfigurationError, match="is not a row of the benchmark"):
        rows.load(tmp_path / "missing.json")


def test_interrupted_run_is_no_figure_and_no_reason(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise Interrupted("stopped")

    monkeypatch.setattr(Cell, "experiment", interrupted)
    with pytest.raises(Interrupted):
        rows.compute("fedau", SMALL, SMALL.cells, tmp_path / "row.json")


@pytest.mark.parametrize("figure", RANKED)
def test_tables_of_the_page_are_those_of_the_published_rows(figure) -> None:
    version = Version.read()
    table = table_of(rows.published(version), version, "small", figure)
    page = (ROOT / "docs/benchmark.md").read_text("utf-8").splitlines()
    for cell in table.cells:
        found = {rule: row[cell.name] for rule, row in table.standings.items() if cell.name in row}
        gaps = {rule: standing.gap for rule, standing in found.items() if standing.gap and standing.is_better}
        better = sorted(gaps, key=lambda rule: -gaps[rule].mean)
        shown = ", ".join(f"`{rule}` {100 * gaps[rule].mean:+.1f}" for rule in better[:5]) or "–"
        more = f", {len(better) - 5} more" if len(better) > 5 else ""
        mean = 100 * found[version.reference].figures[figure].mean
        assert f"| `{cell.name}` | {mean:.1f} | {shown}{more} |" in page
    kinds = [leads(table, version.reference, [cell for cell in table.cells if cell.rates in kind])
             for kind in (("unrelated", "labels", "speed"), ("unrelated",), ("labels",), ("speed",))]  # fmt: skip
    for rule in kinds[0]:
        each = [kind.get(rule) for kind in kinds]
        shown = [lead and (f"**{lead.gap.points}**" if lead.gap.is_better else lead.gap.points) for lead in each]
        line = f"| `{rule}` | {' | '.join(text or '–' for text in shown)} |"
        assert line in page or not any(lead and lead.gap.is_better for lead in each), line


@pytest.mark.parametrize("figure", RANKED)
def test_tables_of_the_full_tier_are_those_of_the_published_rows(figure) -> None:
    version = Version.read()
    table = table_of(rows.published(version), version, "full", figure)
    page = (ROOT / "docs/benchmark.md").read_text("utf-8").split("## The full tier")[1].split("\n## ")[0].splitlines()
    first, second = (i for i, line in enumerate(page) if line.startswith("| rule |"))
    page = page[first:second] if figure == RANKED[0] else page[second:]
    of_reference = table.standings[version.reference]
    means = [f"{100 * of_reference[cell.name].figures[figure].mean:.1f} %" for cell in table.cells]
    assert f"| `{version.reference}` | {' | '.join(means)} |" in page
    for rule in table.standings.keys() - {version.reference}:
        found = [table.standings[rule].get(cell.name) for cell in table.cells]
        gaps = [standing.gap if standing else None for standing in found]
        shown = [("**{}**" if gap.is_better else "{}").format(gap.points) if gap else "–" for gap in gaps]
        assert f"| `{rule}` | {' | '.join(shown)} |" in page


def test_pages_say_what_the_published_rows_show() -> None:
    version = Version.read()
    published = rows.published(version)
    table, by_client = (table_of(published, version, "small", figure) for figure in RANKED)
    best, last = list(table.ranks)[:4], min(table.ranks.values()) + (table.critical or 0.0)
    best_for_clients = list(by_client.ranks)[:4]
    page, front = (" ".join((ROOT / name).read_text("utf-8").split()) for name in ("docs/benchmark.md", "README.md"))
    small = {cell.name for cell in version.of_tier("small")}
    searches = [row["cells"][name]["edges"] for row in published for name in small if "runs" in row["cells"][name]]
    assert f"In {sum(map(bool, searches))} of {len(searches)} searches the budget ended" in page
    assert f"published rows of {len(by_client.standings)} rules" in page
    assert f"compares {len(by_client.standings)} rules" in front
    assert f"In {len(table.nobody)} of 12 cells no rule is significantly better than" in page
    assert f"In {len(by_client.nobody)} of 12 cells no rule is significantly better." in page
    assert f"Among the {len(table.ranks)} rules that are defined in eight cells" in page
    assert f"are `{best[0]}`, `{best[1]}`, `{best[2]}` and `{best[3]}`" in page
    assert "those of `{}`, `{}`, `{}` and `{}`".format(*best_for_clients) in page
    assert f"critical difference of {table.critical:.1f} are" in page
    assert f"the first {sum(rank < last for rank in table.ranks.values())} rules" in page
