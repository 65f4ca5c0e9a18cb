"""Saved, loaded and continued is uninterrupted, bit for bit."""

import json
from dataclasses import replace

import pytest

from turnout import AfterRound, Sgd
from turnout.comparison.folders import is_finished
from turnout.core.checks import CheckpointError
from turnout.record import checkpoint
from turnout.record.checkpoint import FILE
from turnout.record.query import History
from turnout.record.storage import DIGESTS
from turnout.simulation import Simulation, running

from .recipes import assert_same_bits, baseline, experiment, standard

LOCAL = Sgd(lr=0.3, steps=3, batch_size=16, momentum=0.5)
RESUMED = ("fedau", "folb_two_set", "scaffold_p", "mifa with a personal head, clipped", "fedadam")
"""Recipes with each kind of state; that of every recipe is saved and restored in test_saving."""


class PowerCutError(Exception):
    """Stands for the end of the process."""


def run_until(round, run, folder, resume):
    """Start or continue a run that saves after every third round, and cut the power during `round`."""

    def cut(row):
        if row["round"] == round:
            raise PowerCutError

    with pytest.raises(PowerCutError):
        run.run(folder, resume=resume, checkpoint_every=3, callbacks=[AfterRound(cut)])


def final_state(run, folder):
    """What the folder holds, as a simulation that would go on from it."""
    simulation = Simulation(run)
    running.restore(simulation, folder)
    simulation.finish()
    return simulation


@pytest.mark.parametrize("name", RESUMED)
def test_resumed_run_equals_an_uninterrupted_one(name, tmp_path):
    run, rounds = standard(name), standard(name).rounds
    run_until(1, run, tmp_path, resume=False)  # before anything was saved
    run_until(4, run, tmp_path, resume=True)
    run.run(tmp_path, resume=True)  # goes on from round 3
    cut = final_state(run, tmp_path)
    assert cut.state.version == rounds == 4
    assert_same_bits(cut, baseline(name))
    assert History.load(tmp_path).summary()["rounds"] == rounds


def test_rows_after_the_checkpoint_are_removed_on_resuming(tmp_path):
    """Tables are saved before the checkpoint, so an interruption in between leaves them ahead."""
    run = experiment("fedau", local=LOCAL, rounds=9)
    run.run(tmp_path / "whole")
    run_until(5, run, tmp_path / "cut", resume=False)
    of_round_3 = (tmp_path / "cut" / FILE).read_bytes()
    run_until(8, run, tmp_path / "cut", resume=True)
    (tmp_path / "cut" / FILE).write_bytes(of_round_3)
    (tmp_path / "cut" / DIGESTS).unlink()
    assert History.load(tmp_path / "cut").last_round == 6
    run.run(tmp_path / "cut", resume=True)
    assert_same_bits(final_state(run, tmp_path / "cut"), final_state(run, tmp_path / "whole"))


def test_run_continued_with_more_rounds_equals_a_run_of_as_many(tmp_path):
    """A run of 5 rounds that is prolonged to 9 equals one of 9; evaluated once more, at its first end."""
    experiment("fedau", local=LOCAL, rounds=5).run(tmp_path / "short")
    longer = experiment("fedau", local=LOCAL, rounds=9)
    longer.run(tmp_path / "short", resume=True)
    longer.run(tmp_path / "long")
    assert_same_bits(final_state(longer, tmp_path / "short"), final_state(longer, tmp_path / "long"))


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    run = experiment("mifa", local=LOCAL, rounds=3)
    run.run(tmp_path)
    before = final_state(run, tmp_path)
    history = run.run(tmp_path, resume=True).history
    assert_same_bits(final_state(run, tmp_path), before)
    assert history.rounds.equals(before.history.rounds)


def forget(folder, *places):
    """Make of a run one of a version that did not have these fields."""

    def old(config):
        for place in places:
            *parts, name = place.split("/")
            table = config
            for part in parts:
                table = table[part]
            del table[name]
        return config

    tensors, facts = checkpoint.load(folder)
    checkpoint.save(folder, tensors, facts | {"experiment": old(facts["experiment"])})
    config = folder / "config.json"
    config.write_text(json.dumps(old(json.loads(config.read_text()))))
    (folder / DIGESTS).unlink()


def test_run_of_an_earlier_version_is_resumed_if_new_fields_have_their_defaults(tmp_path):
    fields = ("gradients", "engine", "population/dropout", "algorithm/local/momentum")
    run = experiment("fedau", local=replace(LOCAL, momentum=0.0), rounds=5)
    run.run(tmp_path / "old")
    forget(tmp_path / "old", *fields)
    longer = replace(run, rounds=9)
    assert is_finished(tmp_path / "old", run)
    longer.run(tmp_path / "old", resume=True)
    longer.run(tmp_path / "new")
    assert_same_bits(final_state(longer, tmp_path / "old"), final_state(longer, tmp_path / "new"))


def test_run_of_an_earlier_version_is_refused_if_new_fields_do_not_have_their_defaults(tmp_path):
    fields = ("evaluation_examples", "algorithm/local/momentum")
    run = replace(experiment("fedau", local=LOCAL, rounds=5), evaluation_examples=20)
    run.run(tmp_path)
    forget(tmp_path, *fields)
    message = r"another experiment .*: algorithm.local.momentum: 0.0 and 0.5; evaluation_examples: None and 20"
    with pytest.raises(CheckpointError, match=message):
        is_finished(tmp_path, run)
    with pytest.raises(CheckpointError, match=message):
        replace(run, rounds=9).run(tmp_path, resume=True)
