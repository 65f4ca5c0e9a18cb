"""Batched functions equal `torch.func.vmap`, without its warning."""

import warnings

import pytest
import torch
from torch.func import vmap

from turnout.engine.compile.transforms import batched, grad_and_value

W = torch.linspace(-1, 1, 12).reshape(3, 4)
X = torch.linspace(0, 2, 24).reshape(3, 2, 4)
SCALE = torch.tensor(0.3)


def both(w, x, scale):
    """A gradient and a value."""
    return grad_and_value(lambda w: ((x @ w).tanh() * scale).sum())(w)


def of_one(w, x, scale):
    return (x @ w).sum() if scale is None else ((x @ w) * scale).sum()


@pytest.mark.parametrize("function", [both, of_one])
def test_batched_call_equals_vmap(function):
    dims = (0, 0, None)
    made, expected = batched(function, dims), vmap(function, dims)(W, X, SCALE)
    for _ in range(3):
        found = made(W, X, SCALE)
        for one, other in zip(*([v] if isinstance(v, torch.Tensor) else v for v in (found, expected)), strict=True):
            assert torch.equal(one, other)


def test_missing_arguments_stay_missing():
    made = batched(of_one, (0, 0, None))
    assert torch.equal(made(W, X, None), made(W, X, None))
    assert torch.equal(made(W, X, None), vmap(lambda w, x: (x @ w).sum())(W, X))


def test_batch_size_may_differ_between_calls():
    made = batched(of_one, (0, 0, None))
    assert [len(made(W[:n], X[:n], SCALE)) for n in (3, 2, 1)] == [3, 2, 1]


def test_error_leaves_no_state():
    made = batched(of_one, (0, 0, None))
    expected = made(W, X, SCALE)
    with pytest.raises(RuntimeError):
        made(W[:, :3], X, SCALE)
    assert torch._C._functorch.maybe_current_level() is None  # type: ignore[attr-defined]
    assert torch.equal(made(W, X, SCALE), expected)


def test_warning_of_missing_batching_rule_is_suppressed_inside_only():
    def bags(weight):
        return torch.nn.functional.embedding_bag(torch.tensor([[0, 1]]), weight)

    with pytest.warns(UserWarning, match="batching rule"):
        expected = vmap(bags)(X)
    with warnings.catch_warnings(action="error"):
        assert torch.equal(batched(bags, (0,))(X), expected)
    with pytest.warns(UserWarning, match="batching rule"):
        vmap(bags)(X)
