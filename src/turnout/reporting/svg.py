"""Convert figures to inline SVG, with attributes for the script that makes their curves interactive."""

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
"""The largest and the smallest width of an inch of a figure on a page, in rem. A figure that is wider than a phone is
scrolled there, so that it stays readable."""

_PANEL = "panel:"
_FONT = "system-ui, sans-serif"
_SVG = "{http://www.w3.org/2000/svg}"
_COLORS = {INK.lower(): "currentColor", STRONG.lower(): "var(--text, currentColor)"}
"""CSS colors that replace those of text."""

ElementTree.register_namespace("", _SVG.strip("{}"))
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")


def to_svg(figure: Figure, name: str, description: str) -> str:
    """Convert a figure to inline SVG with the font and text color of the page, and without external references.

    Elements of a run or algorithm have its name as ``data-series``. The attribute ``data-panels`` has the position, range and
    scale of axes with such elements.

    Args:
        figure: figure of matplotlib.
        name: makes the ids of this figure unique on the page.
        description: alternative text.
    """
    from matplotlib import rc_context

    panels = [axes for axes in figure.axes if any(_is_series(artist) for artist in (*axes.lines, *axes.collections))]
    # matplotlib only writes ids to SVG; `_mark` converts them to attributes.
    for i, axes in enumerate(panels):
        axes.set_gid(f"{_PANEL}{i}")
    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "path.simplify": False}):
        figure.savefig(buffer, format="svg", transparent=True, dpi=150)
    svg = ElementTree.fromstring(buffer.getvalue())
    for metadata in svg.findall(f"{_SVG}metadata"):
        svg.remove(metadata)
    for element in svg.iter():
        _restyle(element)
    del svg.attrib["width"], svg.attrib["height"]
    svg.attrib.update(_attributes(figure, panels, description))
    return ElementTree.tostring(svg, encoding="unicode")


def _restyle(element: Element) -> None:
    """Give an element the colors and the font of the page, and the attributes that its script uses."""
    for key, value in element.attrib.items():
        for color, word in _COLORS.items():
            value = value.replace(color, word)
        element.set(key, value)
    if element.tag == f"{_SVG}text":
        element.set("style", _with_page_font(element.get("style", "")))
    if element.tag == f"{_SVG}g":
        _mark(element)


def _is_series(artist: Artist) -> bool:
    """Return whether an artist belongs to a run or algorithm."""
    return (artist.get_gid() or "").startswith(SERIES)


def _attributes(figure: Figure, panels: list[Axes], description: str) -> dict[str, str]:
    """Return the attributes of a drawing: its description, its width, and the positions of its axes."""
    width = figure.get_figwidth()  # limits the width, so that text has the same size in all figures of a page
    attributes = {
        "role": "img",
        "aria-label": description,
        "style": f"max-width: {_REM * width:.0f}rem; min-width: {_LEAST_REM * width:.0f}rem",
    }
    return attributes | ({"data-panels": json.dumps([_panel(figure, axes) for axes in panels])} if panels else {})


def _panel(figure: Figure, axes: Axes) -> dict[str, Any]:
    """Return the position of axes in points from the upper left corner, and their ranges, scales and labels."""
    width, height = (72 * inches for inches in figure.get_size_inches())
    box = axes.get_position()
    edges = [box.x0 * width, (1 - box.y1) * height, box.x1 * width, (1 - box.y0) * height]
    return {
        "box": [round(edge, 3) for edge in edges],
        "x": [*map(float, axes.get_xlim()), axes.get_xscale()],
        "y": [*map(float, axes.get_ylim()), axes.get_yscale()],
        "labels": [axes.get_xlabel(), axes.get_ylabel()],
    }


def _with_page_font(style: str) -> str:
    """Replace the font family in the style of a text; the size is kept."""
    declarations = dict(part.strip().split(": ", 1) for part in style.split(";") if part.strip())
    if font := declarations.pop("font", ""):  # older versions of matplotlib write size and family together
        declarations["font-size"] = next(word for word in font.split() if word.endswith("px"))
    return "; ".join(f"{name}: {value}" for name, value in (declarations | {"font-family": _FONT}).items())


def _mark(group: Element) -> None:
    """Replace the id of a group by the attributes that the script of the page uses."""
    name = group.attrib.pop("id", "")
    for start, attribute in {SERIES: "data-series", _PANEL: "data-panel"}.items():
        if name.startswith(start):
            group.set(attribute, name.removeprefix(start))
    for start, kind in {"matplotlib.axis": "axis", "xtick": "xtick", "ytick": "ytick"}.items():
        if name.startswith(start):
            group.set("class", kind)
