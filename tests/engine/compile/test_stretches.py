"""Stretches of steps that are recorded together, with a stand-in for the GPU that repeats on the memory of its recording."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout import Experiment, Sgd, fedavg, models
from turnout.core.schedule import ByStep, InverseRoot
from turnout.engine.compile import compiled, cuda_graph
from turnout.engine.compile.backends import BACKENDS
from turnout.engine.compile.room import Room
from turnout.engine.compile.stretches import Stretches
from turnout.simulation import Simulation

from ...logs import logged
from ...tiny import classification
from .test_cuda_graph import LARGE, X, arguments_of, places_of, stand_in, step


def repeated(record=stand_in, **options):
    return Stretches(step, (0,), record=record, **options)


def assert_as_plain(of, seed, rows=5, x=X, constant=False):
    """Check that a stretch changes fresh arguments like the function, step by step."""
    (own, scale), (chosen, weight) = arguments_of(seed, rows=rows)
    weight = weight[:1].expand(rows, -1, -1) if constant else weight
    expected, before = own.clone(), [a.clone() for a in (scale, x, chosen, weight)]
    for i in range(rows):
        step(expected, scale, x, chosen[i], weight[i])
    of([own, scale, x], [chosen, weight])
    assert torch.equal(own, expected)
    for a, b in zip((scale, x, chosen, weight), before, strict=True):
        assert torch.equal(a, b)


@settings(deadline=None, max_examples=15)
@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=8, max_size=25))
def test_stretches_of_any_length_equal_the_steps(lengths):
    of = repeated()
    for seed, (rows, constant) in enumerate(lengths):
        assert_as_plain(of, seed, rows, constant=constant)
    assert of.step.refused is None
    assert all(whole.refused is None for whole in of.whole.values())


def counted(starts):
    """A stand-in that counts the starts of recordings."""

    def record(run, device):
        again, value = stand_in(run, device)

        def start():
            starts.append(1)
            again()

        return start, value

    return record


def test_all_steps_of_a_stretch_start_once():
    starts = []
    of = repeated(counted(starts))
    for seed in range(12):
        starts.clear()
        assert_as_plain(of, seed, rows=5)
    assert len(starts) == 1
    assert list(of.whole) == [5]
    assert of.whole[5].is_trusted


def test_rare_numbers_of_steps_start_one_by_one():
    starts = []
    of = repeated(counted(starts))
    for seed in range(12):
        assert_as_plain(of, seed, rows=5)
    starts.clear()
    assert_as_plain(of, 20, rows=3)
    assert len(starts) == 3
    for rows in (1, 2, 3, 4):
        for seed in range(8):
            assert_as_plain(of, seed, rows=rows)
    assert list(of.whole) == [5, 2]  # at most two numbers, and a single step has its recording already
    starts.clear()
    assert_as_plain(of, 21, rows=4)
    assert len(starts) == 4


def test_data_are_read_in_place():
    of = repeated()
    for seed in range(8):
        assert_as_plain(of, seed, x=LARGE)
    assert places_of(of.whole[5])[2] is places_of(of.step)[2] is LARGE


def test_stretches_that_cannot_be_recorded_are_replayed_step_by_step():
    def record(run, device):
        if len(recordings) == 1:
            raise RuntimeError("too many operations")
        recordings.append(1)
        return stand_in(run, device)

    recordings = []
    of = repeated(record)
    with logged("one step at a time: recording failed: too many operations"):
        for seed in range(8):
            assert_as_plain(of, seed)
    assert of.whole[5].refused == "recording failed: too many operations"
    assert of.step.is_trusted


def test_stretches_whose_replay_differs_are_replayed_step_by_step():
    def record(run, device):
        again, value = stand_in(run, device)
        recordings.append(1)
        return (again if len(recordings) == 1 else lambda: None), value

    recordings = []
    of = repeated(record)
    with logged("one step at a time: a replay gave other numbers"):
        for seed in range(8):
            assert_as_plain(of, seed)
    assert of.step.is_trusted


def test_stretches_wait_for_room():
    needed = 2 * 4 * 3 * 8 + 50 * 3 * 8 + 6 * 8 + 4 * 8
    of = repeated(room=Room(needed))
    with logged("one step at a time, for now: copies of its arguments take"):
        for seed in range(8):
            assert_as_plain(of, seed)
    assert of.step.is_trusted
    assert not of.whole[5].is_trusted


def test_steps_that_cannot_be_recorded_are_not_recorded_together():
    def record(*_):
        raise RuntimeError("operation not permitted")

    of = repeated(record)
    with logged("one operation at a time"):
        for seed in range(8):
            assert_as_plain(of, seed)
    assert not of.whole


@pytest.mark.parametrize("lr", [0.2, ByStep(InverseRoot(0.2))])
def test_rounds_have_equal_results(lr, monkeypatch):
    monkeypatch.setattr(compiled, "_CALLS", 0)
    local = Sgd(lr=lr, steps=4, batch_size=8, momentum=0.5)
    run = Experiment(classification(), models.Mlp(hidden=(8,)), fedavg(local), rounds=12, engine="vectorized")

    def trained():
        simulation = Simulation(run)
        for _ in range(run.rounds):
            simulation.round()
        return simulation

    expected = trained()
    monkeypatch.setitem(BACKENDS, "cuda_graph", replace(BACKENDS["cuda_graph"], devices=frozenset({"cpu"})))
    monkeypatch.setattr(cuda_graph, "on_gpu", stand_in)
    monkeypatch.setattr(compiled, "_shared", {})
    found = trained()
    assert torch.equal(found.state.params, expected.state.params)
    (of,) = (of for one in found.objective._compiled.values() for of in one._traced.values())
    assert isinstance(of, Stretches)
    assert of.whole[4].is_trusted
