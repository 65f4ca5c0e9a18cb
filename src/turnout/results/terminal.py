"""Print tables on a terminal, with columns that do not fit in a further table below."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

Cell = tuple[str, bool]


@dataclass(frozen=True)
class TextTable:
    """A table of texts that is split into parts if the terminal is too narrow for all columns.

    Attributes:
        titles: titles of the columns; they may have line breaks.
        rows: cells, each a text and True for bold.
        title: above the table.
        caption: below the table.
        names: number of left-aligned columns that name a row; every part repeats them. The others are right-aligned.
        sections: indices of rows that begin a section.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    caption: str = ""
    names: int = 1
    sections: Collection[int] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the parts in order."""
        parts = self._split(console, options)
        for index, part in enumerate(parts):
            title, caption = self.title if index == 0 else "", self.caption if part is parts[-1] else ""
            yield self._table(part, title, caption)

    def _split(self, console: Console, options: ConsoleOptions) -> list[list[int]]:
        """Return the columns of each part, as many as fit."""
        parts: list[list[int]] = []
        for column in range(self.names, len(self.titles)):
            wider = [*parts[-1], column] if parts else [column]
            needed = Measurement.get(console, options.update(max_width=1 << 16), self._table(wider)).maximum
            if parts and needed <= options.max_width:
                parts[-1] = wider
            else:
                parts.append([column])
        return parts or [[]]

    def _table(self, columns: Iterable[int], title: str = "", caption: str = "") -> Table:
        table = Table(title=Text(title), title_justify="left", caption=Text(caption), box=SIMPLE_HEAD)
        shown = [*range(self.names), *columns]
        for column in shown:
            justify = "left" if column < self.names else "right"
            table.add_column(Text(self.titles[column]), justify=justify, no_wrap=True)
        for index, row in enumerate(self.rows):
            if index in self.sections:
                table.add_section()
            table.add_row(*(Text(text, "bold" if bold else "") for text, bold in (row[column] for column in shown)))
        return table
