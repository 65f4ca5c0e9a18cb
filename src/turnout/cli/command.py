"""Declare commands: a dataclass of options, and a function whose docstring is the help, with examples."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any, TypeVar, dataclass_transform, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from turnout.cli.errors import guarded

Options = TypeVar("Options")

REQUIRED: Any = MISSING
"""The default of a required option."""


def option(
    text: str, metavar: str | None = None, default: Any = None, *flags: str, panel: str | None = None, **more: Any
) -> Any:
    """Return a dataclass field for an option of the command line.

    Args:
        text: help text.
        metavar: placeholder of the value in the help.
        default: default of the field.
        flags: by default the name of the field with two dashes.
        panel: heading in the help.
        more: further arguments of `typer.Option`.
    """
    made = typer.Option(*flags, help=text, metavar=metavar, rich_help_panel=panel, **more)
    return field(default=default, metadata={"parameter": made})


def switch(text: str, *flags: str, default: bool = False, panel: str | None = None) -> Any:
    """Return a dataclass field for an option without a value; see `option`."""
    return option(text, None, default, *flags, panel=panel)


def argument(text: str, metavar: str, default: Any = REQUIRED, **more: Any) -> Any:
    """Return a dataclass field for a positional argument, which is required unless it has a default.

    Args:
        text: help text.
        metavar: placeholder of the value in the help.
        default: default of the field.
        more: further arguments of `typer.Argument`.
    """
    made = typer.Argument(help=text, metavar=metavar, show_default=isinstance(default, str), **more)
    return field(default=default, metadata={"parameter": made})


@dataclass_transform(kw_only_default=True, eq_default=False)
def options(kind: type[Options]) -> type[Options]:
    """Make a class a minimal dataclass of options, since generated methods would slow down every ``--help``."""
    return dataclass(kw_only=True, eq=False, repr=False, match_args=False)(kind)


def examples(*paragraphs: str) -> str:
    """Return the epilog of a help: a heading, example commands, and notes."""
    return "\n\n".join(["[bold]Examples[/bold]", *paragraphs])


def _help_of(documentation: str) -> tuple[str, str]:
    """Return the help and the epilog of a command, from the docstring of its function.

    The epilog is the section ``Examples``: an indented line is a command, and other paragraphs are notes.
    """
    text, _, section = inspect.cleandoc(documentation).partition("\n\nExamples:\n")
    paragraphs: list[str] = []
    for block in section.split("\n\n"):
        lines = [line.strip() for line in block.splitlines()]
        paragraphs += lines if block.startswith(" ") else [" ".join(lines)]
    return text, examples(*paragraphs)


def application(name: str, text: str, epilog: str, kind: type[TyperGroup] = TyperGroup) -> typer.Typer:
    """Return an application without commands, which shows its help by default.

    Args:
        name: of the command that has the others below it.
        text: first line of its help.
        epilog: a result of `examples`.
        kind: class that looks up the commands.
    """
    return typer.Typer(
        name=name,
        cls=kind,
        help=text,
        epilog=epilog,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )


SETTINGS = "KEY=VALUE"
"""Text in the placeholder of every argument that takes settings."""


class _WithSuggestions(TyperCommand):
    """A command that suggests the setting for an unknown option: ``local.lr=0.1`` for ``--lr 0.1``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # the class of this error has no public name in typer
            option = getattr(error, "option_name", None)
            if option is not None and any(SETTINGS in (each.metavar or "") for each in self.params):
                from turnout.cli.sections import meant_by  # it imports PyTorch

                if settings := meant_by(option.lstrip("-").replace("-", "_"), _value_of(option, given)):
                    error.message = f"No such option: {option}: did you mean {settings}?"  # type: ignore[attr-defined]
                    error.possibilities = None  # type: ignore[attr-defined]
            raise


def _value_of(option: str, arguments: list[str]) -> str:
    """Return the value that follows an unknown option, or the text ``VALUE``."""
    for argument, following in zip(arguments, [*arguments[1:], "-"], strict=True):
        name, assigned, value = argument.partition("=")
        if name == option:
            return value if assigned else "VALUE" if following.startswith("-") else following
    return "VALUE"


@dataclass(frozen=True)
class Command:
    """A command for typer.

    Attributes:
        function: function with one parameter for each field of the dataclass of options.
        epilog: examples below its help.
    """

    function: Callable[..., None]
    epilog: str

    def add_to(self, app: typer.Typer, name: str | None = None) -> None:
        """Add the command to an application, by default under the name of its function."""
        app.command(name, cls=_WithSuggestions, epilog=self.epilog)(self.function)


def command(kind: type[Options], *, computes: bool = True) -> Callable[[Callable[[Options], None]], Command]:
    """Return a decorator that makes a command of a function of a dataclass of options.

    Typer reads one parameter for each field of the dataclass from the signature. The help is the docstring of the function,
    which ends in a section ``Examples``. Errors of the function become a line and an
    exit code (`guarded`).

    Args:
        kind: a class made by `options`, with fields made by `option` and `argument`.
        computes: False for a command that needs no PyTorch, whose import takes seconds.
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
        with_parameters.__doc__, epilog = _help_of(function.__doc__ or "")
        with_parameters.__name__ = function.__name__
        with_parameters.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        with_parameters.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return Command(guarded(with_parameters, computes=computes), epilog)

    return decorate
