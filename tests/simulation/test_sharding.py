"""Exchanges between processes of one run, with a single process; `tests/laws` use two."""

import importlib
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import distributed

from turnout.distributed import collectives
from turnout.distributed.collectives import ProcessLost
from turnout.simulation.sharding import ProcessesDiffer, check_agreement


@pytest.fixture
def second(monkeypatch):
    """Simulate another process with the contents of the returned list."""
    other = []
    monkeypatch.setattr(collectives, "world_size", lambda: 2)
    monkeypatch.setattr(collectives, "rank", lambda: 0)
    monkeypatch.setattr(collectives, "all_gather", lambda own, *_: torch.cat([own, *other]))
    return other


def test_one_process_agrees_with_itself():
    check_agreement(torch.tensor([1.0, torch.nan]))


def test_diverged_models_stop_the_run(second):
    params = torch.linspace(-1, 1, 7)
    second.append(digest(params))
    check_agreement(params)
    for other in (params.nextafter(torch.tensor(9.0)), params.flip(0), params * torch.tensor([1, 1, 1, -1, 1, 1, 1])):
        second[:] = [digest(other)]
        with pytest.raises(ProcessesDiffer, match="no longer have the same model: they must run the same versions"):
            check_agreement(params)


def digest(params):
    """Return the digest of a process's model."""
    told = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collectives, "all_gather", lambda own, *_: told.append(own) or own)
        check_agreement(params)
    return told[0]


def test_unreachable_process_is_reported_as_lost(monkeypatch):
    def fails(*_):
        raise RuntimeError("[/a/place/in/its/source.cc:553] Connection closed by peer [127.0.0.1]:20690. More words.")

    monkeypatch.setattr(collectives, "world_size", lambda: 2)
    monkeypatch.setattr(distributed, "all_reduce", fails)
    monkeypatch.setattr(distributed, "broadcast_object_list", lambda *_, **__: fails())
    message = r"another process of this run was lost \(Connection closed by peer :20690\)"
    for ask in (lambda: collectives.all_reduce(torch.ones(1)), lambda: collectives.broadcast(1)):
        with pytest.raises(ProcessLost, match=message):
            ask()


def test_processes_that_do_not_connect_are_reported_as_lost(monkeypatch):
    def fails(backend):
        raise ValueError(f"no {backend} here")

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(distributed, "init_process_group", fails)
    with pytest.raises(ProcessLost, match=r"lost \(no gloo here\)"), collectives.started("cpu"):
        pass


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs the names of threads that Linux has")
def test_no_thread_outlives_the_process_group(monkeypatch, tmp_path):
    """Such a thread aborts the process at its end, if functions have the group as a default argument."""
    alone = partial(distributed.init_process_group, init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    monkeypatch.setattr(distributed, "init_process_group", alone)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delitem(sys.modules, "torch.distributed.nn.functional", raising=False)
    with collectives.started("cpu"):
        assert _becomes(True)
        importlib.import_module("torch.distributed.nn.functional")
    assert _becomes(False)


def _becomes(present):
    """Wait for threads of gloo to be present, or absent: they get their names, and leave the list, with a delay."""
    end = time.monotonic() + 10.0
    while bool(_gloo_threads()) is not present and time.monotonic() < end:
        time.sleep(0.01)
    return bool(_gloo_threads()) is present


def _gloo_threads():
    names = []
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended since it was listed
            names.append((thread / "comm").read_text())
    return [name for name in names if "gloo" in name]


def test_no_process_group_without_torchrun(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with collectives.started("cpu"):
        assert (collectives.world_size(), collectives.rank()) == (1, 0)
        assert collectives.broadcast("mine") == "mine"
        assert collectives.anyone(True)
        assert not collectives.anyone(False)
