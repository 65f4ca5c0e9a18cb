"""DiLoCo compared with torch's AdamW on every worker and torch's SGD with Nesterov momentum on the mean update."""

import copy

import pytest
import torch
from torch import nn

import turnout as to

from ..tiny import classification

SIZES, STEPS, ROUNDS = (12, 20, 16), 3, 4


def theirs(data, model, lr, server_lr, beta):
    """The algorithm of the paper (algorithm 1) with full batches, each worker with an optimizer of its own."""
    server = nn.Parameter(torch.nn.utils.parameters_to_vector(model.parameters()).detach())
    outer = torch.optim.SGD([server], lr=server_lr, momentum=beta, nesterov=beta > 0)
    workers = [copy.deepcopy(model) for _ in SIZES]
    inner = [torch.optim.AdamW(worker.parameters(), lr=lr, weight_decay=0.1) for worker in workers]
    for _ in range(ROUNDS):
        moved = []
        for k, (worker, optimizer) in enumerate(zip(workers, inner, strict=True)):
            torch.nn.utils.vector_to_parameters(server.detach().clone(), worker.parameters())
            x, y = data.train.client(k)
            for _ in range(STEPS):
                optimizer.zero_grad()
                nn.functional.cross_entropy(worker(x), y).backward()
                optimizer.step()
            moved.append(server.detach() - torch.nn.utils.parameters_to_vector(worker.parameters()).detach())
        server.grad = torch.stack(moved).mean(dim=0)
        outer.step()
    return server.detach()


@pytest.mark.parametrize("beta", [0.0, 0.9])
@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_equals_torchs_optimizers(engine, beta):
    data, model = classification(sizes=SIZES, dtype=torch.float64), nn.Linear(16, 4).double()
    expected = theirs(data, model, 0.01, 0.7, beta)
    local = to.AdamW(lr=0.01, steps=STEPS, batch_size=max(SIZES), weight_decay=0.1, keep_state=True)
    algorithm = to.diloco(local, server_lr=0.7, beta=beta)
    result = to.Experiment(data, model, algorithm, rounds=ROUNDS, engine=engine).run()
    torch.testing.assert_close(
        torch.nn.utils.parameters_to_vector(result.model.parameters()).detach(), expected, rtol=0, atol=1e-10
    )
