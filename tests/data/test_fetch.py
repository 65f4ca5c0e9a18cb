"""Downloads of data sets."""

import errno
import hashlib
import importlib
import io
import sys
import tarfile
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

pytest.importorskip("pooch")
pytest.importorskip("requests")

from turnout.core.checks import ConfigurationError, DataError
from turnout.data.directory import PLACES, REMOTE, RemoteFile
from turnout.data.fetch import ResumingDownloader, fetch

fetch_module = importlib.import_module("turnout.data.fetch")  # the package has a function of this name
CONTENT = bytes(range(256)) * 2000


class Server(ThreadingHTTPServer):
    """Serves `files`; the next `breaks` answers stop in the middle; knows ranges or not; logs (path, range)."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.log: list[tuple[str, str | None]] = []
        self.breaks, self.ranges = 0, True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(BaseHTTPRequestHandler):
    server: Server  # type: ignore[assignment]

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.server.log.append((self.path, wanted))
        body = self.server.files.get(self.path.lstrip("/"))
        if body is None:
            return self.send_error(404)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.server.ranges else 0
        if start and start >= len(body):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        if self.server.breaks:
            self.server.breaks -= 1
            body = body[: (start + len(body)) // 2]
        self.wfile.write(body[start:])
        return None

    def log_message(self, format, *args):
        del format, args


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(fetch_module, "RETRIES", 0)
    server = Server()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def offer(server, monkeypatch):
    """Put a file on the server and in the registry, as the data set "toy"."""

    def put(content: bytes = CONTENT, checksum: str | None = None, members=()) -> RemoteFile:
        server.files["toy.bin"] = content
        checksum = checksum or hashlib.sha256(content).hexdigest()
        file = RemoteFile("Toy/raw/toy.bin", server.url + "toy.bin", checksum, tuple(members))
        monkeypatch.setitem(REMOTE, "toy", (file,))
        return file

    return put


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_downloaded_file_is_complete_without_leftovers(offer, tmp_path):
    offer()
    assert fetch("toy", tmp_path) == tmp_path / "Toy" / "raw"
    assert (tmp_path / "Toy/raw/toy.bin").read_bytes() == CONTENT
    assert files(tmp_path) == {"Toy/raw/toy.bin"}


def test_existing_files_are_not_downloaded_again(offer, server, tmp_path):
    offer()
    fetch("toy", tmp_path)
    fetch("toy", tmp_path)
    assert len(server.log) == 1
    fetch("toy", tmp_path, force=True)
    assert len(server.log) == 2


def test_damaged_file_is_replaced(offer, tmp_path):
    offer()
    path = fetch("toy", tmp_path) / "toy.bin"
    path.write_bytes(CONTENT[:-1] + b"?")
    fetch("toy", tmp_path)
    assert path.read_bytes() == CONTENT


def test_interrupted_download_resumes(offer, server, tmp_path):
    offer()
    server.breaks = 1
    with pytest.raises(
        DataError, match=r"toy: the download of .* stopped: .*`turnout data fetch toy` to go on"
    ) as error:
        fetch("toy", tmp_path)
    part = tmp_path / "Toy/raw/toy.bin.part"
    arrived = part.stat().st_size
    assert 0 < arrived < len(CONTENT)
    assert f"the {arrived:,} bytes that arrived are kept in {part}" in str(error.value)
    fetch("toy", tmp_path)
    assert server.log == [("/toy.bin", None), ("/toy.bin", f"bytes={arrived}-")]
    assert (tmp_path / "Toy/raw/toy.bin").read_bytes() == CONTENT
    assert files(tmp_path) == {"Toy/raw/toy.bin"}


def test_interrupted_download_is_retried(offer, server, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch_module, "RETRIES", 1)
    monkeypatch.setattr("time.sleep", lambda _: None)
    offer()
    server.breaks = 1
    fetch("toy", tmp_path)
    assert server.log[1][1] is not None
    assert (tmp_path / "Toy/raw/toy.bin").read_bytes() == CONTENT


def test_download_restarts_if_the_server_lacks_ranges(offer, server, tmp_path):
    offer()
    server.breaks, server.ranges = 1, False
    with pytest.raises(DataError, match="stopped"):
        fetch("toy", tmp_path)
    fetch("toy", tmp_path)
    assert (tmp_path / "Toy/raw/toy.bin").read_bytes() == CONTENT


def test_complete_part_is_only_renamed(offer, tmp_path):
    offer()
    (tmp_path / "Toy/raw").mkdir(parents=True)
    (tmp_path / "Toy/raw/toy.bin.part").write_bytes(CONTENT)
    fetch("toy", tmp_path)
    assert (tmp_path / "Toy/raw/toy.bin").read_bytes() == CONTENT


def test_force_discards_partial_files(offer, server, tmp_path):
    offer()
    (tmp_path / "Toy/raw").mkdir(parents=True)
    (tmp_path / "Toy/raw/toy.bin.part").write_bytes(b"another version")
    fetch("toy", tmp_path, force=True)
    assert server.log == [("/toy.bin", None)]


def test_wrong_checksum_is_refused_and_the_file_deleted(offer, tmp_path):
    offer(checksum="0" * 64)
    with pytest.raises(DataError, match=r"does not have its checksum, 000.*, so it was thrown away.*fetch toy`"):
        fetch("toy", tmp_path)
    assert files(tmp_path) == set()


def test_part_of_another_version_is_not_resumed(offer, tmp_path):
    offer()
    (tmp_path / "Toy/raw").mkdir(parents=True)
    (tmp_path / "Toy/raw/toy.bin.part").write_bytes(b"?" * 1000)
    with pytest.raises(DataError, match="checksum"):
        fetch("toy", tmp_path)
    fetch("toy", tmp_path)  # the next attempt starts from nothing
    assert (tmp_path / "Toy/raw/toy.bin").read_bytes() == CONTENT


def test_missing_file_on_the_server_is_reported(offer, server, tmp_path):
    offer()
    server.files.clear()
    with pytest.raises(DataError, match="stopped: HTTPError: 404"):
        fetch("toy", tmp_path)


def test_full_disk_keeps_the_partial_file(offer, tmp_path, monkeypatch):
    offer()

    def full(self, *_):
        self.part.write_bytes(CONTENT[:5000])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ResumingDownloader, "__call__", full)
        with pytest.raises(DataError, match=r"the disk is full \(.* MiB left\); the 5,000 bytes that arrived are kept"):
            fetch("toy", tmp_path)
    fetch("toy", tmp_path)
    assert (tmp_path / "Toy/raw/toy.bin").read_bytes() == CONTENT


def archive(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_only_named_members_are_extracted(offer, server, tmp_path):
    content = archive(**{"toy/one.bin": b"one", "../evil": b"evil", "toy/other": b"other", "toy/two.bin": b"two"})
    members = [(f"toy/{name}.bin", hashlib.md5(name.encode()).hexdigest()) for name in ("one", "two")]
    offer(content, members=members)
    root = tmp_path / "root"
    assert fetch("toy", root) == root / "toy"
    assert files(tmp_path) == {"root/toy/one.bin", "root/toy/two.bin"}
    fetch("toy", root)
    assert len(server.log) == 1
    (root / "toy/two.bin").write_bytes(b"TWO")
    fetch("toy", root)
    assert (root / "toy/two.bin").read_bytes() == b"two"


def test_zip_members_are_extracted_to_another_folder(server, monkeypatch, tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        for name in ("gzip/one.gz", "gzip/two.gz", "../evil"):
            zipped.writestr(name, name)
    server.files["gzip.zip"] = buffer.getvalue()
    checksum = "md5:" + hashlib.md5(buffer.getvalue()).hexdigest()
    members = (("Toy/raw/one.gz", ""), ("Toy/raw/two.gz", ""))
    file = RemoteFile("Toy/gzip.zip", server.url + "gzip.zip", checksum, members, inside="gzip")
    monkeypatch.setitem(REMOTE, "toy", (file,))
    root = tmp_path / "root"
    assert fetch("toy", root) == root / "Toy" / "raw"
    assert files(tmp_path) == {"root/Toy/raw/one.gz", "root/Toy/raw/two.gz"}
    assert (root / "Toy/raw/two.gz").read_text() == "gzip/two.gz"
    fetch("toy", root)
    assert len(server.log) == 1, "files without a checksum of their own are right where they are there"
    (root / "Toy/raw/one.gz").unlink()
    fetch("toy", root)
    assert len(server.log) == 2


def test_unknown_names_are_refused():
    with pytest.raises(ConfigurationError, match="unknown data set to fetch 'mnst': did you mean 'mnist'"):
        fetch("mnst")
    with pytest.raises(ConfigurationError, match=r"nothing to fetch for .digits., it is inside scikit-learn"):
        fetch("digits")


def test_missing_packages_are_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pooch", None)
    message = r"fetching data needs pooch, which is not installed: pip install '\.\[fetch\]'"
    with pytest.raises(ConfigurationError, match=message):
        fetch("mnist", tmp_path)


@pytest.mark.parametrize("name", [name for name in PLACES if name in REMOTE])
def test_downloaded_files_are_found_by_the_loader(name, tmp_path):
    for file in REMOTE[name]:
        for path in [path for path, _ in file.members] or [file.path]:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).touch()
    assert all(place.find(tmp_path) for place in PLACES[name])


@pytest.mark.parametrize("name", REMOTE)
def test_local_files_match_registered_checksums(name):
    from turnout.data.directory import data_directory

    here = [file for file in REMOTE[name] if (data_directory() / file.path).is_file()]
    if not here:
        pytest.skip(f"{name} is not here: set TURNOUT_DATA")
    for file in here:
        kind, _, digest = file.checksum.rpartition(":")
        assert hashlib.new(kind or "sha256", (data_directory() / file.path).read_bytes()).hexdigest() == digest
