"""Check targets: class labels, one for each example or each token, or numbers to predict."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from turnout.core.checks import DataError, count, counted, refuse

IGNORED = -100
"""The value of padding tokens, and of labels that do not count in the loss."""


def are_labels(y: torch.Tensor) -> bool:
    """Return whether targets are class labels (integers), and not numbers to predict (floating point)."""
    return not y.is_floating_point()


_MANY, _FAR = 100, 10  # more classes than _MANY are believed if one in _FAR has an example


def described(x: torch.Tensor) -> str:
    """Describe examples in words.

    >>> described(torch.zeros(3, 9, dtype=torch.int64))
    '3 texts of up to 9 tokens'
    >>> described(torch.zeros(3, 2))
    '3 examples of shape [2]'
    """
    if x.dim() == 2 and x.dtype == torch.int64:
        return f"{counted(len(x), 'text')} of up to {x.shape[1]:,} tokens"
    return f"{counted(len(x), 'example')} of shape {list(x.shape[1:])}"


def classes_in_words(y: torch.Tensor, num_classes: int) -> str:
    """Return the number of classes, or the size of the vocabulary of tokens."""
    return f"a vocabulary of {num_classes:,} tokens" if y.dim() == 2 else f"{num_classes:,} classes"


def next_tokens(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor | None:
    """Return how many tokens are predicted in each text of language modeling, ``[n]``; None for other tasks.

    >>> next_tokens(torch.tensor([[5, 6, 7]]), torch.tensor([[IGNORED, 7, 8]]))
    tensor([2])
    >>> next_tokens(torch.tensor([[5, 6, 7]]), torch.tensor([[0, 1, 0]])) is None  # a label of each token
    True
    """
    if x.dim() != 2 or x.shape != y.shape or x.dtype != torch.int64 or y.dtype != torch.int64:
        return None
    following, predicted = x[:, 1:], y[:, :-1]
    differs = (predicted != following) & (predicted != IGNORED) & (following != IGNORED)
    return None if differs.any() else (y != IGNORED).sum(dim=1)


def number_of_classes(num_classes: int | None, targets: Iterable[torch.Tensor]) -> int | None:
    """Return C, by default one more than the largest label; None for numbers to predict, which have no classes.

    >>> number_of_classes(None, [torch.tensor([0, 2]), torch.tensor([3])])
    4

    Raises:
        ConfigurationError: if a number is below 1, or targets have no classes.
        DataError: if there are far fewer different labels than the largest one would need, which is then probably wrong.
    """
    parts = [y for y in targets if len(y)]
    if not all(map(are_labels, parts)):
        if num_classes is not None:
            raise refuse(
                "num_classes",
                given=num_classes,
                needed="None, because the targets are floating-point numbers, which have no classes",
                instead="Leave it out, or give whole-number labels",
            )
        return None
    if num_classes is None:
        num_classes = 1 + max((int(y.max()) for y in parts), default=0)
        _check_number(num_classes, parts)
        return num_classes
    count("num_classes", num_classes)
    return num_classes


def _check_number(num_classes: int, parts: list[torch.Tensor]) -> None:
    """Check that about as many labels occur as there are classes, and of labels of tokens, that none is far above the rest.

    Tokens that occur may be few of a large vocabulary, but the largest is then not alone.
    """
    if num_classes <= _MANY:
        return
    of_tokens = any(y.dim() > 1 for y in parts)
    labels = torch.cat([y.unique() for y in parts]).unique()
    second = int(labels[-2]) if len(labels) > 1 else None
    believed = len(labels) if not of_tokens else num_classes if second is None or second < 0 else second + 1
    if num_classes > _FAR * believed:
        below = "" if second is None else f", below which the largest is {second}"
        ignored = f", write {IGNORED} for labels that do not count" if of_tokens else ""
        raise DataError(
            f"labels: {num_classes - 1} would make {num_classes:,} classes, and {len(labels):,} different labels "
            f"occur{below}: correct this label, number labels from 0{ignored}, or write num_classes={num_classes} if there "
            "are so many"
        )


def check_finite(what: str, values: torch.Tensor, instead: str) -> None:
    """Check that numbers are finite, without allocating a mask if they are.

    Raises:
        DataError: if there is NaN or infinity, with the first such example.
    """
    # The extremes are NaN if any value is.
    if not values.is_floating_point() or not values.numel() or torch.stack(values.aminmax()).isfinite().all():
        return
    row = int((~torch.isfinite(values.reshape(len(values), -1)).all(dim=1)).nonzero()[0])
    raise DataError(f"{what} hold NaN or infinity, first in example {row}: {instead}")


def check_targets(where: str, y: torch.Tensor, num_classes: int | None) -> None:
    """Check that labels are classes 0 to C - 1, and numbers to predict finite.

    Labels of tokens, ``[n, T]``, may be `IGNORED`, but not all of an example.

    Raises:
        DataError: if not, with the range of the labels, or the first bad example.
    """
    if len(y) == 0:
        return
    if num_classes is None:
        check_finite(f"{where} targets", y, "leave such examples out")
        return
    if y.dim() > 1:
        counted = y != IGNORED
        if (empty := ~counted.reshape(len(y), -1).any(dim=1)).any():
            raise DataError(
                f"{where} targets: no token of example {int(empty.nonzero()[0])} counts, all are {IGNORED}: leave such "
                "examples out"
            )
        y = y[counted]
    low, high = int(y.min()), int(y.max())
    if low < 0:
        raise DataError(
            f"{where} labels run from {low} to {high}, but classes are numbered from 0: write y - ({low}), leave out "
            "examples whose label is unknown, or give floating-point targets if these are numbers to predict"
        )
    if high >= num_classes:
        raise DataError(
            f"{where} labels run from {low} to {high}, but num_classes={num_classes} needs 0 to {num_classes - 1}"
        )
