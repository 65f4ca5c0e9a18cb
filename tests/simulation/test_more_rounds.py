"""A run that is continued with more rounds has the tables of one that was never interrupted, evaluations included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import turnout as to
from turnout.core.checks import CheckpointError
from turnout.record import checkpoint


def experiment(rounds: int, evaluate_every: int = 5) -> to.Experiment:
    data = to.data.digits().split(to.partition.Iid(), num_clients=5, validation_fraction=0.1)
    algorithm = to.fedavg(to.Sgd(lr=0.1, steps=2))
    return to.Experiment(data, to.models.Logistic(), algorithm, rounds=rounds, evaluate_every=evaluate_every, seed=1)


def rows(result: to.Result) -> list[dict[str, Any]]:
    table = result.rounds
    return table.drop_columns(["seconds"]).to_pylist()


@pytest.mark.parametrize("stops", [(7,), (3, 7, 10), (1,), (5,)])
def test_last_evaluation_of_a_shorter_run_is_dropped(stops: tuple[int, ...], tmp_path: Path):
    for rounds in stops:
        result = experiment(rounds).run(tmp_path, resume=rounds > stops[0])
        assert rows(result)[-1]["test_accuracy"] is not None
    assert rows(to.load(tmp_path))[-1]["test_accuracy"] is not None
    expected = rows(experiment(12).run())
    assert rows(experiment(12).run(tmp_path, resume=True)) == rows(to.load(tmp_path)) == expected


def test_end_of_a_finished_run_keeps_its_evaluation(tmp_path: Path):
    before = rows(experiment(7).run(tmp_path))
    assert rows(experiment(7).run(tmp_path, resume=True)) == before


def test_early_stopping_does_not_count_the_evaluation_at_the_end_of_a_shorter_run(tmp_path: Path):
    def callbacks() -> list[to.EarlyStopping]:
        return [to.EarlyStopping(patience=2, least=0.9, metric="validation_accuracy")]

    whole = experiment(40).run(callbacks=callbacks())
    experiment(7).run(tmp_path, callbacks=callbacks())
    assert (
        experiment(40).run(tmp_path, resume=True, callbacks=callbacks()).rounds.num_rows == whole.rounds.num_rows == 15
    )


def test_damaged_names_of_columns_are_refused(tmp_path: Path):
    experiment(7).run(tmp_path)
    tensors, facts = checkpoint.load(tmp_path)
    checkpoint.save(tmp_path, tensors, facts | {"unplanned": 3})
    with pytest.raises(CheckpointError, match="unplanned"):
        experiment(12).run(tmp_path, resume=True)
