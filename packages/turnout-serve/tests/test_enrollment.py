"""A one-time code makes one client, also where two newcomers use it at the same moment."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from turnout.core.checks import CheckpointError
from turnout_serve.server.enrollment import Enrollment
from turnout_serve.server.journal.entries import Entry
from turnout_serve.server.journal.events import Event
from turnout_serve.server.process import new_codes
from turnout_serve.server.store.store import Store
from turnout_serve.wire.administrator import TOKEN_FILE, VARIABLE, read_token, server_token


def enrollment(codes: dict[str, int | None]) -> Enrollment:
    store: Any = SimpleNamespace(facts=SimpleNamespace(run="r"), clients=dict, codes=lambda: codes)
    return Enrollment(store, max_clients=5, needs_code=True, over=lambda: None, most_numbers=9)


def asks(token: str, code: str | None) -> Event:
    return Event("enrol", digest=token, data={} if code is None else {"code": code})


def test_two_enrollments_in_one_group_cannot_share_a_code() -> None:
    made, batch = enrollment({"a": None, "b": None}), set[str]()
    assert made.admit(asks("one", "a"), batch) is None
    refused = made.admit(asks("two", "a"), batch)
    assert refused is not None
    assert refused.status == 403
    assert made.admit(asks("three", "b"), batch) is None
    assert len(made) == 2


def test_used_unknown_and_missing_codes_are_refused() -> None:
    made = enrollment({"used": 0, "free": None})
    for code in ("used", "unknown", None):
        refused = made.admit(asks(f"token of {code}", code), set())
        assert refused is not None
        assert refused.status == 403
        assert refused.body["reason"] == "this needs an unused one-time code: ask the operator of the server"
    assert not len(made)


def test_used_code_is_marked_in_the_database(folder: Path) -> None:
    """The other codes stay valid, also after a restart."""
    store = Store(folder)
    store.add_codes(["a", "b", "c"])
    store.commit([Entry(1, 0.0, 0.0, "enrol", 0, digest="token", data={"code": "b"})])
    assert store.codes() == {"a": None, "b": 0, "c": None}
    store.close()
    again = Store(folder)
    made = Enrollment(again, max_clients=5, needs_code=True, over=lambda: None, most_numbers=9)
    assert [made.admit(asks(f"token of {code}", code), set()) is None for code in "abc"] == [True, False, True]
    again.close()


def test_codes_file_is_private_and_never_a_link(tmp_path: Path) -> None:
    """An attacker who may write in the parent folder creates the folder first, with a `codes.txt` of its own."""
    mine, path = tmp_path / "mine", tmp_path / "run" / "codes.txt"
    mine.write_text("mine")
    path.parent.mkdir()
    store: Any = SimpleNamespace(folder=path.parent, codes=dict, add_codes=lambda _: None)
    options: Any = SimpleNamespace(enrollment="codes", max_clients=3)
    for make in (lambda: path.symlink_to(mine), path.touch):
        path.unlink(missing_ok=True)
        make()
        codes = new_codes(store, options)
        assert path.read_text().split() == codes
        assert path.stat().st_mode & 0o077 == 0 or os.name == "nt"
        assert not path.is_symlink()
    assert mine.read_text() == "mine"


def test_folder_with_linked_folders_is_refused(folder: Path) -> None:
    """A folder from an attacker has links where a server deletes files that it does not need."""
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.txt").write_text("mine")
    for name in ("models", "reports", "incoming", "anchors", "exports"):
        run = folder / name
        run.mkdir()
        (run / name).symlink_to(folder / "mine")
        with pytest.raises(CheckpointError, match=rf"{name} is a link, and a server deletes the files there"):
            Store(run)
    store = Store(folder / "run")
    (folder / "run" / "models" / "next.part").symlink_to(folder / "mine" / "thesis.txt")
    store.files.write_model({"params": torch.zeros(3)})
    store.close()
    assert (folder / "mine" / "thesis.txt").read_text() == "mine"


def test_tokens_of_administrators_are_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is killed in the midst of it starts again, and nobody else can read them."""
    monkeypatch.delenv(VARIABLE, raising=False)

    def dies(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(Path, "write_text", dies)
        with pytest.raises(KeyboardInterrupt):
            server_token(tmp_path)
    token = server_token(tmp_path)
    assert read_token(tmp_path / TOKEN_FILE) == token == server_token(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [TOKEN_FILE]
    assert (tmp_path / TOKEN_FILE).stat().st_mode & 0o077 == 0 or os.name == "nt"


@pytest.mark.parametrize("most_numbers", [3, 2])
def test_removed_client_gives_back_its_place(most_numbers: int) -> None:
    """Its number is not used again, so where there can be no more numbers, neither is its place."""
    store: Any = SimpleNamespace(facts=SimpleNamespace(run="r"), clients=dict, codes=dict)
    made = Enrollment(store, max_clients=2, needs_code=False, over=lambda: None, most_numbers=most_numbers)
    assert [made.admit(asks(token, None), set()) for token in ("one", "two")] == [None, None]
    full = made.admit(asks("three", None), set())
    assert full is not None
    assert (full.status, full.body["reason"]) == (403, "this federation has its 2 clients")
    made.forget(0)
    event = asks("three", None)
    if most_numbers == 3:
        assert made.admit(event, set()) is None
        assert event.client == 2
    assert made.admit(asks("four", None), set()) is not None
