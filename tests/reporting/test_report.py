"""The page of a report: complete, self-contained, explicit about omissions."""

import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from turnout.core.checks import CheckpointError, ConfigurationError
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.record.query import History
from turnout.reporting.page import as_toml, environment, settings
from turnout.reporting.report import write_report
from turnout.results.records import RunRecord

NAMESPACES = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
VOID = {"meta", "br", "wbr", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Check nesting, and collect texts, ids and loaded resources."""

    def __init__(self, html):
        super().__init__()
        self.open, self.text, self.ids, self.loaded, self.tags = [], [], [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href"):
                self.loaded.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)

    def says(self, part):
        return part in re.sub(r"\s+", " ", "".join(self.text))


@pytest.fixture(scope="module")
def html(six_by_three, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "new" / "report.html"
    assert write_report(six_by_three, path) == path
    assert [other.name for other in path.parent.iterdir()] == ["report.html"]
    return path.read_text(encoding="utf-8")


def test_page_is_self_contained_and_small(html):
    page = Page(html)
    assert set(re.findall(r"https?://[^\"'\s<>)]*", html)) <= NAMESPACES
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in page.loaded)
    assert not {tag for tag, _ in page.tags} & {"link", "iframe"}
    assert [attributes for tag, attributes in page.tags if tag == "script"] == [{}], "the page's own, in the page"
    assert "@import" not in html
    assert "//" not in re.sub(r"https?://|base64,[^\"]*", "", html), "no protocol-relative address"
    assert len(html) < 2_000_000


def test_ids_are_unique_and_references_resolve(html):
    page = Page(html)
    assert "DejaVu" not in html  # the page's own font
    assert len(page.ids) == len(set(page.ids))
    referred = {link[1:] for link in page.loaded if link.startswith("#")} | set(re.findall(r"url\(#([^)]*)\)", html))
    assert referred
    assert referred <= set(page.ids)


def test_page_has_settings_and_results(html, six_by_three):
    page = Page(html)
    assert page.says(
        "fedau, average_participating, average_all, known_statistics, fedvarp and mifa, trained for 60 rounds"
    )
    assert page.says("over 30 clients, with seeds 0, 1, 2. The highest test accuracy is that of fedau, ")
    finals = [record.history.final("test_accuracy") for record in six_by_three if record.algorithm == "fedau"]
    assert page.says(f"{100 * np.mean(finals):.1f} ± {100 * np.std(finals, ddof=1):.1f}")
    assert page.says("participants per round")
    assert page.says("algorithm.local.lr = 0.1")
    assert page.says('algorithm.name = "mifa"')
    assert page.says(f"torch{environment()['torch']}")


def test_figures_have_descriptions_and_page_colors(html):
    drawings = [attributes for tag, attributes in Page(html).tags if tag == "svg"]
    assert len(drawings) == 8
    assert all(drawing["role"] == "img" and len(drawing["aria-label"]) > 20 for drawing in drawings)
    assert all("viewbox" in drawing and "width" not in drawing for drawing in drawings)
    assert any("fedau" in drawing["aria-label"] and "±" in drawing["aria-label"] for drawing in drawings)
    assert "currentColor" in html
    assert "#6b7684" not in html.lower()


def test_equal_runs_give_equal_pages(html, six_by_three, tmp_path):
    again = write_report(six_by_three, tmp_path / "again.html").read_text(encoding="utf-8")
    assert again == html


@pytest.mark.usefixtures("undrawn")
def test_target_costs_are_shown_if_requested(html, six_by_three, tmp_path):
    path = write_report(six_by_three, tmp_path / "r.html", to_accuracy=0.8)
    page = Page(path.read_text(encoding="utf-8"))
    assert page.says("until test accuracy 80 %")
    assert page.says("fedau3/3")
    assert page.says("average_all0/3not reachednot reached")
    assert page.says("Dashed: the target.")
    assert not Page(html).says("until test accuracy")
    assert Page(html).says("Test accuracy against rounds and costs")
    with pytest.raises(ConfigurationError, match="to_accuracy: got 80"):
        write_report(six_by_three, tmp_path / "bad.html", to_accuracy=80)


def test_report_of_one_run(make_run, tmp_path):
    page = Page(write_report([make_run(rounds=1, num_clients=1)], tmp_path / "r.html").read_text(encoding="utf-8"))
    assert page.says("fedau, trained for 1 round over 1 client, with seed 0. Test accuracy is ")
    assert not page.says("±")


def test_report_of_a_minimal_run_lists_omissions_with_reasons(make_run, tmp_path):
    bare = make_run(clients=False, rates=False, evaluate=False)
    page = Page(write_report([bare], tmp_path / "r.html").read_text(encoding="utf-8"))
    for reason in ("no run recorded test_accuracy", "no run has client-wise accuracies", "no run has both weights"):
        assert page.says(f"Not shown: {reason}")
    assert not page.says("Figures over clients are of")
    Page(write_report([RunRecord("empty", 0, History())], tmp_path / "e.html").read_text(encoding="utf-8"))


def test_names_are_escaped(make_run, tmp_path):
    name = "a<script>alert('$\\frac$')</script>&"
    made = make_run(name)
    records = [RunRecord(name, 0, made.history, {"note": "<b>bold</b>"}), make_run("mifa")]
    path = write_report(records, tmp_path / "r.html", title="<i>title</i>")
    page = Page(path.read_text(encoding="utf-8"))
    assert [tag for tag, _ in page.tags if tag in ("script", "b")] == ["script"]
    assert page.says("<i>title</i>")
    assert page.says(name)


@pytest.mark.usefixtures("undrawn")
def test_given_environment_replaces_the_current_one(make_run, tmp_path):
    path = write_report(
        [make_run(rounds=2, clients=False, evaluate=False)],
        tmp_path / "r.html",
        environment={"accelerator": "a big one"},
    )
    page = Page(path.read_text(encoding="utf-8"))
    assert page.says("acceleratora big one")
    assert not page.says("python")


def test_partition_figure_is_drawn_if_data_are_given(make_run, tmp_path):
    labels = torch.tensor([0, 1, 1, 0])
    data = FederatedData("digits", Shards(torch.zeros(4, 2), labels, np.array([0, 1, 4])), num_classes=2)
    html = write_report([make_run(evaluate=False)], tmp_path / "r.html", data=data).read_text(encoding="utf-8")
    page = Page(html)
    assert page.says("fedau, trained for 60 rounds on digits over 30 clients")
    assert page.says("Examples of each class at each of the 2 clients of digits.")
    assert [tag for tag, _ in page.tags].count("svg") == 4
    assert "#6b7684" not in html.lower()


@pytest.mark.usefixtures("undrawn")
def test_missing_matplotlib_or_jinja_names_the_extra(make_run, tmp_path, monkeypatch):
    for module, package in (("matplotlib.figure", "matplotlib"), ("jinja2", "Jinja2")):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(ConfigurationError, match=rf"needs {package}.*pip install '\.\[report\]'"):
                write_report([make_run()], tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("undrawn")
def test_failed_write_keeps_the_old_report(make_run, tmp_path, monkeypatch):
    path = tmp_path / "r.html"
    path.write_text("old")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(CheckpointError, match=r"cannot write .*r.html.*No space left.*unchanged"):
        write_report([make_run(rounds=2, clients=False, evaluate=False)], path)
    assert path.read_text() == "old"


@pytest.mark.parametrize("name", ["a\x00", "a\x1b[31m", "a\nb", "a\udcff", "_a"])
def test_names_invalid_in_svg_are_refused(make_run, name):
    needed = "a name of printable characters that starts with a letter or a digit"
    with pytest.raises(ConfigurationError, match=rf"algorithm: got .*, needed {needed}"):
        replace(make_run(rounds=1, clients=False, evaluate=False), algorithm=name)


def test_common_settings_are_shown_once(six_by_three):
    parts = settings(six_by_three)
    assert list(parts) == ["all runs", *dict.fromkeys(record.algorithm for record in six_by_three)]
    assert "rounds = 60" in parts["all runs"]
    assert "seed" not in parts["all runs"]
    assert parts["mifa"].splitlines() == ['algorithm.name = "mifa"', "seed = 0"]


def test_flattened_settings_are_valid_toml():
    tomllib = pytest.importorskip("tomllib")
    config = {"a": {"b": {"c": 0.1}, "d": [1, 2]}, "on": True, "name": 'quoted "ü"', "cutoff": None}
    lines = as_toml(config)
    assert lines.pop("cutoff") == "none"
    assert tomllib.loads("\n".join(f"{key} = {value}" for key, value in lines.items())) == {
        key: value for key, value in config.items() if key != "cutoff"
    }
    assert json.loads(lines["a.d"]) == [1, 2]
