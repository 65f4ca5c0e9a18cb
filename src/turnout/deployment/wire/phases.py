"""The messages of the extra phases of an aggregation (see `turnout.pieces.base.phases`) as bytes."""

from __future__ import annotations

from turnout.core.types import State
from turnout.deployment.wire.format import NAMES, Assignment, Manifest, Spec, decode, size_limit
from turnout.pieces.base.phases import Form, Shapes


class PhaseFormat:
    """Read a message of one extra phase.

    Args:
        form: types and shapes of the tensors of the message.

    Attributes:
        manifest: the tensors of the message.
    """

    def __init__(self, form: Form) -> None:
        self.manifest: Manifest = {name: Spec(NAMES[dtype], shape) for name, (dtype, shape) in form.items()}

    @property
    def size_limit(self) -> int:
        """The most bytes that such a message can have."""
        return size_limit(self.manifest)

    def read(self, body: bytes) -> State:
        """Return the tensors of a message.

        Raises:
            WireError: where they are others than were asked for.
        """
        return decode(body, self.manifest)


def told_shapes(task: Assignment) -> Shapes:
    """Return the shapes of what a client was told with a task, on which the form of its message depends."""
    return {name: tuple(shape) for name, (_, shape, _) in task.told.items()}
