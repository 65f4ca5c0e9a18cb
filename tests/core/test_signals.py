"""Signals that ask a process to end."""

import os
import signal
import threading

import pytest

from turnout.core import signals


def test_handlers_get_the_number_and_end_with_their_context():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before, calls = [signal.getsignal(number) for number in numbers], []
    with signals.handled(calls.append):
        for number in numbers:
            signal.raise_signal(number)
    assert calls == list(numbers)
    assert [signal.getsignal(number) for number in numbers] == before


def test_some_signals_and_other_threads_are_left_alone():
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
def test_output_to_a_closed_terminal_goes_nowhere_and_a_file_stays(kind, tmp_path):
    """/dev/full, where every write fails, stands for a terminal that is closed."""
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
