"""A grid in one process, and clients with one line of training, for tests without a network."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import count

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict  # pyright: ignore
from flwr.clientapp import ClientApp  # pyright: ignore
from flwr.clientapp.typing import Mod  # pyright: ignore
from flwr.serverapp import Grid  # pyright: ignore
from flwr.supercore.task_identity import TaskIdentity  # pyright: ignore  # which a process of Flower sets before it calls an app

TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
SHAPES = {"weight": (2, 3), "bias": (2,)}
SIZES = [10, 20, 30, 40]


def first() -> ArrayRecord:
    """Return the first model, with an array that is no parameter."""
    arrays = {name: np.full(shape, 0.5, dtype=np.float32) for name, shape in SHAPES.items()}
    return ArrayRecord({name: Array(array) for name, array in (arrays | {"batches": np.array(7)}).items()})


def trained(array: np.ndarray, client: int, name: str) -> np.ndarray:
    """Return what a client makes of an array: a step toward values of its own."""
    target = np.linspace(client, client + 1, array.size, dtype=np.float32).reshape(array.shape) + len(name)
    return array + np.float32(0.3) * (target - array)


def app(mods: list[Mod] | None = None) -> ClientApp:
    """Return a ClientApp as the quickstart of Flower writes it, whose data are those of its partition."""
    made = ClientApp(mods=mods)

    @made.train()
    def train(message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        after = {name: trained(array, client, name) if name in SHAPES else array for name, array in arrays.items()}
        record = ArrayRecord({name: Array(array) for name, array in after.items()})
        metrics = MetricRecord(
            {"train_loss": float(client), "num-examples": SIZES[client % 4], "num-steps": 1 + client}
        )
        return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)

    @made.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        loss = float(np.square(message.content["arrays"]["weight"].numpy() - client).mean())
        metrics = MetricRecord({"eval_loss": loss, "required": 0.1 * client, "num-examples": SIZES[client % 4]})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return made


class Killed(Exception):
    """Ends a ServerApp."""


class OneProcess(Grid):
    """A grid whose nodes answer when they are looked for, in the order in which they were asked.

    Args:
        nodes: the number of each node's partition.
        app: of all nodes.

    Attributes:
        there: the nodes that are connected.
        pulls: called before every look for replies.
        silent: nodes that do not answer.
        broken: nodes that answer with an error.
        sent: type and node of every message.
    """

    def __init__(self, nodes: dict[int, int], app: ClientApp) -> None:
        self._nodes, self._app, self._names = nodes, app, count()
        self.there, self.silent, self.broken = set(nodes), set[int](), set[int]()
        self.pulls: Callable[[], object] = lambda: None
        self.sent: list[tuple[str, int]] = []
        self._waiting: dict[str, Message] = {}

    def kill_at(self, number: int) -> None:
        """Raise `Killed` at a look for replies, counted from 1."""
        looks = count(1)

        def look() -> None:
            if next(looks) == number:
                raise Killed

        self.pulls = look

    @property
    def run(self) -> object:
        """Nothing."""
        return None

    def set_run(self, run: object) -> None:
        """Nothing."""

    def create_message(self, *args: object, **options: object) -> Message:
        """Nothing."""
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        """Return who is connected."""
        return list(self.there)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Take messages."""
        names = []
        for message in messages:
            name = str(next(self._names))
            message.metadata.__dict__["_message_id"] = name  # as the grids of Flower do
            self._waiting[name] = message
            self.sent.append((message.metadata.message_type, message.metadata.dst_node_id))
            names.append(name)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Answer."""
        self.pulls()
        replies, wanted = [], set(message_ids)
        for name, message in list(self._waiting.items()):
            node, sent = message.metadata.dst_node_id, message.metadata
            if name in wanted and node in self.there - self.silent:
                del self._waiting[name]
                replies.append(self._answer(message, node))
            elif name in wanted and sent.created_at + sent.ttl < time.time():  # as a SuperLink answers then
                del self._waiting[name]
                replies.append(Message(Error(1, "it may have expired"), reply_to=message))
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages, and answer."""
        del timeout
        return self.pull_messages(self.push_messages(messages))

    def _answer(self, message: Message, node: int) -> Message:
        if node in self.broken:
            return Message(Error(1, "out of memory"), reply_to=message)
        config = {"partition-id": self._nodes[node]}
        try:
            return self._app(message, Context(0, node, config, RecordDict(), {}))
        except Exception as error:  # as a SuperNode does
            return Message(Error(1, str(error)), reply_to=message)
