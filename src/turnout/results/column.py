"""Declare the columns of comparison tables: titles and number formats."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from turnout.record.schema import ANSWERED, APPEAL_COLUMNS, JUDGED, has_direction, less_is_better
from turnout.results.measure import COSTS, TO_TARGET
from turnout.results.names import label, label_ranges, name_of, scale_of
from turnout.results.statistics import Gap, Measured, Quartiles


@dataclass(frozen=True)
class Column:
    """A column of a comparison table.

    Attributes:
        title, short: full and short title.
        scale, decimals: scale and number of decimals of the numbers.
        better: ``max`` or ``min``; None if neither is better.
        spread: show standard deviations or quartiles; False shows only means, or the number of seeds with a figure.
        exceptional: show the column only if a figure is not zero.
        differing: show the column only if algorithms differ.
    """

    title: str
    short: str
    scale: float = 1.0
    decimals: int = 1
    better: Callable[..., Any] | None = None
    spread: bool = True
    exceptional: bool = False
    differing: bool = False

    def show(self, figure: Measured | Quartiles, interval: bool = False) -> str:
        """Format a figure as ``77.1 ± 0.4``, a difference as ``-2.3 (p 0.004)``, or quartiles as ``25 (19 to 31)``.

        Args:
            figure: figure of this column.
            interval: show 95 % confidence intervals, ``77.1 [76.1, 78.1]`` and ``-2.3 [-3.4, -1.2] (p 0.004)``, in place of
                standard deviations.
        """
        if isinstance(figure, Quartiles):
            return figure.shown(self.scale) if self.spread else f"{figure.num_finite}/{figure.num}"
        if isinstance(figure, Gap):
            return self._difference(figure, interval)
        if figure.std is None or not self.spread or not math.isfinite(figure.mean):
            return self.mean(figure)
        spread = self._interval(figure, self._rounded) if interval else f" ± {self._rounded(figure.std)}"
        return self.mean(figure) + spread

    def _difference(self, figure: Gap, interval: bool) -> str:
        """Format a difference with its p-value, if it has one."""
        shown = self._signed(figure.mean) + (self._interval(figure, self._signed) if interval else "")
        if math.isnan(figure.p):
            return shown
        return f"{shown} (p < 0.001)" if figure.p < 0.001 else f"{shown} (p {figure.p:.{2 if figure.p >= 0.1 else 3}f})"

    def _interval(self, figure: Measured, write: Callable[[float], str]) -> str:
        """Format the 95 % confidence interval of a figure."""
        if figure.margin is None or not math.isfinite(figure.margin):
            return ""
        return f" [{write(figure.mean - figure.margin)}, {write(figure.mean + figure.margin)}]"

    def _signed(self, value: float) -> str:
        """Format a difference."""
        return f"{self.scale * value:+,.{self.decimals}f}"

    def mean(self, figure: Measured) -> str:
        """Format the mean without its spread."""
        return self._rounded(figure.mean)

    def _rounded(self, value: float) -> str:
        """Format a number: losses and errors that would round to zero have two significant digits."""
        shown = f"{self.scale * value:,.{self.decimals}f}"
        return f"{value:.2g}" if self.decimals == 3 and value and not float(shown.replace(",", "")) else shown


_PERCENT = {"scale": 100.0, "better": max}
_APPEAL = {
    "appeal_test": {"short": "GM-Appeal (test)", "decimals": 2, "better": max},
    "appeal_train": {"short": "GM-Appeal (train)", "decimals": 2, "better": max},
    "client_accuracy": {"short": "client test %", **_PERCENT},
    "preferred_accuracy": {"short": "preferred %", **_PERCENT},
}


def _of_clients(split: str) -> dict[str, Column]:
    """Return the columns of statistics over clients of their accuracy on training or test examples."""
    of = name_of(f"{split}_accuracy")
    return {
        f"client_{split}_mean": Column(f"{of}, mean over clients (%)", f"{split} %,\nclient mean", **_PERCENT),
        f"client_{split}_spread": Column(
            f"{of}, std over clients (%)", f"{split} %,\nclient std", scale=100.0, better=min
        ),
        f"client_{split}_worst": Column(f"{of}, worst 10 % of clients (%)", f"{split} %,\nworst 10 %", **_PERCENT),
        f"client_{split}_jain": Column(f"{of}, Jain's index", f"{split},\nJain", decimals=3, better=max),
        f"client_{split}_missing": Column(
            f"clients without {'test' if split == 'test' else 'training'} data", "no data", decimals=0, exceptional=True
        ),
    }


COLUMNS = {
    "train_accuracy": Column("training accuracy (%)", "train %", **_PERCENT),
    "validation_accuracy": Column("validation accuracy (%)", "validation %", **_PERCENT),
    "test_accuracy": Column("test accuracy (%)", "test %", **_PERCENT),
    "train_rmse": Column("training RMSE", "training RMSE", decimals=3, better=min),
    "validation_rmse": Column("validation RMSE", "validation RMSE", decimals=3, better=min),
    "test_rmse": Column("test RMSE", "test RMSE", decimals=3, better=min),
    "test_loss": Column("test loss", "test loss", decimals=3, better=min),
    **_of_clients("test"),
    **_of_clients("train"),
    **{kind + key: Column(label(kind + key), **_APPEAL[key]) for kind in JUDGED for key in APPEAL_COLUMNS},
    "pool": Column(name_of("pool"), "in the pool", decimals=0, better=max),
    "num_participants": Column("participants per round", "participants", spread=False),
    "bytes_up": Column("sent to server (MB)", "MB up", scale=1e-6, spread=False),
    "bytes_down": Column("sent to clients (MB)", "MB down", scale=1e-6, spread=False),
    "server_bytes": Column(
        "memory of the server (MB)", "server MB", scale=1e-6, decimals=2, spread=False, differing=True
    ),
    "unseen_test_accuracy": Column("test accuracy of unseen clients (%)", "unseen\ntest %", **_PERCENT),
    "evaluation_asked": Column("clients asked in the last evaluation", "asked", decimals=0, spread=False),
    "evaluation_answered": Column("clients who answered the last evaluation", "answered", decimals=0, spread=False),
    "num_dropped": Column("updates dropped (NaN or infinity)", "dropped", spread=False, decimals=0, exceptional=True),
    "seconds": Column("time (s)", "seconds", spread=False),
    "staleness": Column("mean staleness (steps)", "staleness", decimals=2),
    "influence_least": Column("least influence (fair share = 1)", "least", decimals=2, better=max),
    "influence_most": Column("most influence (fair share = 1)", "most", decimals=2, better=min),
    "influence_beyond": Column("influence beyond fair shares (%)", "beyond fair %", scale=100.0, better=min),
    "reached": Column("reached by", "reached by", spread=False),
    **{TO_TARGET[cost]: Column(title, title, scale=scale) for cost, (title, scale) in COSTS.items()},
}
"""The columns whose keys do not depend on labels, metrics or algorithms; see `column_of` for the others."""

INFLUENCE = ("staleness", "influence_least", "influence_most", "influence_beyond")
"""Columns of the influence of clients in asynchronous runs."""

RESULTS = (
    "train_accuracy",
    "validation_accuracy",
    "test_accuracy",
    "train_rmse",
    "validation_rmse",
    "test_rmse",
    "test_loss",
    *(f"client_{split}_{figure}" for split in ("test", "train") for figure in ("spread", "worst")),
    *ANSWERED,
    "num_dropped",
    "server_bytes",
    "seconds",
)
"""The columns that are shown by default."""

COST = ("reached", *TO_TARGET.values())
"""Columns of the costs of reaching a target."""

APPEAL = {
    title: (*(kind + key for key in APPEAL_COLUMNS), *(["pool"] if not kind else []))
    for title, kind in {
        "Requirements of clients": "",
        "Unseen clients": "unseen_",
        "After local tuning": "tuned_",
        "Unseen clients, after local tuning": "unseen_tuned_",
    }.items()
}
"""Columns about the requirements of clients, by the heading of the kind of clients."""

BY_LABELS = "Accuracy by labels"
"""The title of the table of accuracies by groups of labels."""


GAP = "gap_of_"
"""The prefix of the key of a difference: ``gap_of_test_accuracy_to_fedau``."""


def is_metric(key: str) -> bool:
    """Return whether a key is a metric on a split without an entry in `COLUMNS`, such as ``test_auc``."""
    named = key.startswith(("train_", "validation_", "test_")) and "_of_" not in key
    return named and key not in COLUMNS and not key.endswith("_loss")


def column_of(key: str) -> Column:
    """Return the column of a key, including accuracies of groups of labels, ``test_accuracy_of_0_1``, and differences."""
    if key in COLUMNS:
        return COLUMNS[key]
    if key.startswith(GAP):
        figure, _, other = key.removeprefix(GAP).partition("_to_")
        of = column_of(figure)
        return replace(of, title=f"{of.title}, difference from {other}", short="difference\nfrom first", better=None)
    if is_metric(key):
        percent = scale_of(key) == 100.0
        return Column(
            label(key), name_of(key), scale=scale_of(key), decimals=1 if percent else 3,
            better=(min if less_is_better(key) else max) if has_direction(key) else None,
        )  # fmt: skip
    metric, _, labels = key.partition("_of_")
    return Column(label(key), f"{metric.partition('_')[0]} {label_ranges(labels)} %", **_PERCENT)
