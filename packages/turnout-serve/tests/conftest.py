"""What tests of deployments share: folders on a disk that is memory, where there is one."""

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from .world import World


@contextmanager
def scratch():
    """A folder that costs nothing to write to."""
    shared = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="turnout-test-", dir=shared if shared.is_dir() else None))
    yield path
    shutil.rmtree(path, ignore_errors=True)  # a test may have removed it


@pytest.fixture
def folder():
    """A folder that costs nothing to write to."""
    with scratch() as path:
        yield path


@pytest.fixture
def world(folder):
    """Makes federations, and closes them behind the test."""
    made = []

    def make(experiment, **options):
        made.append(World(experiment, options.pop("folder", folder), **options))
        return made[-1]

    yield make
    for each in made:
        each.close()
