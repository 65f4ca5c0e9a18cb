"""What consoles and notebooks show of the objects that users hold, and the pictures they make."""

import dataclasses
import re
from html.parser import HTMLParser

import pytest
import torch

import turnout as to
from turnout.core.checks import ConfigurationError, DataError
from turnout.core.display import html_table, short
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.results.grid import Sweep
from turnout.results.measure import Measure
from turnout.results.records import RunRecord


@pytest.fixture(scope="module")
def experiment(tiny):
    return to.Experiment(
        data=tiny, model=to.models.Logistic(), algorithm=to.fedau(to.Sgd(lr=0.05), cutoff=7), rounds=3, evaluate_every=1
    )


@pytest.fixture(scope="module")
def result(experiment):
    return experiment.run()


def texts(html):
    """The caption and the cells of a table, and a check that tags are closed."""
    found, open_tags = [], []

    class Parser(HTMLParser):
        def handle_starttag(self, tag, attrs):
            open_tags.append(tag)

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

        def handle_data(self, data):
            found.append(data)

    Parser().feed(html)
    assert not open_tags
    return found


def test_pieces_show_the_options_that_were_changed():
    assert short(to.weighting.Participation()) == "Participation()"
    assert short(to.weighting.Participation(cutoff=None, rate=0.5)) == "Participation(cutoff=None, rate=0.5)"
    assert (
        short(to.Population(availability=to.availability.Markov(mean=0.2)))
        == "Population(availability=Markov(mean=0.2))"
    )
    assert short(torch.zeros(1000)).endswith("...") or len(short(torch.zeros(1000))) <= 80
    assert short(list(range(1000))).endswith("...")
    assert short(1) == "1"


def test_short_describes_pieces_with_array_defaults():
    @dataclasses.dataclass
    class Holder:
        value: object = dataclasses.field(default_factory=lambda: torch.ones(2))

    assert short(Holder(torch.ones(2))) == "Holder(value=tensor([1., 1.]))"


def test_every_repr_is_one_short_line(experiment, result, tiny):
    record = RunRecord("fedau", 3, result.history)
    sweep = Sweep({"lr": (1, 2)}, {"lr-1": {"lr": 1}, "lr-2": {"lr": 2}}, {"lr-1": [record]}, Measure("rounds"), 0.5)
    for thing in (experiment, experiment.algorithm, tiny, result, record, sweep):
        assert "object at 0x" not in repr(thing)
        assert "\n" not in repr(thing)
        assert len(repr(thing)) < 500
    assert repr(tiny) == (
        "FederatedData('tiny', 8 clients, 235 examples of shape [16], 5 to 64 each, median 26, 4 classes, 235 test examples)"
    )
    assert "Participation(cutoff=7) -> DivideByClients()" in repr(experiment.algorithm)
    assert "rounds=3" in repr(experiment)
    assert re.fullmatch(r"Result\('fedau', 3 rounds, test accuracy [\d.]+%\)", repr(result))
    assert repr(record) == "RunRecord('fedau', seed 3, 3 rounds)"
    assert repr(sweep) == "Sweep(2 points over lr, by rounds)"


def test_notebooks_show_tables(experiment, result, tiny):
    assert "Sgd(lr=0.05, steps=5," in " ".join(texts(experiment.algorithm._repr_html_()))
    assert texts(tiny._repr_html_())[:3] == ["Federated data tiny", "clients", "8 clients"]
    shown = texts(experiment._repr_html_())
    assert shown[0] == "Experiment: fedau on tiny"
    assert shown[shown.index("evaluate_every") + 1] == "1"
    assert "device" not in shown
    shown = texts(result._repr_html_())
    assert shown[shown.index("test accuracy") + 1] == f"{result.summary()['test_accuracy']:.1%}"
    assert html_table("<a>", {"<b>": "&"}).count("&lt;") == 2


def test_plots_draw_the_requested_columns(result, tiny):
    assert result.plot().axes[0].get_ylabel() == "test accuracy (%)"
    assert result.plot("train_loss").axes[0].get_ylabel() == "training loss"
    assert result.plot("participation").axes[0].get_xlabel() == "round"
    assert result.plot("clients").axes[0].get_ylabel() == "clients (%)"
    both = to.plot({"one": result, "two": result})
    assert [text.get_text() for text in both.legends[0].get_texts()] == ["one", "two"]
    assert to.plot([RunRecord("one", seed, result.history) for seed in (0, 1)]).axes[0].get_lines()
    assert tiny.plot().axes[0].get_ylabel() == "examples"


def test_notebooks_draw_figures_without_pyplot(result):
    assert result.plot()._repr_png_().startswith(b"\x89PNG")


def test_data_without_classes_show_client_sizes(tiny):
    numbers = FederatedData("numbers", Shards(tiny.train.x, tiny.train.x[:, 0], tiny.train.offsets))
    assert numbers.plot().axes[0].get_xlabel() == "examples of a client"
    assert "1 number" in repr(numbers)


def test_invalid_plots_are_refused(result):
    with pytest.raises(ConfigurationError, match=r"plot.*'test_los'.*test_loss"):
        result.plot("test_los")
    with pytest.raises(ConfigurationError, match="takes results by name"):
        to.plot({})
    with pytest.raises(ConfigurationError, match="takes results by name"):
        to.plot([result])
    with pytest.raises(ConfigurationError, match="takes results, which Experiment"):
        to.plot({"fedau": 3})  # pyright: ignore[reportArgumentType]
    with pytest.raises(DataError, match="asynchronous"):
        result.plot("influence")
