"""The model, algorithm and data that all clients of one machine share."""

from __future__ import annotations

import numpy as np
import torch

from turnout.base import OfRequirement
from turnout.configuration import Configuration
from turnout.core.adapter import BASE_OFFSET
from turnout.core.numerics import default_settings
from turnout.core.types import Federation, State
from turnout.data.shards import Shards
from turnout.data.transforms import Transform, bake
from turnout.engine.choice import Choice
from turnout.engine.cohort import Clients
from turnout.engine.objective import Objective
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import Manifest, Spec, WireError, compare, manifest, model_tensors, split_model
from turnout_serve.wire.messages import Coding


class Computer:
    """The model, algorithm and data that all clients of one machine share. See `turnout_serve.client.worker.Worker`.

    Args:
        experiment: model, algorithm, loss and seed; and the data of the clients on this machine.
        engine: engine of the server's simulation, with which results are the same bit for bit; None chooses one.

    Attributes:
        objective: model and loss.
        memory: memory of a client before its first task.
        model: types and shapes of the tensors that are downloaded with a task.
        inputs: types and shapes of the inputs of a task that are for one client alone.
        test: test examples of the clients; None without any.
        sums: the sums of an evaluation on them.
        judges: True where clients have a requirement that a model meets or not.
    """

    @default_settings()
    def __init__(self, experiment: Configuration, engine: str | None = None) -> None:
        self.experiment, algorithm, data = experiment, experiment.algorithm, experiment.data
        self.objective = objective = _objective(experiment, engine)
        self.shards, self.transforms = _baked(experiment, data.train)
        self.test = None if data.client_test is None else _baked(experiment, data.client_test)[0]
        self.sums = experiment.sums_form()
        initial, num_shared = objective.initial, objective.layout.num_shared
        device, adapters = torch.device(experiment.device), objective.network.adapters
        self.federation = Federation(
            1, num_shared, device=device, dtype=initial.dtype, seed=experiment.seed, adapters=adapters
        )
        personalization, aggregation = algorithm.personal, algorithm.aggregation
        first = initial[num_shared:] if personalization is None else personalization.first(initial, num_shared)
        self.memory = algorithm.memory(self.federation, first, objective.layout.shared_shapes)
        shared = dict.fromkeys(algorithm.keeps, initial[:num_shared])
        if "base" in aggregation.reads:
            shared[BASE_OFFSET] = aggregation.init(self.federation)[BASE_OFFSET]
        sent = algorithm.broadcast_dtype(initial.dtype)
        self.model: Manifest = manifest(model_tensors(initial[:num_shared], shared, sent))
        self.inputs = manifest({name: value[0] for name, value in algorithm.first_inputs(self.federation).items()})
        self.coding = Coding.of(algorithm, experiment.seed, objective)
        # Clients have a requirement where the population opts in by it, or where it is measured.
        measured = (*algorithm.measurements, *algorithm.selection.measurements)
        opts = experiment.population.opting is not None
        self.judges = opts or experiment.appeal is not None or any(isinstance(m, OfRequirement) for m in measured)

    def check(self, task: Assignment) -> None:
        """Check the inputs of a task.

        Raises:
            WireError: if not, with what is missing or wrong.
        """
        if task.phase not in self.experiment.algorithm.extra_phases:  # those are checked by `phase_message`
            try:
                compare({name: Spec(dtype, tuple(shape)) for name, (dtype, shape, _) in task.told.items()}, self.inputs)
            except WireError as error:
                raise WireError(f"the server's task is not one of {self.experiment.algorithm.name}: {error}") from None

    def received(self, model: State) -> tuple[torch.Tensor, State]:
        """Return the model and the shared vectors of a task, on the device and in the type of the computation."""
        device, dtype = self.federation.device, self.federation.dtype
        params, shared = split_model({name: value.to(device, dtype) for name, value in model.items()})
        self.objective.network.rebase(shared)
        return params, shared

    def clients(self, client: int, row: int) -> Clients:
        """Return one client with its data, in a row of the shards."""
        return Clients(np.array([client]), np.array([row]), self.shards, self.objective, self.transforms)


def _objective(experiment: Configuration, engine: str | None) -> Objective:
    """Return the model and the loss of an experiment, with the engine of the server's simulation if that is known."""
    module, personalization = experiment.build_model(), experiment.algorithm.personal
    objective = Objective(
        module,
        experiment.loss,
        experiment.engine,
        torch.device(experiment.device),
        personalization.chosen(module) if personalization else frozenset(),
        offsets="base" in experiment.algorithm.aggregation.reads,
        precision=experiment.precision,
        statistics=experiment.statistics,
    )
    if engine is not None:
        objective.use(Choice(engine, "as the server has it"))
    return objective


def _baked(experiment: Configuration, examples: Shards) -> tuple[Shards, tuple[Transform, ...]]:
    """Return examples on the device after the transforms that are done once, and the transforms that are left."""
    x, left = bake(experiment.data.transforms, examples.x)
    return Shards(x, examples.y, examples.offsets).to(torch.device(experiment.device)), left
