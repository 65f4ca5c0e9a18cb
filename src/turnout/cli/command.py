"""Declare a command: a dataclass of options, examples for its help, and the function that does the work."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any, TypeVar, dataclass_transform, get_type_hints

import typer

from turnout.cli.errors import guarded

Options = TypeVar("Options")

REQUIRED: Any = MISSING
"""The default of an option that has to be given."""


def option(
    text: str, metavar: str | None = None, default: Any = None, *flags: str, panel: str | None = None, **more: Any
) -> Any:
    """Return a field of a dataclass that is an option of the command line.

    Args:
        text: of the help.
        metavar: what stands for the value there.
        default: of the field.
        flags: how it is written; by default the name of the field with two dashes.
        panel: heading in the help below which it is listed.
        more: further arguments of `typer.Option`.
    """
    made = typer.Option(*flags, help=text, metavar=metavar, rich_help_panel=panel, **more)
    return field(default=default, metadata={"parameter": made})


def switch(text: str, *flags: str, default: bool = False, panel: str | None = None) -> Any:
    """Return a field of a dataclass that is an option without a value, written as `flags`; see `option`."""
    return option(text, None, default, *flags, panel=panel)


def argument(text: str, metavar: str, default: Any = REQUIRED, **more: Any) -> Any:
    """Return a field of a dataclass that is a positional argument of the command line, required unless it has a default.

    Args:
        text: of the help.
        metavar: what stands for the value there.
        default: of the field.
        more: further arguments of `typer.Argument`.
    """
    made = typer.Argument(help=text, metavar=metavar, show_default=isinstance(default, str), **more)
    return field(default=default, metadata={"parameter": made})


@dataclass_transform(kw_only_default=True, eq_default=False)
def options(kind: type[Options]) -> type[Options]:
    """Make a class a dataclass of options, with no more than a command needs: each method costs time before every help."""
    return dataclass(kw_only=True, eq=False, repr=False, match_args=False)(kind)


def examples(commands: str, *notes: str) -> str:
    """Return what stands below the help of a command: example commands, a line each, and paragraphs."""
    return "\n\n".join(["[bold]Examples[/bold]", *commands.strip().splitlines(), *notes])


@dataclass(frozen=True)
class Command:
    """A command as typer takes it.

    Attributes:
        function: has one parameter for each field of the dataclass of options.
        epilog: the examples below its help.
    """

    function: Callable[..., None]
    epilog: str

    def add_to(self, app: typer.Typer, name: str | None = None) -> None:
        """Add the command to an application, by the name of its function where no other is given."""
        app.command(name, epilog=self.epilog)(self.function)


def command(kind: type[Options], epilog: str) -> Callable[[Callable[[Options], None]], Command]:
    """Return a decorator that makes a command of a function of a dataclass of options.

    Typer reads one parameter for each field of the dataclass from the signature. Errors of the function end in a line and
    an exit code (`guarded`).

    Args:
        kind: made by `options`; `option` and `argument` make its fields.
        epilog: what `examples` returns.
    """

    def decorate(function: Callable[[Options], None]) -> Command:
        def with_parameters(**values: Any) -> None:
            function(kind(**values))

        hints = get_type_hints(kind)
        parameters = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=Annotated[hints[field.name], field.metadata["parameter"]],
            )
            for field in fields(kind)  # type: ignore[arg-type]
        ]
        with_parameters.__name__, with_parameters.__doc__ = function.__name__, function.__doc__
        with_parameters.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        with_parameters.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return Command(guarded(with_parameters), epilog)

    return decorate
