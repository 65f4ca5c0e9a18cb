"""A client's state that was copied to a second machine is noticed at the server."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.laws.recipes import DATA
from tests.logs import logged

import turnout as to
from turnout_serve.client.state import Pending
from turnout_serve.client.state_folder import StateFolder
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import encode

from .world import LOCAL, Home, World

RUN = to.Experiment(DATA, to.models.Logistic(), to.scaffold(LOCAL), rounds=6)
MESSAGE = "the state of a client is not that after its last report: its folder was copied to two machines"


@pytest.fixture
def deployed(world: Callable[..., World], folder: Path) -> World:
    """A federation after two rounds of visits."""
    made = world(RUN, folder=folder / "server", homes=folder / "homes")
    for _ in range(2):
        made.round()
    return made


def silent(deployed: World) -> None:
    with pytest.raises(AssertionError, match="nothing was logged"), logged(MESSAGE):
        deployed.round()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_copy_that_lacks_a_report_is_logged(deployed: World, folder: Path, restarts: bool) -> None:
    shutil.copytree(folder / "homes/0", folder / "copy", ignore=shutil.ignore_patterns("*.lock", "LOCK*"))
    silent(deployed)
    if restarts:
        deployed.restart()
    deployed.homes[0].state.close()
    deployed.homes[0] = Home(deployed.computer, 0, folder / "copy")
    with logged(MESSAGE) as found:
        for _ in range(2):
            deployed.round()
    assert len(found) == 1
    silent(deployed)


def test_clients_and_servers_that_restart_are_not_logged(deployed: World) -> None:
    deployed.restart()
    deployed.homes = [home.reborn() for home in deployed.homes]
    silent(deployed)


def test_state_of_an_earlier_version_is_read(folder: Path) -> None:
    """It has no number of the last task beside the memory."""
    report = Pending(Assignment(7, 0, "train", 0, "0" * 64, 10, 1.0), b"report", {"w": torch.ones(3)})
    state = StateFolder(folder / "state")
    state.hold(report)
    state.settle(report)
    state.close()
    again = StateFolder(folder / "state")
    assert (again.last, list(again.memory or ())) == (7, ["w"])
    again.hold(report)
    for path in folder.glob("state/**/memory.safetensors"):
        path.write_bytes(encode({"w": torch.ones(3)}))
    again.close()
    earlier = StateFolder(folder / "state")
    assert earlier.last is None
    assert earlier.pending is not None
    assert list(earlier.pending.memory) == ["w"]
