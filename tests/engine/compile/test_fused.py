"""The fused AdamW step."""

from typing import Any

import pytest
import torch

from turnout.engine.compile import fused

OPTIONS: dict[str, Any] = {"beta1": 0.8, "beta2": 0.95, "eps": 1e-6, "weight_decay": 0.1}
adamw: Any = fused.adamw_
B, P = 4, 135  # a row is no multiple of what a processor computes at once


def state(dtype=torch.float64) -> Any:
    generator = torch.Generator().manual_seed(0)
    params, gradient, m, v = torch.randn(4, B, P, generator=generator, dtype=dtype)
    return [params, gradient, m, v.abs(), torch.tensor([[1.0], [2.0], [9.0], [400.0]])]


def test_equals_torchs_adamw_for_each_client():
    params, gradient, m, v, count = state()
    lr = torch.tensor([[0.1], [0.2], [0.0], [0.3]], dtype=torch.float64)
    expected = params.clone()
    for row in range(B):
        p = expected[row].clone().requires_grad_()
        optimizer = torch.optim.AdamW([p], lr=float(lr[row]), betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)
        p.grad = gradient[row].clone()
        before = {"step": count[row, 0] - 1, "exp_avg": m[row].clone(), "exp_avg_sq": v[row].clone()}
        optimizer.state[p] = before
        optimizer.step()
        expected[row] = p.detach()
    adamw(params, gradient, m, v, count, lr, **OPTIONS)
    torch.testing.assert_close(params, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bits_do_not_depend_on_other_clients(dtype):
    """Nor on whether the step size is per client or common."""
    together, single, apart = state(dtype), state(dtype), state(dtype)
    adamw(*together, torch.full((1, 1), 0.1, dtype=dtype), **OPTIONS)
    adamw(*apart, torch.full((B, 1), 0.1, dtype=dtype), **OPTIONS)
    for row in reversed(range(B)):
        adamw(*(each[row : row + 1] for each in single), torch.full((1, 1), 0.1, dtype=dtype), **OPTIONS)
    for one, other, third in zip(together, single, apart, strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one, third)


def test_gradients_may_have_any_memory_layout():
    turned, plain = state(), state()
    turned[1] = turned[1].T.contiguous().T
    lr = torch.full((1, 1), 0.1, dtype=torch.float64)
    adamw(*turned, lr, **OPTIONS)
    adamw(*plain, lr, **OPTIONS)
    assert torch.equal(turned[0], plain[0])


def test_available_only_for_supported_dtypes_and_devices():
    assert fused.has_adamw(torch.ones(1, 1))
    assert not fused.has_adamw(torch.ones(1, 1, dtype=torch.bfloat16))
    assert not fused.has_adamw(torch.ones(1, 1, device="meta"))
