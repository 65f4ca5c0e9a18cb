"""The secrets that a server's noise is made of, and the releases that it knows to be lost.

Two different sums with the same noise give away their difference. So the noise of a release depends on a secret that is drawn
anew at every start of a server, and on the reports of this and of all earlier steps. A server that goes on from a copy of a
journal adds other noise than the server that the copy was made of, and so does a copy of a process in memory.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turnout.core.checks import CheckpointError
from turnout.core.types import Report
from turnout.deployment.server.store import Entry
from turnout.pieces.base.algorithm import Algorithm
from turnout.privacy.accounting import Windows
from turnout.record import contents, storage
from turnout.record.contents import Contents, Whole

RELEASES = "releases.json"


def fresh() -> str:
    """Draw a secret of 256 bits from the operating system, hexadecimal."""
    return secrets.token_hex(32)


def first(algorithm: Algorithm) -> dict[str, Any]:
    """Return what the journal has of the noise of a run when it begins: a secret, and what is searched for it."""
    if algorithm.privacy is None:
        return {}
    searched = algorithm.aggregation.search()
    return {"secret": fresh()} | ({} if searched is None else {"searched": searched})


@dataclass(frozen=True)
class Noise:
    """Secret and history that the noise of a server follows from.

    Attributes:
        secret: of all releases since the last start, hexadecimal; None where nothing is noised.
        entry: number of the journal's entry that has the secret.
        steps: digest of the reports of all steps so far, hexadecimal.
        lost: releases of servers from whose journal this one was restored, behind the copy.
    """

    secret: str | None = None
    entry: int = 0
    steps: str = ""
    lost: Windows = ()

    def renewed(self, entry: Entry) -> Noise:
        """Take over the secret that an entry of the journal has for all later releases, and what it says of lost ones."""
        lost = tuple((int(first), int(last)) for first, last in entry.data.get("lost", self.lost))
        return replace(self, secret=entry.data.get("secret"), entry=entry.number, lost=lost)

    def after(self, reports: Report, digests: Iterable[str | None]) -> Noise:
        """Return the noise of the step that uses these reports, of which the files have these digests."""
        if self.secret is None:
            return self
        used = [reports.client.tolist(), reports.version.tolist(), sorted(name or "" for name in digests)]
        return replace(self, steps=hashlib.sha256(json.dumps([self.steps, used]).encode()).hexdigest())

    def of_answer(self, secret: str, content: str) -> int:
        """Return the secret of one noised answer alone.

        Args:
            secret: of the evaluation or query alone, hexadecimal; empty where it has none.
            content: which answer it is, and all that clients sent for it.
        """
        key = bytes.fromhex(secret + (self.secret or ""))
        if not key:
            raise ValueError("there is no secret that the noise of an answer could follow from")
        return int.from_bytes(hmac.digest(key, content.encode(), "sha256"))

    @property
    def of_step(self) -> int | None:
        """Return the secret of the last step alone; None where nothing is noised."""
        if self.secret is None:
            return None
        return int.from_bytes(hmac.digest(bytes.fromhex(self.secret), self.steps.encode(), "sha256"))


class _Made(Contents):
    """``releases.json``: the releases that a server has made."""

    run: str
    releases: Whole
    steps: str
    lost: tuple[tuple[Whole, Whole], ...]
    answers: Whole = 0


class Releases:
    """A file beside the journal that says how many releases the server has made, so that an older journal shows.

    Noised answers to evaluations and queries are counted beside the steps.

    It is written before clients can see a release, and never goes back. It is no part of a backup: one that is restored with
    the journal says nothing of what came behind the copy.

    Args:
        folder: of the run.
        run: the name of the run.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._path, self._run = folder / RELEASES, run
        self._made, self._steps, self._lost, self._answers = self._read()
        self._diverged = False

    def _read(self) -> tuple[int | None, str, Windows, int | None]:
        """Return the releases that were made, the digest of their reports, lost ones, and noised answers.

        None where that is not known.

        Raises:
            CheckpointError: for a file that cannot be read.
        """
        try:
            facts = contents.check(self._path, _Made, contents.parse(self._path.read_bytes()))
        except FileNotFoundError:
            return None, "", (), None
        except (OSError, ValueError, CheckpointError) as error:
            raise CheckpointError(
                f"{self._path} cannot be read ({error}): delete it, and all releases that are left of the run are counted "
                "as spent"
            ) from None
        if facts.run != self._run:
            return None, "", (), None
        return facts.releases, facts.steps, facts.lost, facts.answers

    def compare(self, number: int, steps: str) -> None:
        """Note whether the last release of the file is made of the reports that it was made of before."""
        self._diverged |= number == self._made and steps != self._steps

    def lost(self, number: int, lost: Windows, most: int) -> Windows:
        """Return the releases that a journal does not know.

        Args:
            number: releases that the journal knows.
            lost: the lost ones that it knows.
            most: releases that may have been made at most; all are counted where the file is missing.
        """
        made = most if self._made is None else self._made
        windows = [*lost, *self._lost]
        if made > number:
            windows.append((number, made))
        elif self._diverged:  # a report is gone that a step has used, and all steps since were taken again without it
            windows.append((0, made))
        return tuple(dict.fromkeys(windows))

    def lost_answers(self, number: int, most: int) -> int:
        """Return the noised answers that a journal does not know.

        Args:
            number: that the journal knows.
            most: that may have been made at most; all are counted where the file is missing.
        """
        return max(0, (most if self._answers is None else self._answers) - number)

    def note(self, number: int, noise: Noise, answers: int) -> None:
        """Write down how many releases and noised answers were made, and bring it to the disk."""
        facts = {
            "run": self._run, "releases": number, "steps": noise.steps, "lost": noise.lost, "answers": answers,
        }  # fmt: skip
        storage.replace_files({self._path: storage.json_writer(facts)})
