"""Download data sets, with checksums, resumption and a progress bar."""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from turnout.core.checks import ConfigurationError, DataError, known_name
from turnout.core.extras import imported
from turnout.data.directory import ELSEWHERE, REMOTE, RemoteFile, data_directory

RETRIES = 2
"""The number of retries of an interrupted download."""


def fetch(
    name: str, directory: str | os.PathLike[str] | None = None, *, force: bool = False, progress: bool = True
) -> Path:
    """Download a data set into the data directory, and return the folder of its files.

    Existing files with the correct checksum are kept. An interrupted download leaves ``FILE.part``, from which the next call
    resumes. Every file is verified before it gets its final name.

    Args:
        name: mnist, fashion_mnist, emnist, qmnist, mnist_by_writer, cifar10, cifar100, svhn or shakespeare.
        directory: the data directory; None is that of `turnout.data.directory.data_directory`.
        force: download existing files again, from the beginning.
        progress: show a progress bar on a terminal.

    Raises:
        ConfigurationError: if a name is unknown, or if the libraries for downloads are not installed.
        DataError: if a download fails or has the wrong checksum, or the disk is full, with a remedy.
    """
    if name in ELSEWHERE:
        raise ConfigurationError(f"there is nothing to fetch for {name!r}, it is {ELSEWHERE[name]}")
    known_name("data set to fetch", name, REMOTE)
    pooch, *_ = (imported(package, "fetching data", ".[fetch]") for package in ("pooch", "requests", "tqdm"))
    pooch.get_logger().setLevel("WARNING")  # its messages repeat the progress bar
    root = data_directory(directory)
    paths = [path for file in REMOTE[name] for path in _fetch_file(name, file, root, force, progress)]
    return Path(os.path.commonpath([path.parent for path in paths]))


def _fetch_file(name: str, file: RemoteFile, root: Path, force: bool, progress: bool) -> list[Path]:
    """Download a file unless it is there, extract its members, and return the paths of what remains."""
    archive = root / file.path
    paths = [root / path for path, _ in file.members] or [archive]
    if force:
        for path in (archive, _part(archive), *paths):
            path.unlink(missing_ok=True)
    if file.members and all(_has_md5(root / path, md5) for path, md5 in file.members):
        return paths
    try:
        _download(name, file, root, progress)
        if file.members:
            _extract(file, root)
    except OSError as error:  # requests' exceptions descend from it
        raise _stopped(name, file, root, error) from error
    return paths


@dataclass(frozen=True)
class ResumingDownloader:
    """A downloader for pooch that resumes from `part` with HTTP range requests (RFC 9110 section 14).

    If a server does not support ranges, the download starts again.
    """

    part: Path
    progress: bool = True

    def __call__(self, url: str, output_file: str, _: object = None) -> None:
        """Download `url`, and move the file to `output_file`, where pooch verifies it."""
        import requests
        from tqdm import tqdm

        have = self.part.stat().st_size if self.part.exists() else 0
        # Without "identity" a server may compress the response, and ranges would refer to compressed bytes.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=30) as response:
            if response.status_code != requests.codes.requested_range_not_satisfiable:  # else the file is complete
                response.raise_for_status()
                resumed = response.status_code == requests.codes.partial_content
                start = have if resumed else 0
                size = int(response.headers.get("Content-Length", 0)) + start
                bar = tqdm(
                    desc=url.rsplit("/", 1)[-1],
                    initial=start,
                    total=size or None,
                    unit="B",
                    unit_scale=True,
                    disable=None if self.progress else True,  # None: only on a terminal
                )
                with bar, self.part.open("ab" if resumed else "wb") as file:
                    for chunk in response.iter_content(chunk_size=1 << 16):
                        file.write(chunk)
                        bar.update(len(chunk))
        self.part.replace(output_file)


def _download(name: str, file: RemoteFile, root: Path, progress: bool) -> None:
    import pooch

    target = root / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    shelf = pooch.create(
        root, "", registry={file.path: file.checksum}, urls={file.path: file.url}, retry_if_failed=RETRIES
    )
    try:
        downloader: Any = ResumingDownloader(_part(target), progress)
        shelf.fetch(file.path, downloader=downloader)
    except OSError:
        raise  # a few of requests' exceptions are ValueErrors as well
    except ValueError as error:  # what pooch raises for a wrong checksum
        raise DataError(
            f"{file.path} from {file.url} does not have its checksum, {file.checksum}, so it was thrown away. Write "
            f"`turnout data fetch {name}` to try again; if that does not help, what the server sends has changed"
        ) from error


def _extract(file: RemoteFile, root: Path) -> None:
    """Extract the members of a verified archive to fixed paths, then remove the archive."""
    archive_path = root / file.path
    with _opened(archive_path) as read:
        for path, _ in file.members:
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            member = read(f"{file.inside}/{target.name}" if file.inside else path)
            assert member is not None  # the archive was verified, so the member is a regular file
            with member, _part(target).open("wb") as out:
                shutil.copyfileobj(member, out)
            _part(target).replace(target)
    archive_path.unlink()


@contextmanager
def _opened(path: Path) -> Iterator[Callable[[str], IO[bytes] | None]]:
    """Yield a function that opens a member of an archive by its name."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield archive.open
    else:
        with tarfile.open(path) as archive:
            yield archive.extractfile


def _has_md5(path: Path, md5: str) -> bool:
    import pooch

    return path.is_file() and (not md5 or pooch.file_hash(str(path), alg="md5") == md5)


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _stopped(name: str, file: RemoteFile, root: Path, error: OSError) -> DataError:
    reason = f"{type(error).__name__}: {error}"
    if error.errno == errno.ENOSPC:
        reason = f"the disk is full ({root} has {shutil.disk_usage(root).free >> 20:,} MiB left)"
    part = _part(root / file.path)
    arrived = f"; the {part.stat().st_size:,} bytes that arrived are kept in {part}" if part.exists() else ""
    return DataError(
        f"{name}: the download of {file.url} stopped: {reason}{arrived}. Write `turnout data fetch {name}` to go on"
    )
