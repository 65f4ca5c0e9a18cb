"""The folder of a run: files replaced whole, digests, one process at a time, nothing left of what was killed."""

import errno
import itertools
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tiny import classification, recipe

import turnout as to
from turnout import AfterRound, CheckpointError
from turnout.comparison.folders import is_finished, load_record
from turnout.record import checkpoint, contents, lock, storage

LOGISTIC = to.models.Logistic()


def experiment(rounds=3):
    data = classification(sizes=(6, 4, 8))
    return to.Experiment(
        data=data, model=LOGISTIC, algorithm=recipe("mifa", to.Sgd(lr=0.1, steps=1)), rounds=rounds, evaluate_every=2
    )


def outcome(folder):
    """What a run came to: its model and its tables, but for the seconds that it took."""
    tensors, facts = checkpoint.load(folder)
    history = to.History.load(folder)
    rounds = history.rounds.drop_columns(["seconds"]).to_pydict()
    return repr((facts["version"], {name: tensor.tolist() for name, tensor in tensors.items()}, rounds,
                 history.clients.to_pydict(), history.participation.to_pydict()))  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("finished")
    experiment().run(folder, checkpoint_every=1)
    return folder


class Killed(BaseException):
    """The process is gone, and does nothing any more."""


class Disk:
    """Counts what is done to the disk, and kills the process at a certain time, with the end of what is being synced lost.

    A disk that is "full" from then on takes no more files, and the process lives. "interrupted" is a Ctrl-C at that time,
    after which the process cleans up.
    """

    def __init__(self, monkeypatch, dies_at, way="killed"):
        self.count, self.dies_at, self.way = 0, dies_at, way
        written = ((os, "replace"), (os, "fsync"), (Path, "touch"))
        others = ((shutil, "rmtree"), (Path, "unlink"), (Path, "chmod"))
        for owner, name in written if way == "full" else (*written, *others):
            monkeypatch.setattr(owner, name, self.watched(name, getattr(owner, name)))

    def watched(self, name, function):
        def call(*arguments, **options):
            self.count += 1
            if self.way == "interrupted" and self.count == self.dies_at:
                raise KeyboardInterrupt
            if self.way != "interrupted" and self.count >= self.dies_at:
                if name == "fsync" and self.count == self.dies_at:
                    lose_the_end(arguments[0])
                raise OSError(errno.ENOSPC, "No space left on device") if self.way == "full" else Killed
            return None if name == "fsync" else function(*arguments, **options)  # which takes time and changes nothing

        return call


def lose_the_end(number):
    """Cut the file of a descriptor that may be written."""
    with suppress(OSError):
        os.ftruncate(number, max(0, os.fstat(number).st_size - 10))


def ends_at(folder, dies_at, monkeypatch, way):
    """Run, or go on with a run, on a disk that fails; whether it came to its end."""
    with monkeypatch.context() as patch:
        Disk(patch, dies_at, way)
        try:
            experiment().run(folder, resume=True, checkpoint_every=1)
        except (Killed, KeyboardInterrupt, CheckpointError):
            return False
    return True


@pytest.mark.parametrize("way", ["killed", "full", "interrupted"])
def test_kill_at_any_write_continues_to_the_same_result(finished, tmp_path, monkeypatch, way):
    """It ends twice, so that what it left is met by a run that goes on and ends as well.

    Every seventh write is tried, every seventeenth for a Ctrl-C, and with TURNOUT_KILLS set each one. A file takes four,
    and a save of all files another number than that, so each kind of write is among them.
    """
    whole, names = outcome(finished), sorted(path.name for path in finished.iterdir())
    step = 1 if "TURNOUT_KILLS" in os.environ else 17 if way == "interrupted" else 7
    for dies_at in range(1, 1000, step):
        folder = tmp_path / str(dies_at)
        ended = ends_at(folder, dies_at, monkeypatch, way)
        if not ended:
            agrees_with_itself(folder, whole)
            ends_at(folder, dies_at // 2, monkeypatch, way)
            agrees_with_itself(folder, whole)
        experiment().run(folder, resume=True, checkpoint_every=1)
        assert outcome(folder) == whole, dies_at
        assert sorted(path.name for path in folder.iterdir() if path.name != checkpoint.PREVIOUS) == [
            name for name in names if name != checkpoint.PREVIOUS
        ], dies_at
        if ended:
            assert dies_at > 30, "nothing was killed"
            return
    raise AssertionError("no run came to its end")


@pytest.mark.parametrize("name", ["history.journal", ".checkpoint.part"])
def test_file_that_cannot_be_deleted_is_reported(finished, tmp_path, monkeypatch, name):
    """The log at the end of a run, and what a killed process has left; the run continues to the same result."""
    unlink = Path.unlink

    def failing(path, *arguments, **options):
        if path.name == name:
            raise OSError(errno.EIO, "Input/output error")
        return unlink(path, *arguments, **options)

    experiment(2).run(tmp_path)
    (tmp_path / ".checkpoint.part").touch()
    with monkeypatch.context() as broken:
        broken.setattr(Path, "unlink", failing)
        with pytest.raises(CheckpointError, match=r"cannot write .*Input/output error"):
            experiment().run(tmp_path, resume=True)
    experiment().run(tmp_path, resume=True)
    assert outcome(tmp_path) == outcome(finished)


def agrees_with_itself(folder, whole):
    """A run is finished where the model of its last round is saved, and what is loaded is of one round."""
    if not checkpoint.exists(folder):
        assert not is_finished(folder, experiment())
        return
    loaded, version = to.load(folder), checkpoint.version(folder)
    assert loaded.history.last_round == version
    assert loaded.clients["participations"].null_count == 0
    assert is_finished(folder, experiment()) == (version == 3 and len(loaded.clients) > 0)
    if is_finished(folder, experiment()):
        assert outcome(folder) == whole
    else:
        with pytest.raises(CheckpointError, match=rf"is not finished \({version} of 3 rounds\)"):
            load_record(folder)


def test_replaced_file_is_always_whole(tmp_path, monkeypatch):
    for dies_at in range(1, 30):
        folder = tmp_path / str(dies_at)
        storage.save(folder, {"settings.json": storage.json_writer({"seed": 0})})
        with monkeypatch.context() as patch:
            Disk(patch, dies_at)
            try:
                storage.save(folder, {"settings.json": storage.json_writer({"seed": 1})})
            except Killed:
                assert storage.read_json(folder / "settings.json", "").keys() == {"seed"}
                continue
        assert storage.read_json(folder / "settings.json", "") == {"seed": 1}
        return
    raise AssertionError("it was never written")


def test_digests_equal_those_of_sha256sum(finished):
    if shutil.which("sha256sum") is None:
        pytest.skip("needs sha256sum")
    subprocess.run(["sha256sum", "--check", "--quiet", storage.DIGESTS], cwd=finished, check=True)
    listed = {line.split()[1] for line in (finished / storage.DIGESTS).read_text().splitlines()}
    assert listed == {path.name for path in finished.iterdir()} - {storage.DIGESTS}


FILES = (
    "rounds.parquet", "clients.parquet", "participation.parquet", "predictions.parquet", "checkpoint.safetensors",
    "config.json", storage.DIGESTS,
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(FILES), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), listed=st.booleans()
)
def test_flipped_bit_is_refused_with_one_sentence(finished, tmp_path, name, place, bit, listed):
    """With digests no wrong number is read; without them (runs of older versions) there is no traceback either."""
    folder = tmp_path / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(finished, folder)
    if not listed and name != storage.DIGESTS:
        (folder / storage.DIGESTS).unlink()
    content = bytearray((folder / name).read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    (folder / name).write_bytes(content)
    try:
        load_record(folder)
        found = outcome(folder)
    except CheckpointError as error:
        found = str(error)
    assert not listed or found == outcome(finished) or name in found or storage.DIGESTS in found


DOORS = {
    "load": to.load,
    "report": load_record,
    "compare": lambda folder: is_finished(folder, experiment()),
    "resume": lambda folder: experiment(rounds=4).run(folder, resume=True),
}


@pytest.mark.parametrize("door", DOORS)
def test_flipped_bit_in_any_file_is_detected_by_every_reader(finished, tmp_path, door):
    names = [path.name for path in finished.iterdir() if path.name != storage.DIGESTS]
    assert len(names) == 8
    for name in names:
        folder = tmp_path / name
        shutil.copytree(finished, folder)
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / name).write_bytes(content)
        if name in (checkpoint.FILE, checkpoint.PREVIOUS) and door in ("compare", "resume"):
            assert not is_finished(folder, experiment()) or name == checkpoint.PREVIOUS
            continue  # and goes on from the other one: see below
        with pytest.raises(CheckpointError, match=f"{name} is damaged"):
            DOORS[door](folder)


@pytest.mark.parametrize("name", [storage.DIGESTS, "config.json", checkpoint.FILE, "history.journal"])
def test_file_that_cannot_be_read_now_is_not_called_damaged(tmp_path, monkeypatch, name):
    """Nobody deletes an intact file, and nothing continues from an older one."""
    stopped = experiment(rounds=4)
    with pytest.raises(KeyboardInterrupt):
        stopped.run(tmp_path, checkpoint_every=1, callbacks=[AfterRound(stops_after(3))])

    def failing(function):
        def called(path, *arguments, **options):
            if path.name == name:
                raise OSError(errno.EIO, "Input/output error")
            return function(path, *arguments, **options)

        return called

    with monkeypatch.context() as broken:
        for method in ("open", "read_bytes"):
            broken.setattr(Path, method, failing(getattr(Path, method)))
        broken.setattr(contents, "open_regular", failing(contents.open_regular))
        with pytest.raises(CheckpointError, match=rf"{name} cannot be read \(Input/output error\): check the disk"):
            stopped.run(tmp_path, resume=True)
    stopped.run(tmp_path, resume=True)


def test_flipped_bit_in_the_log_is_detected(tmp_path):
    stopped = experiment(rounds=4)
    with pytest.raises(KeyboardInterrupt):
        stopped.run(tmp_path, checkpoint_every=1, callbacks=[AfterRound(stops_after(3))])
    journal = tmp_path / "history.journal"
    content = journal.read_bytes()
    journal.write_bytes(content[:60] + bytes([content[60] ^ 4]) + content[61:])
    with pytest.raises(CheckpointError, match=r"history.journal is damaged \(an entry does not have its digest\)"):
        stopped.run(tmp_path, resume=True)
    journal.write_bytes(content[:-1])
    with pytest.raises(CheckpointError, match=r"history.journal .*ends before round 2, which the checkpoint is of"):
        stopped.run(tmp_path, resume=True)


def stops_after(rounds):
    def progress(row):
        if row["round"] == rounds:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("checkpoint_every", [None, 1])
def test_previous_checkpoint_continues_to_the_same_result(tmp_path, checkpoint_every):
    experiment(rounds=6).run(tmp_path / "whole")
    folder = tmp_path / "damaged"
    with pytest.raises(KeyboardInterrupt):
        experiment(rounds=6).run(folder, checkpoint_every=1, callbacks=[AfterRound(stops_after(3))])
    path = folder / checkpoint.FILE
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(
        RuntimeWarning, match="checkpoint.safetensors is damaged .* resuming from the checkpoint of round 1"
    ):
        experiment(rounds=6).run(folder, resume=True, checkpoint_every=checkpoint_every)
    assert outcome(folder) == outcome(tmp_path / "whole")


def test_folder_is_locked_by_one_run(tmp_path):
    with (
        FileLock(tmp_path / ".lock"),
        pytest.raises(
            CheckpointError,
            match="is in use by another run that is going on: wait until it ends, or give another folder",
        ),
    ):
        experiment().run(tmp_path)
    experiment().run(tmp_path)


def test_lock_ends_with_its_process_and_parts_are_deleted(tmp_path):
    code = """if True:
        import filelock, sys, time
        lock = filelock.FileLock(sys.argv[1])
        lock.acquire()
        print("held", flush=True)
        time.sleep(60)"""
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / ".lock")], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(CheckpointError, match="is in use"), lock.locked(tmp_path):
            pass
        holder.kill()
    (tmp_path / ".parts").mkdir()
    (tmp_path / ".parts" / "rounds.parquet").write_bytes(b"half")
    (tmp_path / ".tmpX1").write_bytes(b"what an older version left")
    with lock.locked(tmp_path), lock.locked(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    assert not list(tmp_path.iterdir())


def test_removed_lock_is_not_taken(tmp_path, monkeypatch):
    """Another process removes the file and makes a new one between opening and locking it."""
    path, attempts = tmp_path / ".lock", []
    lock_descriptor = lock.lock_descriptor

    def late(descriptor, *, blocking):
        if not attempts:
            path.rename(tmp_path / "removed")
            path.touch()
        attempts.append(path)
        return lock_descriptor(descriptor, blocking=blocking)

    monkeypatch.setattr(lock, "lock_descriptor", late)
    with lock.locked(tmp_path):
        assert len(attempts) == 2


def test_threads_wait_for_each_other(tmp_path):
    """A search has several threads, each of which writes the common files."""
    inside = []

    def write():
        with lock.locked(tmp_path, patience=10):
            inside.append(1)
            time.sleep(0.05)
            assert len(inside) == 1
            inside.clear()

    with lock.locked(tmp_path), ThreadPoolExecutor(2) as executor, pytest.raises(lock.InUse):
        executor.submit(lambda: lock.locked(tmp_path).__enter__()).result()
    with ThreadPoolExecutor(2) as executor:
        for waiting in [executor.submit(write) for _ in range(3)]:
            waiting.result()


def test_empty_folder_is_removed_unless_it_existed(tmp_path):
    (tmp_path / "before").mkdir()
    for name in ("before", "new"):
        with lock.locked(tmp_path / name):
            assert (tmp_path / name / ".lock").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["before"]


@pytest.mark.parametrize("way", ["removed", "moved", "replaced", "link"])
def test_removed_folder_ends_the_run_at_the_next_write(tmp_path, way):
    folder = tmp_path / "run"

    def take_away(row):
        if row["round"] == 2:
            folder.rename(tmp_path / "elsewhere")
            if way == "removed":
                shutil.rmtree(tmp_path / "elsewhere")
            if way == "replaced":
                folder.mkdir()
            if way == "link":
                (tmp_path / "mine").mkdir()
                folder.symlink_to(tmp_path / "mine")

    with pytest.raises(
        CheckpointError, match="run was removed or replaced while the run was going on, so nothing more"
    ):
        experiment().run(folder, checkpoint_every=1, callbacks=[AfterRound(take_away)])
    assert not folder.exists() or not list(folder.iterdir())
    if way == "moved":
        experiment().run(tmp_path / "elsewhere", resume=True)
    if way == "link":  # which is refused while the run goes on alone
        experiment().run(folder)
        assert to.load(tmp_path / "mine").history.last_round == 3


@pytest.mark.parametrize(("way", "jobs"), [("removed", 1), ("link", 1), ("link", 2)])
def test_comparison_with_a_removed_folder_writes_nowhere_else(tmp_path, way, jobs):
    folder, mine = tmp_path / "all", tmp_path / "mine"
    mine.mkdir()
    ended = []

    def take_away(update):
        if update.status == "done" and not ended:
            folder.rename(tmp_path / "elsewhere")
            if way == "link":
                folder.symlink_to(mine)
            ended.append(update)

    def make(seed):
        return replace(experiment(), seed=seed)

    with pytest.raises(
        lock.FolderGone, match=r"all was removed or replaced while its runs were going on.* put it back"
    ):
        to.compare({"one": make}, 3, folder, jobs=jobs, progress=take_away)
    assert way == "link" or not folder.exists()
    assert not list(mine.iterdir())
    if way == "link":
        folder.unlink()
    (tmp_path / "elsewhere").rename(folder)
    assert len(to.compare({"one": make}, 3, folder, jobs=1)) == 3


@pytest.mark.parametrize("what", ["folder", "log"])
def test_file_replaced_by_a_link_is_not_written_through(tmp_path, monkeypatch, what):
    """The attack: whoever may write in the parent, or in the folder, wins the race against the check."""
    folder, mine = tmp_path / "run", tmp_path / "mine"
    (mine / "history.journal").mkdir(parents=True) if what == "log" else mine.mkdir()
    checked = lock.create

    def late(path):
        checked(path)
        if (folder / "config.json").exists() and not (tmp_path / "elsewhere").exists():
            if what == "folder":
                folder.rename(tmp_path / "elsewhere")
                folder.symlink_to(mine)
            else:
                (tmp_path / "elsewhere").touch()
                (folder / "history.journal").symlink_to(mine / "config.json")

    monkeypatch.setattr(lock, "create", late)
    with pytest.raises(CheckpointError, match=r"was removed or replaced|cannot write .*history.journal"):
        experiment().run(folder, checkpoint_every=1)
    assert not (mine / "config.json").exists()
    assert what == "log" or not list(mine.iterdir())


def test_file_that_is_replaced_by_a_link_while_it_is_written_is_not_moved(tmp_path):
    """The attack: whoever may write in the folder replaces the part of a file behind the writer."""
    mine = tmp_path / "mine"
    mine.touch()

    def write(path):
        path.unlink()
        path.symlink_to(mine)

    with pytest.raises(CheckpointError, match="was replaced by a link"):
        storage.save(tmp_path / "run", {"table.csv": write})
    assert not (tmp_path / "run" / "table.csv").exists()


def test_replaced_folder_gets_no_file(tmp_path):
    folder, mine = tmp_path / "run", tmp_path / "mine"
    (mine / ".parts").mkdir(parents=True)

    def write(path):
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(mine)
        path.write_text("{}")

    with lock.locked(folder):
        storage.save(folder, {"settings.json": storage.json_writer({"seed": 0})})
        with pytest.raises(lock.FolderGone):
            storage.save(folder, {"settings.json": write})
    assert not list(mine.glob("*.json"))


def forked(function):
    """Call a function in a forked child; whether it returned True."""
    child = os.fork()
    if not child:
        status = 1
        with suppress(BaseException):
            status = 0 if function() else 1
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_forked_process_neither_holds_nor_releases_the_lock(tmp_path):
    """The attack: a loader of data, or code of a user, that forks in the midst of a run."""
    folder = tmp_path / "run"

    def is_refused():
        with pytest.raises(lock.InUse, match="in use by the process that this one was forked from"):
            storage.save(folder, {"x.json": storage.json_writer({})})
        with pytest.raises(lock.InUse), lock.locked(folder):
            pass
        return lock.in_use(folder)

    with lock.locked(folder):
        assert forked(is_refused)
        held = lock.locked(folder)
        held.__enter__()
        assert forked(lambda: held.__exit__(None, None, None) or True)  # as at the end of the block of its parent
        assert not (folder / "x.json").exists()
        assert (folder / ".lock").exists()
        assert forked(is_refused)
        storage.save(folder, {"x.json": storage.json_writer({})})
        held.__exit__(None, None, None)
    assert not (folder / ".lock").exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_lock_ends_with_its_holder_despite_a_child(tmp_path):
    """The attack: a run is killed, and a process that a loader of its data forked lives on."""
    read, write = os.pipe()
    holder = os.fork()
    if not holder:
        with lock.locked(tmp_path):
            if not os.fork():
                os.close(write)
                os.read(read, 1)
            os._exit(0)  # without releasing the lock
    os.waitpid(holder, 0)
    try:
        assert (tmp_path / ".lock").exists()
        assert not lock.in_use(tmp_path)
        with lock.locked(tmp_path):
            pass
    finally:
        os.close(write)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_run_continued_in_a_forked_process_ends(tmp_path):
    """The attack: a callback forks and forgets to end the child."""
    children = []

    def fork(row):
        if row["round"] == 2 and not children:
            children.append(os.fork())

    try:
        experiment().run(tmp_path, checkpoint_every=1, callbacks=[AfterRound(fork)])
    except lock.InUse:
        os._exit(17)
    except BaseException:
        os._exit(18)
    if children == [0]:
        os._exit(19)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 17
    assert load_record(tmp_path).history.last_round == 3


def test_run_folder_is_independent_of_the_working_directory(tmp_path, monkeypatch):
    """The attack: pieces, callbacks and functions for data that call os.chdir, as many scripts do."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    go_away = AfterRound(lambda _: os.chdir(tmp_path / "there"))
    experiment(2).run("run", checkpoint_every=1, callbacks=[go_away])
    monkeypatch.chdir(tmp_path / "here")
    experiment().run("run", resume=True, checkpoint_every=1, callbacks=[go_away])
    monkeypatch.chdir(tmp_path / "here")

    def make(seed):
        os.chdir(tmp_path / "there")
        return replace(experiment(), seed=seed)

    to.compare({"one": make}, 1, "all", jobs=1)
    assert not any((tmp_path / "there").iterdir())
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == ["all", "run"]
    assert to.load(tmp_path / "here" / "run").history.last_round == 3


def test_nothing_is_written_through_links(tmp_path):
    """The attack: a folder whose log and whose folder of unfinished files lead to files of whoever resumes it."""
    folder, mine = tmp_path / "run", tmp_path / "mine"
    mine.mkdir()
    (mine / "config.json").write_text("mine")
    experiment(1).run(folder)
    (folder / "history.journal").symlink_to(mine / "config.json")
    (folder / ".parts").symlink_to(mine)
    with pytest.raises(CheckpointError, match=r"history.journal is a link, and runs write within their folder"):
        experiment(6).run(folder, resume=True, checkpoint_every=1)
    assert [path.read_text() for path in mine.iterdir()] == ["mine"]
    for name in ("report.html", "codes.txt"):
        (folder / f".{name}.part").symlink_to(mine / "config.json")
        storage.replace_files({folder / name: lambda path: path.write_text("page")})
        assert (folder / name).read_text() == "page"
    assert [path.read_text() for path in mine.iterdir()] == ["mine"]


def test_files_have_the_permissions_of_new_files(tmp_path):
    before = os.umask(0o027)
    try:
        experiment(rounds=1).run(tmp_path)
    finally:
        os.umask(before)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()}
    assert set(modes.values()) == {"0o640"}, modes


@pytest.mark.parametrize("moment", ["written", "moved"])
def test_concurrently_replaced_file_is_not_damaged(tmp_path, monkeypatch, moment):
    def write(seed):
        storage.save(tmp_path, {"settings.json": storage.json_writer({"seed": seed})})

    digest, calls = storage.digest, []

    def late(path):
        calls.append(path)
        if len(calls) == 1:
            with monkeypatch.context() as patch:
                patch.setattr(storage, "digest", digest)
                write(1) if moment == "written" else path.unlink()
        return digest(path)

    write(0)
    monkeypatch.setattr(storage, "digest", late)
    storage.check_all(tmp_path)
    assert calls


def test_damaged_list_of_digests_says_what_to_do(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "copy")
    (tmp_path / "copy" / storage.DIGESTS).write_text("nothing of the kind\n")
    with pytest.raises(
        CheckpointError, match=r"SHA256SUMS is damaged: delete it to have the files of .* taken as they are"
    ):
        load_record(tmp_path / "copy")
    (tmp_path / "copy" / storage.DIGESTS).unlink()
    load_record(tmp_path / "copy")


@pytest.mark.parametrize("content", [b"[1, 2]", b"\xff\xfe", b"{", b"[" * 100_000])
def test_invalid_settings_are_refused(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"config.json is damaged \(.*\): restore it from a copy, or run again"):
        storage.read_json(tmp_path / "config.json", "")


def test_memory_does_not_grow_with_saved_rounds(tmp_path):
    history = to.History()
    for save in range(3):
        for r in range(100):
            history.record(round=100 * save + r + 1, participants=[r % 7], test_loss=float(r), gap=float(r))
        history.append(tmp_path)
        assert not history._log._tables
        assert not history._log._rows
    assert history.rounds.num_rows == len(history) == 300
    assert history.column("gap")[0].tolist() == list(range(1, 301))
    assert to.History.load(tmp_path).rounds.equals(history.rounds)
    assert to.History.load(tmp_path).participation.equals(history.participation)


def test_save_costs_only_new_rounds(tmp_path):
    history, sizes = to.History(), [0]
    for save in range(4):
        for r in range(200):
            history.record(round=200 * save + r + 1, participants=[1, 2], test_loss=1.0)
        history.append(tmp_path)
        sizes.append((tmp_path / "history.journal").stat().st_size)
    grown = [later - earlier for earlier, later in itertools.pairwise(sizes)]
    assert max(grown) < 1.1 * min(grown)


@pytest.mark.skipif(sys.platform == "win32", reason="a lock is read by taking it on Windows")
def test_querying_a_lock_has_no_effect(tmp_path):
    """The attack: `turnout status` of a folder at the moment when its run starts."""
    import fcntl

    (tmp_path / ".lock").touch()
    (tmp_path / ".tmp-left").touch()
    assert not lock.in_use(tmp_path)
    assert (tmp_path / ".tmp-left").exists()
    with (tmp_path / ".lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        timer = threading.Timer(0.03, fcntl.flock, (file, fcntl.LOCK_UN))
        timer.start()
        with lock.locked(tmp_path):
            assert not lock.in_use(tmp_path)  # by another process
        timer.join()


@pytest.mark.skipif(sys.platform == "win32", reason="all file systems of Windows have locks")
@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_file_system_without_locks_is_supported(tmp_path, monkeypatch, code):
    """Such as a network share without a lock daemon: every run there would end at its start."""

    def missing(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", missing)
    with lock.locked(tmp_path), lock.locked(tmp_path):
        assert not lock.in_use(tmp_path)
        storage.save(tmp_path, {"x.json": storage.json_writer({})})
        assert sorted(path.name for path in tmp_path.iterdir()) == ["SHA256SUMS", "x.json"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_lock_is_visible_with_read_access_only(tmp_path, monkeypatch):
    with lock.locked(tmp_path):
        (tmp_path / ".lock").chmod(0o444)

        def sees():
            monkeypatch.setattr(lock, "_acquire", None)
            return lock.in_use(tmp_path)

        assert forked(sees)
    (tmp_path / ".lock").symlink_to("/dev/zero")  # of a folder that was sent
    assert not lock.in_use(tmp_path)
