"""Functions over a batch: what `torch.func.vmap` gives, bit for bit, in the first call and in all others."""

import pytest
import torch
from torch.func import vmap

from turnout.engine.compile import batching
from turnout.engine.compile.derivative import grad_and_value

W = torch.linspace(-1, 1, 12).reshape(3, 4)
X = torch.linspace(0, 2, 24).reshape(3, 2, 4)
SCALE = torch.tensor(0.3)


def both(w, x, scale):
    """A gradient and a value."""
    return grad_and_value(lambda w: ((x @ w).tanh() * scale).sum())(w)


def of_one(w, x, scale):
    return (x @ w).sum() if scale is None else ((x @ w) * scale).sum()


@pytest.mark.parametrize("function", [both, of_one])
def test_every_call_gives_what_vmap_gives(function):
    dims = (0, 0, None)
    made, expected = batching.batched(function, dims), vmap(function, dims)(W, X, SCALE)
    for _ in range(3):
        found = made(W, X, SCALE)
        for one, other in zip(*([v] if isinstance(v, torch.Tensor) else v for v in (found, expected)), strict=True):
            assert torch.equal(one, other)


def test_what_is_not_given_stays_so():
    made = batching.batched(of_one, (0, 0, None))
    assert torch.equal(made(W, X, None), made(W, X, None))
    assert torch.equal(made(W, X, None), vmap(lambda w, x: (x @ w).sum())(W, X))


def test_batches_may_differ_in_size_from_call_to_call():
    made = batching.batched(of_one, (0, 0, None))
    assert [len(made(W[:n], X[:n], SCALE)) for n in (3, 2, 1)] == [3, 2, 1]


def test_an_error_leaves_nothing_behind():
    made = batching.batched(of_one, (0, 0, None))
    expected = made(W, X, SCALE)
    with pytest.raises(RuntimeError):
        made(W[:, :3], X, SCALE)
    assert torch._C._functorch.maybe_current_level() is None  # type: ignore[attr-defined]
    assert torch.equal(made(W, X, SCALE), expected)


def test_another_version_of_torch_has_its_vmap(monkeypatch):
    monkeypatch.setattr(batching, "_NEEDED", ("what_no_torch_has",))
    monkeypatch.setattr(batching, "_torch", None)
    made = batching.batched(of_one, (0, 0, None))
    for _ in range(2):
        assert torch.equal(made(W, X, SCALE), vmap(of_one, (0, 0, None))(W, X, SCALE))
