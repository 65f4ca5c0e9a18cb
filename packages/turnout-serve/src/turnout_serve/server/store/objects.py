"""Models and reports of a run in an object store, which clients reach by presigned links."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from turnout.core.checks import ConfigurationError
from turnout.core.system import move
from turnout.core.types import State
from turnout_serve.server.store.database import StoreUnavailable, first_line
from turnout_serve.server.store.files import Files
from turnout_serve.server.verdicts import Refused

try:
    import obstore
    from obstore import exceptions
    from obstore.store import from_url
except ModuleNotFoundError as error:
    raise ConfigurationError("an object store needs obstore: pip install 'turnout-serve[store]'") from error

DIRECT = 256 * 1024
"""Bytes from which on a client gets links: a smaller body costs less than further requests."""
_LIFETIME = timedelta(hours=1)  # of a link; the state of a task has a new one
_INCOMING, _CHECKING, _MODELS, _REPORTS = "incoming", "checking", "models", "reports"


class Objects(Files):
    """The models and reports of a run in an object store, with copies in the folder of those in use.

    An upload has three names in turn. ``incoming/CLIENT`` is the target of a client's links, which work after its lease has
    ended, too. A store limits neither the size nor the number of uploads to a link, so all tasks of a client share this
    name: a client that fills every link occupies one object. ``checking/...`` is a copy that no link leads to, so it cannot
    change while and after it is checked. A report that passes is copied to ``reports/DIGEST.safetensors`` before the journal
    names it; a server that dies in between leaves an object that nothing refers to, and loses none.

    Args:
        folder, until_done, read_only: as for `Files`.
        url: URL of the store, such as ``s3://BUCKET/PREFIX``. Credentials come from the environment.

    Raises:
        ConfigurationError: if the store cannot be used, or has no presigned links.
    """

    takes_uploads = True

    def __init__(
        self, folder: Path, until_done: Callable[[Callable[[], object]], None], url: str, read_only: bool = False
    ) -> None:
        try:
            self._objects: Any = from_url(url)
            self.link("GET", "probe")
            if not read_only:
                obstore.put(self._objects, "probe", b"")
        except (exceptions.BaseError, OSError, ValueError, TypeError) as error:
            raise ConfigurationError(f"store: {url} cannot be used: {first_line(error)}") from None
        super().__init__(folder, until_done, read_only)

    def link(self, method: str, name: str) -> str:
        """Return a presigned link, which allows one method on one object for an hour."""
        return obstore.sign(self._objects, method, name, _LIFETIME)  # type: ignore[arg-type]

    def links(self, client: int, model: str, size: int, limit: int) -> dict[str, str]:
        """Return the links of a task: to its model of `size` bytes, and for its report of at most `limit` bytes."""
        links = {"model": self.link("GET", f"{_MODELS}/{model}.safetensors")} if model and size >= DIRECT else {}
        return links | ({"report": self.link("PUT", _upload(client))} if limit >= DIRECT else {})

    def write_model(self, tensors: State) -> tuple[str, int]:
        """Write a model to the folder and the store; return its digest and size."""
        digest, size = super().write_model(tensors)
        if not self.read_only:
            self._until_done(lambda: self._put(f"{_MODELS}/{digest}.safetensors", self.model(digest)))
        return digest, size

    def keep_models(self, digests: Container[str]) -> None:
        """Delete all models but these."""
        super().keep_models(digests)
        if not self.read_only:
            self._delete(_MODELS, lambda name: Path(name).stem not in digests)

    def keep_reports(self, digests: Container[str]) -> None:
        """Delete all reports but these."""
        super().keep_reports(digests)
        self._delete(_REPORTS, lambda name: Path(name).stem not in digests)

    def has_reports(self) -> bool:
        """Return whether there is any report."""
        answers = [super().has_reports()]

        def look() -> None:
            with _available():
                answers.append(any(obstore.list(self._objects, _REPORTS)))

        if not any(answers):
            self._until_done(look)
        return any(answers)

    def receive(self, client: int, task: int, digest: str, length: int) -> Path:
        """Copy a client's upload to where no link leads, verify its digest, and return a copy in the folder.

        Raises:
            Refused: if there is no upload, or another one than was announced.
            StoreUnavailable: if the store does not answer now.
        """
        part = self.incoming / f"{client}-{task}-{digest}-{secrets.token_hex(8)}.part"
        checking = f"{_CHECKING}/{part.name}"
        try:
            with _available():
                # Before the copy, so that an upload that is too large is not copied; and after it, when it cannot change.
                self._check_size(_upload(client), length)
                obstore.copy(self._objects, _upload(client), checking)
                self._check_size(checking, length)
                if self._read(checking, part) != digest:
                    raise Refused(409, "the report was damaged on its way", offset=0)
        except BaseException as error:
            part.unlink(missing_ok=True)
            self._forget(checking)
            if isinstance(error, FileNotFoundError):
                raise Refused(409, "there is no upload of this report", offset=0) from None
            raise
        return part

    def _check_size(self, name: str, length: int) -> None:
        """Check the size of an upload against the announced one, without reading it."""
        size = obstore.head(self._objects, name)["size"]
        if size != length:
            raise Refused(409, f"the upload has {size:,} bytes, and {length:,} were announced", offset=0)

    def admit(self, part: Path, digest: str) -> None:
        """Copy a checked report to the name by which the journal refers to it.

        Raises:
            StoreUnavailable: if the store does not answer now.
        """
        with _available():
            try:
                obstore.copy(self._objects, f"{_CHECKING}/{part.name}", f"{_REPORTS}/{digest}.safetensors")
            except FileNotFoundError:  # it was sent to the server
                obstore.put(self._objects, f"{_REPORTS}/{digest}.safetensors", part)

    def discard(self, part: Path, client: int) -> None:
        """Delete the rest of an upload; the next start deletes what cannot be deleted now."""
        self._forget(f"{_CHECKING}/{part.name}", _upload(client))

    def clear_incoming(self, tasks: Mapping[str, str]) -> None:
        """Delete all uploads but those for these tasks."""
        super().clear_incoming(tasks)
        self._delete(_CHECKING, lambda _: True)
        clients = set(tasks.values())
        self._delete(_INCOMING, lambda name: Path(name).name not in clients)

    def release(self, digests: Iterable[str]) -> None:
        """Delete the copies of reports that later steps do not read."""
        with suppress(OSError):  # a later start deletes what cannot be deleted now
            for digest in digests:
                self.report(digest).unlink(missing_ok=True)

    def _fetched(self, digest: str) -> Path:
        """Return the path of a report, after copying it from the store if the folder has none."""
        path = self.report(digest)

        def fetch() -> None:
            part = path.with_suffix(".part")
            part.unlink(missing_ok=True)  # it may be a link to another file, in a folder from elsewhere
            with suppress(FileNotFoundError), _available():
                self._read(f"{_REPORTS}/{path.name}", part)
                move(part, path)

        if not path.exists():
            self._until_done(fetch)
        return path

    def _put(self, name: str, path: Path) -> None:
        with _available():
            try:
                obstore.head(self._objects, name)
            except FileNotFoundError:
                obstore.put(self._objects, name, path)

    def _read(self, name: str, path: Path) -> str:
        """Stream an object into a file, and return its digest."""
        hashed = hashlib.sha256()
        with path.open("wb") as file:
            for piece in obstore.get(self._objects, name).stream():
                file.write(piece)
                hashed.update(piece)
        return hashed.hexdigest()

    def _forget(self, *names: str) -> None:
        with suppress(exceptions.BaseError, OSError):
            obstore.delete(self._objects, names)

    def _delete(self, folder: str, chosen: Callable[[str], bool]) -> None:
        """Delete chosen objects of a folder; a later call deletes what cannot be deleted now."""
        with suppress(exceptions.BaseError, OSError):
            for page in obstore.list(self._objects, folder):
                if names := [item["path"] for item in page if chosen(item["path"])]:
                    obstore.delete(self._objects, names)


def _upload(client: int) -> str:
    return f"{_INCOMING}/{client}"


@contextmanager
def _available() -> Iterator[None]:
    """Turn errors of the store, which may be temporary, into `StoreUnavailable`."""
    try:
        yield
    except exceptions.BaseError as error:
        raise StoreUnavailable(f"the object store cannot be used now: {first_line(error)}") from error
