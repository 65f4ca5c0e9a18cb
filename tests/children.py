"""Processes of their own for tests, forked from the server that comparisons have: it has imported what takes seconds."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from turnout.comparison.processes import _context, _main_hidden

ROOT = Path(__file__).parents[1]


PRELOADED = [
    *("turnout.exports", "turnout.cli.app", "turnout.cli.commands.run", "turnout.cli.settings", "pandas"),
    *("turnout_serve.cli.serving", "turnout_serve.cli.joining", "turnout_serve.cli.sent", "turnout_serve.client.join"),
    *("turnout_serve.server.process", "turnout_serve.client.worker", "turnout.comparison.compare"),
    *("turnout.comparison.study", "optuna.storages._rdb.storage"),
]
"""Modules that take seconds to import, which each process would spend; pyarrow imports pandas where it is installed."""

_begun: list["Child"] = []
if hasattr(_context(), "set_forkserver_preload"):
    _context().set_forkserver_preload(PRELOADED)  # type: ignore[attr-defined]


class Child:
    """A function in a process of its own, whose output goes to files in a folder.

    Args:
        folder: of the files, and where the process works.
        function: what it does; of a module, because it is found by name.
        arguments: of the function.
        environment: what it has beside the variables of this process.
    """

    number = 0

    def __init__(self, folder: Path, function: Callable[..., Any], *arguments: Any, **environment: str) -> None:
        Child.number += 1
        folder.mkdir(parents=True, exist_ok=True)
        self._texts = [folder / f".{Child.number}.{name}" for name in ("out", "err")]
        own = {**os.environ, **environment}
        self.process = _context().Process(
            target=_act, args=(own, str(folder), list(map(str, self._texts)), function, arguments), daemon=True
        )
        _begun.append(self)
        with _main_hidden(), _found():
            self.process.start()

    @property
    def output(self) -> str:
        """What it has written to standard output until now."""
        return self._texts[0].read_text(encoding="utf-8") if self._texts[0].exists() else ""

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def wait_for(self, holds: Callable[[], Any], seconds: float = 120.0) -> None:
        """Wait until something holds, which it brings about."""
        until = time.monotonic() + seconds
        while not holds():
            assert self.process.is_alive(), self.ended()
            assert time.monotonic() < until, "it takes too long"
            time.sleep(0.01)

    def ended(self, seconds: float = 120.0) -> tuple[int, str, str]:
        """Wait until it ends; return its exit code, standard output and standard error."""
        self.process.join(seconds)
        code = self.process.exitcode
        assert code is not None, "it does not end"
        out, err = (path.read_text(encoding="utf-8") for path in self._texts)
        return code, out, err


def end_all() -> None:
    """Kill what a test has left."""
    while _begun:
        _begun.pop().process.kill()


def command_line(folder: Path, *arguments: Any, **environment: str) -> Child:
    """Start ``turnout`` with these arguments."""
    return Child(folder, _turnout, list(map(str, arguments)), **environment)


def _turnout(arguments: list[str]) -> None:
    """The console script."""
    import turnout_cli

    sys.argv = ["turnout", *arguments]
    turnout_cli.main()


def _act(
    environment: dict[str, str], folder: str, texts: list[str], function: Callable[..., Any], arguments: Any
) -> None:
    """Call the function as a process that was started anew would."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, path in enumerate(texts, start=1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A comparison that started the fork server blocks both in it.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGHUP})
    import torch

    torch.set_num_threads(int(environment.get("OMP_NUM_THREADS", 1)))
    try:
        function(*arguments)
    except Exception:
        traceback.print_exc()
        sys.exit(1)


@contextmanager
def _found():
    """Have a process that is started find the modules of the tests."""
    sys.path.insert(0, str(ROOT))
    try:
        yield
    finally:
        sys.path.remove(str(ROOT))
