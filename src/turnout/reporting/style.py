"""Define the style of all figures: colors, axes, legends."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from functools import cache
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from turnout.core.extras import imported

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

Look = dict[str, Any]
"""The style of an algorithm: color, dashes and marker, as keyword arguments of matplotlib."""

# Three colors of Okabe and Ito's, whose others are too faint on white, and four more. All have a contrast of 3:1 with white
# and with black, and color-blind readers can tell them apart.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#B44884", "#9078F0", "#909048", "#906048")
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "v")
"""Markers of dots and of the ends of lines, in the order of `DASHES`."""

_KEYS = (
    "",
    "border-radius:0;",
    "border-radius:0;clip-path:polygon(50% 0,100% 100%,0 100%);",
    "border-radius:0;clip-path:polygon(0 0,100% 0,50% 100%);",
)
"""The markers as CSS declarations."""

GRAY = "#8A8A8A"
"""The color of data that belong to no algorithm."""

SERIES = "series:"
"""The prefix of the ids of drawn lines, bands and dots; the name of the run or algorithm follows."""

INK = "#6B7684"
"""The color of text and lines that are not data, readable on white and on black; pages replace it by their text color."""

NAME_LETTERS = 22
"""The largest number of letters of a client's name."""

MOST_NAMES = 30
"""The largest number of clients whose names fit beside a figure."""

SIZE = (5.2, 3.2)
"""Width and height of a figure in inches, without its legend: two fit side by side on a desktop, one on a phone."""


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """Return color and dashes for each name in order, and an id from the name, which the script of pages uses.

    From the eighth name on, colors repeat with other dashes and a marker at the end of lines.
    """
    looks = {}
    for i, name in enumerate(names):
        again = i // len(PALETTE) % len(DASHES)
        marked = {"marker": MARKERS[again], "markersize": 5, "markevery": [-1]} if again else {}
        looks[name] = {
            "color": PALETTE[i % len(PALETTE)],
            "linestyle": DASHES[again],
            "gid": f"{SERIES}{name}",
            **marked,
        }
    return looks


def keys_of(looks: dict[str, Look]) -> dict[str, str]:
    """Return CSS declarations of a small box with the color and marker of each name."""
    return {
        name: f"background:{look['color']};{_KEYS[MARKERS.index(look.get('marker', MARKERS[0]))]}"
        for name, look in looks.items()
    }


def draw_line(axes: Axes, x: np.ndarray, y: np.ndarray, look: Look) -> None:
    """Draw a line, or a dot for a single value."""
    alone = {"marker": look.get("marker", MARKERS[0]), "markevery": None} if np.isfinite(y).sum() == 1 else {}
    axes.plot(x, y, **{"linewidth": 1.6, "markersize": 5, **look, **alone})


def draw_band(axes: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, look: Look) -> None:
    """Draw the band around a line."""
    axes.fill_between(x, low, high, color=look["color"], gid=look["gid"], alpha=0.15, linewidth=0)


def draw_target(axes: Axes, value: float) -> None:
    """Draw a dashed horizontal line, such as that of a target."""
    axes.axhline(value, color=INK, linewidth=1, linestyle=(0, (4, 3)))


@cache
def _shown_in_notebooks(kind: type[Figure]) -> type[Figure]:
    """Return a subclass of a figure class that notebooks display without pyplot."""

    class NotebookFigure(kind):
        """A figure with a PNG representation for notebooks."""

        def _repr_png_(self) -> bytes:
            picture = io.BytesIO()
            self.savefig(picture, format="png", dpi=110)
            return picture.getvalue()

    return NotebookFigure


def new_figure(width: float = SIZE[0], height: float = SIZE[1]) -> Figure:
    """Return an empty figure.

    Raises:
        ConfigurationError: if matplotlib is not installed.
    """
    figure = imported("matplotlib.figure", "a figure", ".[report]", "matplotlib").Figure
    return _shown_in_notebooks(figure)(figsize=(width, height), layout="constrained")


def new_panels(number: int, columns: int, width: float, height: float, **shared: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure with a grid of axes; the last row may be incomplete.

    Args:
        number: number of axes.
        columns: number of columns.
        width: width of one set of axes, in inches.
        height: height of one set of axes, in inches.
        shared: ``sharex`` and ``sharey`` of matplotlib's ``subplots``.
    """
    rows = max(1, -(-number // columns))
    figure = new_figure(width * columns, height * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
    for unused in panels[number:]:
        unused.set_visible(False)
    return figure, panels[:number]


_MOST_DOTS = 500
"""The largest number of dots of an algorithm that are drawn as vectors."""

STRONG = "#6B7685"
"""The color of text on a colored background; pages replace it by their strongest text color."""

_BESIDE = 24  # characters of a line that stands beside the lowest of our axes
_EQUALS = "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"


def evenly_wrapped(text: str, most: int) -> list[str]:
    """Wrap text into the least number of lines of at most `most` letters, of similar length; words are not broken."""
    whole = text.replace(" = ", _EQUALS)  # no line break at an equals sign
    wrapped = [wrap(whole, width, break_long_words=False) for width in range(1, most + 1)]
    lines = next(lines_of for lines_of in wrapped if len(lines_of) == len(wrapped[-1]))
    return [line.replace(_EQUALS, " = ") for line in lines]


def dress(axes: Axes, x: str, y: str, title: str = "") -> None:
    """Label the axes, and style ticks, grid and spines."""
    # Names and values of users may contain dollar signs, which matplotlib would parse as math.
    axes.set_xlabel(x, color=INK, fontsize=11, parse_math=False)
    axes.set_ylabel("\n".join(evenly_wrapped(y, _BESIDE)), color=INK, fontsize=11, parse_math=False)
    axes.set_title(title, color=INK, fontsize=11, parse_math=False)
    axes.tick_params(which="both", colors=INK, labelsize=10, length=3)
    axes.grid(color=INK, alpha=0.18, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)


def plain_ticks(axis: Axis, span: float) -> None:
    """Set ticks 1, 2, 5, 10, ... on a logarithmic axis over a factor of `span`; only powers of ten for a large span."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    steps = LogLocator(subs=(1.0, 2.0, 5.0) if span < 200 else (1.0,))
    axis.set_major_locator(MaxNLocator(4) if span < 5 else steps)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def ramp(color: str = PALETTE[0], most: str = "FF") -> Colormap:
    """Return a color map from transparent to `color`, which works on white and on black pages.

    Args:
        color: such as ``"#0072B2"``.
        most: opacity of the highest value in hexadecimal digits.
    """
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("ramp", [f"{color}00", f"{color}{most}"])


def few_ticks(axis: Axis, whole: bool = False) -> None:
    """Set at most seven ticks on a linear axis at multiples of 1, 2 or 5; with `whole` at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(6, integer=whole, steps=[1, 2, 5, 10]))


def scatter(axes: Axes, x: np.ndarray, y: np.ndarray, size: float, alpha: float, look: Look) -> None:
    """Draw the dots of an algorithm.

    Few dots are opaque vectors. Many dots have opacity `alpha`, which shows their density, and are rasterized, which browsers
    render faster.
    """
    many = len(x) > _MOST_DOTS
    axes.scatter(
        x, y, s=size, alpha=alpha if many else 1.0, linewidths=0, color=look["color"], marker=look.get("marker", MARKERS[0]),
        gid=None if many else look["gid"], rasterized=many,
    )  # fmt: skip


def legend(figure: Figure, looks: dict[str, Look]) -> None:
    """Add a legend of algorithms below the axes, if there is more than one."""
    if len(looks) < 2:
        return
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], linewidth=2, **look) for look in looks.values()]
    columns = 3 if max(map(len, looks)) < 16 else 2
    figure.set_figheight(figure.get_figheight() + 0.2 * -(-len(looks) // columns))
    drawn = figure.legend(
        lines, list(looks), loc="outside lower center", ncols=columns, frameon=False, fontsize=10, handlelength=1.8,
        columnspacing=1.2, labelcolor=INK,
    )  # fmt: skip
    for text in drawn.get_texts():
        text.set_parse_math(False)


def name_rows(axis: Axis, positions: np.ndarray, names: Sequence[str]) -> None:
    """Write names of clients at positions of an axis; long names are shortened."""
    axis.set_ticks(positions, [name if len(name) <= NAME_LETTERS else f"{name[: NAME_LETTERS - 1]}…" for name in names])
    for text in axis.get_ticklabels():
        text.set_parse_math(False)
        text.set_fontsize(8)
