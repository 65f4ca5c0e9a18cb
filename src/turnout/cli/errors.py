"""Turn errors of commands into exit codes: 1 where a run failed, 2 for bad usage, 130 after Ctrl-C."""

from __future__ import annotations

import errno
import functools
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn, TypeVar

import typer

from turnout.cli.console import say
from turnout.core.checks import ConfigurationError, TurnoutError
from turnout_cli import leaving_at_once

FAILED, USAGE, STOPPED = 1, 2, 130

_OF_PATHS = frozenset({errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EROFS})
"""Errors that a path on the command line may bring about."""
_SHOWN = 80  # characters of a path that is too long

Command = TypeVar("Command", bound=Callable[..., None])

_debug = {"on": False}


class RunFailed(TurnoutError):
    """A run failed after it had begun."""


def debug(on: bool) -> None:
    """Show where errors come from, or only what they say."""
    _debug["on"] = on


def several() -> bool:
    """Return whether torchrun started several processes, of which this is one."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def rank() -> int:
    """Return the number of this process among those that torchrun started; process 0 speaks for all."""
    return int(os.environ["RANK"]) if several() else 0


def guarded(command: Command) -> Command:
    """Return the command with its errors turned into a line and an exit code."""

    @functools.wraps(command)
    def wrapped(*arguments: object, **options: object) -> None:
        with leaving_at_once():
            importlib.import_module("turnout.exports")  # PyTorch takes a second or two, in which nothing has begun
        from turnout.core import signals

        try:
            with signals.handled(_interrupt, signal.SIGINT):
                command(*arguments, **options)
        except (TurnoutError, KeyboardInterrupt, MemoryError) as error:
            raise typer.Exit(_ended_by(error)) from None
        except OSError as error:
            if error.errno not in _OF_PATHS or error.filename is None:
                raise
            raise typer.Exit(_ended_by(ConfigurationError(_about_path(error)))) from None

    return wrapped  # type: ignore[return-value]


def _about_path(error: OSError) -> str:
    """Say what is wrong with a path, of which a long one is cut."""
    name = os.fsdecode(error.filename)
    shown = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}... ({len(name)} characters)"
    return f"{shown}: {os.strerror(error.errno or 0)}: give another path"


def _interrupt(number: int) -> NoReturn:
    """End on SIGTERM and SIGHUP as on Ctrl-C: with what every command does at its end."""
    raise KeyboardInterrupt(number)


def _ended_by(error: BaseException) -> int:
    """Tell an error, and return the code to exit with."""
    # Imported here because they take a second: whoever raised the error has imported them.
    from turnout.comparison.compare import RunsFailed
    from turnout.distributed.collectives import ProcessLost
    from turnout.simulation.running import Interrupted

    if isinstance(error, Interrupted):
        if not rank():
            say(str(error), style="yellow")
        return STOPPED
    if isinstance(error, KeyboardInterrupt):
        say("stopped before anything could be saved", style="yellow")
        return STOPPED
    if isinstance(error, MemoryError):
        _tell(f"there is not enough memory: {error}. Write fewer or smaller clients, minibatches or local steps")
        return FAILED
    failed = isinstance(error, RunFailed | RunsFailed | ProcessLost)
    if failed or not rank():  # of bad usage all processes of a run know, and one says so
        _tell(f"process {rank()}: {error}" if rank() else str(error))
    if isinstance(error, ProcessLost) and several():
        _leave(FAILED)
    return FAILED if failed else USAGE


def _leave(code: int) -> NoReturn:
    """End here and now: the library that connects processes may abort this one where it takes leave of a lost one."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _tell(message: str) -> None:
    from turnout.cli.spelling import on_command_line

    if _debug["on"]:
        say(traceback.format_exc())
    say(f"Error: {on_command_line(message)}", style="red")
