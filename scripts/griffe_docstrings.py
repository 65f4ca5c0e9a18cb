"""Prepare docstrings for the reference: an extension of Griffe, which reads them for mkdocstrings."""

import re
from typing import Any

import griffe

_PARAGRAPH = re.compile(r"^>>> .*(?:\n.+)*", flags=re.MULTILINE)


class Docstrings(griffe.Extension):
    """Turn what our docstrings have beyond Google's style into Markdown, before sections are looked for."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Mark examples as such, and end lines before a block of code with one colon."""
        del kwargs
        if obj.docstring is not None:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            text = _PARAGRAPH.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
            obj.docstring.value = re.sub(r"::$", ":", text, flags=re.MULTILINE)
