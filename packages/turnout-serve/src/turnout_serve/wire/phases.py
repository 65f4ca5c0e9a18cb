"""Decode the messages of the extra phases of an aggregation (see `turnout.base.aggregation.ExtraPhases`)."""

from __future__ import annotations

from turnout.core.types import State
from turnout.protocol.secure.masked_vectors import Form, Shapes
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import NAMES, Manifest, Spec, decode
from turnout_serve.wire.messages import check_keys


class PhaseFormat:
    """Format of the messages of one extra phase.

    Args:
        form: types and shapes of the tensors of the message.

    Attributes:
        manifest: types and shapes of the tensors.
    """

    def __init__(self, form: Form) -> None:
        self.manifest: Manifest = {name: Spec(NAMES[dtype], shape) for name, (dtype, shape) in form.items()}

    def read(self, body: bytes) -> State:
        """Return the tensors of a message.

        Raises:
            WireError: if there are other tensors, or public keys of low order.
        """
        tensors = decode(body, self.manifest)
        check_keys(tensors.get("keys"))
        return tensors


def input_shapes(task: Assignment) -> Shapes:
    """Return the shapes of the inputs of a task, on which the format of its message depends."""
    return {name: tuple(shape) for name, (_, shape, _) in task.told.items()}
