"""What a server keeps and deletes, and what becomes of those who come after it was restored from a copy."""

import shutil

import pytest
import torch

from turnout import Experiment, Population, fedau
from turnout.core.checks import CheckpointError
from turnout.deployment.server.replay import replay
from turnout.models import Mlp
from turnout.population.availability import Everyone
from turnout.protocol.pace import Rounds
from turnout.record import storage
from turnout.simulation import Simulation

from ..laws.recipes import DATA, LOCAL
from .test_hostile import put, waiting

RUN = Experiment(DATA, Mlp(hidden=(4,)), fedau(LOCAL), Population(Everyone()), rounds=5, evaluate_every=5)


@pytest.mark.parametrize("restarts", [False, True])
def test_reports_are_discarded(world, restarts):
    """Two checkpoints hold what became of them; a server goes on without, and says why there is no replay."""
    simulation = Simulation(RUN)
    for _ in range(RUN.rounds):
        simulation.round()
    deployed = world(RUN, discard=True, checkpoint_every=0.0)
    most = 0
    for _ in range(20):
        deployed.round()
        most = max(most, len(list(deployed.host.store.reports.iterdir())))
        if restarts:
            deployed.restart()
    assert all(home.over for home in deployed.homes)
    assert most <= 3 * 8
    assert torch.equal(deployed.host.driver.params, simulation.state.params)
    with pytest.raises(
        CheckpointError, match=r"cannot be read.*told to discard reports, and goes on from its checkpoints"
    ):
        replay(deployed.setting, deployed.folder)


def test_a_report_that_a_checkpoint_needs_is_kept(world):
    """Killed behind a damaged checkpoint, the server goes on from the one before and the reports since."""
    deployed = world(RUN, discard=True, checkpoint_every=0.0)
    for _ in range(3):
        deployed.round()
    before, version = deployed.host.driver.params, deployed.host.driver.version
    assert 0 < version < RUN.rounds
    (deployed.folder / "checkpoint.safetensors").write_bytes(b"damaged")
    deployed.restart()
    assert deployed.host.driver.version == version
    assert torch.equal(deployed.host.driver.params, before)


def test_a_server_whose_folder_is_removed_ends_with_the_reason(world, tmp_path):
    deployed = world(RUN, checkpoint_every=0.0)
    with storage.locked(deployed.folder):
        deployed.round()
        shutil.move(deployed.folder, tmp_path / "elsewhere")
        with pytest.raises(CheckpointError, match="was removed or replaced while the server ran"):
            deployed.host.service.finish()
        assert not deployed.folder.exists()
        shutil.move(tmp_path / "elsewhere", deployed.folder)
    with pytest.raises(CheckpointError, match="was removed or replaced"):  # a copy of it is another folder
        deployed.host.service.finish()


def test_a_server_restored_from_a_copy_takes_no_report_of_what_was_lost(world):
    """A task of the same number and client, but of another model: 410, and the client does what it is asked now."""
    deployed = world(Experiment(**{**vars(RUN), "pace": Rounds(deadline=30.0)}))
    for home in deployed.homes:
        home.step(deployed.host)
    for home in deployed.homes:
        home.train(deployed.host)
        home.step(deployed.host)
    copy = deployed.folder.with_name(deployed.folder.name + "-copy")
    deployed.host.close()
    shutil.copytree(deployed.folder, copy)
    deployed.restart()

    late, others = deployed.homes[0], deployed.homes[1:]
    for home in others:
        home.train(deployed.host)
        home.step(deployed.host)
    pass_deadline(deployed)
    late.train(deployed.host)
    lost = late.state.pending.task
    assert lost.version == 2

    deployed.host.close()
    shutil.rmtree(deployed.folder)
    shutil.move(copy, deployed.folder)
    deployed.restart()
    pass_deadline(deployed)
    given = deployed.host.driver.task_of(0)
    assert (given.task, given.version) == (lost.task, lost.version)
    assert given.model != lost.model
    answer = put(deployed, 0, lost.task, waiting(late), task_fingerprint=lost.fingerprint)
    assert (answer.status, answer.table()["reason"]) == (
        410,
        "this number is another task's by now: the server was restored from a copy",
    )
    late.step(deployed.host)
    assert late.state.pending is None
    late.train(deployed.host)
    assert late.state.pending is not None
    assert late.state.pending.task == given
    late.step(deployed.host)
    assert late.client.done == 2


def pass_deadline(deployed):
    deployed.clock.now += 31.0
    deployed.host.pump()
