"""Plot a partition: the classes and the number of examples of each client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from turnout.reporting.style import GRAY, INK, MOST_NAMES, PALETTE, dress, name_rows, new_figure, ramp

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_BUBBLES = (60, 25)
"""The largest numbers of clients and classes for a bubble chart."""

_COLUMNS = 600


def partition_figure(name: str, counts: np.ndarray, clients: Sequence[str] | None = None) -> Figure:
    """Plot the number of examples of each class at each client; clients are ordered by their main class.

    Up to 60 clients and 25 classes: a bubble chart, with areas proportional to numbers of examples, below a bar chart of the
    sizes of clients. Beyond that: a heat map of the class proportions of clients (of groups of neighbors beyond 600),
    beside a histogram of sizes. Only position and lightness carry information, so colors need not be distinguished.

    Args:
        name: the name of the data set, for the title.
        counts: numbers of training examples of clients by class, ``[N, C]``; see `FederatedData.label_counts`.
        clients: names of the clients, of which up to 30 are written; None if they have none.

    Raises:
        ConfigurationError: if matplotlib is not installed.
    """
    num_clients = len(counts)
    main = counts.argmax(axis=1)
    # Within a main class, clients with the largest share of it come first.
    purity = counts.max(axis=1) / counts.sum(axis=1)
    order = np.lexsort((-counts.sum(axis=1), -purity, main))
    counts = counts[order]
    few = counts.shape[0] <= MOST_BUBBLES[0] and counts.shape[1] <= MOST_BUBBLES[1]
    figure = _bubbles(counts) if few else _heat_map(counts)
    if few and clients is not None and num_clients <= MOST_NAMES:
        holdings = figure.axes[1]
        name_rows(holdings.xaxis, np.arange(num_clients), [clients[int(client)] for client in order])
        holdings.tick_params(axis="x", rotation=90 if num_clients > 6 else 20)
    title = f"{name}: {counts.sum():,} training examples at {num_clients:,} clients"
    figure.suptitle(title, color=INK, fontsize=11, parse_math=False)
    return figure


def sizes_figure(sizes: np.ndarray) -> Figure:
    """Plot a histogram of the numbers of examples ``[N]`` of clients, for data without classes.

    Raises:
        ConfigurationError: if matplotlib is not installed.
    """
    figure = new_figure()
    _size_histogram(figure.subplots(), sizes)
    return figure


def _bubbles(counts: np.ndarray) -> Figure:
    """Draw a bubble chart of clients and classes, below bars of the clients' sizes."""
    num_clients, num_classes = counts.shape
    width, rows = 7.2, 0.19 * num_classes + 0.9
    figure = new_figure(width, rows + 1.5)
    sizes, holdings = figure.subplots(2, 1, sharex=True, height_ratios=(1.0, rows))
    sizes.bar(np.arange(num_clients), counts.sum(axis=1), width=0.8, color=GRAY)
    dress(sizes, "", "examples")
    sizes.tick_params(bottom=False, labelbottom=False)
    sizes.grid(visible=False, axis="x")

    client, label = np.nonzero(counts)
    pitch = 72 * min((width - 1.2) / num_clients, 0.19)  # points between neighbors
    area = (1.15 * pitch) ** 2 * counts[client, label] / counts.max()
    holdings.scatter(client, label, s=area, color=PALETTE[0], linewidths=0)
    holdings.set_xlim(-0.8, num_clients - 0.2)
    _class_axis(holdings, num_classes)
    dress(holdings, "clients, ordered by their main class", "class")
    holdings.set_xticks([])
    figure.align_ylabels()
    _bubble_key(figure, holdings, pitch, int(counts.max()))
    return figure


def _bubble_key(figure: Figure, axes: Axes, pitch: float, largest: int) -> None:
    """Add a legend with three bubbles, from a small one to the largest."""
    shown = sorted({max(1, round(largest * share)) for share in (0.1, 0.4, 1.0)})
    handles = [
        axes.scatter([], [], s=(1.15 * pitch) ** 2 * n / largest, color=PALETTE[0], linewidths=0, label=f"{n:,}")
        for n in shown
    ]
    figure.legend(
        handles=handles, title="examples", loc="outside right center", frameon=False, fontsize=10, labelcolor=INK
    ).get_title().set_color(INK)


def _heat_map(counts: np.ndarray) -> Figure:
    """Draw class proportions as a heat map, beside a histogram of sizes."""
    num_clients, num_classes = counts.shape
    figure = new_figure(7.2, 3.6)
    mixtures, sizes = figure.subplots(1, 2, width_ratios=(2.6, 1.0))
    starts = np.arange(min(num_clients, _COLUMNS)) * num_clients // min(num_clients, _COLUMNS)
    shares = counts / counts.sum(axis=1, keepdims=True)
    columns = np.add.reduceat(shares, starts) / np.diff(starts, append=num_clients)[:, None]
    image = mixtures.imshow(
        columns.T, aspect="auto", origin="lower", cmap=ramp(), vmin=0.0, interpolation="nearest",
        extent=(-0.5, num_clients - 0.5, -0.5, num_classes - 0.5),
    )  # fmt: skip
    _class_axis(mixtures, num_classes)
    dress(mixtures, "clients, ordered by their main class", "class")
    mixtures.set_xticks([])
    mixtures.grid(visible=False)
    bar = figure.colorbar(image, ax=mixtures, pad=0.02, aspect=30)
    bar.set_label("share of the client's examples", color=INK, fontsize=10)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.ax.tick_params(colors=INK, labelsize=10)
    _size_histogram(sizes, counts.sum(axis=1))
    return figure


def _size_histogram(axes: Axes, sizes: np.ndarray) -> None:
    """Draw a histogram of sizes, with logarithmic bins if they differ by more than a factor of thirty."""
    from matplotlib.ticker import MaxNLocator

    low, high = int(sizes.min()), int(sizes.max())
    width = -(-(high - low + 1) // 20)  # a whole number, so that all bins have equally many possible sizes
    bins = np.arange(low - 0.5, high + width, width)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    if high > 30 * low:
        bins = np.geomspace(low - 0.5, high + 0.5, 21)
        axes.set_xscale("log")
    elif high - low < 4:
        axes.set_xlim(low - 3, high + 3)
    axes.hist(sizes, bins=bins.tolist(), color=GRAY)
    dress(axes, "examples of a client", "clients")


def _class_axis(axes: Axes, num_classes: int) -> None:
    """Set class numbers as ticks, at most about 15."""
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, num_classes) if num_classes / step <= 15)
    axes.set_yticks(range(0, num_classes, step))
    axes.set_ylim(-0.6, num_classes - 0.4)
