"""Render self-contained HTML pages, format configurations and the environment for them, and write figures to files."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnout.core.checks import DataError, refuse
from turnout.core.extras import imported
from turnout.protocol.published import published_settings
from turnout.record.describe import flat
from turnout.record.environment import environment as this_environment
from turnout.record.storage import replace_files, text_writer
from turnout.reporting.style import SIZE
from turnout.reporting.svg import to_svg
from turnout.results.records import RunRecord, by_algorithm

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FORMATS = (".pdf", ".svg", ".png")
"""File name extensions of figures."""


@dataclass(frozen=True)
class Drawing:
    """A figure on a page.

    Attributes:
        title, caption: the caption may be empty.
        svg: the figure, or empty.
        reason: why there is no figure.
        broad: the figure has several axes side by side and needs the whole width of the page.
    """

    title: str
    caption: str
    svg: str = ""
    reason: str = ""
    broad: bool = False


def draw(title: str, caption: str, alt: str, make: Callable[[], Figure]) -> Drawing:
    """Draw a figure; if the runs lack its data, keep the reason."""
    try:
        figure = make()
        return Drawing(title, caption, svg=to_svg(figure, title, alt), broad=figure.get_figwidth() > 1.4 * SIZE[0])
    except DataError as error:
        return Drawing(title, caption, reason=str(error))


def render_page(template: str, **values: Any) -> str:
    """Render a template of this folder.

    Raises:
        ConfigurationError: if Jinja2 is not installed.
    """
    jinja2 = imported("jinja2", "a report", ".[report]", "Jinja2")
    pages = jinja2.Environment(
        loader=jinja2.PackageLoader("turnout.reporting", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return _with_contents(pages.get_template(template).render(**values))


def _with_contents(page: str) -> str:
    """Insert the table of contents into a page, and an id into each heading."""
    entries: list[str] = []

    def numbered(heading: re.Match[str]) -> str:
        target = f"section-{len(entries) + 1}"
        entries.append(f'<a href="#{target}">{heading[1]}</a>')
        return f'<h2 id="{target}">{heading[1]}</h2>'

    page = re.sub(r"<h2>(.*?)</h2>", numbered, page)
    return page.replace("<!--contents-->", "".join(entries), 1)


def save_figure(figure: Figure, path: Path, dpi: int = 150) -> None:
    """Write a figure atomically, in the format of the file name extension.

    Raises:
        ConfigurationError: if an extension is unknown.
        CheckpointError: if it cannot be written.
    """
    if (kind := path.suffix.lower()) not in FORMATS:
        raise refuse("output", given=str(path), needed=f"a file that ends in {', '.join(FORMATS)}")
    replace_files({path: lambda part: figure.savefig(part, format=kind[1:], dpi=dpi)})


def write_page(path: str | Path, page: str) -> Path:
    """Write a page atomically, and return its path.

    Raises:
        CheckpointError: if it cannot be written.
    """
    path = Path(path)
    replace_files({path: text_writer(page)})
    return path


def environment(noted: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return the recorded environment of a run as texts, by default that of this process."""
    values = noted
    if values is None:  # without date and command, so that the same runs give the same page
        values = {name: value for name, value in this_environment().items() if name not in ("date", "command")}
    shown = {name: value for name, value in values.items() if name != "sources"}  # hundreds of modules
    words = {name: shlex.join(map(str, value)) if isinstance(value, list) else value for name, value in shown.items()}
    return {name: str(value) for name, value in words.items() if value is not None}


def settings(records: Sequence[RunRecord]) -> dict[str, str]:
    """Format configurations as TOML: common settings under ``"all runs"``, and the other settings of each algorithm.

    Settings that differ between seeds of an algorithm are those of its first run.
    """
    configs = [_published(record) for record in records]
    shared = {key: value for key, value in configs[0].items() if all(other.get(key) == value for other in configs)}
    parts = {"all runs": shared}
    for algorithm, group in by_algorithm(records).items():
        parts[algorithm] = {key: value for key, value in _published(group[0]).items() if key not in shared}
    return {name: "\n".join(map(" = ".join, part.items())) for name, part in parts.items() if part}


def _published(record: RunRecord) -> dict[str, str]:
    """Return the settings of a run that may be published with its tables."""
    return as_toml(published_settings(record.config) if record.history.is_private else record.config)


def as_toml(config: Mapping[str, Any]) -> dict[str, str]:
    """Return nested settings under dotted keys, with values as TOML; None, which TOML lacks, is ``none``."""
    return {
        name: "none" if value is None else json.dumps(value, default=str, ensure_ascii=False)
        for name, value in flat(config)
    }
