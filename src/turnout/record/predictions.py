"""Count the predictions of a classifier on test examples by label, predicted class and confidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import torch

from turnout.record.tables import array_of, build, numbers

FILE = "predictions.parquet"

PREDICTION_COLUMNS: Mapping[str, pa.DataType] = {
    "label": pa.int64(),
    "predicted": pa.int64(),
    "bin": pa.int64(),
    "count": pa.int64(),
    "confidence": pa.float64(),
}
"""The columns of the table of predictions: the label, the predicted class, the bin of the confidence, the number of examples,
and the sum of their confidences. The confidence is the probability of the predicted class, and bin i of `BINS` bins covers
``(i / BINS, (i + 1) / BINS]``. Outputs with NaN predict no class: predicted class, bin and confidence are null."""

BINS = 15


def count_predictions(logits: torch.Tensor, targets: torch.Tensor) -> pa.Table:
    """Return the table of predictions, from logits ``[n, C]`` and labels ``[n]``.

    The last class has a row in any case, so that the table shows how many classes there are.

    >>> count_predictions(torch.tensor([[2.0, 0.0], [3.0, 0.0]]), torch.tensor([0, 0])).select(range(4)).to_pylist()
    [{'label': 0, 'predicted': 0, 'bin': 13, 'count': 1}, {'label': 0, 'predicted': 0, 'bin': 14, 'count': 1}, {'label': 1,
    'predicted': 1, 'bin': 0, 'count': 0}]
    """
    predicted = logits.max(dim=1).indices.cpu().numpy()  # as of the accuracy
    finite = logits.double().nan_to_num(torch.nan)  # infinite ones have no softmax
    confidence = finite.softmax(dim=1).max(dim=1).values.cpu().numpy()
    num_classes, labels = logits.shape[1], targets.cpu().numpy()
    predicted, confidence = np.where(np.isnan(confidence), num_classes, predicted), np.nan_to_num(confidence)
    bins = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
    cells = np.append((labels * (num_classes + 1) + predicted) * BINS + bins, (num_classes**2 + num_classes - 2) * BINS)
    known, place = np.unique(cells, return_inverse=True)
    label, predicted = np.divmod(known // BINS, num_classes + 1)
    weights = np.append(np.ones(len(labels)), 0.0)

    def unless_none(values: np.ndarray) -> list[int | float | None]:
        return [None if none else value for none, value in zip(predicted == num_classes, values.tolist(), strict=True)]

    return build(
        {
            "label": label,
            "predicted": unless_none(predicted),
            "bin": unless_none(known % BINS),
            "count": np.bincount(place, weights).astype(np.int64),
            "confidence": unless_none(np.bincount(place, np.append(confidence, 0.0))),
        },
        PREDICTION_COLUMNS,
    )


def confusion(tables: Iterable[pa.Table]) -> np.ndarray:
    """Return the number of examples by label (row) and predicted class (column), int64 ``[C, C]``, summed over tables.

    Examples whose outputs are NaN, if there are any, are in a further column, ``[C, C + 1]``.
    """
    tables = list(tables)
    size = 1 + max(int(numbers(table["label"]).max(initial=-1)) for table in tables)
    matrix = np.zeros((size, size + 1), dtype=np.int64)
    for table in tables:
        predicted = numbers(table["predicted"].fill_null(size))
        np.add.at(matrix, (numbers(table["label"]), predicted), numbers(table["count"]))
    return matrix if matrix[:, size].any() else matrix[:, :size]


def by_class(matrix: np.ndarray, names: Sequence[str] | None = None) -> pa.Table:
    """Return precision, recall and F1 score of each class, from its confusion matrix; null where they are undefined.

    >>> by_class(np.array([[3, 1], [0, 4]])).select(["class", "precision", "recall"]).to_pylist()
    [{'class': '0', 'precision': 1.0, 'recall': 0.75}, {'class': '1', 'precision': 0.8, 'recall': 1.0}]
    """
    right, labeled, predicted = np.diag(matrix), matrix.sum(axis=1), matrix.sum(axis=0)[: len(matrix)]
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = {
            "precision": right / predicted,
            "recall": right / labeled,
            "f1": 2 * right / (labeled + predicted),
        }
    columns = {
        "class": array_of(list(map(str, range(len(matrix)) if names is None else names)), pa.string()),
        "examples": array_of(labeled, pa.int64()),
        "predicted": array_of(predicted, pa.int64()),
    }
    figures = {name: array_of(values, pa.float64(), nan_is_null=True) for name, values in ratios.items()}
    return pa.table(columns | figures)


def calibration(tables: Iterable[pa.Table]) -> pa.Table:
    """Return the number of examples, mean confidence and accuracy of each bin of confidence that has examples.

    Outputs with NaN have no confidence, and are left out.
    """
    sums = np.zeros((3, BINS))
    for table in (table.drop_null() for table in tables):
        bins, count = numbers(table["bin"]), numbers(table["count"])
        right = count * (numbers(table["label"]) == numbers(table["predicted"]))
        for row, values in zip(sums, (count, numbers(table["confidence"]), right), strict=True):
            row += np.bincount(bins, values, BINS)
    known = np.flatnonzero(sums[0])
    count, confidence, right = sums[:, known]
    columns = {
        "low": known / BINS,
        "high": (known + 1) / BINS,
        "examples": count.astype(np.int64),
        "confidence": confidence / count,
        "accuracy": right / count,
    }
    kinds = {name: pa.int64() if name == "examples" else pa.float64() for name in columns}
    return build(columns, kinds)
