"""Experiments: folders, checkpoints, signals, validation."""

import errno
import json
import os
import signal
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import turnout as to
from turnout import (
    ALGORITHMS,
    AfterRound,
    CheckpointError,
    ConfigurationError,
    Experiment,
    Interrupted,
    Population,
    Sgd,
    fedau,
    fedavg,
    models,
)
from turnout.pieces.selection import AllAvailable, Uniform
from turnout.population.availability import Bernoulli, Markov
from turnout.record import checkpoint
from turnout.record.query import History
from turnout.simulation import Simulation

from .tiny import LOW_RANK, adapted, recipe


def small(data, **options):
    options = {"population": Population(Bernoulli(mean=0.5)), "rounds": 6, "evaluate_every": 3, **options}
    return Experiment(data, models.Logistic(), fedau(cutoff=3), **options)


def params_in(folder):
    return checkpoint.load(folder)[0]["model/params"]


SLOW = (
    *("ace", "average_all", "diloco", "fedalt", "fedau", "fedbabu", "fedlaavg", "fedrep", "folb_two_set", "mifa"),
    "scaffold",
)
ROUNDS = {"area": 48, "fedawe": 40, "focus": 40, "fedfa": 30, **dict.fromkeys(LOW_RANK, 36), **dict.fromkeys(SLOW, 20)}
"""Rounds of algorithms whose steps are small; twelve are enough for the others."""


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_learns_with_defaults(tiny, name):
    population = Population(Markov(mean=0.4))
    model = adapted(classes=4) if name in LOW_RANK else models.Mlp(hidden=(16,), batch_norm=name == "fedbn")
    history = Experiment(tiny, model, recipe(name), population, rounds=ROUNDS.get(name, 12)).run().history
    first, last = history.column("train_loss")[1][[0, -1]]
    assert last < first
    # Of 4 classes; test examples that are nobody's cannot judge what is personal.
    assert history.final("train_accuracy" if recipe(name).personal else "test_accuracy") > 0.4
    assert len(history.clients) == 8


def test_default_is_federated_averaging_with_full_participation(tiny):
    experiment = Experiment(tiny, models.Logistic())
    assert experiment.algorithm == fedavg()
    assert experiment.everyone_available_takes_part
    assert not replace(experiment, algorithm=fedavg(also=(Uniform(3),))).everyone_available_takes_part
    assert replace(experiment, algorithm=fedavg(also=(AllAvailable(),))).everyone_available_takes_part


def test_module_is_the_initial_model_and_unchanged(tiny):
    module = nn.Linear(16, 4)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    experiment = replace(small(tiny), model=module)
    start = Simulation(experiment).state.params
    assert torch.equal(start, torch.cat([module.weight.detach().reshape(-1), module.bias.detach()]))
    experiment.run()
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_folder_has_all_files_of_a_run(tiny, tmp_path):
    experiment = small(tiny)
    history = experiment.run(tmp_path / "a" / "run").history
    names = {path.name for path in (tmp_path / "a" / "run").iterdir()}
    assert names == {
        "checkpoint.safetensors", "config.json", "environment.json", "SHA256SUMS",
        "rounds.parquet", "clients.parquet", "participation.parquet", "predictions.parquet",
    }  # fmt: skip
    config = json.loads((tmp_path / "a" / "run" / "config.json").read_text())
    assert config["algorithm"]["weighting.0"]["cutoff"] == 3
    assert json.loads((tmp_path / "a" / "run" / "environment.json").read_text())["torch"] == torch.__version__
    loaded = History.load(tmp_path / "a" / "run")
    assert loaded.rounds.equals(history.rounds)
    assert torch.equal(params_in(tmp_path / "a" / "run"), run_without_folder(experiment))


def run_without_folder(experiment):
    return torch.cat([value.flatten() for value in experiment.run().state_dict().values()])


def test_folder_in_use_is_not_overwritten(tiny, tmp_path):
    small(tiny).run(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(
        CheckpointError, match=r"already holds a run: write resume=True \(--resume .*\) to go on, or another"
    ):
        small(tiny, seed=1).run(tmp_path)
    with pytest.raises(CheckpointError, match=r"is of another experiment .*: seed: 0 and 1"):
        small(tiny, seed=1).run(tmp_path, resume=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_run_whose_trace_has_changed_is_not_resumed(tiny, tmp_path):
    trace, folder = tmp_path / "trace.csv", tmp_path / "run"
    trace.write_text("client,from,to\n" + "".join(f"{client},0,9\n" for client in range(8)))
    present = to.Population(to.availability.Trace(str(trace)))
    small(tiny, population=present, rounds=2).run(folder)
    longer = small(tiny, population=present, rounds=3)
    trace.write_text(trace.read_text("utf-8") + "\n")
    with pytest.raises(
        CheckpointError, match=r"another experiment .*population\.availability\.content\.table: 'crc32 "
    ):
        longer.run(folder, resume=True)
    trace.write_text(trace.read_text("utf-8")[:-1])
    assert longer.run(folder, resume=True).rounds.num_rows == 3


def test_resume_without_checkpoint_starts_anew(tiny, tmp_path):
    small(tiny).run(tmp_path / "one", resume=True)
    small(tiny).run(tmp_path / "two")
    assert torch.equal(params_in(tmp_path / "one"), params_in(tmp_path / "two"))


def test_damaged_checkpoint_is_named_and_kept(tiny, tmp_path):
    small(tiny).run(tmp_path)
    path = tmp_path / checkpoint.FILE
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(
        CheckpointError, match=r"checkpoint.safetensors is damaged \(its digest is not the one in SHA256SUMS\)"
    ):
        small(tiny).run(tmp_path, resume=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_the_round_saves_and_explains_how_to_resume(tiny, tmp_path, number):
    def stop(row):
        if row["round"] == 3:
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    with pytest.raises(
        Interrupted, match=r"stopped after round 3 of 6, all saved. Go on with: turnout run --resume .*cut"
    ):
        small(tiny).run(tmp_path / "cut", callbacks=[AfterRound(stop)])
    assert signal.getsignal(number) is before
    small(tiny).run(tmp_path / "cut", resume=True)
    small(tiny).run(tmp_path / "whole")
    assert torch.equal(params_in(tmp_path / "cut"), params_in(tmp_path / "whole"))
    assert History.load(tmp_path / "cut").summary().keys() == History.load(tmp_path / "whole").summary().keys()


def test_signal_without_a_folder_reports_that_nothing_is_saved(tiny):
    with pytest.raises(Interrupted, match="stopped after round 1 of 6; without a folder nothing was saved"):
        small(tiny).run(callbacks=[AfterRound(lambda _: os.kill(os.getpid(), signal.SIGINT))])


def test_second_signal_stops_immediately(tiny):
    def twice(_):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        small(tiny).run(callbacks=[AfterRound(twice)])


def test_sighup_from_shell_and_system_is_handled(tiny, tmp_path):
    def twice(_):
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)

    with pytest.raises(Interrupted, match="stopped after round 1 of 6, all saved"):
        small(tiny).run(tmp_path, callbacks=[AfterRound(twice)])
    assert checkpoint.load(tmp_path)[1]["version"] == 1


def test_run_under_nohup_survives_a_closed_terminal(tiny):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        result = small(tiny).run(callbacks=[AfterRound(lambda _: os.kill(os.getpid(), signal.SIGHUP))])
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert result.rounds.num_rows == 6


def test_run_in_another_thread(tiny):
    found = []
    thread = threading.Thread(target=lambda: found.append(small(tiny).run()))
    thread.start()
    thread.join()
    assert found[0].rounds.num_rows == 6


def test_full_disk_during_a_run_keeps_the_last_checkpoint(tiny, tmp_path, monkeypatch):
    """Writes fail from round 5 on; the run of 6 rounds resumes from round 4."""

    def full(_, path, **__):
        path.write_bytes(b"half a file")
        raise OSError(errno.ENOSPC, "No space left on device")

    def fill(row):
        if row["round"] == 5:
            patch.setattr("safetensors.torch.save_file", full)

    with monkeypatch.context() as patch, pytest.raises(CheckpointError, match="previous files are unchanged"):
        small(tiny).run(tmp_path / "run", checkpoint_every=2, callbacks=[AfterRound(fill)])
    assert checkpoint.load(tmp_path / "run")[1]["version"] == 4
    small(tiny).run(tmp_path / "run", resume=True)
    small(tiny).run(tmp_path / "whole")
    assert torch.equal(params_in(tmp_path / "run"), params_in(tmp_path / "whole"))
    assert len(History.load(tmp_path / "run")) == 6


def test_full_disk_at_the_start_keeps_the_old_configuration(tiny, tmp_path, monkeypatch):
    small(tiny).run(tmp_path)
    config = (tmp_path / "config.json").read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"cannot write .*config.json.*No space left on device"):
        small(tiny, rounds=8).run(tmp_path, resume=True)
    assert (tmp_path / "config.json").read_bytes() == config


def test_progress_is_called_every_round(tiny):
    seen = []
    small(tiny).run(callbacks=[AfterRound(lambda row: seen.append(row["round"]))])
    assert seen == [1, 2, 3, 4, 5, 6]


def test_checkpoints_follow_their_intervals(tiny, tmp_path):
    saved = []

    def look(row):
        there = (tmp_path / checkpoint.FILE).exists()
        saved.append(checkpoint.load(tmp_path)[1]["version"] if there else 0)
        assert row["round"] == len(saved)

    small(tiny).run(tmp_path, checkpoint_every=2, callbacks=[AfterRound(look)])
    assert saved == [0, 0, 2, 2, 4, 4]
    assert checkpoint.load(tmp_path)[1]["version"] == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"data": np.zeros((3, 2))},
            r"(?s)data must be a FederatedData, got .*write to.data.from_dataset\(dataset\).split",
        ),
        ({"data": ([[1.0]], [0], ["a"])}, r"write to.data.from_arrays\(x, y, client_ids=clients\).split\(\)"),
        ({"data": ([[1.0]], [0])}, r"write to.data.from_arrays\(x, y\).split\(to.partition.Iid\(\), num_clients=10\)"),
        ({"algorithm": fedau}, "algorithm must be an Algorithm, got <function fedau"),
        ({"algorithm": "fedau"}, "algorithm must be an Algorithm, got 'fedau'"),
        ({"population": Markov()}, r"population must be a Population, got Markov\("),
        ({"model": models.Mlp}, "model must be a ModelSpec or a torch.nn.Module, got <class .*Mlp"),
        ({"model": None}, "model must be a ModelSpec"),
        ({"loss": "cross_entropy"}, r"loss must be a function of \(outputs, targets\), got 'cross_entropy'"),
        ({"rounds": 0}, "rounds: got 0, needed a whole number >= 1"),
        ({"rounds": 1.5}, "rounds: got 1.5"),
        ({"seed": -1}, "seed: got -1, needed a whole number >= 0"),
        ({"evaluate_every": 0}, "evaluate_every: got 0"),
        ({"evaluation_examples": 0}, "evaluation_examples: got 0"),
        ({"memory_budget": 100}, "memory_budget: got 100, needed a whole number >= 1048576. It is in bytes"),
        ({"engine": "fast"}, r"unknown value of engine 'fast'"),
        ({"device": "gpu"}, "device 'gpu' cannot be used here"),
        ({"device": "cuda:99"}, "device 'cuda:99' cannot be used here"),
        (
            {"device": "meta"},
            r"device 'meta' cannot be used here: Tensor.item\(\) cannot be called on meta tensors. Write device=",
        ),
        (
            {"label_groups": ((0, 4),)},
            r"label_groups: got \(\(0, 4\),\), needed groups of one label or more, each from 0 to 3",
        ),
        ({"label_groups": ((-1,),)}, "label_groups: got .* each from 0 to 3"),
        ({"label_groups": ((0,), ())}, "label_groups: got .* of one label or more"),
        ({"label_groups": (0, 1)}, r"label_groups: got .*Write label_groups=\(\(0, 1\),\)"),
        ({"rounds": 10**20}, "rounds: got 1000.*, needed a whole number of at most 9223372036854775807"),
    ],
)
def test_fields_are_validated_immediately(tiny, options, message):
    with pytest.raises(ConfigurationError, match=message):
        Experiment(**{"data": tiny, "model": models.Logistic(), **options})


@pytest.mark.parametrize("every", [0, -1, 1.5])
def test_checkpoint_intervals_are_validated(tiny, every):
    with pytest.raises(ConfigurationError, match=r"checkpoint_every: got .*, needed a whole number >= 1. Write None"):
        small(tiny).run(checkpoint_every=every)


@pytest.mark.parametrize("before", [False, True])
def test_refusal_in_the_first_round_leaves_the_folder_unchanged(tiny, tmp_path, monkeypatch, before):
    def refuse(_):
        raise ConfigurationError("this cannot run")

    if before:
        (tmp_path / "run").mkdir()
    monkeypatch.setattr(Simulation, "steps", refuse)
    with pytest.raises(ConfigurationError, match="this cannot run"):
        small(tiny).run(tmp_path / "run")
    assert (tmp_path / "run").exists() == before


def test_incompatible_algorithm_is_refused_before_writing(tiny, tmp_path):
    experiment = replace(small(tiny), algorithm=fedau(Sgd(), also=(Uniform(9),)))
    with pytest.raises(ConfigurationError, match="cohort_size: got 9"):
        experiment.run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "fedau"}, r"algorithm must be an Algorithm, got 'fedau': write to\.fedau\(\)$"),
        ({"algorithm": to.mifa}, r"algorithm must be an Algorithm, got <function mifa.*>: write to\.mifa\(\)$"),
        ({"algorithm": "best"}, r"got 'best': write a recipe such as to\.fedavg\(\) or to\.fedau\(\)$"),
        ({"population": Markov()}, r"must be a Population, got Markov.*: write Population\(availability=Markov\(\)\)$"),
        ({"population": Bernoulli}, r"got <class .*: write Population\(availability=Bernoulli\(\)\)$"),
        ({"population": "phones"}, r"got 'phones': write Population\(availability=Markov\(\)\)$"),
        ({"metrics": ("accuracy",)}, r"records accuracy .* as in test_accuracy: leave it out, or .*auc, f1,"),
        ({"metrics": ("precision",)}, r"unknown metric .*known: auc.*; loss, accuracy, rmse are recorded always"),
    ],
)  # fmt: skip
def test_messages_on_wrong_kinds_say_what_to_write(tiny, options, message):
    with pytest.raises(ConfigurationError, match=message):
        replace(Experiment(tiny, to.models.Logistic(), to.fedavg()), **options)
