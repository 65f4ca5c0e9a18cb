"""Journals of earlier versions are replayed to the same bits, and a server goes on from them."""

import shutil
from pathlib import Path

import pytest

from turnout_serve.cli.deployed import settings_in
from turnout_serve.server.journal.recovery import opened
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.run.served_experiment import ServedExperiment

JOURNALS = Path(__file__).parent / "journals"
MODELS = {
    "deadline": "4ba33630aa0e8e9edd2585c16679a80ffb7ece775f0da6d27cdeb04492dea454",
    "buffered": "7676265264257e6799859d1f1f2cccc6c5ba4e0b5e38fc76917fd0dc94dbf408",
}
"""Digest of the last model of each run, as its server published it."""


@pytest.fixture(params=MODELS)
def old(request, tmp_path):
    """A copy of the folder of a run that an earlier version has served."""
    return shutil.copytree(JOURNALS / request.param, tmp_path / request.param)


def test_old_journal_is_replayed_to_the_same_bits(old):
    experiment, _ = settings_in(old, ())
    again = replay(ServedExperiment.of(experiment).setting, old)
    assert again.same is True
    assert again.driver.publication.digest == MODELS[old.name]


@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_server_goes_on_from_an_old_journal(old, with_checkpoint):
    if not with_checkpoint:
        for path in old.glob("checkpoint*"):
            path.unlink()
    experiment, _ = settings_in(old, ())
    setting = ServedExperiment.of(experiment).setting
    with opened(old, setting) as (driver, last):
        assert (driver.version, driver.over, driver.applied) == (5, "the run is over", last.number)
        assert driver.publication.digest == MODELS[old.name]
