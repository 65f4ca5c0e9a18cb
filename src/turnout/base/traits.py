"""Properties of a local rule on which other pieces, the simulation and the deployment depend."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Traits:
    """Properties of the local steps of a rule. The defaults are those of one step whose gradients all count equally.

    Attributes:
        of_one_minibatch: whether the direction of a step, before corrections, is the gradient on one minibatch.
        varies: whether a client's number of local steps depends on the version of its task.
        steps_by_examples: whether a client's number of local steps, and so its time, depends on its number of examples.
        deadline: duration of a round in seconds; None if a round lasts as long as the slowest client of its cohort.
        remembers: names in client memory of tensors that change only if the server uses the report.
        adapts: whether a step depends on gradients of earlier steps, as with momentum, so that they count unequally.
        drifts: whether parameters can move while their gradients are zero in a round, e.g. by decoupled weight decay.
        normalizes: whether the length of a step does not depend on the length of its gradient, as in Adam.
        refuses_batch_norm: the reason why the rule cannot train running statistics of BatchNorm layers; None if it can.
        refuses_bf16: the reason why the rule cannot use gradients in bfloat16; None if it can.
    """

    of_one_minibatch: bool = False
    varies: bool = False
    steps_by_examples: bool = False
    deadline: float | None = None
    remembers: tuple[str, ...] = ()
    adapts: bool = False
    drifts: bool = False
    normalizes: bool = False
    refuses_batch_norm: str | None = None
    refuses_bf16: str | None = None
