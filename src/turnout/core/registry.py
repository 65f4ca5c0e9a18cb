"""Pieces by name: a class that is defined with a name is registered, and every list of names is read from here.

>>> class Walk(Registered):
...     family = Family("walk", "walks", packages=())
>>> class Stroll(Walk, name="stroll"):
...     pass
>>> Stroll.family.name_of(Stroll)
'stroll'
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from turnout.core.checks import ConfigurationError

GROUP = "turnout.pieces"
"""Entry points of this group name modules of other distributions that define pieces."""

Piece = TypeVar("Piece", bound=Callable[..., Any])


class Family(Mapping[str, Callable[..., Any]]):
    """Pieces of one kind by name, such as all availabilities; a mapping that imports its packages when it is first read.

    Members are the pieces that are defined, with a name, in a module of `packages` or in a module that an entry point of
    the group ``turnout.pieces`` names. A piece that is defined elsewhere, as in a script, has a name too but is no member,
    so that a script cannot replace a built-in piece.

    Args:
        noun: what one of them is called, ``"guard"``.
        plural: what several are called, ``"guards"``.
        packages: packages, or single modules, that hold the built-in pieces.
        returns: what functions return that may be members; None where only classes are.

    Attributes:
        bases: the classes that pieces derive from: those in whose body the family is assigned.
    """

    def __init__(self, noun: str, plural: str, packages: tuple[str, ...], returns: type | None = None) -> None:
        self.noun, self.plural, self.packages, self.returns = noun, plural, packages, returns
        self.bases: tuple[type, ...] = ()
        self._defined: dict[tuple[str, str], Callable[..., Any]] = {}

    def __set_name__(self, owner: type, name: str) -> None:
        self.bases += (owner,)

    def register(self, piece: Piece, name: str | None = None) -> Piece:
        """Register a piece under a name, by default its own; a decorator of functions.

        Args:
            piece: a class or a function.
            name: what files and the command line call it.
        """
        self._defined[piece.__module__, name or piece.__name__] = piece
        return piece

    def name_of(self, piece: Callable[..., Any]) -> str | None:
        """Return the name of a registered piece, member or not; None for one without a name."""
        return next((name for (_, name), each in self._defined.items() if each is piece), None)

    def takes(self, piece: object) -> bool:
        """Tell whether an object could be a member: a concrete class of the family, or a function where those are made."""
        if isinstance(piece, type):
            bases = (*self.bases, self.returns) if self.returns else self.bases
            return issubclass(piece, bases) and not inspect.isabstract(piece)
        return self.returns is not None and inspect.isfunction(piece)

    @property
    def needs(self) -> str:
        """What a member is, in words: ``"a class that derives from Guard"``."""
        classes = " or ".join(base.__name__ for base in self.bases)
        words = [f"a class that derives from {classes}"] if classes else []
        if self.returns is not None:
            words.append(f"a function that returns {self.returns.__name__}")
        return ", or ".join(words)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._members()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members())

    def __len__(self) -> int:
        return len(self._members())

    def __repr__(self) -> str:
        return f"Family({self.noun!r})"

    def _members(self) -> dict[str, Callable[..., Any]]:
        modules = {module for package in self.packages for module in _import_all(package)} | _plugins()
        members: dict[str, Callable[..., Any]] = {}
        for (module, name), piece in self._defined.items():
            if module not in modules:
                continue
            if name in members:
                raise ConfigurationError(
                    f"two {self.plural} are called {name}, of {members[name].__module__} and of {module}: rename one, or "
                    "remove the distribution that has it"
                )
            members[name] = piece
        return dict(sorted(members.items()))


class Registered:
    """Base of classes that a name registers in their family: ``class Median(Aggregation, name="median")``.

    Attributes:
        family: what it registers them in.
    """

    family: ClassVar[Family]

    def __init_subclass__(cls, *, name: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if name is not None:
            cls.family.register(cls, name)


def lookup(package: str) -> Callable[[str], Any]:
    """Return a function `__getattr__` of a package (PEP 562) that finds what its modules define and it does not list."""

    def find(name: str) -> Any:
        if not name.startswith("_"):
            for module in sorted(_import_all(package) - {package}):
                thing = vars(import_module(module)).get(name)
                if getattr(thing, "__module__", None) == module:
                    return thing
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find


def _import_all(package: str) -> frozenset[str]:
    """Import a package and the modules in its folders, and return their names."""
    module = import_module(package)
    return _import_folders(package, tuple(getattr(module, "__path__", ())))


@cache
def _import_folders(package: str, folders: tuple[str, ...]) -> frozenset[str]:
    names = {package, *(f"{package}.{each.name}" for each in pkgutil.iter_modules(folders))}
    for name in sorted(names):
        import_module(name)
    return frozenset(names)


@cache
def _plugins() -> frozenset[str]:
    """Import the modules that entry points name, and return their names; one that fails is left out with a warning."""
    from importlib.metadata import entry_points  # of no use to `turnout --help`

    modules = set()
    for point in entry_points(group=GROUP):
        try:
            import_module(point.module)
        except Exception as error:
            warnings.warn(
                f"the pieces of {point.dist.name if point.dist else point.name} are left out: {point.module} cannot be "
                f"imported: {type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
            continue
        modules.add(point.module)
    return frozenset(modules)


def names_in_source(package: str) -> list[str]:
    """Return the names that a package registers, read from its source without importing it.

    It takes milliseconds where importing PyTorch takes seconds. A name is the keyword ``name`` of a class statement, or
    the name of a function below a decorator ``X.register``; pieces of entry points are not among them.
    """
    folder = Path(__file__).parents[1].joinpath(*package.split(".")[1:])
    files = sorted(folder.glob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    return sorted(
        name for file in files for node in ast.parse(file.read_text(encoding="utf-8")).body for name in _names(node)
    )


def _names(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        for keyword in node.keywords:
            if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
                yield str(keyword.value.value)
    elif isinstance(node, ast.FunctionDef):
        yield from (node.name for each in node.decorator_list if getattr(each, "attr", "") == "register")
