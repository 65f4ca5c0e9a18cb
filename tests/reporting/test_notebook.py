"""Progress in notebooks: one output that is redrawn."""

import sys
from types import SimpleNamespace

import pytest

import turnout as to
from turnout.comparison.display import display
from turnout.comparison.run import Update
from turnout.reporting import notebook


class Output:
    """What a notebook shows in a cell."""

    def __init__(self):
        self.html = []

    def update(self, data, raw):
        assert raw
        self.html.append(data["text/html"])


@pytest.fixture
def output(monkeypatch):
    """A kernel of Jupyter, as far as it matters."""
    made = Output()
    interactive = SimpleNamespace(
        get_ipython=lambda: SimpleNamespace(kernel=object()),
        display=SimpleNamespace(display=lambda *_, **__: made),
    )
    monkeypatch.setitem(sys.modules, "IPython", interactive)
    return made


def test_a_run_is_a_bar(output, tiny, capsys):
    to.Experiment(data=tiny, model=to.models.Logistic(), rounds=3).run(progress=True)
    assert '<progress value="3" max="3">' in output.html[-1]
    assert "test accuracy" in output.html[-1]
    assert capsys.readouterr().err == ""


def test_a_comparison_is_a_bar_for_all_and_one_for_each_under_way(output):
    with display(2, True) as tell:
        tell(Update("fedau", 0, "running", 3, 10, "test accuracy 50.0%"))
        tell(Update("<b>", 0, "failed", note="lost"))
    assert '<td>all runs</td><td><progress value="1" max="2">' in output.html[-1]
    assert '<td>fedau, seed 0</td><td><progress value="3" max="10">' in output.html[-1]
    assert "&lt;b&gt;, seed 0 failed: lost" in output.html[-1]


def test_elsewhere_there_is_no_cell(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: object()))
    assert notebook.cell() is None
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert notebook.cell() is None
