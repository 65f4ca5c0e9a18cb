"""CUDA graphs, with a stand-in for the GPU that calls the function again on the memory of its recording."""

import gc
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._pytree import tree_leaves

from turnout import Experiment, Sgd, fedavg, models, scaffold
from turnout.engine.compile import compiled as replay
from turnout.engine.compile import cuda_graph, room
from turnout.engine.compile.backends import BACKENDS, SETTING
from turnout.engine.compile.compare import alike
from turnout.engine.compile.compiled import Compiled
from turnout.engine.compile.cuda_graph import Graphed
from turnout.engine.compile.room import Room
from turnout.simulation import Simulation

from ...logs import logged
from ...tiny import classification

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


def stand_in(run, device):
    """Warm up, and repeat on the same memory, whose contents are undefined between replays."""
    assert device.type == "cpu"
    run()
    value = run()

    def again():
        for place, found in zip(tree_leaves(value), tree_leaves(run()), strict=True):
            if place is not found:
                place.copy_(found)

    return again, value


def step(params, scale, x, rows, weight):
    """Moves `params` by rows of x; gives two values, one of which is an argument."""
    chosen = x.index_select(0, rows)
    params.sub_(scale * (chosen.mean(dim=0) - params) * weight)
    return params, {"norm": params.norm(), "rows": rows}


def arguments_of(seed, num=4, width=3, expanded=False, strided=False, rows=5):
    """Return the arguments of `step`, and rows of those that change between repetitions."""
    torch.manual_seed(seed)
    params = torch.randn(num, width, dtype=torch.float64)
    scale = torch.rand(width, num, dtype=torch.float64).T if strided else torch.rand(num, width, dtype=torch.float64)
    scale = scale[:1].expand(num, -1) if expanded else scale
    return [params, scale], [torch.randint(50, (rows, 6)), torch.rand(rows, num, 1, dtype=torch.float64)]


X = torch.randn(50, 3, dtype=torch.float64)


def graphed(function=step, changes=(0,), record=stand_in, **options):
    return Graphed(function, changes, record, **options)


def places_of(of):
    """Where its recording reads its arguments."""
    assert of._recording is not None
    return of._recording._buffers


def assert_as_plain(of, seed, x=X, repeated=True, **options):
    """Check that calls and repetitions change fresh arguments like the function."""
    (own, scale), (rows, weight) = arguments_of(seed, **options)
    expected, before = own.clone(), [a.clone() for a in (scale, x, rows, weight)]
    if repeated:
        for i in range(len(rows)):
            step(expected, scale, x, rows[i], weight[i])
        of.repeat([own, scale, x], [rows, weight])
    else:
        value, found = step(expected, scale, x, rows[0], weight[0]), of(own, scale, x, rows[0], weight[0])
        assert found[0] is own
        assert torch.equal(found[1]["norm"], value[1]["norm"])
        assert torch.equal(found[1]["rows"], value[1]["rows"])
    assert torch.equal(own, expected)
    for a, b in zip((scale, x, rows, weight), before, strict=True):
        assert torch.equal(a, b)


def assert_all_as_plain(of, times=5, data=(X,), **options):
    """Again and again, with data that take turns."""
    for seed in range(times):
        assert_as_plain(of, seed, x=data[seed // 2 % len(data)], **options)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(0, 99), min_size=3, max_size=8),
    st.integers(1, 5),
    st.booleans(),
    st.booleans(),
    st.integers(1, 4),
    st.booleans(),
)
def test_replay_equals_the_function(seeds, num, expanded, strided, rows, repeated):
    of = graphed()
    for seed in seeds:
        assert_as_plain(of, seed, num=num, expanded=expanded, strided=strided, rows=rows, repeated=repeated)
    assert of.refused is None
    assert of._recording is not None


def test_recorded_function_is_not_called_again():
    calls = []

    def record(run, device):
        _, value = stand_in(run, device)
        replays.append(value)
        return (lambda: replays.append(None)), value

    def function(total, x):
        calls.append(1)
        return total.add_(x)

    replays, of = [], graphed(function, record=record)
    total = torch.zeros(2)
    for i in range(7):
        before = len(calls)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cuda_graph, "alike", lambda *_: True)  # this recording does nothing
            of(total, torch.ones(2))
        assert len(calls) - before == {0: 1, 1: 3, 2: 1}.get(i, 0)  # plain; recorded and tried; tried
    assert len(replays) == 1 + 6


def test_result_survives_the_next_replay():
    of = graphed(lambda x: (x * 2, x), changes=())
    found = [of(torch.full((3,), float(i))) for i in range(6)]
    for i, (twice, same) in enumerate(found):
        assert twice.tolist() == [2.0 * i] * 3
        assert same.tolist() == [float(i)] * 3


LARGE = torch.randn(cuda_graph._LARGE // 24 + 1, 3, dtype=torch.float64)


def test_large_constant_arguments_are_read_in_place():
    of = graphed()
    for seed in range(5):
        assert_as_plain(of, seed, x=LARGE)
    assert places_of(of)[2] is LARGE
    assert places_of(of)[1].data_ptr() != LARGE.data_ptr()


def test_replaced_large_arguments_are_recorded_again():
    of, other, places = graphed(), LARGE + 1, []
    for seed, x in enumerate((LARGE, LARGE, other, other, other)):
        assert_as_plain(of, seed, x=x)
        places.append(places_of(of)[2] if of._recording else None)
    assert places[1] is LARGE
    assert places[2] is None
    assert places[3] is places[4] is other
    assert of.refused is None


def test_large_arguments_that_change_every_round_are_copied():
    of, others = graphed(), [LARGE + i for i in range(5)]
    for seed, x in enumerate(others):
        assert_as_plain(of, seed, x=x)
    assert not any(places_of(of)[2].data_ptr() == x.data_ptr() for x in others)
    assert of._recordings == 1


def test_all_arguments_of_single_calls_are_copied():
    """Within a round, the models of its clients are one large tensor, and another one in the next round."""
    of = graphed()
    for x in (LARGE, LARGE + 1, LARGE + 2):
        assert_all_as_plain(of, 3, (x,), repeated=False)
    assert of._recordings == 1
    assert places_of(of)[2].data_ptr() != LARGE.data_ptr()


def test_repeatedly_moving_data_are_not_recorded_again():
    of, two = graphed(), (LARGE, LARGE + 1)
    with logged("replaced again and again"):
        assert_all_as_plain(of, 20, two)
    assert of._recordings == cuda_graph._MOST_RECORDINGS + 1
    assert of.refused == "its data are replaced again and again"


def test_unrecordable_function_is_called():
    def record(run, _):
        run()
        raise RuntimeError("operation not permitted when stream is capturing")

    of = graphed(record=record)
    with logged("one operation at a time: recording failed: operation not permitted"):
        assert_all_as_plain(of)
    assert of.refused == "recording failed: operation not permitted when stream is capturing"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_nothing_is_recorded_without_a_gpu():
    of = Graphed(step, (0,))
    with logged("recording failed: a CUDA graph records what runs on a GPU, and this runs on cpu"):
        assert_all_as_plain(of)


@pytest.mark.parametrize("of_value", [True, False])
def test_differing_replay_is_detected_without_effect(of_value):
    """As if the recording had not noticed a changed argument."""

    def record(run, device):
        again, (params, rest) = stand_in(run, device)

        def wrong():
            again()
            (rest["norm"] if of_value else params).add_(0.01)

        return wrong, (params, rest)

    of = graphed(record=record)
    with logged("other numbers than the operations themselves"):
        assert_all_as_plain(of)
    assert of._recording is None


def test_recording_that_ignores_arguments_is_detected_at_the_second_replay():
    def record(run, device):
        again, value = stand_in(run, device)
        first = []

        def stale():
            again()
            first[:] = first or [value.clone()]
            value.copy_(first[0])

        return stale, value

    of = graphed(lambda x: x + 1, changes=(), record=record)
    with logged("other numbers"):
        found = [of(torch.full((2,), float(i))).tolist() for i in range(5)]
    assert found == [[i + 1.0] * 2 for i in range(5)]


def test_diverged_steps_are_recorded():
    of = graphed(lambda x: (x / 0.0).sin() + x, changes=())
    for _ in range(4):
        assert of(torch.tensor([0.0, 1.0, torch.inf])).isnan().all()
    assert of.refused is None


def test_integers_must_be_equal():
    one = torch.tensor([1, 10**9])
    assert alike(one, one.clone())
    assert not alike(one, one + 1)
    assert alike(3, 3)
    assert not alike(3, 4)


def test_memory_of_recordings_is_bounded():
    room = Room(1000)
    first = graphed(lambda x: x + 1, changes=(), room=room)
    for _ in range(3):
        first(torch.zeros(100))
    assert room.left == 600
    second = graphed(lambda x: x + 1, changes=(), room=room)
    with logged("take 800 bytes, and recordings have 600 left"):
        found = [second(torch.zeros(200)) for _ in range(3)]
    assert [value.sum() for value in found] == [200.0] * 3
    del first
    gc.collect()
    assert room.left == 1000


def test_recordings_that_are_no_longer_used_make_room_for_others(monkeypatch):
    monkeypatch.setattr(room, "_IDLE", 5)
    limit = Room(1000)
    first, second, third = (graphed(lambda x: x + 1, changes=(), room=limit) for _ in range(3))

    def call(of, number, times):
        for value in range(times):
            assert of(torch.full((number,), float(value))).tolist() == [value + 1.0] * number
        return of._recording is not None

    assert call(first, 100, 4)  # 400 bytes of 1,000
    assert call(second, 100, 4)
    with logged("for now: copies of its arguments take 400 bytes, and recordings have 200 left") as said:
        assert not call(third, 100, 3)
    assert len(said) == 1
    assert call(second, 100, 4)  # since then, the first was not used
    assert call(third, 100, 4)
    assert first._recording is None
    assert second._recording is not None
    assert limit.left == 200
    call(second, 100, 10)
    assert call(first, 100, 4)
    assert third._recording is None
    assert first.refused is None


def test_small_row_is_not_hidden_by_a_large_one():
    one = torch.tensor([[1e6, 2e6], [1.0, 2.0]])
    assert alike(one, one * (1 + 1e-5))
    assert not alike(one, one + torch.tensor([[0.0, 0.0], [0.0, 0.5]]))
    assert alike(torch.tensor([[1.0, 1e-9]]), torch.tensor([[1.0, 0.0]]))  # of a sum, which cancels
    assert alike(torch.empty(0, 3), torch.empty(0, 3))
    assert not alike(torch.ones(2), torch.ones(3))


def test_graph_is_recorded_on_a_side_stream_after_warm_up(monkeypatch):
    """The calls to the library, in order."""
    said, present = [], ["main"]

    @contextmanager
    def on(name):
        before, present[0] = present[0], name
        yield
        present[0] = before

    def stream(name):
        return SimpleNamespace(name=name, wait_stream=lambda other: said.append(f"{name} waits for {other.name}"))

    @contextmanager
    def graph(made, *, pool, stream, capture_error_mode):
        said.append(f"record on {stream.name} in {pool}, {capture_error_mode}")
        yield
        if fails:
            raise RuntimeError("invalid")
        made.append("recorded")

    class Made(list):
        def replay(self):
            return "replayed"

    fake = {
        "Stream": lambda device: said.append(f"stream of {device}") or stream("side"),
        "stream": lambda of: on(of.name),
        "device": lambda _: on(present[0]),
        "current_stream": lambda: stream(present[0]),
        "graph_pool_handle": lambda: "pool",
        "CUDAGraph": Made,
        "graph": graph,
    }
    for name, value in fake.items():
        monkeypatch.setattr(torch.cuda, name, value)
    cuda_graph._side.cache_clear()
    fails, device = False, torch.device("cuda", 1)
    again, value = cuda_graph.on_gpu(lambda: said.append(f"run on {present[0]}") or 7, device)
    assert (again(), value) == ("replayed", 7)
    runs = ["run on side"] * cuda_graph._WARM_UP
    recorded = [
        "side waits for main",
        *runs,
        "record on side in pool, thread_local",
        "run on side",
        "main waits for side",
    ]
    assert said == ["stream of cuda:1", *recorded]
    cuda_graph.on_gpu(lambda: said.append(f"run on {present[0]}"), device)
    assert said[-len(recorded) :] == recorded
    assert "stream of cuda:1" not in said[1:]  # one for all recordings
    fails = True
    with pytest.raises(RuntimeError, match="invalid"):
        cuda_graph.on_gpu(lambda: None, device)
    assert cuda_graph._side.cache_info().currsize == 0


def trained(algorithm=fedavg, **options):
    """Run eight rounds of clients with different numbers of steps."""
    local = Sgd(lr=0.2, steps=None, epochs=1, batch_size=8, momentum=0.5)
    run = Experiment(
        classification(), models.Mlp(hidden=(8,)), algorithm(local), rounds=8, engine="vectorized", **options
    )
    simulation = Simulation(run)
    for _ in range(run.rounds):
        simulation.round()
    return simulation


def replays_of(simulation):
    return [recorder(traced) for of in simulation.objective._compiled.values() for traced in of._traced.values()]


def recorder(traced):
    """Return the object that records a repeated step."""
    return getattr(traced, "step", traced)


@pytest.mark.parametrize("algorithm", [fedavg, lambda local: scaffold(local, cohort_size=8)])
def test_rounds_have_equal_results(algorithm, monkeypatch):
    """Where all buffers are large, and where none is. Of SCAFFOLD, whose corrections are new in every round, gradients are
    replayed one by one."""
    monkeypatch.setattr(replay, "_CALLS", 0)
    expected = trained(algorithm)
    assert replays_of(expected)
    monkeypatch.setitem(BACKENDS, "cuda_graph", replace(BACKENDS["cuda_graph"], devices=frozenset({"cpu"})))
    monkeypatch.setattr(cuda_graph, "on_gpu", stand_in)
    for large in (1, cuda_graph._LARGE):
        monkeypatch.setattr(cuda_graph, "_LARGE", large)
        found = trained(algorithm)
        assert torch.equal(found.state.params, expected.state.params)
        recorded = [of for of in replays_of(found) if isinstance(of, Graphed)]
        assert len(recorded) == len(replays_of(found)) > 2  # idle lanes give cohorts few shapes
        assert all(of._recording is not None and of._trials == cuda_graph._TRIALS for of in recorded)
        assert all(of._recordings == 1 for of in recorded)


def test_missing_arguments_are_omitted(monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)
    monkeypatch.setitem(BACKENDS, "cuda_graph", replace(BACKENDS["cuda_graph"], devices=frozenset({"cpu"})))
    monkeypatch.setattr(cuda_graph, "on_gpu", stand_in)

    def function(none, scale, total, x, also_none):
        assert none is also_none is None
        return total.add_(scale * x)

    replayed, total = Compiled(function, changes=(0, 2)), torch.zeros(2)
    for _ in range(5):
        for arguments in replayed.replay((None, torch.tensor(2.0), total), (torch.ones(3, 2), None)):
            replayed.function(*arguments)
    assert total.tolist() == [30.0, 30.0]
    (of,) = map(recorder, replayed._traced.values())
    assert isinstance(of, Graphed)
    assert of._changes == (1,)


@NEEDS_GPU
def test_on_a_gpu_recorded_rounds_equal_those_on_a_cpu(monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)
    monkeypatch.setenv(SETTING, "cuda_graph")
    expected, found = trained(), trained(device="cuda")
    recorded = replays_of(found)
    assert recorded
    assert all(isinstance(of, Graphed) and of.refused is None and of._recording is not None for of in recorded)
    torch.testing.assert_close(found.state.params.cpu(), expected.state.params, rtol=1e-4, atol=1e-5)


@NEEDS_GPU
def test_on_a_gpu_large_data_are_read_in_place():
    def function(total, x, rows):
        return total.add_(x.index_select(0, rows).sum(dim=0))

    x, total = torch.randn(10**6, 3, device="cuda"), torch.zeros(3, device="cuda")
    expected, of = torch.zeros(3, dtype=torch.float64), Graphed(function, (0,))
    for _ in range(5):
        rows = torch.randint(10**6, (4, 10), device="cuda")
        expected += x.cpu().double()[rows.cpu().reshape(-1)].sum(dim=0)
        of.repeat([total, x], [rows])
    torch.testing.assert_close(total.cpu().double(), expected, rtol=1e-5, atol=1e-4)
    assert of.refused is None
    assert places_of(of)[1] is x
