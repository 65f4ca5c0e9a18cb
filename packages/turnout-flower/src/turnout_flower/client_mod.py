"""Run the client side of an algorithm in a Flower ClientApp, as a mod."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import (  # pyright: ignore[reportMissingImports]
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from turnout.base.algorithm import Algorithm
from turnout.core.checks import ConfigurationError
from turnout.core.types import Task
from turnout_flower.arrays import Arrays
from turnout_flower.loop import ORDER, SHARED, Direction, client_part, first_memory, work
from turnout_flower.options import refusal
from turnout_flower.replies import metrics_of, number
from turnout_serve.client.state import ClientState, Pending
from turnout_serve.client.state_folder import StateFolder
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.messages import report_body

App = Callable[[Message, Context], Message]


def mod(algorithm: Algorithm, folder: str | Path = "turnout-client") -> Callable[[Message, Context, App], Message]:
    """Return a mod that runs the client side of an algorithm: ``ClientApp(mods=[mod(to.scaffold())])``.

    The ClientApp trains by its own loop, with an optimizer of ``torch.optim`` on the received parameters. Before each step,
    the mod applies the algorithm's corrections to the gradients (`Scaffold`, `Prox`, `DynamicRegularizer`). It inserts the
    personal part of the model, counts steps, measures the gradient at the received model by a run of the loop that does not
    change parameters, and clips or compresses the update. The server has ``Rule(algorithm, mod=True)``. Messages that are not
    from `Rule` pass through; for evaluations, the personal part of the node's last run is inserted into their model.

    Args:
        algorithm: the algorithm of the server; its local rule is not used.
        folder: the folder of the memory of each node, which is updated when the server has accepted the report.

    Raises:
        ConfigurationError: if a ClientApp cannot carry out the algorithm or, for a message, if the server has another
            one.
    """
    if (why := refusal(algorithm, mod=True)) is not None:
        raise ConfigurationError(f"{algorithm.name} does not run in a ClientApp: {why}")

    def run(message: Message, context: Context, app: App) -> Message:
        order: Any = message.content.config_records.get(ORDER)
        if order is None:
            if algorithm.personal is not None and message.metadata.message_type == MessageType.EVALUATE:
                _serve(algorithm, Path(folder), message, context.node_id)
            return app(message, context)
        if order["client_part"] != client_part(algorithm):
            raise ConfigurationError(
                f"the server has other options of corrections, guards or personal parameters than {algorithm.name} here: "
                "give Rule and mod the same algorithm"
            )
        with closing(StateFolder(Path(folder) / f"{order['run']}-{context.node_id}")) as state:
            return _Node(algorithm, state, message, context, app, order).reply()

    return run


def _serve(algorithm: Algorithm, folder: Path, message: Message, node: int) -> None:
    """Insert the personal part of the node's last run into the model of a message that is not from `Rule`."""
    folders = sorted(folder.glob(f"*-{node}"), key=lambda path: path.stat().st_mtime)
    for key, record in list(message.content.array_records.items()) if folders else ():
        with closing(StateFolder(folders[-1])) as state:
            message.content[key] = _served(algorithm, Arrays.of(algorithm, record), state)


def _served(algorithm: Algorithm, arrays: Arrays, state: ClientState) -> ArrayRecord:
    """Return the model with which a client predicts, given the received arrays."""
    params = arrays.shared
    if algorithm.personal is not None:
        memory = state.memory or first_memory(algorithm, arrays)
        params = algorithm.personal.serving(params, {name: value[None] for name, value in memory.items()})[0]
    return ArrayRecord(arrays.tensors(params))


class _Node:
    """A message to a node, with its app as a training loop (`turnout_flower.loop.Loop`). Arguments are those of the mod."""

    examples = 0

    def __init__(
        self, algorithm: Algorithm, state: ClientState, message: Message, context: Context, app: App, order: Any
    ) -> None:
        self._algorithm, self._state, self._message, self._order = algorithm, state, message, order
        self._app, self._context, self._metrics = app, context, MetricRecord()
        content = message.content
        self._arrays = Arrays.of(algorithm, content.array_records[order["arrays"]])
        self._shared = dict(content.array_records.get(SHARED, ArrayRecord()).to_torch_state_dict())
        message.content = RecordDict({key: value for key, value in content.items() if key not in (ORDER, SHARED)})

    def reply(self) -> Message:
        """Update the memory by the server's decision on the last report, do the task, and reply."""
        state, order = self._state, self._order
        if state.pending is not None and state.pending.task.task != order["task"]:
            if state.pending.task.task <= order["taken"]:
                state.settle(state.pending)
            else:
                state.drop()
        if self._message.metadata.message_type == MessageType.EVALUATE:
            self._message.content[order["arrays"]] = _served(self._algorithm, self._arrays, state)
            return self._app(self._message, self._context)
        if (pending := state.pending) is None:  # otherwise the server was restarted, and requests the same report again
            pending = self._work()
            state.hold(pending)
        records = {ORDER: ConfigRecord({"report": pending.body}), "metrics": self._metrics}
        return Message(RecordDict(records), reply_to=self._message)

    def _work(self) -> Pending:
        """Train, and return the report with the memory that takes effect once the server accepts it."""
        task_number, version, repeat, phase = (self._order[name] for name in ("task", "version", "repeat", "phase"))
        repeats = np.array([repeat]) if repeat else None
        task = Task(self._arrays.shared, version, self._order["seed"], phase, self._shared, {}, repeats)
        memory = self._state.memory or {}
        report, memory = work(self._algorithm, self._arrays, self, self._order["client"], task, memory)
        return Pending(Assignment(task_number, version, phase, repeat, "0" * 64, 0, 1.0), report_body(report), memory)

    def __call__(self, params: torch.Tensor, direction: Direction, stay: bool = False) -> tuple[torch.Tensor, int]:
        """Train by the app from parameters ``[P]``; see `turnout_flower.loop.Loop`."""
        steps, content = Steps(self._arrays, params, direction, stay), RecordDict(dict(self._message.content))
        self._message.content[self._order["arrays"]] = ArrayRecord(self._arrays.tensors(params))
        with register_optimizer_step_pre_hook(steps.before), register_optimizer_step_post_hook(steps.after):
            reply = self._app(self._message, self._context)
        self._message.content = content
        if reply.has_error():
            raise RuntimeError(f"the ClientApp failed: {reply.error.reason}")
        self._metrics = metrics_of(reply.content)
        self.examples = round(number(self._metrics, self._order["examples"]))
        end = self._arrays.vector(next(iter(reply.content.array_records.values())).to_torch_state_dict())
        moved = (end != params) & ~steps.stepped
        if self._algorithm.remembers and not stay and moved.any():
            raise ConfigurationError(
                f"{self._algorithm.name} remembers what optimizer steps did, and other arrays moved as well, such as running "
                "statistics: use a model without BatchNorm"
            )
        return end, steps.number


class Steps:
    """The optimizer steps of a training loop, whose gradients are modified by two hooks of ``torch.optim``.

    Args:
        arrays: the arrays of the model.
        start: the initial parameters of the loop, ``[P]``.
        direction: function that returns the direction to descend in place of the gradient.
        stay: reset parameters after each step.

    Attributes:
        number: number of steps so far.
        stepped: the parameters that an optimizer updates, bool ``[P]``.
    """

    def __init__(self, arrays: Arrays, start: torch.Tensor, direction: Direction, stay: bool) -> None:
        self._arrays, self._start, self._direction, self._stay = arrays, start, direction, stay
        self._slices: dict[torch.Tensor, slice] = {}
        self.number, self.stepped = 0, torch.zeros(len(start), dtype=torch.bool)

    def before(self, stepping: torch.optim.Optimizer, *_: Any) -> None:
        """Replace the gradients by the direction; a pre-hook of steps."""
        parameters = [parameter for group in stepping.param_groups for parameter in group["params"]]
        if not self._slices:
            self._slices = self._matched(parameters)
        if {*map(id, parameters)} != {*map(id, self._slices)}:
            raise ConfigurationError(
                "the ClientApp steps other parameters than before: train one model by one optimizer"
            )
        gradient, params = torch.zeros_like(self._start), self._start.clone()
        for parameter, part in self._slices.items():
            params[part] = parameter.detach().reshape(-1).to(params)
            if parameter.grad is not None:
                gradient[part] = parameter.grad.reshape(-1).to(params)
        direction = self._direction(gradient, params)
        for parameter, part in self._slices.items():
            if direction[part].any():
                parameter.grad = direction[part].view_as(parameter).to(parameter)
            elif gradient[part].any():  # frozen: without a gradient, not even weight decay and momentum change it
                parameter.grad = None
        self.number += 1

    def after(self, *_: Any) -> None:
        """Reset the parameters if they are to stay; a post-hook of steps."""
        if self._stay:
            with torch.no_grad():
                for parameter, part in self._slices.items():
                    parameter.copy_(self._start[part].view_as(parameter))

    def _matched(self, parameters: list[torch.Tensor]) -> dict[torch.Tensor, slice]:
        """Return the slice of the vector of each parameter: the first array that it equals, because none has changed yet."""
        layout, slices = self._arrays.layout, dict[torch.Tensor, slice]()
        ends = np.cumsum(layout.sizes).tolist()
        free = {name: slice(end - size, end) for name, size, end in zip(layout.names, layout.sizes, ends, strict=True)}
        received = self._arrays.tensors(self._start)
        for parameter in parameters:
            value = parameter.detach().cpu()
            same = (name for name in free if received[name].shape == value.shape and torch.equal(received[name], value))
            if (name := next(same, None)) is None:
                raise ConfigurationError(
                    f"the ClientApp's optimizer steps a parameter of shape {tuple(value.shape)} that is none of the received "
                    "arrays: load these into the model, and train it in their type"
                )
            slices[parameter] = free.pop(name)
            self.stepped[slices[parameter]] = True
        return slices
