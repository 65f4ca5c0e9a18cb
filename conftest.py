"""What all tests share. Modules are imported where they are needed: pytest-xdist's own process runs no test."""

import gc
import os
import signal
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from scripts.long_tests import MISSING, marked

if hasattr(signal, "SIGHUP"):  # ignored under nohup, and tests are about what it does
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # ignored in the background of a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Tests run beside each other, one core each."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _nothing_waits_for_the_disk():
    """Files are flushed only so that they outlast a failure of power, which no test has."""
    with patch.object(os, "fsync", lambda _: None):
        yield


def pytest_collection_modifyitems(config, items):
    """Mark the tests of ``tests/long.txt``, and note names there that are no test any more, for a test of its own."""
    marks = marked()
    for item in items:
        if item.nodeid in marks:
            item.add_marker("long")
    if config.args == config.getini("testpaths") and not config.getoption("lf", False):
        MISSING.update(marks.keys() - {item.nodeid for item in items})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Append the processor seconds of each test, with those of its processes, to the file TURNOUT_TIMES."""
    begin = os.times()
    result = yield
    if path := os.environ.get("TURNOUT_TIMES"):
        seconds = sum(os.times()[:4]) - sum(begin[:4])
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{seconds:.3f} {item.nodeid}\n")
    return result


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item):
    """End the processes that a test has started, forget what it has traced, and see that it left the threads as they were.

    A hook takes a hundredth of the time of a fixture, and there are 10,000 tests.
    """
    if (children := sys.modules.get("tests.children")) is not None:
        children.end_all()
    if (compiled := sys.modules.get("turnout.engine.compile.compiled")) is not None:
        compiled._shared.clear()
    if (torch := sys.modules.get("torch")) is not None and (threads := torch.get_num_threads()) != 1:
        torch.set_num_threads(1)
        if "_one_thread" not in item.funcargs:
            return  # the first test of the process was skipped, before any fixture
        pytest.fail(f"the test leaves {threads} threads to those behind it, whose results would have other bits")


@pytest.fixture
def built_in(tmp_path_factory, monkeypatch):
    """Adds a module to a package of turnout, as if its file lay in the package's folder."""
    import importlib

    def add(package, name, text):
        folder = tmp_path_factory.mktemp("built_in")
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        module = importlib.import_module(package)
        monkeypatch.setattr(module, "__path__", [*module.__path__, str(folder)])
        importlib.invalidate_caches()

    return add


@pytest.fixture
def by_python(monkeypatch):
    """Calls a function, and meanwhile nothing is traced."""

    from turnout.engine.compile import compiled

    def call(function, *arguments):
        with monkeypatch.context() as never:
            never.setattr(compiled, "_MOST", 0)
            return function(*arguments)

    return call


@pytest.fixture
def undrawn(monkeypatch):
    """Leaves the drawings of reports blank, which take longer than all else in them."""
    monkeypatch.setattr("turnout.reporting.page.to_svg", lambda *_: "<svg></svg>")


@pytest.fixture(scope="session")
def tiny():
    """Eight clients of unequal sizes, two of them with less than a minibatch of 16."""
    from tests.tiny import classification

    return classification()


def pytest_collection_finish():
    """Leave what has been imported and collected out of what the collector of garbage goes through again and again."""
    gc.collect()
    gc.freeze()
