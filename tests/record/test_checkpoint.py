import errno
import os
import resource
import shutil
import subprocess

import pytest
import torch

from turnout import CheckpointError
from turnout.record import storage
from turnout.record.checkpoint import FILE, PREVIOUS, flatten, load, save, unflatten
from turnout.record.storage import DIGESTS

TENSORS = {"model/params": torch.arange(6.0), "memory/steps": torch.tensor([3, 4]), "empty": torch.zeros(0, 5)}
FACTS = {"version": 7, "experiment": {"seed": 0, "nested": [1, 2.5, None, "x"]}}


def test_saved_tensors_and_facts_are_loaded(tmp_path):
    assert save(tmp_path / "new" / "folder", TENSORS, FACTS) == tmp_path / "new" / "folder" / FILE
    tensors, facts = load(tmp_path / "new" / "folder")
    assert facts == FACTS
    assert tensors.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert torch.equal(tensors[name], value)
        assert tensors[name].dtype == value.dtype
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir() if path.name != DIGESTS] == [FILE]


def test_views_are_saved_with_their_values(tmp_path):
    whole = torch.arange(12.0).reshape(3, 4)
    save(tmp_path, {"column": whole[:, 1], "transposed": whole.T}, {})
    tensors, _ = load(tmp_path)
    assert tensors["column"].tolist() == [1.0, 5.0, 9.0]
    assert torch.equal(tensors["transposed"], whole.T)


def test_unflatten_inverts_flatten():
    groups = {"server.weighting.0": {"a": torch.ones(1)}, "server.weighting.01": {"a": torch.zeros(1)}, "memory": {}}
    flat = flatten(groups)
    assert set(flat) == {"server.weighting.0/a", "server.weighting.01/a"}
    for name, group in groups.items():
        assert unflatten(flat, name) == group


def test_missing_checkpoint_is_refused(tmp_path):
    with pytest.raises(
        CheckpointError, match=r"holds no checkpoint.safetensors: give the folder of a run that has saved one"
    ):
        load(tmp_path)


def test_checkpoint_that_a_run_replaces_while_it_is_read_is_refused(tmp_path, monkeypatch):
    """Between two moves there is none, and PyTorch's error of a missing file is a bare RuntimeError."""
    save(tmp_path, TENSORS, FACTS)
    monkeypatch.setattr(storage, "check", lambda path: path.unlink())
    with pytest.raises(CheckpointError, match=r"checkpoint.safetensors is damaged \(.*No such file"):
        load(tmp_path)


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_truncated_checkpoint_is_refused(tmp_path, keep):
    path = save(tmp_path, TENSORS, FACTS)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(
        CheckpointError, match=r"checkpoint.safetensors is damaged \(its digest is not the one in SHA256SUMS"
    ):
        load(tmp_path)
    (tmp_path / DIGESTS).unlink()  # a run of an older version
    with pytest.raises(
        CheckpointError, match=r"checkpoint.safetensors is damaged \(.*\): delete it to start the run anew"
    ):
        load(tmp_path)


def test_damaged_checkpoint_falls_back_to_the_previous_one(tmp_path):
    save(tmp_path, TENSORS, FACTS)
    save(tmp_path, {"model/params": torch.zeros(6)}, {"version": 8})
    (tmp_path / FILE).write_bytes(flipped((tmp_path / FILE).read_bytes(), bit=-5))
    with pytest.raises(
        CheckpointError,
        match=r"checkpoint.safetensors is damaged .*; the checkpoint of round 7 before it is intact: turnout run",
    ):
        load(tmp_path)
    with pytest.warns(
        RuntimeWarning, match=r"checkpoint.safetensors is damaged .*; resuming from the checkpoint of round 7"
    ):
        tensors, facts = load(tmp_path, or_previous=True)
    assert facts == FACTS
    assert torch.equal(tensors["model/params"], TENSORS["model/params"])
    save(tmp_path, {"model/params": torch.ones(6)}, {"version": 9})
    assert load(tmp_path)[1] == {"version": 9}
    (tmp_path / FILE).unlink()
    assert load(tmp_path)[1] == FACTS, "a damaged checkpoint does not take the place of the whole one before it"
    (tmp_path / PREVIOUS).write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"checkpoint.previous.safetensors is damaged"):
        load(tmp_path)


def flipped(content, bit):
    """The content with one bit changed."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_flipped_bits_are_detected(tmp_path):
    path = save(tmp_path, TENSORS, FACTS)
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), 97):
        path.write_bytes(flipped(content, bit))
        with pytest.raises(CheckpointError, match=r"checkpoint.safetensors is damaged"):
            load(tmp_path)


def test_files_have_the_permissions_of_new_files(tmp_path):
    before = os.umask(0o027)
    try:
        assert save(tmp_path, TENSORS, FACTS).stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


def test_other_file_types_are_refused(tmp_path):
    (tmp_path / FILE).write_text("not a checkpoint at all")
    with pytest.raises(CheckpointError, match="is damaged"):
        load(tmp_path)


def assert_last_good_one_is_whole(folder):
    tensors, facts = load(folder)
    assert facts == FACTS
    assert torch.equal(tensors["model/params"], TENSORS["model/params"])
    assert [path.name for path in folder.iterdir() if path.name != DIGESTS] == [FILE]


def test_full_device_leaves_the_previous_checkpoint(tmp_path, monkeypatch):
    save(tmp_path, TENSORS, FACTS)

    def full(_, path, **__):
        path.write_bytes(b"the first half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(
        CheckpointError, match=r"No space left on device.*previous files are unchanged: free some space"
    ):
        save(tmp_path, {"model/params": torch.zeros(6)}, {"version": 8})
    assert_last_good_one_is_whole(tmp_path)
    with pytest.raises(CheckpointError, match=r"cannot write"):
        save(tmp_path / "fresh", TENSORS, FACTS)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 64 KiB, where this may be had."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk takes rights that these tests do not have")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_is_really_full(small_disk):
    save(small_disk, TENSORS, FACTS)
    with pytest.raises(CheckpointError, match="previous files are unchanged"):
        save(small_disk, {"model/params": torch.zeros(100_000)}, {"version": 8})
    assert_last_good_one_is_whole(small_disk)
    save(small_disk, TENSORS, {"version": 9})  # there is room for small ones again
    assert load(small_disk)[1]["version"] == 9


def test_a_file_that_may_not_grow(tmp_path):
    """The system's own limit on the size of a file stands for a disk that fills while a checkpoint is written."""
    save(tmp_path, TENSORS, FACTS)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(CheckpointError, match="previous files are unchanged"):
            save(tmp_path, {"model/params": torch.zeros(1 << 20)}, {"version": 8})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_last_good_one_is_whole(tmp_path)


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write"):
        save(tmp_path / "file", TENSORS, FACTS)
