"""Several processes that train a cohort together come to what one comes to, whatever the algorithm."""

import pytest
import torch

from turnout.record.checkpoint import load

from ..children import Child
from .recipes import assert_same_tensors, baseline, experiment
from .workers import RESUMED, SHARDED, main, outcome


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of the results of two processes."""
    folder = tmp_path_factory.mktemp("processes")
    pair = [Child(folder, main, rank, 2, folder) for rank in range(2)]
    assert [child.ended(240.0)[::2] for child in pair] == [(0, ""), (0, "")]
    return folder


@pytest.fixture(scope="module")
def together(folder):
    """The results of each of two processes by recipe."""
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def assert_alike(one, other, name=""):
    """Compare results: equal names and texts, and numbers up to the order of summation."""
    if isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, equal_nan=True, msg=lambda text: f"{name}: {text}")
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), name
        for key in one:
            assert_alike(one[key], other[key], f"{name}/{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), name
        for i, pair in enumerate(zip(one, other, strict=True)):
            assert_alike(*pair, f"{name}/{i}")
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-5, nan_ok=True), name
    else:
        assert one == other, name


@pytest.mark.parametrize("name", SHARDED)
def test_two_processes_give_the_result_of_one(name, together):
    alone, (first, second) = outcome(baseline(name)), (every[name] for every in together)
    assert_alike(first, alone)
    assert str(first["tables"]) == str(second["tables"])
    assert torch.equal(first["params"], second["params"])
    for kind in ("slots", "memory"):
        assert first[kind].keys() == second[kind].keys()
        assert all(torch.equal(value, second[kind][key]) for key, value in first[kind].items())


@pytest.mark.parametrize("name", RESUMED)
def test_two_processes_resume_to_the_same_result(name, folder):
    whole, cut = (load(folder / name / run)[0] for run in ("whole", "cut"))
    assert_same_tensors(whole, cut)


@pytest.mark.parametrize("name", RESUMED)
def test_one_process_resumes_a_run_of_two(name, folder):
    experiment(name, rounds=8).run(folder / name / "half", resume=True)
    whole, half = (load(folder / name / run)[0] for run in ("whole", "half"))
    assert_alike(whole, half)
