"""Journals of earlier versions are replayed to the same bits, and a server goes on from them."""

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from turnout.record import checkpoint
from turnout_serve.cli.deployed import settings_in
from turnout_serve.server.journal.checkpoints import restore
from turnout_serve.server.journal.driver import Driver
from turnout_serve.server.journal.recovery import opened
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.run.served_experiment import ServedExperiment
from turnout_serve.server.store.store import Store

JOURNALS = Path(__file__).parent / "journals"
MODELS = {
    "deadline": "4ba33630aa0e8e9edd2585c16679a80ffb7ece775f0da6d27cdeb04492dea454",
    "buffered": "7676265264257e6799859d1f1f2cccc6c5ba4e0b5e38fc76917fd0dc94dbf408",
    "masked": "efe065823c88aa031d3bc35771df42ee195a4e27ffe515830db9ed90452cb47f",
    "groups": "64fab4ac86eb8c887fa7f2980a2b55c2a9a17d43af02cf4b059d068a433662c2",
    "noised": "eda97a17769e1d7518fd0bad3f4d322feab96302a41f60b4fec6702bcce3d619",
    "private": "16f527b879f4758c3454a2bc858988bd131d9974650cc174b51c036b478d1acf",
    "measured": "6deb1bd136e4849a9d3e80c2f7567a9e80917cd8d2f3045ea3c1c70c51321e4b",
}
"""Digest of the last model of each run, as its server published it."""
EFFECTS = {
    "deadline": "00cb71b70caf5e28bc81aa3bc38c57aab07f175b501f3ca861bed1a5a32a5def",
    "buffered": "57b775bf9cfbee797063986b0547293eb454686526867642ceb2dae0f2beaf5c",
    "masked": "70b84a5d29c1101917c911992e467541c4182992bc8b78f0e1dd1b21f7ca4105",
    "groups": "c152679a31cf2d7ca333b8f28c1d5964d7840f4f24cc1433f6503f0ea1514fe8",
    "noised": "90eef8d5083ba11cbb1194f8d5597eaabeb890283a8e13340fdf69f10e9d8e77",
    "private": "dfde05781f52a23d9417a217ee4d18b475e02ad49f03dd5761438077997ae369",
    "measured": "c5a731aef59d26b5d3be8acafc8ae51f4af72839f0eac047719fd811c18a4087",
}
"""SHA-256 of the effects of all entries of each run, see `effects`, with the version that wrote it."""
SUMS = ("masked", "groups", "noised", "private", "measured")


@pytest.fixture(params=MODELS)
def old(request, tmp_path):
    """The folder of a run that an earlier version has served."""
    return unzipped(request.param, tmp_path)


def unzipped(name, folder):
    with zipfile.ZipFile(JOURNALS / f"{name}.zip") as file:
        file.extractall(folder / name)
    return folder / name


def setting_of(folder):
    return ServedExperiment.of(settings_in(folder, ())[0]).setting


def effects(folder, middle=None):
    """What each entry has for effects: on tasks, timers, the model, and results of evaluations and queries.

    Args:
        folder: folder of the run.
        middle: folder of a checkpoint, behind which entries are applied; None applies all of them.
    """
    store, closed, found = Store(folder, read_only=True), [], []
    driver = Driver(setting_of(folder), store)
    driver.on_survey = closed.append
    if middle is not None:
        restore(driver, *checkpoint.load(middle), folder)
    for entry in store.entries(driver.applied):
        of = driver.apply(entry)
        outcomes = [[each.task, each.client, each.outcome, each.digest] for each in of.outcomes]
        results = [[each.survey.facts(), each.seen.tolist(), figures(each.opened)] for each in closed]
        model, tasks = (
            driver.publication.digest,
            [driver.task_of(client) for client in range(driver.roster.num_clients)],
        )
        orders = [task and task.json() for task in tasks]
        found.append([of.assigned, of.surveyed, outcomes, of.timers, repr(of.error), results, model, orders])
        closed.clear()
    store.close()
    return [json.dumps(each, sort_keys=True) for each in found]


def figures(opened):
    if opened is None:
        return None
    return [opened.why, None if opened.total is None else {name: sums.tolist() for name, sums in opened.total.items()}]


def test_old_journal_is_replayed_to_the_same_bits(old):
    again = replay(setting_of(old), old)
    assert again.same is True
    assert again.driver.publication.digest == MODELS[old.name]


def test_each_entry_has_the_same_effects(old):
    text = "".join(effects(old))
    assert hashlib.sha256(text.encode()).hexdigest() == EFFECTS[old.name]


@pytest.mark.parametrize("name", SUMS)
def test_each_checkpoint_amid_sums_leads_to_the_same_effects(name, tmp_path):
    old = unzipped(name, tmp_path)
    all_of_them = effects(old)
    for middle in (old / "middle").iterdir():
        rest = effects(old, middle)
        assert 0 < len(rest) < len(all_of_them)
        assert rest == all_of_them[-len(rest) :]


@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_server_goes_on_from_an_old_journal(old, with_checkpoint):
    if not with_checkpoint:
        for path in old.glob("checkpoint*"):
            path.unlink()
    setting = setting_of(old)
    with opened(old, setting) as (driver, last):
        assert last is not None
        assert (driver.version, driver.over, driver.applied) == (setting.rounds, "the run is over", last.number)
        assert driver.publication.digest == MODELS[old.name]
