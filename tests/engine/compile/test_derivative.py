"""Derivatives without torch's compiler equal torch's, bit for bit."""

import sys

import pytest
import torch
from torch import func

from turnout.engine.compile import transforms
from turnout.engine.compile.transforms import grad_and_value

from ...children import Child
from ...tiny import classification

W, X = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), torch.linspace(-1, 2, 15).view(5, 3)
FUNCTIONS = {
    "plain": lambda w, *of: (w * of[0]).sin().square().mean(),
    "part of it without gradient": lambda w, *of: (w * w.detach() - of[0]).exp().sum(),
    "of nothing": lambda *of: of[1].sum(),
    "of no influence": lambda w, *of: (w * 0.0 + of[0]).relu().sum(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_equals_torch_batched_and_unbatched(name):
    function = FUNCTIONS[name]
    for one, other in (
        (func.vmap(make(function), (0, 0, None))(W, X, None) for make in (grad_and_value, func.grad_and_value)),
        (make(function)(W[0], X[0], None) for make in (grad_and_value, func.grad_and_value)),
    ):
        assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))
    assert not W.requires_grad


def test_second_derivatives():
    def second(make):
        first = make(lambda v: (v**3).sum())
        return make(lambda w: first(w)[0].sum())(W[0])[0]

    assert torch.equal(second(grad_and_value), second(func.grad_and_value))


def test_error_leaves_no_state():
    with pytest.raises(RuntimeError, match="size"):
        func.vmap(grad_and_value(lambda w: (w + W[:, :2]).sum()))(W)
    assert torch.equal(grad_and_value(lambda w: w.sum())(W[0])[0], torch.ones(3))


def test_falls_back_to_torch_if_its_internals_differ(monkeypatch):
    monkeypatch.setattr(transforms, "_torch", object())
    assert torch.equal(grad_and_value(lambda w: (w * w).sum())(W[0])[0], 2 * W[0])


def run_and_name_what_was_imported():
    import turnout as to
    from turnout.engine.compile import compiled
    from turnout.engine.objective import Objective

    compiled._CALLS = 0  # so that steps are traced, too
    Objective(to.models.Cnn().build((3, 8, 8), 2)).choose(torch.zeros(2, 3, 8, 8))
    to.Experiment(classification(), to.models.Logistic(), to.fedau(to.Sgd(steps=4)), rounds=20, evaluate_every=20).run()
    print(sorted({name.split(".")[1] for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))}))


def test_run_does_not_import_torchs_compiler(tmp_path):
    assert Child(tmp_path, run_and_name_what_was_imported).ended() == (0, "[]\n", "")
