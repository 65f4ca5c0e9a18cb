"""The figure of a partition."""

import sys
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib")

from turnout.core.checks import ConfigurationError
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.reporting.partition_figure import partition_figure


def holding(counts: np.ndarray) -> FederatedData:
    """Clients (rows) that hold so many examples of each class (columns)."""
    labels = [np.repeat(np.arange(counts.shape[1]), mine) for mine in counts]
    y = torch.from_numpy(np.concatenate(labels))
    offsets = np.concatenate([[0], np.cumsum(counts.sum(axis=1))])
    return FederatedData("cost_$5", Shards(torch.zeros(len(y), 1), y, offsets), num_classes=counts.shape[1])


def drawn(figure: Any, path: Any) -> Any:
    """Return the file of the figure; invalid contents only fail then."""
    figure.savefig(path, dpi=60)
    assert path.stat().st_size > 2000
    return path


SMALL = np.array([[0, 3, 9], [8, 0, 0], [1, 7, 0], [0, 0, 5]])


def test_bubbles_show_labels_and_bars_show_sizes(tmp_path) -> None:
    figure: Any = holding(SMALL).plot()
    sizes, holdings = figure.axes[:2]
    bubbles = holdings.collections[0]
    # Ordered by main class, purest first: clients 1, 2, 3, 0.
    assert [bar.get_height() for bar in sizes.patches] == [8, 8, 5, 12]
    ordered = SMALL[[1, 2, 3, 0]]
    places = {(int(x), int(y)) for x, y in np.asarray(bubbles.get_offsets())}
    assert places == set(zip(*(axis.tolist() for axis in np.nonzero(ordered)), strict=True))
    areas = bubbles.get_sizes()
    np.testing.assert_allclose(areas / areas.max(), ordered[ordered > 0] / 9)
    drawn(figure, tmp_path / "small.png")


@pytest.mark.parametrize(
    ("num_clients", "num_classes"), [(1, 1), (60, 25), (61, 2), (5, 26), (1500, 10), (3, 400)], ids=str
)
def test_figures_of_any_size_have_labeled_axes(tmp_path, num_clients: int, num_classes: int) -> None:
    counts = np.random.default_rng(0).integers(0, 4, (num_clients, num_classes))
    counts[:, 0] += 1
    figure: Any = holding(counts).plot()
    assert f"{counts.sum():,} training examples at {num_clients:,} clients" in figure.get_suptitle()
    labels = {text for axes in figure.axes for text in (axes.get_xlabel(), axes.get_ylabel())}
    assert {"clients, ordered by their main class", "class"} <= labels
    assert labels & {"examples", "examples of a client"}
    drawn(figure, tmp_path / "any.png")


def test_many_clients_are_a_heat_map(tmp_path) -> None:
    counts = np.zeros((90, 3), dtype=int)
    counts[np.arange(90), np.arange(90) % 3] = 3
    counts[0] = [3, 0, 1]
    figure: Any = holding(counts).plot()
    shares = np.asarray(figure.axes[0].images[0].get_array())
    assert shares.shape == (3, 90)
    np.testing.assert_allclose(shares.sum(axis=0), 1.0)
    assert shares.argmax(axis=0).tolist() == [0] * 30 + [1] * 30 + [2] * 30
    np.testing.assert_allclose(shares[:, 29], [0.75, 0.0, 0.25])  # the only mixture comes last of its class
    bars = figure.axes[1].patches
    assert sum(bar.get_height() for bar in bars) == 90
    drawn(figure, tmp_path / "many.png")


def test_clients_share_columns_if_they_exceed_the_pixels() -> None:
    counts = np.tile(np.array([[4, 0], [0, 4]]), (1000, 1))
    figure: Any = holding(counts).plot()
    shares = np.asarray(figure.axes[0].images[0].get_array())
    assert shares.shape[1] <= 600
    np.testing.assert_allclose(shares.mean(axis=1), 0.5, atol=0.01)


@pytest.mark.parametrize("sizes", [[7] * 80, [7] * 79 + [9], [3] * 79 + [4000]], ids=["equal", "near", "far"])
def test_histogram_counts_every_client(tmp_path, sizes: list[int]) -> None:
    figure: Any = holding(np.array(sizes)[:, None]).plot()
    histogram = figure.axes[1]
    assert sum(bar.get_height() for bar in histogram.patches) == 80
    assert histogram.get_xscale() == ("log" if max(sizes) > 1000 else "linear")
    drawn(figure, tmp_path / "histogram.png")


def test_missing_matplotlib_names_the_extra(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigurationError, match=r"needs matplotlib.*pip install '\.\[report\]'"):
        holding(SMALL).plot()


@pytest.mark.parametrize(("number", "names"), [(6, True), (31, False)])
def test_few_clients_with_names_are_named(number, names):
    clients = [f"site {number}" for number in range(number)]
    figure = partition_figure("patients", np.arange(2 * number).reshape(number, 2) + 1, clients)
    shown = [text.get_text() for text in figure.axes[1].get_xticklabels()]
    assert sorted(shown) == (sorted(clients) if names else [])
