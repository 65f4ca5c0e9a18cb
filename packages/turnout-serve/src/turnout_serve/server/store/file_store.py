"""Open the models and reports of a run where they are: in its folder, or in an object store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shlex import quote

from turnout.core.checks import ConfigurationError
from turnout.core.display import printable
from turnout_serve.server.store.facts import OBJECTS, Facts
from turnout_serve.server.store.files import Files


def open_files(
    folder: Path,
    url: str | None,
    facts: Facts,
    until_done: Callable[[Callable[[], object]], None],
    *,
    begun: bool,
    read_only: bool,
) -> Files:
    """Open the models and reports of a run, which stay where they are once the journal has begun.

    Args:
        folder: folder of the run.
        url: URL of an object store; None is none. The store that the folder names is not reached unless this is its
            URL, for the folder may come from somebody else.
        facts: about the run.
        until_done, read_only: see `Files`.
        begun: True where the journal has entries.

    Raises:
        ConfigurationError: if the object store is another one than the run has, or only the folder names it.
    """
    used = facts.get(OBJECTS) if read_only else facts.ensure(OBJECTS, "" if begun else url or "")
    if used and url != used:
        given = "" if url is None else f"got {url}, but "
        raise ConfigurationError(
            f"store: {given}the models and reports of this run are in {printable(used)}, which is reached with your "
            f"credentials: write --store {printable(quote(used))} if you trust it"
        )
    if not used and url is not None:
        raise ConfigurationError(
            f"store: got {url}, but this run has its models and reports in {folder}: leave --store out"
        )
    if not used:
        return Files(folder, until_done, read_only)
    from turnout_serve.server.store.objects import Objects

    return Objects(folder, until_done, used, read_only)
