"""A one-time code makes one client, also where two newcomers use it at the same moment."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from turnout.deployment.server.enrolment import Enrolment
from turnout.deployment.server.entries import Entry
from turnout.deployment.server.event import Event
from turnout.deployment.server.process import new_codes
from turnout.deployment.server.store import Store


def enrolment(codes: dict[str, int | None]) -> Enrolment:
    store: Any = SimpleNamespace(facts=SimpleNamespace(run="r"), clients=dict, codes=lambda: codes)
    return Enrolment(store, max_clients=5, needs_code=True, over=lambda: None)


def asks(token: str, code: str | None) -> Event:
    return Event("enrol", digest=token, data={} if code is None else {"code": code})


def test_two_newcomers_of_one_batch_cannot_share_a_code() -> None:
    made, batch = enrolment({"a": None, "b": None}), set[str]()
    assert made.admit(asks("one", "a"), batch) is None
    refused = made.admit(asks("two", "a"), batch)
    assert refused is not None
    assert refused.status == 403
    assert made.admit(asks("three", "b"), batch) is None
    assert len(made) == 2


def test_codes_that_are_used_or_unknown_or_missing_are_refused() -> None:
    made = enrolment({"used": 0, "free": None})
    for code in ("used", "unknown", None):
        refused = made.admit(asks(f"token of {code}", code), set())
        assert refused is not None
        assert refused.status == 403
        assert refused.body["reason"] == "this needs an unused one-time code: ask the operator of the server"
    assert not len(made)


def test_the_code_that_a_client_used_is_the_one_that_is_marked(folder: Path) -> None:
    """The others make clients as before, also in a server that is started again."""
    store = Store(folder)
    store.add_codes(["a", "b", "c"])
    store.commit([Entry(1, 0.0, 0.0, "enrol", 0, digest="token", data={"code": "b"})])
    assert store.codes() == {"a": None, "b": 0, "c": None}
    store.close()
    again = Store(folder)
    made = Enrolment(again, max_clients=5, needs_code=True, over=lambda: None)
    assert [made.admit(asks(f"token of {code}", code), set()) is None for code in "abc"] == [True, False, True]
    again.close()


def test_codes_go_neither_through_a_link_nor_to_a_file_that_others_can_read(tmp_path: Path) -> None:
    """The attack: whoever may write in the parent makes the folder first, with a `codes.txt` of their own."""
    mine, path = tmp_path / "mine", tmp_path / "run" / "codes.txt"
    mine.write_text("mine")
    path.parent.mkdir()
    store: Any = SimpleNamespace(folder=path.parent, codes=dict, add_codes=lambda _: None)
    options: Any = SimpleNamespace(enrolment="codes", max_clients=3)
    for make in (lambda: path.symlink_to(mine), path.touch):
        path.unlink(missing_ok=True)
        make()
        codes = new_codes(store, options)
        assert path.read_text().split() == codes
        assert path.stat().st_mode & 0o077 == 0 or os.name == "nt"
        assert not path.is_symlink()
    assert mine.read_text() == "mine"
