"""Register pieces by name: defining a class with a name registers it, and all lists of names read this registry.

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
from typing import Any, ClassVar, TypeVar, cast

from turnout.core.checks import ConfigurationError
from turnout.core.other_names import ExplainsArguments, explains_arguments

GROUP = "turnout.pieces"
"""The group of entry points that name modules of other distributions with pieces."""

Piece = TypeVar("Piece", bound=Callable[..., Any])


class Family(Mapping[str, Callable[..., Any]]):
    """A mapping of names to pieces of one kind, such as all availabilities. It imports its packages on first access.

    Members are the named pieces that are defined in a module of `packages`, or in a module that an entry point of the group
    ``turnout.pieces`` names. Pieces that are defined elsewhere, as in a script, have names but are no members, so that a
    script cannot replace a built-in piece.

    Args:
        noun: the noun for a piece, ``"guard"``.
        plural: its plural, ``"guards"``.
        packages: the packages, or single modules, of the built-in pieces.
        returns: the type that functions return to be members; None if only classes are members.

    Attributes:
        bases: the base classes of pieces, i.e. the classes in whose body the family is assigned.
    """

    def __init__(self, noun: str, plural: str, packages: tuple[str, ...], returns: type | None = None) -> None:
        self.noun, self.plural, self.packages, self.returns = noun, plural, packages, returns
        self.bases: tuple[type, ...] = ()
        self._defined: dict[tuple[str, str], Callable[..., Any]] = {}

    def __set_name__(self, owner: type, name: str) -> None:
        self.bases += (owner,)

    def register(self, piece: Piece, name: str | None = None) -> Piece:
        """Register a piece; usable as a decorator of functions, which then explain unknown arguments.

        Args:
            piece: a class or a function.
            name: its name in files and on the command line; None is the name of the piece.
        """
        made = piece
        if inspect.isfunction(piece) and self.returns is not None and name is None and _has_options(piece):
            made = cast(Piece, explains_arguments(piece))
        self._defined[piece.__module__, name or piece.__name__] = made
        return made

    def name_of(self, piece: Callable[..., Any]) -> str | None:
        """Return the name of a registered piece, member or not; None if it has no name."""
        return next((name for (_, name), other in self._defined.items() if other is piece), None)

    def takes(self, piece: object) -> bool:
        """Return True if an object could be a member: a concrete class of the family, or a function if these are allowed."""
        if isinstance(piece, type):
            bases = (*self.bases, self.returns) if self.returns else self.bases
            return issubclass(piece, bases) and not inspect.isabstract(piece)
        return self.returns is not None and inspect.isfunction(piece)

    @property
    def needs(self) -> str:
        """A description of members for messages: ``"a class that derives from Guard"``."""
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
        """Return the members by name, sorted.

        Raises:
            ConfigurationError: if two members have the same name.
        """
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


def _has_options(function: Callable[..., Any]) -> bool:
    """Return False for a function of required arguments alone, such as a loss, which runs in every step."""
    parameters = inspect.signature(function).parameters.values()
    return not parameters or any(each.default is not each.empty for each in parameters)


class Registered(ExplainsArguments):
    """Base class of pieces that are registered by a class argument: ``class Median(Aggregation, name="median")``.

    Attributes:
        family: the family in which pieces are registered.
    """

    family: ClassVar[Family]

    def __init_subclass__(cls, *, name: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if name is not None:
            cls.family.register(cls, name)


def lookup(package: str) -> Callable[[str], Any]:
    """Return a `__getattr__` of a package (PEP 562) that looks up names in its modules which the package does not list."""

    def find(name: str) -> Any:
        if not name.startswith("_"):
            for module in sorted(_import_all(package) - {package}):
                thing = vars(import_module(module)).get(name)
                if getattr(thing, "__module__", None) == module:
                    return thing
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find


def _import_all(package: str) -> frozenset[str]:
    """Import a package and its modules, and return their names."""
    module = import_module(package)
    return _import_folders(package, tuple(getattr(module, "__path__", ())))


@cache
def _import_folders(package: str, folders: tuple[str, ...]) -> frozenset[str]:
    """Import the modules in the folders of a package, once."""
    names = {package, *(f"{package}.{module.name}" for module in pkgutil.iter_modules(folders))}
    for name in sorted(names):
        import_module(name)
    return frozenset(names)


@cache
def _plugins() -> frozenset[str]:
    """Import the modules that entry points name, and return their names; modules that fail are left out with a warning."""
    from importlib.metadata import entry_points  # imported here, because `turnout --help` does not need it

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


def names_in_source(*packages: str) -> list[str]:
    """Return the names that packages register, by parsing their source.

    Parsing takes milliseconds, where importing PyTorch takes seconds. A name is the keyword ``name`` of a class statement, or
    the name of a function with a decorator ``X.register``. Pieces of entry points are not included.
    """
    folders = [Path(__file__).parents[1].joinpath(*package.split(".")[1:]) for package in packages]
    files = [
        file for folder in folders for file in (folder.glob("*.py") if folder.is_dir() else [folder.with_suffix(".py")])
    ]
    return sorted(
        name for file in files for node in ast.parse(file.read_text(encoding="utf-8")).body for name in _names(node)
    )


def _names(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement registers."""
    if isinstance(node, ast.ClassDef):
        for keyword in node.keywords:
            if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
                yield str(keyword.value.value)
    elif isinstance(node, ast.FunctionDef):
        yield from (node.name for decorator in node.decorator_list if getattr(decorator, "attr", "") == "register")
