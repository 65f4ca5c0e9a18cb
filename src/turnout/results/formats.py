"""Write a comparison as Markdown, LaTeX, HTML or CSV."""

from __future__ import annotations

import csv as csv_format
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from turnout.core.display import markdown_cell
from turnout.results.column import COLUMNS, GAP, RESULTS, column_of
from turnout.results.significance import Row
from turnout.results.statistics import Gap
from turnout.results.table import by_labels, caption, cells

_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "–": "--", "<": "$<$", ">": "$>$",
}  # fmt: skip
_NEGATIVE = re.compile(r"(?<![\w.)])-(?=\d)")


def markdown(rows: Sequence[Row], keys: Sequence[str] = RESULTS, interval: bool = False) -> str:
    """Return the comparison as a Markdown table; a figure that is significantly better is bold."""
    (head, *lines), width = _texts(rows, keys, interval, markdown_cell, "**{}**")
    body = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([f"| {' | '.join(head)} |", f"|---|{'---:|' * width}", *body]) + "\n"


def latex(rows: Sequence[Row], keys: Sequence[str] = RESULTS, interval: bool = False) -> str:
    r"""Return the comparison as a LaTeX ``table`` for the package booktabs; a figure that is significantly better is bold.

    Its caption gives the number of seeds, the spread, and the meaning of bold.
    """
    texts, width = _texts(rows, keys, interval, _latex, r"\textbf{{{}}}")
    head, *body = [rf"{' & '.join(line)} \\" for line in texts]
    explained = " ".join(f"{line[0].upper()}{line[1:]}." for line in caption(rows, cells(rows, keys)[0], interval))
    top = [r"\begin{table}", r"\centering", *([rf"\caption{{{_latex(explained)}}}"] if explained else [])]
    top += [rf"\begin{{tabular}}{{l{'r' * width}}}", r"\toprule", head, r"\midrule"]
    return "\n".join([*top, *body, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


def html(rows: Sequence[Row], keys: Sequence[str] = RESULTS, interval: bool = False) -> str:
    """Return the comparison as an HTML ``table`` without styles; a figure that is significantly better is ``strong``."""
    (head, *lines), _ = _texts(rows, keys, interval, escape, "<strong>{}</strong>")
    titles = "".join(f'<th scope="col">{title}</th>' for title in head)
    body = [f'<tr><th scope="row">{name}</th>{"".join(map("<td>{}</td>".format, line))}</tr>' for name, *line in lines]
    top = ["<table>", f"<thead><tr>{titles}</tr></thead>", "<tbody>"]
    return "\n".join([*top, *body, "</tbody>", "</table>"]) + "\n"


def _texts(
    rows: Sequence[Row], keys: Sequence[str], interval: bool, escape: Callable[[str], str], strong: str
) -> tuple[list[list[str]], int]:
    """Return the escaped cells of a comparison, titles first, and the number of columns of figures.

    Args:
        rows, keys, interval: as in `cells`.
        escape: escapes the special characters of the format.
        strong: template of a figure that is significantly better, with ``{}`` for its text.
    """
    keys, lines = cells(rows, keys, interval)
    marked = [[strong.format(escape(text)) if best else escape(text) for text, best in line] for line in lines]
    body = [[escape(row.algorithm), *line] for row, line in zip(rows, marked, strict=True)]
    return [[escape(title) for title in ("algorithm", *(column_of(key).title for key in keys))], *body], len(keys)


def csv(rows: Sequence[Row], keys: Sequence[str] | None = None) -> str:
    """Return all figures as CSV at full precision.

    Columns are ``algorithm, seeds, test_loss_mean, test_loss_std, test_loss_margin, ...``; the 95 % confidence interval is
    the mean plus and minus the margin. Accuracies are from 0 to 1, and sizes in bytes. Differences from the first algorithm
    are ``gap_of_test_accuracy_to_fedau_mean``, ``..._margin`` and ``..._p``. With a target, further columns are ``reached``
    (number of seeds), ``rounds_to_target_low``, ``..._median`` and ``..._high`` (quartiles, ``inf`` if it was not
    reached), and the same for bytes and simulated seconds.
    """
    recorded = [key for key in COLUMNS if any(key in row.figures for row in rows)] + by_labels(rows)
    keys = recorded if keys is None else keys
    lines = []
    for row in rows:
        line: dict[str, object] = {"algorithm": row.algorithm, "seeds": row.num_seeds}
        for key in keys:
            line |= {f"{key}_{part}": getattr(row.figures.get(key), part, None) for part in ("mean", "std", "margin")}
        for key, figure in row.figures.items():
            if isinstance(figure, Gap) and key.removeprefix(GAP).partition("_to_")[0] in keys:
                line |= {f"{key}_{part}": getattr(figure, part) for part in ("mean", "margin", "p")}
        for key, cost in row.costs.items():
            parts = {f"{key}_{part}": getattr(cost, part) for part in ("low", "median", "high")}
            line |= {key: cost.num_finite} if key == "reached" else parts
        lines.append(line)
    titles = list(dict.fromkeys(key for line in lines for key in line))
    return csv_of(titles, ([line.get(title) for title in titles] for line in lines))


def csv_of(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV with a header line."""
    out = io.StringIO()
    csv_format.writer(out, lineterminator="\n").writerows([titles, *rows])
    return out.getvalue()


def _latex(text: str) -> str:
    """Escape the special characters of LaTeX, and typeset minus signs."""
    return "".join(_LATEX.get(character, character) for character in _NEGATIVE.sub("−", text)).replace("−", "$-$")


FORMATS: Mapping[str, Callable[..., str]] = {"markdown": markdown, "latex": latex, "html": html}
"""The functions that format the selected columns of a comparison; `csv` writes all of them at full precision."""
