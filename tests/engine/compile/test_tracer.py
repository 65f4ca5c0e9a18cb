"""Recorded operations equal those of the function and of torch's own tracer."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from turnout.engine.compile.tracer import DependsOnValuesError, record
from turnout.engine.objective import Objective

from ..layers import convolution, normalized, recurrent


def calls(graph):
    """Names of the operations that count."""
    graph.eliminate_dead_code()
    nodes = [node for node in graph.nodes if node.op == "call_function" and "getitem" not in node.name]
    # A detached tensor is an alias, which newer versions of PyTorch write in its place.
    return [str(node.target).replace("aten.detach.", "aten.alias.") for node in nodes]


@pytest.mark.parametrize(
    ("make", "engine"),
    [(convolution, "vectorized"), (normalized, "vectorized"), (recurrent, "vectorized"), (normalized, "one_by_one")],
)
def test_operations_equal_those_of_torchs_tracer(make, engine):
    module, x = make()
    objective, y = Objective(module, engine=engine), torch.randint(5, (3, 4))
    params, clients = objective.initial.repeat(3, 1), slice(None) if engine == "vectorized" else slice(1)

    def gradient(params, x, keys):
        return objective.gradient(params[clients], x[clients], y[clients], None, keys[clients], replay=False)

    arguments = [params, x, torch.arange(3)]
    gradient(*arguments)  # the first call of a thread makes what it needs
    found = calls(record(gradient, arguments).graph)
    assert found == calls(make_fx(gradient)(*arguments).graph)
    assert len(found) > 10


def test_metadata_of_all_tensors_are_known():
    traced = record(lambda x: x.double().split([1, 2]), [torch.ones(3, 2)])
    *_, of_split, first, second, _ = traced.graph.nodes
    assert "kind" not in of_split.meta
    for node, rows in ((first, 1), (second, 2)):
        assert node.meta["kind"] == ((rows, 2), (2, 1), torch.float64, torch.device("cpu"))


def test_values_equal_those_of_the_function():
    def function(x):
        return {"both": (x + 1, [x]), "largest": x.max(dim=0)[1], "none": None}

    given = torch.tensor([1.0, 5.0])
    found = record(function, [torch.zeros(2)]).module()(given)
    assert found["both"][0].tolist() == [2.0, 6.0]
    assert found["both"][1][0] is given
    assert found["largest"].item() == 1
    assert found["none"] is None


def test_in_place_changes_are_visible_later():
    def function(x):
        row = x[0]
        row += 1
        x.mul_(2)
        return row * 3

    traced, x = record(function, [torch.zeros(2, 2)]).module(), torch.ones(2, 2)
    assert traced(x).tolist() == [12.0, 12.0]
    assert x.tolist() == [[4.0, 4.0], [2.0, 2.0]]


def test_python_scalars_are_created_at_every_call():
    traced = record(lambda x: torch.tensor([1.0, 2.0]).add_(x), [torch.ones(2)]).module()
    assert [traced(torch.ones(2)).tolist() for _ in range(2)] == [[2.0, 3.0]] * 2


def test_external_tensors_are_referenced():
    outside, more = torch.ones(2), torch.ones(2)
    traced = record(lambda x: x * 2 * outside + outside + (x + 1) * more, [torch.ones(2)]).module()
    outside.fill_(3.0)
    assert traced(torch.ones(2)).tolist() == [11.0, 11.0]
    assert [tensor.data_ptr() for tensor in traced.buffers()] == [outside.data_ptr(), more.data_ptr()]


@pytest.mark.parametrize("read", [lambda x: x * float(x.sum()), lambda x: x if x.sum() > 0 else -x])
def test_function_that_reads_values_is_refused(read):
    with pytest.raises(RuntimeError, match="reads a number, on which the next operations may depend"):
        record(read, [torch.ones(2)])


@pytest.mark.parametrize("function", [lambda x: x[x > 0], lambda x: x.nonzero(), lambda x: x.unique()])
def test_shapes_that_depend_on_values_are_refused(function):
    with pytest.raises(DependsOnValuesError, match="depends on values"):
        record(function, [torch.randn(3, 4)])


def test_indices_of_one_shape_are_recorded():
    record(lambda x, rows: x[rows], [torch.randn(3, 4), torch.tensor([2, 0])])
