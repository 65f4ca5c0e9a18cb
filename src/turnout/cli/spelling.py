"""Advice of error messages as it is written on the command line: ``Sgd(lr=0.01)`` is ``local.lr=0.01`` there."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from turnout.cli.names import (
    ALSO,
    AVAILABILITY,
    BEHAVIOURS,
    DELAYS,
    FAMILIES,
    PACES,
    PARTITIONS,
    REQUIREMENTS,
    SCHEDULES,
    SELECTIONS,
    SOLVERS,
    SPEEDS,
    WORK,
)
from turnout.cli.options import options_of, part
from turnout.cli.sections import OF_SPLIT
from turnout.data.catalogue import SOURCES
from turnout.experiment import Experiment
from turnout.models import MODELS
from turnout.pieces.local import Sgd
from turnout.population import Population

_SECTIONS: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "selection": SELECTIONS,
    "availability": AVAILABILITY,
    "pace": PACES,
    "local.solver": {name: piece for name, piece in SOLVERS.items() if piece is not Sgd},
    "model": MODELS,
    "data.partition": PARTITIONS,
}
"""Where a piece is named, and its options are written behind the same name."""

_VALUES: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "population.speed": SPEEDS,
    "population.requirement": REQUIREMENTS,
    "population.behaviour": BEHAVIOURS,
    "local.lr": SCHEDULES,
    "local.steps": WORK,
}
"""Where a piece is the value of an option, a table with its kind."""

_NESTED: Mapping[str, tuple[str, Callable[..., Any]]] = {
    "Sgd": ("local", Sgd),
    "Population": ("population", Population),
    **{
        kind.__name__: (f"{prefix}{name}", kind)
        for prefix, owner in (("population.", Population), ("", Experiment))
        for name, option in options_of(owner).items()
        if (kind := part(option.hint)) and kind not in FAMILIES
    },
}
"""Pieces that have no name: where their options are written."""

_OPTIONS = [
    ("data", set(OF_SPLIT)),
    ("pace", set(options_of(PACES["buffered"]))),
    ("population", set(options_of(Population))),
    ("availability", {name for kind in AVAILABILITY.values() for name in options_of(kind)}),
]
"""Options that advice gives by their name alone, by the section that they are written in."""

_OF_SOURCES = {name for source in SOURCES.values() for name in options_of(source)}
"""Options of data sets, which messages about data give by their name alone."""

_BEGINS = re.compile(r"(?:also=\(|\b(?:steps|speed|lr|behaviour|requirement)=)?(?:delay\.)?\b[A-Z]\w*\(")
_OPTION = re.compile(r"(?<![\w.'\"])([a-z]\w*)=(?!\()(?:None\b)?")
_SUBJECT = re.compile(r"([a-z]\w*(?:\.\w+)*)\.(\w+): ")
_RESUME = re.compile(r"resume=True \((--resume [^)]*)\)")


def on_command_line(message: str) -> str:
    r"""Return a message with the Python in it spelt as settings; what cannot be written here stays as it is.

    >>> on_command_line("write Rounds(), or also=(Uniform(10),)")
    'write pace=rounds, or selection=uniform selection.cohort_size=10'
    >>> on_command_line("algorithm.cutoff: got 0, needed a whole number >= 1. Write cutoff=None for no cutoff")
    'algorithm.cutoff: got 0, needed a whole number >= 1. Write algorithm.cutoff=none for no cutoff'
    >>> on_command_line("a cohort of 5: write concurrency=None, or steps=TimeBudget(30)")
    'a cohort of 5: write pace.concurrency=none, or local.steps=\'{kind="time_budget", seconds=30}\''
    >>> on_command_line("data: mnist: no folder holds it. Write directory=FOLDER")
    'data: mnist: no folder holds it. Write data.directory=FOLDER'
    """
    message = _RESUME.sub(r"\1", message)
    subject, section = _SUBJECT.match(message), message.partition(":")[0]
    advice = message.find("rite ")  # of "write" and "Write": only what follows is advice, and no value that was given
    parts, at = [], 0
    for begin, end in [*_expressions(message), (len(message), len(message))]:
        if begin >= at:
            between = message[at:begin]
            if 0 <= advice < begin:
                between = _OPTION.sub(partial(_with_section, subject, section), between).replace(" in split()", "")
            parts += [between, _spelt(message[begin:end])]
            at = end
    return "".join(parts)


def _with_section(subject: re.Match[str] | None, section: str, match: re.Match[str]) -> str:
    """Return an option with its section: that of the message, if it is about this option, or the only one that has it."""
    if subject is not None and subject[2] == match[1]:
        return f"{subject[1]}.{match[0].replace('=None', '=none')}"
    if match[1] in options_of(Experiment):
        return match[0]
    if section == "data" and match[1] in _OF_SOURCES:
        return f"data.{match[0]}"
    sections = [section for section, options in _OPTIONS if match[1] in options]
    return f"{sections[0]}.{match[0].replace('=None', '=none')}" if len(sections) == 1 else match[0]


def _expressions(message: str) -> Iterator[tuple[int, int]]:
    """Yield where calls of pieces begin and end."""
    for match in _BEGINS.finditer(message):
        depth, end = match[0].count("("), match.end()
        while depth and end < len(message):
            depth += {"(": 1, ")": -1}.get(message[end], 0)
            end += 1
        if not depth:
            yield match.start(), end


def _spelt(text: str) -> str:
    """Return an expression as settings, or as it is."""
    if not text:
        return text
    try:
        tree = ast.parse(re.sub(r"^\w+=", "", text), mode="eval").body
        return " ".join(_settings(call) for call in (tree.elts if isinstance(tree, ast.Tuple) else [tree]))
    except (SyntaxError, KeyError, IndexError):
        return text


def _settings(call: ast.expr) -> str:
    """Return one call as settings."""
    name = _name(call)
    if name in _NESTED:
        prefix, piece = _NESTED[name]
        return _assigned(prefix, _given(call, piece)) or f"{prefix}={{}}"
    for section, known in _SECTIONS.items():
        if kind := _called(name, known):
            head = section.partition(".")[0]
            return " ".join(filter(None, [f"{section}={kind}", _assigned(head, _given(call, known[kind]))]))
    if kind := _called(name, ALSO):
        return _assigned(f"also.{kind}", _given(call, ALSO[kind])) or f"also.{kind}={{}}"
    prefix = next((prefix for prefix, known in _VALUES.items() if _called(name, known)), None)
    return _value(call) if prefix is None else f"{prefix}='{_value(call)}'"


def _assigned(prefix: str, options: Mapping[str, ast.expr]) -> str:
    quoted = {key: _value(value) for key, value in options.items()}
    return " ".join(f"{prefix}.{key}=" + (f"'{text}'" if "{" in text else text) for key, text in quoted.items())


def _given(call: ast.expr, piece: Callable[..., Any]) -> dict[str, ast.expr]:
    """Return the arguments of a call by name."""
    assert isinstance(call, ast.Call)
    names = list(options_of(piece))
    arguments = {names[position]: value for position, value in enumerate(call.args) if not _is_ellipsis(value)}
    return arguments | {str(keyword.arg): keyword.value for keyword in call.keywords}


def _value(node: ast.expr) -> str:
    """Return a value as TOML, or as three dots."""
    if isinstance(node, ast.Call):
        pieces = DELAYS if isinstance(node.func, ast.Attribute) else _members()
        kind = _called(_name(node), pieces) or _raise(_name(node))
        options = [f"{key}={_value(value)}" for key, value in _given(node, pieces[kind]).items()]
        return "{" + ", ".join([f'kind="{kind}"', *options]) + "}"
    if _is_ellipsis(node):
        return "..."
    value = ast.literal_eval(node)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value).strip("()")


def _members() -> dict[str, Callable[..., Any]]:
    return {name: piece for known in FAMILIES.values() if known is not DELAYS for name, piece in known.items()}


def _called(name: str, known: Mapping[str, Callable[..., Any]]) -> str | None:
    """Return what a class is called on the command line."""
    return next((name_there for name_there, piece in known.items() if piece.__name__ == name), None)


def _name(call: ast.expr) -> str:
    """Return the name of what is called; of ``delay.Uniform`` the whole."""
    if not isinstance(call, ast.Call):
        raise KeyError(ast.unparse(call))
    return call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _raise(name: str) -> str:
    raise KeyError(name)
