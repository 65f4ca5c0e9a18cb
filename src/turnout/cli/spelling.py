"""Translate Python in error messages to settings of the command line: ``Sgd(lr=0.01)`` to ``local.lr=0.01``."""

from __future__ import annotations

import ast
import json
import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

from turnout.cli import names
from turnout.cli.options import options_of, part
from turnout.cli.sections import OF_SPLIT
from turnout.experiment import Experiment
from turnout.pieces.local import Sgd
from turnout.population import Population

_SECTIONS: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "selection": names.SELECTIONS,
    "availability": names.AVAILABILITY,
    "pace": names.PACES,
    "local.solver": names.SOLVERS,
    "model": names.MODELS,
    "data.partition": names.PARTITIONS,
}
"""Settings that name a piece, whose options are in the same section."""

_VALUES: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "population.speed": names.LISTED["speeds"],
    "population.requirement": names.LISTED["requirements"],
    "population.behavior": names.LISTED["behaviors"],
    "local.lr": names.LISTED["schedules"],
    "local.steps": names.LISTED["work"],
}
"""Settings whose value is a piece, as a table with its kind."""

_OPTIONS = [
    ("data", set(OF_SPLIT)),
    ("pace", set(options_of(names.PACES["buffered"]))),
    ("population", set(options_of(Population))),
    ("availability", {name for kind in names.AVAILABILITY.values() for name in options_of(kind)}),
]
"""Options by section; messages mention them without the section."""

_OF_SOURCES = {name for source in names.SOURCES.values() for name in options_of(source)}
"""Options of data sets, which messages about data mention without the section."""

_BEGINS = re.compile(r"(?:also=\(|\b(?:steps|speed|lr|behavior|requirement)=)?(?:delay\.)?\b[A-Z]\w*\(")
_OPTION = re.compile(r"(?<![\w.'\"])([a-z]\w*)=(?!\()(?:None\b)?")
_SUBJECT = re.compile(r"([a-z]\w*(?:\.\w+)*)\.(\w+): ")
_RESUME = re.compile(r"resume=True \((--resume [^)]*)\)")


def on_command_line(message: str) -> str:
    r"""Translate Python expressions in a message to settings, if possible.

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
    advice = message.find("rite ")  # "write" or "Write": expressions before it are values that were given
    parts, at = [], 0
    for begin, end in [*_expressions(message), (len(message), len(message))]:
        if begin >= at:
            between = message[at:begin]
            if 0 <= advice < begin:
                between = _OPTION.sub(partial(_with_section, subject, section), between).replace(" in split()", "")
            parts += [between, _spelled(message[begin:end])]
            at = end
    return "".join(parts)


def _with_section(subject: re.Match[str] | None, section: str, match: re.Match[str]) -> str:
    """Return an option with its section: that of the message, if it is about this option, or the only possible one."""
    if subject is not None and subject[2] == match[1]:
        return f"{subject[1]}.{match[0].replace('=None', '=none')}"
    if match[1] in options_of(Experiment):
        return match[0]
    if section == "data" and match[1] in _OF_SOURCES:
        return f"data.{match[0]}"
    sections = [section for section, options in _OPTIONS if match[1] in options]
    return f"{sections[0]}.{match[0].replace('=None', '=none')}" if len(sections) == 1 else match[0]


def _expressions(message: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each call of a piece."""
    for match in _BEGINS.finditer(message):
        depth, end = match[0].count("("), match.end()
        while depth and end < len(message):
            depth += {"(": 1, ")": -1}.get(message[end], 0)
            end += 1
        if not depth:
            yield match.start(), end


def _spelled(text: str) -> str:
    """Translate an expression to settings, if possible."""
    try:
        tree = ast.parse(re.sub(r"^\w+=", "", text), mode="eval").body
        return " ".join(_settings(call) for call in (tree.elts if isinstance(tree, ast.Tuple) else [tree]))
    except (SyntaxError, KeyError, ValueError):
        return text


def _settings(call: ast.expr) -> str:
    """Translate one call to settings."""
    name = _name(call)
    if name in _spellings():
        head, prefix, piece = _spellings()[name]
        return " ".join(filter(None, [head, _assigned(prefix, _arguments(call, piece))])) or f"{prefix}={{}}"
    prefix = next((prefix for prefix, family in _VALUES.items() if name in _by_class(family)), None)
    return _value(call) if prefix is None else f"{prefix}='{_value(call)}'"


@cache
def _spellings() -> dict[str, tuple[str, str, Callable[..., Any]]]:
    """Return by the name of each class: its setting, the prefix of its options, and the class."""
    spellings = {piece.__name__: ("", f"also.{name}", piece) for name, piece in names.ALSO.items()}
    for section, known in _SECTIONS.items():
        head = section.partition(".")[0]
        spellings |= {piece.__name__: (f"{section}={name}", head, piece) for name, piece in known.items()}
    for prefix, owner in (("population.", Population), ("", Experiment)):
        for name, option in options_of(owner).items():
            if (kind := part(option.hint)) and kind not in names.FAMILIES:
                spellings[kind.__name__] = ("", f"{prefix}{name}", kind)
    return {**spellings, "Sgd": ("", "local", Sgd), "Population": ("", "population", Population)}


def _assigned(prefix: str, options: Mapping[str, ast.expr]) -> str:
    quoted = {key: _value(value) for key, value in options.items()}
    return " ".join(f"{prefix}.{key}=" + (f"'{text}'" if "{" in text else text) for key, text in quoted.items())


def _arguments(call: ast.expr, piece: Callable[..., Any]) -> dict[str, ast.expr]:
    """Return the arguments of a call by name."""
    assert isinstance(call, ast.Call)
    by_position = dict(zip(options_of(piece), call.args, strict=False))
    arguments = {name: value for name, value in by_position.items() if ast.unparse(value) != "..."}
    return arguments | {str(keyword.arg): keyword.value for keyword in call.keywords}


def _value(node: ast.expr) -> str:
    """Return a value as TOML; an ellipsis as three dots."""
    if isinstance(node, ast.Call):
        is_delay = isinstance(node.func, ast.Attribute)
        families = [family for family in names.FAMILIES.values() if (family is names.DELAYS) == is_delay]
        kind, piece = ChainMap(*map(_by_class, families))[_name(node)]
        options = [f"{key}={_value(value)}" for key, value in _arguments(node, piece).items()]
        return "{" + ", ".join([f'kind="{kind}"', *options]) + "}"
    value = ast.literal_eval(node)
    if value is None or value is ...:
        return "none" if value is None else "..."
    return json.dumps(value) if isinstance(value, bool | str) else str(value).strip("()")


def _by_class(family: Mapping[str, Callable[..., Any]]) -> dict[str, tuple[str, Callable[..., Any]]]:
    """Return the members of a family with their names on the command line, by the name of the class."""
    return {piece.__name__: (kind, piece) for kind, piece in family.items()}


def _name(call: ast.expr) -> str:
    """Return the name of the called class, without a module: Uniform for ``delay.Uniform``."""
    if not isinstance(call, ast.Call):
        raise KeyError(ast.unparse(call))
    return call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
