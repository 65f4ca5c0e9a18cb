"""Read declarations of tables and figures from a folder of TOML files."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, StrictBool, TypeAdapter, ValidationError

from turnout.core.checks import ConfigurationError, known_name, nearest, refuse, wrong_field
from turnout.results.measure import Measure, check_accuracy
from turnout.workbench.reproduction.checks import CHECKS, check_of
from turnout.workbench.reproduction.declaration import Claim, Curve, Panel, Reproduction
from turnout.workbench.reproduction.tabulated import Quantity

HERE = Path("reproductions")
"""The folder of declarations in a clone of the repository, where the command is called."""

INSTALLED = Path(__file__).parents[1] / "declarations"
"""The folder of declarations in an installed package."""


def folder_of(given: Path | None = None) -> Path:
    """Return the folder of declarations: the given one, or that of a clone, or that of the installed package."""
    return given or (INSTALLED if INSTALLED.is_dir() and not HERE.is_dir() else HERE)


def names(folder: Path | None = None) -> list[str]:
    """Return the names of the declarations in a folder: ``"folb/table-1"`` for ``FOLDER/folb/table-1.toml``, ...

    None is the folder of a clone, or of the installed package.
    """
    return list(_declarations(folder_of(folder)))


def load(name: str, folder: Path | None = None) -> Reproduction:
    """Load a declaration by its name in a folder, or by the path of its TOML file.

    Args:
        name: name or path.
        folder: the folder; None is that of a clone, or of the installed package.

    Raises:
        ConfigurationError: if a name is unknown, or a declaration is malformed.
    """
    if name.endswith(".toml"):
        return read(Path(name), Path(name).stem)
    folder = folder_of(folder)
    tables = _declarations(folder)
    known = {path: path for path in tables}
    for path, table in tables.items():  # such as maxfl/figure-4, which the runs of maxfl/figure-3 show
        known |= {f"{path.partition('/')[0]}/{other}": path for other in table.get("also", ())}
    if not known:
        raise ConfigurationError(
            f"there is no declaration below {folder.absolute()}: name a TOML file, or a folder of them with --declarations "
            "(a clone of the repository has one, reproductions/)"
        )
    declared = known[known_name("reproduction", name, known)]
    return read(folder / f"{declared}.toml", declared)


def _declarations(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the content of the files ``FOLDER/*/*.toml`` that declare a table or figure, by name.

    Other TOML files, such as settings of sweeps, are skipped. A file that cannot be parsed is listed, so that loading it
    reports the error.
    """
    tables = {}
    for path in sorted(folder.glob("*/*.toml")):
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            table = {"reference": ""}
        if "reference" in table:
            tables[path.relative_to(folder).with_suffix("").as_posix()] = table
    return tables


def read(path: Path, name: str) -> Reproduction:
    """Read the reproduction that a file declares.

    Raises:
        ConfigurationError: if a file cannot be read or is malformed, with the position of the error.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: cannot be read as a TOML file: {error}") from error
    try:
        return _reproduction(path.parent, name, table)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path.name}: {error}") from error


class _Panel(BaseModel, extra="allow"):
    """A panel, beside its settings."""

    title: str | None = None
    to_accuracy: Any = None
    seeds: Any = None
    paper: dict[str, Any] = Field(default_factory=dict)
    only: tuple[str, ...] | None = None
    algorithms: dict[str, dict[str, Any]] = Field(default_factory=dict)
    optional: StrictBool = False


class _Claim(BaseModel, extra="allow"):
    """A claim, beside its check."""

    text: str | None = None
    panels: tuple[str, ...] | None = None
    measure: str | None = None


class _Declared(BaseModel):
    """A declaration, whose measures and curves are not read yet."""

    title: str
    reference: str
    about: str = ""
    seeds: Any = 3
    to_accuracy: Any = None
    figure: str | None = None
    numbers: str | None = None
    algorithms: dict[str, dict[str, Any]] = Field(default_factory=dict)
    panels: dict[str, _Panel] = Field(default_factory=dict)
    common: dict[str, Any] = Field(default_factory=dict)
    measures: list[Any] = Field(default=["final test_accuracy"])
    curves: list[Any] = Field(default=["test_accuracy"])
    claims: list[_Claim] = Field(default_factory=list)
    also: tuple[str, ...] = ()


def _reproduction(folder: Path, name: str, table: dict[str, Any]) -> Reproduction:
    """Return the reproduction that a table declares; files of functions are relative to a folder."""
    is_drawn, measure = (
        "figure" in table and "numbers" not in table,
        Quantity.read if "numbers" in table else Measure.read,
    )
    _known("the reproduction", table, ("title", "reference", "figure") if is_drawn else _Declared.model_fields)
    for key in ("figure", "numbers"):
        if not isinstance(table.get(key, ""), str):
            raise refuse(key, given=table[key], needed="a text")
    try:
        declared = _Declared.model_validate(table)
    except ValidationError as error:
        raise ConfigurationError(wrong_field(error, "the declaration")) from None
    for key in () if is_drawn else ("algorithms", "panels", "measures"):
        if not getattr(declared, key):
            raise ConfigurationError(f"{key}: needed at least one")
    measures = {str(each): each for each in map(measure, declared.measures)}
    return Reproduction(
        name=name,
        title=declared.title,
        reference=declared.reference,
        about=declared.about,
        seeds=declared.seeds,
        common={**declared.common, "algorithms": declared.algorithms},
        panels={key: _panel(key, panel, declared, measures.values()) for key, panel in declared.panels.items()},
        measures=tuple(measures.values()),
        curves=tuple(map(_curve, declared.curves)),
        claims=tuple(_claim(claim, declared, measures, measure) for claim in declared.claims),
        also=declared.also,
        figure=None if declared.figure is None else str(folder / declared.figure),
        numbers=None if declared.numbers is None else str(folder / declared.numbers),
    )


def _panel(name: str, panel: _Panel, declared: _Declared, measures: Collection[Measure]) -> Panel:
    """Return one panel, with the target that all panels share as default."""
    to_accuracy = declared.to_accuracy if panel.to_accuracy is None else panel.to_accuracy
    if to_accuracy is not None:
        check_accuracy(to_accuracy, f"panels.{name}.to_accuracy")
    elif any(measure.metric is None for measure in measures):
        raise ConfigurationError(f"panels.{name}: measures count until a target, so it needs to_accuracy = 0.7")
    for key in ("paper", "only", "algorithms"):
        for algorithm in getattr(panel, key) or ():
            known_name(f"algorithm in panels.{name}.{key}", algorithm, declared.algorithms)
    paper = _paper(f"panels.{name}.paper", panel.paper, len(measures))
    settings = {**(panel.model_extra or {}), **({"algorithms": panel.algorithms} if panel.algorithms else {})}
    title = name if panel.title is None else panel.title
    return Panel(name, title, settings, to_accuracy, panel.seeds, paper, panel.only, panel.optional)


def _paper(key: str, table: Mapping[str, Any], most: int) -> dict[str, tuple[Any, ...]]:
    """Return the paper's figures, at most one for each measure."""
    paper = {name: tuple(figure) if isinstance(figure, list) else (figure,) for name, figure in table.items()}
    for name, figures in paper.items():
        if len(figures) > most:
            raise ConfigurationError(
                f"{key}.{name}: got {len(figures)} figures, needed at most one for each measure, {most}"
            )
    return paper


def _curve(table: Any) -> Curve:
    if isinstance(table, str):
        return Curve(table)
    if isinstance(table, dict):
        _known("curves", table, [field.name for field in fields(Curve)])
    try:
        return TypeAdapter(Curve).validate_python(table)
    except ValidationError as error:
        raise ConfigurationError(f"curves: {wrong_field(error, 'one')}") from None


def _claim(
    claim: _Claim, declared: _Declared, measures: Mapping[str, Measure], read_measure: Callable[[str], Measure]
) -> Claim:
    """Return one claim, after checks of the names of its algorithms and panels."""
    rest = claim.model_extra or {}
    check = check_of(rest)
    _known("claims", rest, {*_Claim.model_fields, *CHECKS})
    if claim.text is None:
        raise ConfigurationError("claims: text is missing")
    for name in check.algorithms:
        known_name(f"algorithm in the claim {claim.text!r}", name, declared.algorithms)
    for name in claim.panels or ():
        known_name(f"panel in the claim {claim.text!r}", name, declared.panels)
    measure = None if claim.measure is None else measures.get(claim.measure) or read_measure(claim.measure)
    return Claim(claim.text, check, measure, claim.panels)


def _known(owner: str, table: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise an error for an unknown key."""
    for key in table:
        if key not in known:
            raise ConfigurationError(f"unknown key {key!r} of {owner}: {nearest(key, known)}")
