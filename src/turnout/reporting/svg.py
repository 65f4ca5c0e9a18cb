"""How figures become part of a page: inline SVG, with what the page's script needs to read and zoom their curves."""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from turnout.reporting.style import INK, SERIES, STRONG

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_REM, _LEAST_REM = 8.8, 4.0
"""The most and the least an inch of a figure may measure in a page, in its letters' heights. A figure that is wider than a
phone is moved sideways there, and not made so small that nobody can read it."""

_PANEL = "panel:"


def to_svg(figure: Figure, name: str, description: str) -> str:
    """Return a figure as inline SVG: text as text in the page's font, the page's text colour, no outside reference.

    Elements of a run or an algorithm have its name as ``data-series``. Axes that have such lines are described in
    ``data-panels``: where they are, and the range and kind of either axis.

    Args:
        figure: what to draw.
        name: distinguishes the ids of this drawing from those of others in the page.
        description: what a reader who does not see it should know.
    """
    from matplotlib import rc_context

    panels = [axes for axes in figure.axes if any(_is_series(each) for each in (*axes.lines, *axes.collections))]
    for i, axes in enumerate(panels):
        axes.set_gid(f"{_PANEL}{i}")
    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "path.simplify": False}):
        figure.savefig(buffer, format="svg", transparent=True, dpi=150)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="([^"]*)"', _marked, svg)
    svg = re.sub(r"(font: [^';]*?px) [^;\"]*", r"\1 system-ui, sans-serif", svg)
    svg = re.sub(r'(<svg [^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(INK, "currentColor", svg, flags=re.IGNORECASE)
    svg = re.sub(STRONG, "var(--text, currentColor)", svg, flags=re.IGNORECASE)
    return svg.replace("<svg ", f"<svg {' '.join(_attributes(figure, panels, description))} ", 1)


def _is_series(artist: Artist) -> bool:
    """Whether it is drawn for a run or an algorithm."""
    return (artist.get_gid() or "").startswith(SERIES)


def _attributes(figure: Figure, panels: list[Axes], description: str) -> Iterator[str]:
    """Yield what the drawing says of itself."""
    width = figure.get_figwidth()  # bounds, so that text is as large in all figures of a page
    yield f'role="img" aria-label="{html.escape(description)}"'
    yield f'style="max-width: {_REM * width:.0f}rem; min-width: {_LEAST_REM * width:.0f}rem"'
    if panels:
        yield f'data-panels="{html.escape(json.dumps([_panel(figure, axes) for axes in panels]))}"'


def _panel(figure: Figure, axes: Axes) -> dict[str, Any]:
    """Where axes are, in points from the upper left corner, and what they show."""
    width, height = (72 * inches for inches in figure.get_size_inches())
    place = axes.get_position()
    box = [place.x0 * width, (1 - place.y1) * height, place.x1 * width, (1 - place.y0) * height]
    return {
        "box": [round(each, 3) for each in box],
        "x": [*map(float, axes.get_xlim()), axes.get_xscale()],
        "y": [*map(float, axes.get_ylim()), axes.get_yscale()],
        "labels": [axes.get_xlabel(), axes.get_ylabel()],
    }


def _marked(group: re.Match[str]) -> str:
    """Return a group with what the page goes by in place of its id."""
    name = group[1]
    if name.startswith(SERIES):
        return f'<g data-series="{name.removeprefix(SERIES)}"'
    if name.startswith(_PANEL):
        return f'<g data-panel="{name.removeprefix(_PANEL)}"'
    for start, kind in {"matplotlib.axis": "axis", "xtick": "xtick", "ytick": "ytick"}.items():
        if name.startswith(start):
            return f'<g class="{kind}"'
    return "<g"
