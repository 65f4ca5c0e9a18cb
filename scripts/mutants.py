"""Draw faults at random from the syntax of some files, for ``python -m scripts.mutation --random 60``.

A draw changes one operator, constant or condition: comparisons, arithmetic, `and` and `or`, `not`, numbers, True and False,
and whether a raise or a plain call happens. ``scripts/mutants.toml`` says which tests look at a file.
"""

from __future__ import annotations

import ast
import random
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
_SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div,
    ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip


class Mutant(NamedTuple):
    """A source file with one change, and the test files that look at it; `old` and `new` are whole files."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    what: str


def drawn(number: int, seed: int, only: list[str]) -> list[Mutant]:
    """Draw so many changes, of files whose name holds one of these texts, every change of all files alike."""
    with (ROOT / "scripts/mutants.toml").open("rb") as file:
        tests = {name: found for name, found in tomllib.load(file).items() if not only or any(o in name for o in only)}
    every = [(name, line, old, new) for name in sorted(tests) for line, old, new in _changes(ROOT / name)]
    found = []
    for name, place, old, new in random.Random(seed).sample(every, min(number, len(every))):
        right = (ROOT / name).read_text(encoding="utf-8")
        what = f"line {right.count(chr(10), 0, place) + 1}: {old!r} -> {new!r}"
        found.append(Mutant(name, right, right[:place] + new + right[place + len(old) :], tuple(tests[name]), what))
    return found


def _changes(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield where something may be changed, what stands there, and what takes its place."""
    text = path.read_text(encoding="utf-8")
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    for node, new in _nodes(ast.parse(text)):
        if (old := ast.get_source_segment(text, node)) is not None and text.isascii():
            yield lines[node.lineno - 1] + node.col_offset, old, new


def _nodes(tree: ast.AST) -> Iterator[tuple[Any, str]]:
    """Yield nodes, and the source of what takes their place; types are left alone."""
    types = _types(tree)
    for node in ast.walk(tree):
        if id(node) not in types and (new := _changed(node)) is not None:
            yield node, new


def _types(tree: ast.AST) -> set[int]:
    """Return the ids of nodes that belong to annotations."""
    found: set[int] = set()
    for node in ast.walk(tree):
        annotation = (
            getattr(node, "returns", None) if isinstance(node, ast.FunctionDef) else getattr(node, "annotation", None)
        )
        found |= {id(part) for part in (ast.walk(annotation) if annotation is not None else ())}
    return found


def _changed(node: ast.AST) -> str | None:
    """Return the source of what takes the place of a node; None where it stays."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=right) if type(op) in _SWAPS:
            return f"({ast.unparse(ast.Compare(left, [_SWAPS[type(op)]()], right))})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _SWAPS:
            return f"({ast.unparse(ast.BinOp(left, _SWAPS[type(op)](), right))})"
        case ast.BoolOp(op=op, values=values):
            return f"({ast.unparse(ast.BoolOp(_SWAPS[type(op)](), values))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"({ast.unparse(operand)})"
        case ast.Constant(value=bool() as value):
            return str(not value)
        case ast.Constant(value=int() | float() as value):
            return f"({value + 1})"
        case ast.Raise() | ast.Expr(value=ast.Call()):
            return "pass"
    return None
