"""Convert errors of commands to exit codes: 1 if a run failed, 2 for usage errors, 130 after Ctrl-C."""

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
from turnout_interrupt import leaving_at_once

FAILED, USAGE, STOPPED = 1, 2, 130

_OF_PATHS = frozenset({errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EROFS})
"""Errors that can be due to a path on the command line."""
_SHOWN = 80  # characters of a path that is too long

Command = TypeVar("Command", bound=Callable[..., None])

_debug = {"on": False}


class RunFailed(TurnoutError):
    """A run failed after its first round."""


def debug(on: bool) -> None:
    """Show tracebacks of errors, or only messages."""
    _debug["on"] = on


def several() -> bool:
    """Return whether this is one of several processes that torchrun started."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def rank() -> int:
    """Return the rank of this process among those of torchrun."""
    return int(os.environ["RANK"]) if several() else 0


def guarded(command: Command, *, computes: bool = True) -> Command:
    """Decorate a command to print errors as one line, and to exit with a code.

    Args:
        command: the command.
        computes: False for a command that needs no PyTorch, such as one request to a server.
    """

    @functools.wraps(command)
    def wrapped(*arguments: object, **options: object) -> None:
        if computes:
            with leaving_at_once():
                importlib.import_module("turnout.exports")  # importing PyTorch takes a second or two
        from turnout.core import signals

        ended = _ended_by if computes else _ended_plainly
        try:
            with signals.handled(_interrupt, signal.SIGINT):
                command(*arguments, **options)
        except (TurnoutError, KeyboardInterrupt, MemoryError) as error:
            raise typer.Exit(ended(error)) from None
        except OSError as error:
            if error.errno not in _OF_PATHS or error.filename is None:
                raise
            raise typer.Exit(ended(ConfigurationError(_about_path(error)))) from None

    return wrapped  # type: ignore[return-value]


def _about_path(error: OSError) -> str:
    """Return the message of an error about a path, which is truncated if it is long."""
    name = os.fsdecode(error.filename)
    shown = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}... ({len(name)} characters)"
    return f"{shown}: {os.strerror(error.errno or 0)}: give another path"


def _interrupt(number: int) -> NoReturn:
    """Handle a signal like Ctrl-C, so that commands clean up."""
    raise KeyboardInterrupt(number)


def _ended_by(error: BaseException) -> int:
    """Print an error, and return the exit code."""
    # Imported here because it takes a second, unless the error comes from there.
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
        _tell(f"there is not enough memory: {error}. Use fewer or smaller clients, minibatches or local steps")
        return FAILED
    if isinstance(error, RunFailed | RunsFailed | ProcessLost):
        _tell(f"process {rank()}: {error}" if rank() else str(error))
        if isinstance(error, ProcessLost) and several():
            _leave(FAILED)
        return FAILED
    if not rank():  # a usage error is the same in all processes
        _tell(str(error))
    return USAGE


def _ended_plainly(error: BaseException) -> int:
    """Print an error of a command that needs no PyTorch, and return the exit code."""
    if isinstance(error, KeyboardInterrupt):
        say("stopped", style="yellow")
        return STOPPED
    _tell(str(error) or "there is not enough memory", str)
    return FAILED if isinstance(error, RunFailed | MemoryError) else USAGE


def _leave(code: int) -> NoReturn:
    """Exit immediately, because NCCL or Gloo may abort this process when it disconnects from a lost one."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _tell(message: str, spelled: Callable[[str], str] | None = None) -> None:
    """Print a message, by default with settings and options as the command line spells them, which imports PyTorch."""
    if spelled is None:
        from turnout.cli.spelling import on_command_line

        spelled = on_command_line
    if _debug["on"]:
        say(traceback.format_exc())
    say(f"Error: {spelled(message)}", style="red")
