"""Threads for the clients of a cohort."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from turnout.engine import threads as crew_module
from turnout.engine.threads import ClientThreads


@pytest.fixture(autouse=True)
def _processors(monkeypatch):
    monkeypatch.setattr(crew_module, "num_processors", lambda: 3)


def test_threads_are_limited_by_torch_and_the_machine():
    assert ClientThreads(2).num_threads == 2
    assert ClientThreads(8).num_threads == 3
    assert ClientThreads().num_threads == min(3, torch.get_num_threads())


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_values_are_in_order(threads):
    def slow_first(i):
        threading.Event().wait(0.02 if i == 0 else 0.0)
        return i * i

    assert list(ClientThreads(threads).map(slow_first, range(20))) == [i * i for i in range(20)]


def test_threads_run_concurrently_on_one_processor_each():
    both, before = threading.Barrier(2, timeout=10), torch.get_num_threads()

    def work(_):
        both.wait()  # would break if one waited for the other
        return threading.get_ident(), torch.get_num_threads()

    found = list(ClientThreads(2).map(work, range(2)))
    assert len({who for who, _ in found}) == 2
    assert [number for _, number in found] == [1, 1]
    assert torch.get_num_threads() == before


def test_nested_calls_run_in_the_same_thread():
    crew = ClientThreads(2)

    def outer(i):
        assert not crew.is_split
        inner = list(crew.map(lambda j: (j, threading.get_ident()), range(3)))
        assert {who for _, who in inner} == {threading.get_ident()}
        return i, [j for j, _ in inner]

    assert list(crew.map(outer, range(4))) == [(i, [0, 1, 2]) for i in range(4)]
    assert crew.is_split


def test_error_in_a_thread_is_raised():
    def fail(i):
        raise ValueError(f"item {i}")

    with pytest.raises(ValueError, match="item 0"):
        list(ClientThreads(2).map(fail, range(5)))


def test_exclusive_work_waits_for_all_threads():
    crew, order = ClientThreads(2), []

    def work(i):
        crew.when_idle(lambda: order.append(("quiet", threading.current_thread() is threading.main_thread())))
        order.append(("work", i))

    list(crew.map(work, range(6)))
    assert [kind for kind, _ in order] == ["work"] * 6 + ["quiet"] * 6
    assert all(main for kind, main in order if kind == "quiet")
    crew.when_idle(lambda: order.append(("at once", True)))
    assert order[-1] == ("at once", True)


steps = st.lists(st.integers(0, 30), min_size=1, max_size=12).map(lambda s: np.sort(np.array(s))[::-1])


@given(steps, st.sampled_from([1, 2, 3]), st.sampled_from([10, 10**6, 10**9]))
def test_parts_partition_the_rows_and_balance_the_work(num_steps, threads, products):
    crew_module.num_processors, before = (lambda: 3), crew_module.num_processors
    try:
        parts = ClientThreads(threads).parts(num_steps, products, single=False)
    finally:
        crew_module.num_processors = before
    assert np.concatenate([np.arange(len(num_steps))[part] for part in parts]).tolist() == list(range(len(num_steps)))
    assert 1 <= len(parts) <= threads
    assert all(part.stop > part.start for part in parts)
    most = max(num_steps[part].sum() for part in parts)
    assert most <= num_steps.sum() / len(parts) + num_steps.max() or len(parts) < threads
    assert ClientThreads(threads).parts(num_steps, products, single=True) == [
        slice(i, i + 1) for i in range(len(num_steps))
    ]


def test_little_work_is_not_split():
    assert ClientThreads(2).parts(np.array([5, 5]), 10, single=False) == [slice(0, 2)]
    assert ClientThreads(2).parts(np.array([5, 5]), 10**6, single=False) == [slice(0, 1), slice(1, 2)]


def test_main_thread_uses_one_processor_beside_threads(monkeypatch):
    set_to = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: set_to[-1] if set_to else 2)
    monkeypatch.setattr(torch, "set_num_threads", set_to.append)
    with ClientThreads(1).one_processor_each():
        assert not set_to
    with ClientThreads(2).one_processor_each():
        assert set_to == [1]
    assert set_to == [1, 2]
