"""Keeping large buffers in the process."""

import ctypes
import sys

import pytest

from turnout import allocator


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="malloc is set on Linux only")
def test_glibc_takes_both_settings(monkeypatch):
    calls = []

    class Library:
        @staticmethod
        def mallopt(name: int, value: int) -> int:
            calls.append((name, value))
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library)
    assert allocator.keep_large_buffers()
    assert calls == [(-3, 1 << 30), (-1, 1 << 30)]


def test_another_c_library_or_system_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert not allocator.keep_large_buffers()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not allocator.keep_large_buffers()
