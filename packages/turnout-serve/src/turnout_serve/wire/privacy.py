"""List the information about a client that a server sees: the server prints it, and clients compare it with their policy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from turnout.base.algorithm import Algorithm
from turnout.core.checks import known_name

Kind = Literal["participation", "scalars", "gradients", "updates", "sums", "evaluations", "queries", "repeats"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""When a client is present; numbers about it; gradients of its data; its update of the model; vectors that are only summed,
but arrive one by one unless they are masked; evaluations on its test examples; sums over its examples that an operator
queries; and further answers to the same evaluation or question. A client that does not allow the last three takes part, and
declines such tasks."""

BY_DEFAULT = KINDS[:-1]
"""What a client allows unless its owner says otherwise."""


@dataclass(frozen=True)
class Visible:
    """One kind of information about a client that the server sees.

    Attributes:
        kind: one of `KINDS`.
        what: description.
        piece: the piece of the algorithm that needs it.
    """

    kind: Kind
    what: str
    piece: str


ANSWERS = (
    Visible("evaluations", "loss and metrics of models on its test examples, as sums", "evaluate_share"),
    Visible("queries", "numbers of examples, sums and counts of its data that are asked for", "turnout query"),
)
"""Information that a server sees of a client that answers evaluations and queries."""


def visible(algorithm: Algorithm) -> tuple[Visible, ...]:
    """Return the information that a server sees of a client that takes part.

    >>> import turnout as to
    >>> [item.kind for item in visible(to.folb())]
    ['participation', 'scalars', 'updates', 'scalars', 'gradients']
    """
    local = type(algorithm.local).__name__
    update = "its update of the model" if algorithm.personal is None else "its update of the shared part"
    if algorithm.extra_phases:
        update += ", masked, of which it can open the sum over a round"
    through = " -> ".join([local, *(type(guard).__name__ for guard in algorithm.guard)])
    parts = [
        Visible("participation", "when it is there, and how long it takes", "the protocol"),
        Visible("scalars", "its numbers of examples and of local steps", local),
        Visible("sums" if algorithm.extra_phases else "updates", update, through),
    ]
    if algorithm.local.gives:
        parts.append(Visible("scalars", ", ".join(algorithm.local.gives), local))
    for piece in dict.fromkeys((*algorithm.measurements, *algorithm.selection.measurements, *algorithm.guard)):
        for name in piece.gives:
            kind: Kind = "gradients" if name == "start_gradient" else "scalars"
            parts.append(Visible(kind, name, type(piece).__name__))
    for correction in algorithm.keeping:
        parts += [Visible("sums", f"how its {name} changes", type(correction).__name__) for name in correction.keeps]
    return tuple(parts)


def excess(algorithm: Algorithm, allowed: Iterable[str]) -> list[Visible]:
    """Return the information that a server would see beyond the kinds that a client allows.

    Raises:
        ConfigurationError: if a kind is unknown.
    """
    kinds = {known_name("kind of what is shared", kind, KINDS) for kind in allowed}
    return [item for item in visible(algorithm) if item.kind not in kinds]
