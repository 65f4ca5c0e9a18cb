"""End a run in which all updates of several consecutive steps are dropped."""

from __future__ import annotations

from turnout.core.checks import Diverged, counted

MOST_STEPS_LOST = 5
"""The number of consecutive server steps without a usable update after which a run ends. Fewer can be chance, with a small
cohort of broken clients."""


def check_updates(lost: int, sent: int, dropped: int, version: int) -> int:
    """Count consecutive server steps all of whose updates were dropped.

    Args:
        lost: the number of such steps before this one.
        sent: the number of updates of this step; steps without updates are not counted.
        dropped: the number of updates that were dropped.
        version: the number of the step.

    Returns:
        The number of such steps, including this one.

    Raises:
        Diverged: if it reaches `MOST_STEPS_LOST`.
    """
    if not sent:
        return lost
    lost = lost + 1 if dropped >= sent else 0
    if lost >= MOST_STEPS_LOST:
        raise Diverged(
            f"all updates of the last {counted(lost, 'step')} with any, up to round {version}, were dropped, because they or "
            f"their sum hold NaN or infinity ({counted(dropped, 'update')} in that round): local training diverges. Write "
            "a smaller step size, such as Sgd(lr=0.01)"
        )
    return lost
