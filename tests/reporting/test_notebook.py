"""Progress in notebooks."""

import re
import sys
from types import SimpleNamespace

import pytest

import turnout as to
from turnout.comparison.display import display
from turnout.comparison.update import Update
from turnout.reporting.progress import cell


class Output:
    """The output of a notebook cell."""

    def __init__(self):
        self.html, self.text = [], []

    def update(self, data, raw):
        assert raw
        self.html.append(data["text/html"])
        self.text.append(data["text/plain"])


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


def test_run_has_a_progress_bar(output, tiny, capsys):
    to.Experiment(data=tiny, model=to.models.Logistic(), rounds=3).run(progress=True)
    assert re.search("rounds .*━.* 3/3 .*test accuracy", output.text[-1])
    assert output.html[-1].startswith("<pre>")
    assert capsys.readouterr().err == ""


def test_comparison_has_one_bar_in_total_and_one_per_active_run(output):
    with display(2, True) as tell:
        tell(Update("fedau", 0, "running", 3, 10, "test accuracy 50.0%"))
        tell(Update("<b>", 0, "failed", note="lost"))
    assert re.search("all runs .*━.* 1/2 ", output.text[-1])
    assert re.search("fedau, seed 0 .*━.* 3/10 .*test accuracy 50.0%", output.text[-1])
    assert "&lt;b&gt;, seed 0 failed: lost" in output.html[-1]


def test_no_cell_output_outside_of_notebooks(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: object()))
    assert cell() is None
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert cell() is None
