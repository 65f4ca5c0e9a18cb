"""A journal is chained: whatever is changed, removed or added afterwards, a replay says at which entry it breaks."""

import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from turnout import Experiment, Population, fedau
from turnout.core.checks import CheckpointError
from turnout.models import Mlp
from turnout.population.availability import Everyone
from turnout_serve.server.journal.entries import Entry, chained, first_link
from turnout_serve.server.journal.replay import Chain, replay

from .conftest import scratch
from .world import DATA, LOCAL, World

RUN = Experiment(DATA, Mlp(hidden=(4,)), fedau(LOCAL), Population(Everyone()), rounds=4, evaluate_every=2)
REPORT = "(select number from journal where kind = 'report' limit 1 offset 5)"


@pytest.fixture(scope="module")
def served():
    """A world after a run of four steps and a clean stop."""
    with scratch() as folder:
        deployed = World(RUN, folder).run()
        deployed.host.service.writer.checkpoint()
        deployed.close()
        yield deployed


def altered(served, folder, *statements):
    """A copy of the folder of a run in which somebody has changed the database."""
    copy = shutil.copytree(served.folder, folder / "copy")
    with closing(sqlite3.connect(copy / "journal.sqlite")) as database, database:
        for statement in statements:
            database.execute(statement)
    return copy


def test_untouched_journal_has_the_head_of_its_checkpoint(served):
    again = replay(served.setting, served.folder)
    assert (again.same, again.chained, again.first) == (True, 1, 1)
    assert again.head is not None
    assert len(again.head) == 64


CHANGES = {
    "another client": f"update journal set client = 2 where number = {REPORT}",
    "another task": f"update journal set task = task + 1 where number = {REPORT}",
    "another kind": f"update journal set kind = 'fail' where number = {REPORT}",
    "an unknown kind": f"update journal set kind = 'fedx' where number = {REPORT}",
    "another report": f"update journal set digest = '{'0' * 64}' where number = {REPORT}",
    "a path": f"update journal set digest = '../../../../etc/passwd' where number = {REPORT}",
    "another time": f"update journal set time = time + 1e-9 where number = {REPORT}",
    "an earlier time": f"update journal set time = -1e300 where number = {REPORT}",
    "another wall clock": f"update journal set wall = wall + 1 where number = {REPORT}",
    "another name": 'update journal set data = \'{"name": "x"}\' where number = 2',
    "a removed entry": f"delete from journal where number = {REPORT}",
    "a moved entry": f"update journal set number = 100000 where number = {REPORT}",
    "an added entry": "insert into journal select max(number) + 1, 9, 9, 'join', 0, null, null, null from journal",
    "another link": f"update links set link = '{'0' * 64}' where number = {REPORT}",
    "a removed link": f"delete from links where number = {REPORT}",
    "a removed first link": "delete from links where number = 1",
    "removed last links": "delete from links where number > 20",
    "removed links": "delete from links",
    "a cut journal": "delete from journal where number > 20",
    "a removed last entry": "delete from journal where number = (select max(number) from journal)",
    "another run": "update facts set value = 'run' where name = 'run'",
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_journal_breaks_at_the_entry(served, tmp_path, name):
    copy = altered(served, tmp_path, CHANGES[name])
    with pytest.raises(CheckpointError, match=r"entr(y|ies)|another run"):
        replay(served.setting, copy)


def numbers(served):
    with closing(sqlite3.connect(served.folder / "journal.sqlite")) as database:
        return [number for (number,) in database.execute("select number from journal where kind = 'report'")]


@pytest.mark.parametrize("name", ["another client", "another task", "another kind", "another report", "another time"])
def test_message_names_the_entry_that_was_changed(served, tmp_path, name):
    copy = altered(served, tmp_path, CHANGES[name])
    with pytest.raises(CheckpointError, match=f"the journal breaks at entry {numbers(served)[5]}, a '"):
        replay(served.setting, copy)


def rechained(folder):
    """Give a changed journal the links that belong to it, as somebody who knows the format could."""
    with closing(sqlite3.connect(folder / "journal.sqlite")) as database, database:
        (run,) = database.execute("select value from facts where name = 'run'").fetchone()
        rows = database.execute("select * from journal order by number").fetchall()
        entries = [Entry(*row[:7], data=json.loads(row[7] or "{}")) for row in rows]
        database.execute("delete from links")
        database.executemany("insert into links values (:number, :link)", chained(first_link(run), entries))


def test_journal_that_was_chained_again_differs_from_its_checkpoint_and_from_the_printed_head(served, tmp_path):
    head = replay(served.setting, served.folder).head
    copy = altered(served, tmp_path, "update journal set wall = wall + 1 where number = 3")
    rechained(copy)
    with pytest.raises(CheckpointError, match="the journal breaks at or before entry"):
        replay(served.setting, copy)
    for path in copy.glob("checkpoint*"):
        path.unlink()
    again = replay(served.setting, copy)
    assert again.same is None
    assert again.head != head


def test_journal_that_ends_before_its_checkpoint_breaks(served, tmp_path):
    """Also where nothing of the later entries is left."""
    copy = altered(served, tmp_path, "delete from journal where number > 20", "delete from links where number > 20")
    with pytest.raises(CheckpointError, match=r"breaks behind entry 20 .*checkpoint of .* was saved after entry"):
        replay(served.setting, copy)


@pytest.mark.parametrize("change", ["removed", "changed", "cut"])
def test_report_that_no_step_needs_is_verified_too(world, change):
    """With every other one it has to be there: a report on an evaluation, or one that was dropped."""
    deployed = world(replace(RUN, rounds=2)).run()
    deployed.host.service.writer.checkpoint()
    deployed.host.close()
    with closing(sqlite3.connect(deployed.folder / "journal.sqlite")) as database:
        number, digest = database.execute("select number, digest from journal where kind = 'report'").fetchall()[-1]
    path = deployed.folder / "reports" / f"{digest}.safetensors"
    body = path.read_bytes()
    path.unlink()
    if change != "removed":
        path.write_bytes(body[:-1] if change == "cut" else body[:-1] + bytes([body[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=f"the journal breaks at entry {number}, a report of client"):
        replay(deployed.setting, deployed.folder)


def test_receipts_say_in_which_step_each_report_is(served):
    """One for each of the four steps, with the digest of the file that the client has sent."""
    again = replay(served.setting, served.folder, client=1)
    assert [(receipt.step, receipt.phase, receipt.version) for receipt in again.receipts] == [
        (step + 1, "train", step) for step in range(4)
    ]
    for receipt in again.receipts:
        body = (Path(served.folder) / "reports" / f"{receipt.digest}.safetensors").read_bytes()
        assert hashlib.sha256(body).hexdigest() == receipt.digest
    assert replay(served.setting, served.folder).receipts == []


def test_receipt_of_a_late_report_says_so(world):
    """Its task had ended when it came, so that it is in no step."""
    from turnout.protocol.pace import Rounds

    run = replace(RUN, rounds=1, pace=Rounds(over_selection=2.0))
    deployed = world(run).run()
    deployed.host.close()
    outcomes = [
        receipt.outcome
        for client in range(4)
        for receipt in replay(deployed.setting, deployed.folder, client=client).receipts
    ]
    assert outcomes.count("taken") == 2


def test_chain_begins_where_this_version_begins():
    """Entries of an earlier version have no link; from the first one with a link on, none may be missing."""
    entries = [Entry(number, 0.0, 0.0, "join", 0) for number in range(1, 6)]
    links = [(row["number"], row["link"]) for row in chained(first_link("r"), entries[2:])]
    chain = Chain("r", iter(links))
    for entry in entries:
        chain.verify(entry)
    chain.verify_end(5)
    assert (chain.begins, chain.head) == (3, links[-1][1])
    chain = Chain("r", iter(links[:1] + links[2:]))
    for entry in entries[:3]:
        chain.verify(entry)
    with pytest.raises(CheckpointError, match="breaks at entry 4, a 'join'"):
        chain.verify(entries[3])
