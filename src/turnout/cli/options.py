"""Convert plain values to the options of a piece, checked against its signature.

A piece is a callable with options: a dataclass, a recipe, or a function that loads data. Its parameters are the only
list of its options.
"""

from __future__ import annotations

import inspect
import os
import types
import typing
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, reduce
from operator import or_
from typing import Any, Literal, Union

from pydantic import ConfigDict, TypeAdapter, ValidationError

from turnout.cli import user_code
from turnout.cli.names import FAMILIES
from turnout.core.checks import ConfigurationError, TurnoutError, known_name, nearest, refuse
from turnout.core.other_names import our_name

Table = dict[str, Any]
"""Plain values by name, like those of a TOML file."""

REQUIRED = inspect.Parameter.empty
"""The default of an option without a default."""

_NOTHING = ("none", "null", "inf", "infinity")
_PLURAL = {"a whole number": "whole numbers", "a number": "numbers", "a text": "texts"}
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "none"}
_PLAIN = {*_WORDS, os.PathLike, ...}
_SETTINGS = ConfigDict(arbitrary_types_allowed=True)


def only(table: Mapping[str, Any], names: Container[str]) -> Table:
    """Return the entries of a table with these names."""
    return {name: value for name, value in table.items() if name in names}


def without(table: Mapping[str, Any], names: Container[str]) -> Table:
    """Return the entries of a table with other names."""
    return {name: value for name, value in table.items() if name not in names}


@dataclass(frozen=True)
class Option:
    """One option of a piece: its type and its default (`REQUIRED` if it has none)."""

    hint: Any
    default: Any


@cache
def options_of(piece: Callable[..., Any]) -> Mapping[str, Option]:
    """Return the options of a piece that can be set by plain values, in the order of its signature."""
    hints = _hints(piece)
    parameters = inspect.signature(piece).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items() if name in hints}
    for field in fields(piece) if is_dataclass(piece) else ():
        if field.default_factory is not MISSING and field.name in defaults:
            defaults[field.name] = field.default_factory()
    return {name: Option(hints[name], default) for name, default in defaults.items() if _is_plain(hints[name])}


def build(piece: Callable[..., Any], values: Mapping[str, Any], key: str, **ready: Any) -> Any:
    """Call a piece with options made of plain values.

    Args:
        piece: piece to call.
        values: its options, as text or as values of the right type.
        key: section of the options in settings, for messages: ``"availability"``.
        ready: further arguments, which are not converted.

    Raises:
        ConfigurationError: if an option is unknown or missing, or a value is invalid.
    """
    values = arguments(piece, values, key, ready)
    with placed(key, piece):
        return piece(**values, **ready)


def arguments(
    piece: Callable[..., Any], values: Mapping[str, Any], key: str, ready: Iterable[str] = ()
) -> dict[str, Any]:
    """Convert the options of a piece to the right types; see `build` for the arguments."""
    known = options_of(piece)
    for name in values:
        if name not in known:
            raise unknown_option(_at(key, name), piece.__name__, known)
    for name, option in known.items():
        if option.default is REQUIRED and name not in values and name not in ready:
            raise ConfigurationError(f"{_at(key, name)} is missing: needed {needed(option.hint)}")
    return {name: convert(known[name].hint, value, _at(key, name)) for name, value in values.items()}


@contextmanager
def placed(key: str, piece: Callable[..., Any]) -> Iterator[None]:
    """Prefix errors of a piece with the section of the option in settings."""
    try:
        yield
    except TurnoutError as error:
        message = str(error)
        about = message.partition(":")[0]
        where = _at(key, message) if about in options_of(piece) or not key else f"{key}: {message}"
        raise type(error)(where) from error


def unknown_option(key: str, owner: str, known: Iterable[str]) -> ConfigurationError:
    """Return the error for an unknown option at `key` of `owner`."""
    names = list(known)
    hint = nearest(our_name(key.rpartition(".")[2]), names) if names else "it has no options"
    return ConfigurationError(f"unknown option {key!r} of {owner}: {hint}")


def convert(hint: Any, value: Any, key: str) -> Any:
    """Convert a plain value to a type; none, inf and infinity are None if that is allowed.

    Raises:
        ConfigurationError: if a value is invalid.
    """
    kinds = _members(hint)
    if type(None) in kinds and _is_nothing(value):
        return None
    if _names_piece(kinds, value):
        value = {"kind": value}
    if isinstance(value, Mapping):
        return _part(kinds, value, key)
    if isinstance(value, list) and (item_hint := _parts(kinds)) is not None:
        return tuple(convert(item_hint, item, f"{key}.{i}") for i, item in enumerate(value))
    for simple, form in _readings(kinds, value):
        with suppress(ValidationError):
            return TypeAdapter(reduce(or_, simple), config=_SETTINGS).validate_python(form)
    if typing.get_origin(hint) is Literal and isinstance(value, str):
        known_name(f"value of {key}", value, typing.get_args(hint))
    raise refuse(key, given=value, needed=needed(hint))


def _names_piece(kinds: list[Any], value: Any) -> bool:
    """Return whether a value is the name of a piece of one of the types."""
    families = [FAMILIES[kind] for kind in kinds if kind in FAMILIES]
    return isinstance(value, str) and any(".py:" in value or value in family for family in families)


def _readings(kinds: list[Any], value: Any) -> Iterator[tuple[list[Any], Any]]:
    """Yield types with a form of the value, in the order in which to try them."""
    simple = [kind for kind in kinds if not _is_part(kind) and (bool in kinds or not isinstance(value, bool))]
    if not simple:
        return
    if str in simple and (numbers := [kind for kind in simple if _is_list_of_numbers(kind)]):
        yield numbers, _as_list(value)  # before text, because 4,8 is also text
    yield simple, value
    yield simple, _as_list(value)  # 64 and 64,30 can be lists


def needed(hint: Any) -> str:
    """Describe the values of a type in words: ``a whole number, or none``."""
    words = [_words(kind) for kind in _members(hint)]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])}, or {words[-1]}"


def part(hint: Any) -> type | None:
    """Return the dataclass of a type, if it has one: Sgd for ``Sgd | None``."""
    return next((kind for kind in _members(hint) if is_dataclass(kind) and isinstance(kind, type)), None)


def _parts(kinds: list[Any]) -> Any:
    """Return the type of the items if one of the types is a list of pieces; else None."""
    lists = (typing.get_args(kind) for kind in kinds if typing.get_origin(kind) is tuple)
    return next((of[0] for of in lists if of[1:] == (Ellipsis,) and _is_part(of[0])), None)


def _at(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _is_nothing(value: Any) -> bool:
    return value is None or value == float("inf") or (isinstance(value, str) and value.lower() in _NOTHING)


def _is_list_of_numbers(kind: Any) -> bool:
    return typing.get_origin(kind) is tuple and typing.get_args(kind)[0] in (int, float)


def _as_list(value: Any) -> list[Any]:
    """Split a list of the command line, ``64,30``; another value is the only item."""
    return [item.strip() for item in value.split(",")] if isinstance(value, str) else [value]


def _part(kinds: list[Any], value: Mapping[str, Any], key: str) -> Any:
    """Build the piece that a nested table describes, or convert the values of a mapping."""
    for kind in kinds:
        if typing.get_origin(kind) is dict:
            return {name: convert(typing.get_args(kind)[1], part, _at(key, name)) for name, part in value.items()}
    for family in (kind for kind in kinds if kind in FAMILIES):
        members = FAMILIES[family]
        kind = value.get("kind")
        if not isinstance(kind, str):
            raise refuse(f"{key}.kind", given=kind, needed=f"the name of a {members.noun}: {', '.join(members)}")
        piece, options = user_code.member(members, kind), without(value, ("kind",))
        if callable(piece):
            return build(piece, options, key)
        for name in options:  # an object of a file has no options
            raise unknown_option(_at(key, name), kind, ())
        return piece
    if nested := part(reduce(or_, kinds)):
        return build(nested, value, key)
    raise refuse(key, given=dict(value), needed=needed(reduce(or_, kinds)))


def _hints(piece: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of a piece's parameters, without ranges of `turnout.core.ranges`, which the piece itself checks."""
    # A class that is not a dataclass has its options in __init__.
    owner: Any = piece.__init__ if isinstance(piece, type) and not is_dataclass(piece) else piece
    unknown: Table = {}  # names that are imported only for type checkers
    while True:
        try:
            return typing.get_type_hints(owner, localns=unknown)
        except NameError as error:
            unknown[str(error.name)] = object


def _members(hint: Any) -> list[Any]:
    """Return the alternatives of a union except for functions and `Any`, or the type itself.

    ``Table | Any`` is an option that plain values give as a `Table`, and programs also as other objects.
    """
    if typing.get_origin(hint) in (Union, types.UnionType):
        alternatives = [
            kind for kind in typing.get_args(hint) if kind is not Any and typing.get_origin(kind) is not Callable
        ]
        return [kind for member in alternatives for kind in _members(member)]
    return [hint]


def _is_part(kind: Any) -> bool:
    return kind in FAMILIES or (isinstance(kind, type) and is_dataclass(kind))


def _is_plain(hint: Any) -> bool:
    """Return whether plain values can express a value of this type."""
    if hint in _PLAIN or hint in FAMILIES:
        return True
    origin = typing.get_origin(hint)
    if origin is dict:
        return _is_plain(typing.get_args(hint)[1])
    if origin in (Union, types.UnionType, tuple):
        return all(map(_is_plain, typing.get_args(hint) if origin is tuple else _members(hint)))
    if isinstance(hint, type) and is_dataclass(hint) and not inspect.isabstract(hint):
        return len(options_of(hint)) == len(inspect.signature(hint).parameters)
    return origin in (Literal, os.PathLike)


def _words(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        *first, last = map(repr, typing.get_args(kind))
        return f"{', '.join(first)} or {last}" if first else last
    if typing.get_origin(kind) is tuple:
        item = needed(typing.get_args(kind)[0])
        return f"a list of {_PLURAL[item]}" if item in _PLURAL else f"a list, each {item}"
    if kind in FAMILIES:
        return f"{' or '.join(map(repr, FAMILIES[kind]))}, by name or as a table with kind = NAME"
    return _WORDS.get(kind, "a path" if typing.get_origin(kind) is os.PathLike else "a table of options")
