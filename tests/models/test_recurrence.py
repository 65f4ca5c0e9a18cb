"""The recurrence of an LSTM for many clients, and its derivative."""

from math import prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from turnout.engine.compile.tracer import record
from turnout.engine.objective import Objective
from turnout.models import CharLstm, recurrence
from turnout.models.lstm import Lstm
from turnout.models.recurrence import Recurrence

few = st.integers(1, 4)


def gradients(module, clients):
    """Loss and gradients of clients with parameters and minibatches of their own, and what they were computed from."""
    objective, generator = Objective(module, engine="vectorized"), torch.Generator().manual_seed(1)
    noise = torch.randn(clients, objective.layout.num_params, generator=generator, dtype=objective.initial.dtype)
    x, y = (torch.randint(5, shape, generator=generator) for shape in ((clients, 3, 6), (clients, 3)))
    params = objective.initial + 0.3 * noise
    return objective.gradient(params, x, y, None, torch.arange(clients), replay=False), (objective, params, x, y)


@settings(deadline=None, max_examples=20)
@given(clients=few, steps=few, rows=few, inputs=few, hidden=few, layers=st.integers(1, 2), seed=st.integers(0, 2**31))
def test_gradients_of_clients_equal_those_of_torch(clients, steps, rows, inputs, hidden, layers, seed):
    torch.manual_seed(seed)
    ours, theirs = Lstm(inputs, hidden, layers).double(), nn.LSTM(inputs, hidden, layers).double()
    names = [name for name, _ in theirs.named_parameters()]
    params = {name: torch.randn(clients, *ours.get_parameter(name).shape).double() for name in names}
    x, slope = torch.randn(clients, steps, rows, inputs).double(), torch.randn(clients, steps, rows, hidden).double()

    def loss(params, x, slope):
        return (torch.func.functional_call(ours, params, (x,)) * slope).sum()

    of_params, of_x = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)))(params, x, slope)
    for k in range(clients):
        theirs.load_state_dict({name: params[name][k] for name in names})
        leaf = x[k].clone().requires_grad_()
        theirs.zero_grad()
        (theirs(leaf)[0] * slope[k]).sum().backward()
        torch.testing.assert_close(of_x[k], leaf.grad)
        for name, parameter in theirs.named_parameters():
            torch.testing.assert_close(of_params[name][k], parameter.grad)


def test_bits_of_a_client_do_not_depend_on_the_others():
    torch.manual_seed(0)
    (loss, gradient), (objective, params, x, y) = gradients(CharLstm(hidden=7).build((6,), 5), 4)
    for k in range(4):
        rows = slice(k, k + 1)
        alone = objective.gradient(params[rows], x[rows], y[rows], None, torch.arange(1), replay=False)
        assert torch.equal(alone[0], loss[rows])
        assert torch.equal(alone[1], gradient[rows])


def test_clients_may_share_weights():
    wide, weights = torch.randn(3, 4, 1, 2, 8), torch.randn(1, 8, 2)
    shared = torch.func.vmap(Recurrence.apply, (1, None), 1)(wide, weights)
    for k in range(4):
        alone = Recurrence.apply(wide[:, k], weights)
        assert all(torch.equal(one[:, k], other) for one, other in zip(shared, alone, strict=True))


def test_all_results_can_be_differentiated_twice():
    torch.manual_seed(0)
    wide = torch.randn(3, 2, 2, 8, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 8, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Recurrence.apply, (wide, weights))
    assert torch.autograd.gradgradcheck(Recurrence.apply, (wide, weights))
    assert torch.autograd.gradgradcheck(lambda *inputs: Recurrence.apply(*inputs)[2], (wide, weights))


VIEWS = ("view", "unsqueeze", "select", "slice", "permute", "expand", "transpose", "split", "unbind")
VIEWS += ("split_with_sizes", "_unsafe_view")


def operations(steps, clients=3, rows=2, hidden=4):
    """Names of the operations of a gradient that compute something, and the shapes of their results."""

    def gradient(wide, weights):
        loss = torch.func.grad(lambda weights, wide: Recurrence.apply(wide, weights)[0].sum())
        return torch.func.vmap(loss)(weights, wide)

    inputs = torch.randn(clients, steps, 1, rows, 4 * hidden), torch.randn(clients, 1, 4 * hidden, hidden)
    nodes = record(gradient, list(inputs)).graph.nodes
    named = [(getattr(node.target, "_opname", None), node.meta.get("kind")) for node in nodes]
    return [(name, kind and tuple(kind.shape)) for name, kind in named if name not in (None, *VIEWS)]


def test_derivative_by_the_weights_is_one_product():
    assert [name for name, shape in operations(9) if shape is not None and prod(shape) == 3 * 16 * 4] == ["bmm"]


def test_step_of_time_takes_few_operations():
    assert len(operations(9)) - len(operations(8)) == 12  # nine of the cell, and three of the derivative


@pytest.fixture
def kernel(monkeypatch):
    """Count the calls of a stand-in for PyTorch's kernel for GPUs."""
    calls = []

    def cell(from_input, from_output, c, *biases):
        assert {tensor.dim() for tensor in (from_input, from_output, c)} == {2}
        assert biases in ((), (None, None))
        calls.append(len(c))
        i, f, g, o = (from_input + from_output).unflatten(-1, (4, -1)).unbind(-2)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * c + i * g
        return o * c.tanh(), c, torch.cat([i, f, g, o], -1)

    monkeypatch.setattr(recurrence, "_has_kernel", lambda _: True)
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("_thnn_fused_lstm_cell", cell, "CPU")
        yield calls


def test_gpu_computes_a_cell_by_one_kernel(kernel, monkeypatch):
    torch.manual_seed(0)
    module = CharLstm(hidden=7, layers=2).build((6,), 5).double()
    (loss, gradient), _ = gradients(module, 4)
    assert kernel == [4 * 3] * 6 * 2  # all clients at once, in two layers
    monkeypatch.setattr(recurrence, "_has_kernel", lambda _: False)
    (expected_loss, expected), _ = gradients(module, 4)
    torch.testing.assert_close(loss, expected_loss)
    torch.testing.assert_close(gradient, expected)


def test_step_of_time_takes_five_operations_on_a_gpu(kernel):
    names = [name for name, _ in operations(9)]
    assert len(kernel) == names.count("_thnn_fused_lstm_cell") == 9
    assert len(operations(9)) - len(operations(8)) == 5  # product and kernel, and three of the derivative


def test_cells_are_sums_in_full_precision(monkeypatch):
    seen, cell = [], recurrence._cell

    def noted(*tensors):
        result = cell(*tensors)
        seen.extend(tensor.dtype for tensor in (*tensors, *result))
        return result

    monkeypatch.setattr(recurrence, "_cell", noted)
    objective = Objective(CharLstm(hidden=4).build((6,), 5), engine="vectorized", precision="bf16")
    x, y = torch.randint(5, (2, 3, 6)), torch.randint(5, (2, 3))
    objective.gradient(objective.initial.expand(2, -1), x, y, None, torch.arange(2), replay=False)
    assert set(seen) == {torch.float32}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kernel_computes_the_cell_as_written(dtype, monkeypatch):
    """PyTorch does not document what its kernel returns: outputs, cells, and gates after their nonlinearities."""
    torch.manual_seed(0)
    wide, weights = torch.randn(9, 3, 2, 16, dtype=dtype).cuda(), torch.randn(3, 16, 4, dtype=dtype).cuda()
    by_kernel = Recurrence.apply(wide, weights)
    monkeypatch.setattr(recurrence, "_has_kernel", lambda _: False)
    for result, expected in zip(by_kernel, Recurrence.apply(wide, weights), strict=True):
        torch.testing.assert_close(result, expected)
