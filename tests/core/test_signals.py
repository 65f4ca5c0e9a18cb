"""Signals that end a process."""

import os
import signal
import sys
import threading

import pytest

from turnout.core import signals
from turnout.simulation.running import stops_on_signal


def test_handlers_receive_the_signal_and_are_removed_on_exit():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before, calls = [signal.getsignal(number) for number in numbers], []
    with signals.handled(calls.append):
        for number in numbers:
            signal.raise_signal(number)
    assert calls == list(numbers)
    assert [signal.getsignal(number) for number in numbers] == before


def test_ignored_signals_and_other_threads_are_unaffected():
    with signals.handled(print, signal.SIGINT):
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt), signals.handled(print, signal.SIGINT):
        signal.raise_signal(signal.SIGINT)
    before, seen = signal.getsignal(signal.SIGTERM), []

    def look():
        with signals.handled(print):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.parametrize("kind", ["device", "file"])
def test_output_to_a_closed_terminal_is_discarded_and_files_are_kept(kind, tmp_path):
    """/dev/full, where every write fails, replaces a closed terminal."""
    path = "/dev/full" if kind == "device" else str(tmp_path / "log")
    kept, opened = os.dup(2), os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        os.dup2(opened, 2)
        with signals.handled(lambda _: None):
            signal.raise_signal(signal.SIGHUP)
        os.write(2, b"line")
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(opened)
    assert kind == "device" or (tmp_path / "log").read_text() == "line"


def test_flag_can_be_set_at_any_point_of_a_signal_handler(monkeypatch):
    """A signal before each line of `wait` and `set`, also nested: `threading.Event` deadlocks."""
    monkeypatch.setattr(signals, "_leave_terminal", lambda: None)
    interrupted = []

    def interrupt(frame, event, _):
        if event == "line" and frame.f_code.co_name in ("wait", "set"):
            interrupted.append(frame.f_lineno)
            signal.raise_signal(signal.SIGHUP)
        return interrupt

    before = sys.gettrace()
    with stops_on_signal() as stopped:
        try:
            sys.settrace(interrupt)
            stopped.wait(0.0)
            stopped.set()
        finally:
            sys.settrace(before)
        assert stopped.wait()
    assert len(set(interrupted)) >= 4


def test_flag_wakes_all_waiting_threads():
    flag = signals.Flag()
    assert not flag.wait(0.0)
    found = []
    waiting = [threading.Thread(target=lambda: found.append(flag.wait())) for _ in range(3)]
    for thread in waiting:
        thread.start()
    flag.set()
    for thread in waiting:
        thread.join(10)
    assert found == [True] * 3
    assert flag.wait(0.0)
