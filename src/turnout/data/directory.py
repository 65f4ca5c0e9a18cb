"""Locate the files of data sets on this machine. Loading data never downloads."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

from turnout.core.checks import DataError


def data_directory(directory: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of data sets: `directory`, else the variable TURNOUT_DATA, else ``~/.cache/turnout/data``."""
    return Path(directory or os.environ.get("TURNOUT_DATA") or "~/.cache/turnout/data").expanduser()


@dataclass(frozen=True)
class RemoteFile:
    """A file to download.

    Attributes:
        path: target, relative to the data directory.
        url: URL of the download.
        checksum: SHA-256, or ``"md5:..."``.
        members: for a tar or zip archive: (path in the archive and in the data directory, MD5) of each file to extract.
            With an empty MD5 an existing file is not checked.
        inside: folder of the members in the archive, if it differs from that in the data directory.
    """

    path: str
    url: str
    checksum: str
    members: tuple[tuple[str, str], ...] = ()
    inside: str = ""


def _remote_files() -> dict[str, tuple[RemoteFile, ...]]:
    """Read the files of ``downloads.toml`` by data set."""
    tables = tomllib.loads(Path(__file__).with_name("downloads.toml").read_text("utf-8"))
    remote: dict[str, tuple[RemoteFile, ...]] = {}
    for name, table in tables.items():
        folder, base = table["folder"], table["base"]
        files = [RemoteFile(f"{folder}/{file}", base + file, sha) for file, sha in table.get("files", {}).items()]
        if archive := table.get("archive"):
            members = tuple((f"{folder}/{file}", md5) for file, md5 in table["members"].items())
            url = base + archive.rpartition("/")[2]
            files.append(RemoteFile(archive, url, table["checksum"], members, table.get("inside", "")))
        remote[name] = tuple(files)
    return remote | {"mnist_by_writer": remote["mnist"] + remote["qmnist"]}


@dataclass(frozen=True)
class Place:
    """The possible locations of the files of a data set.

    Attributes:
        name: name of the data set in ``turnout data fetch``.
        files: the files that must all be in one folder; ``train/*.json`` stands for one or more.
        folders: folders to search, in order, relative to the data directory.
        bare: further folders with unspecific names, searched only under a directory that is passed as an argument, because
            other data sets have files with the same names (MNIST and Fashion-MNIST do).
        remedy: what to do if they are missing; by default, to download them.
        instead: location of the same data in another format, which is searched last.
    """

    name: str
    files: tuple[str, ...]
    folders: tuple[str, ...]
    bare: tuple[str, ...] = ()
    remedy: str = ""
    instead: Place | None = None

    def candidates(self, directory: str | os.PathLike[str] | None = None) -> list[Path]:
        """Return the folders to search, in order."""
        root = data_directory(directory)
        return [root / folder for folder in self.folders + (self.bare if directory else ())]

    def find(self, directory: str | os.PathLike[str] | None = None) -> Path | None:
        """Return the first folder with all files, in this format or `instead`, or None."""
        for folder in self.candidates(directory):
            if not self._missing(folder):
                return folder
        return None if self.instead is None else self.instead.find(directory)

    def locate(self, directory: str | os.PathLike[str] | None = None) -> Path:
        """Return the first folder with all files.

        Raises:
            DataError: if there is none, with the searched folders and a remedy.
        """
        if (folder := self.find(directory)) is not None:
            return folder
        places = []
        for folder in self.candidates(directory):
            missing = self._missing(folder)
            lacks = f" (lacks {_listed(missing)})" if len(missing) < len(self.files) else ""
            places.append(f"{folder}{lacks}")
        if self.instead is not None:
            places += map(str, self.instead.candidates(directory))
        remedy = self.remedy or f"Write `turnout data fetch {self.name}` to download it"
        raise DataError(
            f"{self.name}: no folder holds {_listed(list(self.files))}; looked in {', '.join(places)}. {remedy}, or set "
            f"TURNOUT_DATA=FOLDER (or directory=) to a folder that holds {self.folders[0]}"
        )

    def _missing(self, folder: Path) -> list[str]:
        """Return the files that are not in a folder."""
        return [file for file in self.files if not any(path.is_file() for path in folder.glob(file))]

    def damaged(self, path: Path, *, found: str, expected: str) -> DataError:
        """Return the error for a damaged file."""
        return DataError(
            f"{path}: found {found}, expected {expected}. Replace it: `turnout data fetch {self.name} --force`"
        )


PLACES: dict[str, tuple[Place, ...]] = {}
"""The locations of the files of each data set, by name."""

REMOTE = _remote_files()
"""The files that ``turnout data fetch`` can download, by data set."""

ELSEWHERE: dict[str, str] = {}
"""The origin of data sets that ``turnout data fetch`` cannot download, by name."""


def declare(name: str, *places: Place, elsewhere: str | None = None) -> None:
    """Declare the files of a data set.

    Args:
        name: name of the data set.
        places: locations of its files.
        elsewhere: origin of a data set that cannot be downloaded, in a few words.
    """
    if places:
        PLACES[name] = places
    if elsewhere is not None:
        ELSEWHERE[name] = elsewhere


def _listed(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
