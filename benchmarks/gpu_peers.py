"""Time a round of W1 to W5 with other programs: a loop in PyTorch, pfl-research, and a function written in JAX (W1 to W4).

Each process times one program and prints a line of JSON. Programs that are not installed say so. All have the clients, models
and minibatches of `turnout speed`, keep the examples on the device and evaluate nothing. W5, whose cohorts vary, keeps its
number of clients and their sizes; all programs have plain averages there.

    python benchmarks/gpu_peers.py loop W1 --cohort 25
    python benchmarks/gpu_peers.py pfl W1 --cohort 25       # pfl-research 0.6.0
    python benchmarks/gpu_peers.py jax W1 --cohort 25       # without participation, clients' memory, records or checkpoints
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from benchmarks import jax_models
from torch import nn

from turnout.cli.settings import Settings
from turnout.engine.hardware import synchronize
from turnout.workbench.speed.workloads import WORKLOADS

NUM_EXAMPLES = 60

Tick = Callable[[], bool]


@dataclass(frozen=True)
class Job:
    """A workload for one program.

    Attributes:
        name: of the workload.
        x, y: examples of all clients, on the device.
        module: the model.
        offsets: the first example of each client, and the number of all.
        by_chance: each client participates with probability ``cohort / num_clients``.
        num_clients, cohort, steps, batch_size, lr: sizes.
    """

    name: str
    x: torch.Tensor
    y: torch.Tensor
    module: nn.Module
    offsets: np.ndarray
    by_chance: bool
    num_clients: int
    cohort: int
    steps: int
    batch_size: int
    lr: float

    @classmethod
    def of(cls, name: str, cohort: int, device: str) -> Job:
        """Return the workload with random data."""
        workload = replace(WORKLOADS[name], cohort_size=cohort)
        if not workload.by_chance:
            workload = replace(workload, num_clients=max(cohort, 100), num_examples=NUM_EXAMPLES)
        data, local = workload.data(), workload.local
        module = Settings.of({"rounds": 2}, workload.settings).experiment(data).build_model()
        for layer in module.modules():
            if hasattr(layer, "alone"):  # the kernel of PyTorch's LSTM
                layer.alone = True  # type: ignore[assignment]
        x, y = data.train.x.to(device), data.train.y.to(device)
        sizes = workload.num_clients, cohort, local["steps"], local["batch_size"], local["lr"]
        return cls(name, x, y, module.to(device), data.train.offsets, workload.by_chance, *sizes)

    def clients(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the cohort of a round."""
        if self.by_chance:
            return np.flatnonzero(rng.random(self.num_clients) < self.cohort / self.num_clients)
        return rng.choice(self.num_clients, self.cohort, replace=False)

    def rows(self, client: int, rng: np.random.Generator) -> np.ndarray:
        """Draw the positions of a client's minibatches, ``[S, b]``."""
        begin, end = self.offsets[client : client + 2]
        return rng.integers(begin, end, size=(self.steps, self.batch_size))


def loop(job: Job, tick: Tick) -> None:
    """Take rounds of federated averaging with one optimizer per client, client after client."""
    rng, local = np.random.default_rng(0), copy.deepcopy(job.module)
    while not tick():
        total = {name: torch.zeros_like(value) for name, value in job.module.state_dict().items()}
        cohort = job.clients(rng)
        for client in cohort:
            local.load_state_dict(job.module.state_dict())
            optimizer = torch.optim.SGD(local.parameters(), lr=job.lr)
            for rows in torch.from_numpy(job.rows(client, rng)).to(job.x.device):
                optimizer.zero_grad()
                nn.functional.cross_entropy(local(job.x[rows]), job.y[rows]).backward()
                optimizer.step()
            for name, value in local.state_dict().items():
                total[name] += value
        job.module.load_state_dict({name: value / len(cohort) for name, value in total.items()})


def pfl(job: Job, tick: Tick) -> None:
    """Take rounds with pfl-research, which evaluates in the first of them only."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import HyperParam, NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel

    class Model(nn.Module):
        """The model with the loss and the metrics that pfl-research calls."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = job.module

        def loss(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> torch.Tensor:
            return nn.functional.cross_entropy(self.inner(x), y)

        @torch.no_grad()
        def metrics(self, x: torch.Tensor, y: torch.Tensor, eval: bool = True) -> dict[str, Any]:
            return {"loss": Weighted(nn.functional.cross_entropy(self.inner(x), y, reduction="sum").item(), len(y))}

    class Clock(TrainingProcessCallback):
        """Ends the run when it has been timed for long enough."""

        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
            return tick(), Metrics()

    class CohortSize(HyperParam):
        """The size of the next cohort."""

        def value(self) -> int:
            return len(job.clients(rng))

    def dataset(client: int) -> Any:
        rows = torch.from_numpy(job.rows(client, rng).reshape(-1)).to(job.x.device)
        return Dataset(raw_data=[job.x[rows], job.y[rows]])

    rng, model = np.random.default_rng(0), Model()
    server = torch.optim.SGD(model.parameters(), 1.0)
    train = FederatedDataset(dataset, get_user_sampler("random", list(range(job.num_clients))))
    size: Any = CohortSize() if job.by_chance else job.cohort
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=10**6, evaluation_frequency=10**9, train_cohort_size=size, val_cohort_size=0
        ),
        backend=SimulatedBackend(training_data=train, val_data=None),
        model=PyTorchModel(model, local_optimizer_create=torch.optim.SGD, central_optimizer=server),
        model_train_params=NNTrainHyperParams(
            local_learning_rate=job.lr, local_num_epochs=1, local_batch_size=job.batch_size
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=64),
        callbacks=[Clock()],
    )


def jax(job: Job, tick: Tick) -> None:
    """Take rounds of one compiled function: ``vmap`` over clients of ``scan`` over steps, as one would write it in JAX."""
    import jax
    from jax import numpy as jnp

    x, y = jnp.asarray(job.x.cpu().numpy()), jnp.asarray(job.y.cpu().numpy())
    params, network = jax_models.of(job.module)

    def loss(params: Any, x: Any, y: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(network(params, x)), y[:, None], 1).mean()

    def update(params: Any, rows: Any) -> Any:
        def step(here: Any, rows: Any) -> tuple[Any, None]:
            gradient = jax.grad(loss)(here, x[rows], y[rows])
            return jax.tree.map(lambda value, slope: value - job.lr * slope, here, gradient), None

        return jax.tree.map(jnp.subtract, jax.lax.scan(step, params, rows)[0], params)

    @jax.jit
    def a_round(params: Any, rows: Any) -> Any:
        return jax.tree.map(
            lambda value, of_all: value + of_all.mean(0), params, jax.vmap(update, (None, 0))(params, rows)
        )

    rng = np.random.default_rng(0)
    while not tick():
        ids = rng.choice(job.num_clients, job.cohort, replace=False)
        rows = ids[:, None, None] * NUM_EXAMPLES + rng.integers(
            NUM_EXAMPLES, size=(job.cohort, job.steps, job.batch_size)
        )
        params = jax.block_until_ready(a_round(params, rows))


PROGRAMS: dict[str, Callable[[Job, Tick], None]] = {"loop": loop, "pfl": pfl, "jax": jax}
"""Programs by name. They call `tick` before each round, and end when it returns True."""


def main() -> None:
    """Time one program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--cohort", type=int, default=25)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=1.5, help="time for rounds after the first ones")
    options, began = parser.parse_args(), time.perf_counter()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if options.program == "jax" and WORKLOADS[options.workload].by_chance:
        parser.error(f"jax has one compiled size of a cohort, and those of {options.workload} vary: choose loop or pfl")
    job, ticks = Job.of(options.workload, options.cohort, options.device), []

    def tick() -> bool:
        synchronize(job.x.device)
        ticks.append(time.perf_counter())
        return len(ticks) > 6 and ticks[-1] - ticks[3] > options.seconds

    try:
        PROGRAMS[options.program](job, tick)
    except ImportError as error:
        print(json.dumps({"error": f"not installed: {error}"}))
        return
    seconds = np.diff(ticks)[3:].tolist()  # in the first rounds, libraries are loaded and functions compiled
    middle = statistics.median(seconds)
    figures = {"round_s_median": middle, "client_updates_per_s": options.cohort / middle}
    print(json.dumps(figures | {"rounds": len(ticks), "total_s": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
