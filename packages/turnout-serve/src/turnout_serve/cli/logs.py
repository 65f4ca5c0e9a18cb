"""Write log records to standard error, one line each, as text or as JSON."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from typing import Any

from turnout.cli.console import say_by
from turnout.core.display import printable

_LEVELS = {"": logging.INFO, "yellow": logging.WARNING, "red": logging.ERROR}
"""Levels of notices by their color."""
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "taskName"}
"""Attributes that all records have; others are passed with ``extra=``."""


def log_to_stderr(form: str) -> None:
    """Write the messages of turnout and of uvicorn to standard error, as ``"text"`` or as ``"json"``.

    Notices and errors of the command are messages of the log where that is in JSON.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger("turnout")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.getLogger("uvicorn").handlers[:] = [handler]
    say_by((lambda text, style: root.log(_LEVELS[style], text)) if form == "json" else None)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _PLAIN}


def _quoted(value: Any) -> str:
    """Format a value of a field, in quotes if it could be taken for several: clients choose their names."""
    text = str(value)
    return text if text and not re.search(r'[\s="]', text) else json.dumps(text, ensure_ascii=False)


class JsonLines(logging.Formatter):
    """Format a record as an object of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {"time": round(record.created, 3), "level": record.levelname.lower(), "logger": record.name}
        line |= {"message": record.getMessage()} | _extra(record)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """Format a record as text without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, followed by the traceback of an error."""
        extra = " ".join(f"{name}={_quoted(value)}" for name, value in _extra(record).items())
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = printable(f"{clock} {record.getMessage()} {extra}".rstrip())
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line
