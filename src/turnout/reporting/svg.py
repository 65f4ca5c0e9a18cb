"""Convert figures to inline SVG, with the attributes by which a page's script reads and zooms their curves."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from turnout.reporting.style import INK, SERIES, STRONG

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_REM, _LEAST_REM = 8.8, 4.0
"""The most and the least an inch of a figure may measure in a page, in its letters' heights. A figure that is wider than a
phone is moved sideways there, and not made so small that nobody can read it."""

_PANEL = "panel:"
_FONT = "system-ui, sans-serif"
_SVG = "{http://www.w3.org/2000/svg}"
_COLOURS = {INK.lower(): "currentColor", STRONG.lower(): "var(--text, currentColor)"}
"""The colours of the page that replace those of text."""

ElementTree.register_namespace("", _SVG.strip("{}"))
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")


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

    panels = [axes for axes in figure.axes if any(_is_series(artist) for artist in (*axes.lines, *axes.collections))]
    # Ids are the only marks that matplotlib passes on to SVG; `_mark` turns them into attributes.
    for i, axes in enumerate(panels):
        axes.set_gid(f"{_PANEL}{i}")
    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "path.simplify": False}):
        figure.savefig(buffer, format="svg", transparent=True, dpi=150)
    svg = ElementTree.fromstring(buffer.getvalue())
    for metadata in svg.findall(f"{_SVG}metadata"):
        svg.remove(metadata)
    for element in svg.iter():
        for key, value in element.attrib.items():
            for colour, word in _COLOURS.items():
                value = value.replace(colour, word)
            element.set(key, value)
        if element.tag == f"{_SVG}text":
            element.set("style", _in_the_pages_font(element.get("style", "")))
        if element.tag == f"{_SVG}g":
            _mark(element)
    del svg.attrib["width"], svg.attrib["height"]
    svg.attrib.update(_attributes(figure, panels, description))
    return ElementTree.tostring(svg, encoding="unicode")


def _is_series(artist: Artist) -> bool:
    """Return whether an artist is drawn for a run or an algorithm."""
    return (artist.get_gid() or "").startswith(SERIES)


def _attributes(figure: Figure, panels: list[Axes], description: str) -> dict[str, str]:
    """Return what a drawing says of itself: its description, its bounds, and where its axes are."""
    width = figure.get_figwidth()  # bounds, so that text is as large in all figures of a page
    attributes = {
        "role": "img",
        "aria-label": description,
        "style": f"max-width: {_REM * width:.0f}rem; min-width: {_LEAST_REM * width:.0f}rem",
    }
    return attributes | ({"data-panels": json.dumps([_panel(figure, axes) for axes in panels])} if panels else {})


def _panel(figure: Figure, axes: Axes) -> dict[str, Any]:
    """Return where axes are, in points from the upper left corner, and what they show."""
    width, height = (72 * inches for inches in figure.get_size_inches())
    box = axes.get_position()
    edges = [box.x0 * width, (1 - box.y1) * height, box.x1 * width, (1 - box.y0) * height]
    return {
        "box": [round(edge, 3) for edge in edges],
        "x": [*map(float, axes.get_xlim()), axes.get_xscale()],
        "y": [*map(float, axes.get_ylim()), axes.get_yscale()],
        "labels": [axes.get_xlabel(), axes.get_ylabel()],
    }


def _in_the_pages_font(style: str) -> str:
    """Return the style of a text without its font, of which only the size stays."""
    declarations = dict(part.strip().split(": ", 1) for part in style.split(";") if part.strip())
    if font := declarations.pop("font", ""):  # older versions of matplotlib write size and family together
        declarations["font-size"] = next(word for word in font.split() if word.endswith("px"))
    return "; ".join(f"{name}: {value}" for name, value in (declarations | {"font-family": _FONT}).items())


def _mark(group: Element) -> None:
    """Put what a page goes by in place of the id of a group."""
    name = group.attrib.pop("id", "")
    for start, attribute in {SERIES: "data-series", _PANEL: "data-panel"}.items():
        if name.startswith(start):
            group.set(attribute, name.removeprefix(start))
    for start, kind in {"matplotlib.axis": "axis", "xtick": "xtick", "ytick": "ytick"}.items():
        if name.startswith(start):
            group.set("class", kind)
