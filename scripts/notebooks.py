"""Run the notebooks of examples/ and write what their cells show into them: ``python scripts/notebooks.py [NAME...]``."""

from __future__ import annotations

import ast
import base64
import contextlib
import hashlib
import io
import json
import sys
import types
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "examples/notebooks"


def main() -> None:
    """Run the notebooks that the command line names, or all of them."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        if path.stem in sys.argv[1:] or not sys.argv[1:]:
            notebook = json.loads(path.read_text(encoding="utf-8"))
            run(notebook, path.stem)
            path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(path.name)


def run(notebook: dict[str, Any], name: str) -> None:
    """Run the cells in order, replace their outputs, and note the digest of the code that gave them."""
    module = types.ModuleType(f"notebook_{name}")
    sys.modules[module.__name__] = module
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, start=1):
        cell["execution_count"], cell["outputs"] = number, outputs("".join(cell["source"]), number, vars(module))
    notebook["metadata"]["outputs_of"] = digest(notebook)


def digest(notebook: dict[str, Any]) -> str:
    """Return the SHA-256 of the code of all cells."""
    sources = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()


def outputs(source: str, number: int, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell, and return its outputs as a notebook holds them: what it prints, and the value of its last line."""
    tree, printed, value = ast.parse(source), io.StringIO(), None
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    shown: list[dict[str, Any]] = []
    if printed.getvalue():
        shown.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(keepends=True)})
    if value is not None:
        shown.append({"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data(value)})
    return shown


def data(value: Any) -> dict[str, Any]:
    """Return a value in the forms in which notebooks show it."""
    forms: dict[str, Any] = {"text/plain": repr(value).splitlines(keepends=True)}
    if hasattr(value, "_repr_html_") and (page := value._repr_html_()) is not None:
        forms["text/html"] = page.splitlines(keepends=True)
    if hasattr(value, "_repr_png_"):
        forms["image/png"] = base64.b64encode(value._repr_png_()).decode()
    return forms


if __name__ == "__main__":
    main()
