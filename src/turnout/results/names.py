"""Name recorded columns for people: display names, units and scales."""

from __future__ import annotations

from turnout.record.schema import JUDGED

_NAMES = {
    "local_loss": "loss during local steps",
    "pool": "clients in the pool",
}
_APPEAL = {
    "appeal_test": "GM-Appeal (test)",
    "appeal_train": "GM-Appeal (train)",
    "client_accuracy": "mean test accuracy of clients",
    "preferred_accuracy": "preferred-model accuracy",
}


def name_of(metric: str) -> str:
    """Return the display name of a recorded column.

    >>> name_of("test_accuracy"), name_of("train_rmse")
    ('test accuracy', 'training RMSE')
    """
    for prefix, kind in JUDGED.items():
        if (name := _APPEAL.get(metric.removeprefix(prefix))) and metric.startswith(prefix):
            return f"{name}, {kind}" if kind else name
    name, of, labels = metric.partition("_of_")
    if of and name.endswith("accuracy"):
        return f"{name_of(name)} of {'labels' if '_' in labels else 'label'} {label_ranges(labels)}"
    if metric.startswith("train_"):
        return f"training {name_of(metric.removeprefix('train_'))}"
    return _NAMES.get(metric, metric.replace("_", " ").replace("rmse", "RMSE"))


def label_ranges(labels: str) -> str:
    """Format the labels of a column.

    >>> label_ranges("0_1_2_3_8_9")
    '0–3, 8, 9'
    """
    numbers = [int(label) for label in labels.split("_")]
    starts = [i for i, n in enumerate(numbers) if not i or n != numbers[i - 1] + 1]
    runs = [numbers[a:b] for a, b in zip(starts, [*starts[1:], len(numbers)], strict=True)]
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def scale_of(metric: str) -> float:
    """Return the display scale of a recorded column: accuracies are shown in percent."""
    return 100.0 if metric.partition("_of_")[0].endswith("accuracy") else 1.0


def label(metric: str) -> str:
    """Return the display name of a recorded column with its unit: ``"test accuracy (%)"``."""
    return f"{name_of(metric)} (%)" if scale_of(metric) == 100.0 else name_of(metric)
