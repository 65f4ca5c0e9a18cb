"""Prepare docstrings for the reference: an extension of Griffe, which reads them for mkdocstrings."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import griffe

_NAMES = Path(__file__).resolve().parents[1] / "build" / "names.json"
"""What `docs` wrote: full names of what the reference shows, by the last part of the name."""

sys.path.insert(0, str(_NAMES.parents[1]))  # where the folder of scripts lies

_EQUATION = re.compile(r"(?<!`)``([^`]+)``(?!`)")
_BLOCK = re.compile(r"::\n\n((?:(?: {4,}.*)?\n)* {4,}.*)(?=\n|$)")
_NAME = re.compile(r"(?<![`\[])`(\w+)(\(\))?`(?!`)")
_PARAGRAPH = re.compile(r"^>>> .*(?:\n.+)*", flags=re.MULTILINE)


class Docstrings(griffe.Extension):
    """Turn what our docstrings have beyond Google's style into Markdown, before sections are looked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names = json.loads(_NAMES.read_text(encoding="utf-8")) if _NAMES.exists() else {}

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Mark examples as such, and end lines before a block of code with one colon."""
        del kwargs
        if obj.docstring is not None:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            text = _PARAGRAPH.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
            text = _EQUATION.sub(inline, _BLOCK.sub(displayed, text))
            text = _NAME.sub(lambda found: self.link(found, obj.path), text)
            obj.docstring.value = re.sub(r"::$", ":", text, flags=re.MULTILINE)

    def link(self, found: re.Match[str], path: str) -> str:
        """Return a name that the reference has as a link to it, unless it is that of the object itself."""
        target = self.names.get(found[1])
        return found[0] if target is None or path.startswith(target) else f"[{found[0]}][{target}]"


def inline(found: re.Match[str]) -> str:
    """Return code that is an equation in MathML, and other code as it is."""
    from scripts.equations import latex, mathml

    tex = latex(" ".join(found[1].split()))
    return found[0] if tex is None else mathml(tex, "inline")


def displayed(found: re.Match[str]) -> str:
    """Return a block of code of which every line is an equation as equations, and any other block as it is."""
    from scripts.equations import latex, mathml

    lines = [line.strip().rstrip(",.") for line in found[1].split("\n") if line.strip()]
    written = [latex(line) for line in lines]
    if None in written:
        return found[0]
    return ":\n\n" + "\n\n".join(f'<div class="equation">{mathml(tex, "block")}</div>' for tex in written if tex)
