"""How commands end: 0 for success, 1 where a run failed, 2 for bad usage, 130 after Ctrl-C."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn, TypeVar

import typer

from turnout.cli.output import say
from turnout.cli.spelling import on_command_line
from turnout.comparison import RunsFailed
from turnout.core.checks import TurnoutError
from turnout.distributed.collectives import ProcessLost
from turnout.running import Interrupted

FAILED, USAGE, STOPPED = 1, 2, 130

Command = TypeVar("Command", bound=Callable[..., None])

_debug = {"on": False}


class RunFailed(TurnoutError):
    """A run failed after it had begun."""


def debug(on: bool) -> None:
    """Show where errors come from, or only what they say."""
    _debug["on"] = on


def several() -> bool:
    """Whether torchrun started several processes, of which this is one."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def rank() -> int:
    """Which of them this is; process 0 speaks for all."""
    return int(os.environ["RANK"]) if several() else 0


def guarded(command: Command) -> Command:
    """Return the command, with its errors told in a line and turned into exit codes."""

    @functools.wraps(command)
    def wrapped(*arguments: object, **options: object) -> None:
        try:
            command(*arguments, **options)
        except Interrupted as stop:
            if not rank():
                say(str(stop), style="yellow")
            raise typer.Exit(STOPPED) from None
        except KeyboardInterrupt:
            say("stopped before anything could be saved", style="yellow")
            raise typer.Exit(STOPPED) from None
        except TurnoutError as error:
            failed = isinstance(error, RunFailed | RunsFailed | ProcessLost)
            if failed or not rank():  # of bad usage all processes of a run know, and one says so
                _tell(f"process {rank()}: {error}" if rank() else str(error))
            if isinstance(error, ProcessLost) and several():
                _leave(FAILED)
            raise typer.Exit(FAILED if failed else USAGE) from None

    return wrapped  # type: ignore[return-value]


def _leave(code: int) -> NoReturn:
    """End here and now: the library that connects processes may abort this one where it takes leave of a lost one."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _tell(message: str) -> None:
    if _debug["on"]:
        say(traceback.format_exc())
    say(f"Error: {on_command_line(message)}", style="red")
