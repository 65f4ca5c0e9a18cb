"""Retention of large buffers by the allocator."""

import ctypes
import os
import resource

import pytest
import torch
from tests.children import Child

from turnout.engine import allocator


def faults(keeps):
    """Make and drop 64 MB, eight times, and print how many pages the kernel had to give for that."""
    took = allocator.keep_large_buffers() if keeps else None
    for _ in range(8):
        torch.ones(16 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        torch.ones(16 << 20)
    print(took, allocator.setting(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


@pytest.fixture(autouse=True)
def untouched(monkeypatch):
    """An environment without settings, and a process in which nothing was set."""
    for name in [name for name in os.environ if name.startswith("MALLOC_")] + ["LD_PRELOAD", allocator.SWITCH]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    monkeypatch.setattr(allocator, "_limit", {"bytes": 0})


def library(monkeypatch, most):
    """Return a C library whose malloc accepts thresholds up to `most`, and the requested values."""
    calls = []

    class Library:
        @staticmethod
        def mallopt(name: int, value: int) -> int:
            calls.append((name, value))
            return int(name != -3 or value <= most)

        gnu_get_libc_version = None

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library)
    return calls


def test_glibc_accepts_both_settings(monkeypatch):
    calls = library(monkeypatch, 1 << 40)
    assert allocator.setting() == "default"
    assert allocator.keep_large_buffers()
    assert calls == [(-3, 1 << 30), (-1, 1 << 30)]
    assert allocator.setting() == str(1 << 30)


def test_server_retains_less(monkeypatch):
    calls = library(monkeypatch, 1 << 40)
    assert allocator.keep_large_buffers(allocator.SERVER)
    assert calls == [(-3, allocator.SERVER), (-1, allocator.SERVER)]
    assert allocator.setting() == str(allocator.SERVER)


def test_old_glibc_versions_use_their_maximum(monkeypatch):
    calls = library(monkeypatch, 1 << 25)
    assert allocator.keep_large_buffers()
    assert calls == [(-3, 1 << 30), (-3, 1 << 25), (-1, 1 << 30)]
    assert allocator.setting() == str(1 << 25)
    library(monkeypatch, 0)
    assert not allocator.keep_large_buffers()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MALLOC_MMAP_THRESHOLD_", "1000"),
        ("MALLOC_ARENA_MAX", "2"),
        ("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=1000"),
        ("LD_PRELOAD", "/usr/lib/libjemalloc.so.2"),
        ("TURNOUT_ALLOCATOR", "default"),
    ],
)
def test_user_settings_are_unchanged(monkeypatch, name, value):
    calls = library(monkeypatch, 1 << 40)
    monkeypatch.setenv(name, value)
    assert not allocator.keep_large_buffers()
    assert not calls
    assert allocator.setting() == ("1000" if name == "MALLOC_MMAP_THRESHOLD_" else "default")


@pytest.mark.parametrize("error", [OSError, TypeError])
def test_other_c_libraries_and_systems_are_unchanged(monkeypatch, error):
    def none(_):
        raise error

    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert not allocator.keep_large_buffers()
    monkeypatch.setattr(ctypes, "CDLL", none)
    assert not allocator.keep_large_buffers()


def run(folder, keeps):
    """Return the output of the function above in a process without settings."""
    code, out, err = Child(folder, faults, keeps).ended()
    assert (code, err) == (0, "")
    took, setting, number = out.split()
    return took, setting, int(number)


@pytest.mark.skipif(allocator._mallopt() is None, reason="this C library is not glibc")
def test_buffers_are_retained_after_the_call_but_not_by_import(tmp_path):
    took, setting, kept = run(tmp_path, True)
    assert (took, setting) == ("True", str(1 << 30))
    _, setting, given_back = run(tmp_path, False)
    assert setting == "default"
    assert kept < 80 < given_back  # even huge pages would be 32 for each block
