"""Derive the noise of a server from secrets, and count releases that a journal does not know.

Two different sums with the same noise reveal their difference. So the noise of a release depends on a secret that is drawn at
every start of a server, and on the reports of this and all earlier steps. A server that continues from a copy of a journal
thus adds other noise than the original server, and so does a copy of a process.
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

from turnout.base.algorithm import Algorithm
from turnout.core.checks import CheckpointError
from turnout.core.types import Report
from turnout.privacy.accounting import Windows
from turnout.record import contents, storage
from turnout.record.contents import Contents, Whole
from turnout_serve.server.journal.entries import Entry

RELEASES = "releases.json"


def fresh() -> str:
    """Draw a secret of 256 bits from the operating system, hexadecimal."""
    return secrets.token_hex(32)


def first(algorithm: Algorithm) -> dict[str, Any]:
    """Return the fields of the start of a run: a secret, and the correlation that was searched for its noise."""
    if (plan := algorithm.privacy) is None:
        return {}
    searched = plan.search()
    return {"secret": fresh()} | ({} if searched is None else {"searched": searched})


@dataclass(frozen=True)
class Noise:
    """Secret and history that the noise of a server follows from.

    Attributes:
        secret: secret of all releases since the last start of the server, hexadecimal; None without noise.
        entry: number of the entry that has the secret.
        steps: digest of the reports of all steps so far, hexadecimal.
        lost: releases of the original server, after the copy of its journal that this one was restored from.
    """

    secret: str | None = None
    entry: int = 0
    steps: str = ""
    lost: Windows = ()

    def renewed(self, entry: Entry) -> Noise:
        """Return the noise of all later releases: with the secret, and the lost releases, of an entry."""
        lost = tuple((int(first), int(last)) for first, last in entry.data.get("lost", self.lost))
        return replace(self, secret=entry.data.get("secret"), entry=entry.number, lost=lost)

    def after(self, reports: Report, digests: Iterable[str | None]) -> Noise:
        """Return the noise of the step that uses these reports, whose files have these digests."""
        if self.secret is None:
            return self
        used = [reports.client.tolist(), reports.version.tolist(), sorted(name or "" for name in digests)]
        return replace(self, steps=hashlib.sha256(json.dumps([self.steps, used]).encode()).hexdigest())

    def of_answer(self, secret: str, content: str) -> int:
        """Return the secret of one noised answer.

        Args:
            secret: secret of this evaluation or query, hexadecimal; empty where it has none.
            content: number of the answer, and all messages of clients.
        """
        key = bytes.fromhex(secret + (self.secret or ""))
        if not key:
            raise ValueError("there is no secret to derive the noise of an answer from")
        return int.from_bytes(hmac.digest(key, content.encode(), "sha256"))

    @property
    def of_step(self) -> int | None:
        """Secret of the last step; None without noise."""
        if self.secret is None:
            return None
        return int.from_bytes(hmac.digest(bytes.fromhex(self.secret), self.steps.encode(), "sha256"))


class _Made(Contents):
    """Contents of ``releases.json``."""

    run: str
    releases: Whole
    steps: str
    lost: tuple[tuple[Whole, Whole], ...]
    answers: Whole = 0


class Releases:
    """Count releases in a file beside the journal, which reveals a journal that was restored from an older copy.

    The file counts server steps, and noised answers to evaluations and queries. It is written before clients can see a
    release, and what it counts as spent never becomes less. It must not be part of a backup: restored together with the
    journal, it would not reveal the releases after the copy.

    Args:
        folder: folder of the run.
        run: the name of the run.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._path, self._run = folder / RELEASES, run
        self._made = self._read()
        self._diverged = False

    def _read(self) -> _Made | None:
        """Return the contents of the file; None where it does not exist, or is of another run.

        Raises:
            CheckpointError: if a file cannot be read.
        """
        try:
            made = contents.check(self._path, _Made, contents.parse(contents.read_text(self._path)))
        except FileNotFoundError:
            return None
        except OSError as error:  # deleting it would spend the whole budget
            raise contents.Unreadable.of(self._path, error) from error
        except (ValueError, CheckpointError) as error:
            raise CheckpointError(
                f"{self._path} is damaged ({error}): delete it, and all remaining releases of the run are counted "
                "as spent"
            ) from None
        return made if made.run == self._run else None

    def compare(self, number: int, steps: str) -> None:
        """Compare the reports of a replayed step with those of the last release in the file."""
        made = self._made
        self._diverged |= made is not None and number == made.releases and steps != made.steps

    def lost(self, number: int, lost: Windows, most: int) -> Windows:
        """Return the releases that a journal does not know.

        Args:
            number: releases in the journal.
            lost: lost releases in the journal.
            most: maximum number of releases, all of which are counted where the file is missing.
        """
        made, known = (most, ()) if self._made is None else (self._made.releases, self._made.lost)
        windows = [*lost, *known]
        if made > number:
            windows.append((number, made))
        elif self._diverged:  # a report of a step is missing, so that all steps since were taken again without it
            windows.append((0, made))
        return tuple(dict.fromkeys(windows))

    def lost_answers(self, number: int, most: int) -> int:
        """Return the noised answers that a journal does not know.

        Args:
            number: noised answers in the journal.
            most: maximum number of noised answers, all of which are counted where the file is missing.
        """
        return max(0, (most if self._made is None else self._made.answers) - number)

    def note(self, number: int, noise: Noise, answers: int) -> None:
        """Write the numbers of releases and noised answers to the disk."""
        facts = {
            "run": self._run, "releases": number, "steps": noise.steps, "lost": noise.lost, "answers": answers,
        }  # fmt: skip
        storage.replace_files({self._path: storage.json_writer(facts)})
