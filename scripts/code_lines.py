"""Count the code lines of each distribution: lines that are neither blank nor comment nor documentation.

    python -m scripts.code_lines    # from the root of a clone

Documentation is any string that stands alone as a statement, such as the docstring of a function or of an attribute.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTIONS = {
    "turnout": ROOT / "src" / "turnout",
    "turnout-serve": ROOT / "packages" / "turnout-serve" / "src",
    "turnout-flower": ROOT / "packages" / "turnout-flower" / "src",
}
"""The folder with the sources of each distribution."""

_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(text: str) -> int:
    """Return the number of code lines of a module.

    A string that is not documentation counts with all its lines, except blank ones.
    """
    lines, code = text.splitlines(), set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    documented = {line for node in _documentation(text) for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    return sum(1 for line in code - documented if lines[line - 1].strip())


def _documentation(text: str) -> Iterator[ast.Expr]:
    """Yield the strings that stand alone as statements."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node


@cache
def of_distributions() -> dict[str, int]:
    """Return the number of code lines of each distribution."""
    return {
        name: sum(code_lines(path.read_text("utf-8")) for path in folder.rglob("*.py"))
        for name, folder in DISTRIBUTIONS.items()
    }


if __name__ == "__main__":
    for name, number in of_distributions().items():
        print(f"{name:16}{number:8,}")
