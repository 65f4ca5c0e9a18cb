"""Assign rows of examples to clients and splits, and gather them as shards in one copy."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, refuse
from turnout.core.random import generator
from turnout.data.examples import Examples
from turnout.data.shards import Shards

LOG = logging.getLogger("turnout.data")


def note_none(source: str, option: str, share: float, rows: np.ndarray) -> None:
    """Note a share of the examples that is rounded to none of them."""
    if share and not rows.any():
        LOG.warning(
            "%s: %s=%g of so few examples is rounded to none, so that these figures are missing", source, option, share
        )


def held_out(owner: np.ndarray, fraction: float, seed: int, purpose: str) -> np.ndarray:
    """Draw the held-out rows of each client, a mask like `owner`; at least one row of a client is not held out.

    Args:
        owner: client of each row, ascending.
        fraction: share of each client's rows, rounded.
        seed, purpose: seed and purpose of the random numbers.
    """
    sizes = np.bincount(owner)
    least_left = np.maximum(sizes - 1, 0)
    number = np.minimum(np.rint(fraction * sizes).astype(np.int64), least_left)
    order = np.lexsort((generator(purpose, seed).random(len(owner)), owner))
    rank = np.empty(len(owner), dtype=np.int64)
    rank[order] = np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner]
    return rank < number[owner]


def rows_of(
    rows: np.ndarray, owner: np.ndarray, mask: np.ndarray, holders: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows under `mask` that belong to `holders`, and the number of rows of each holder."""
    selected = mask & np.isin(owner, holders)
    return rows[selected], np.bincount(owner[selected], minlength=holders.max() + 1)[holders]


def gather(
    x: torch.Tensor,
    y: torch.Tensor,
    groups: dict[str, tuple[np.ndarray, np.ndarray]],
    weights: torch.Tensor | None = None,
) -> dict[str, Shards]:
    """Return the shards of several groups of rows with sizes of clients; all are views of one copy of the examples."""
    rows = torch.from_numpy(np.concatenate([rows for rows, _ in groups.values()])).to(x.device)
    x, y = x.index_select(0, rows), y.index_select(0, rows)
    weights = None if weights is None else weights.index_select(0, rows)
    shards, start = {}, 0
    for name, (of_group, sizes) in groups.items():
        part = slice(start, start + len(of_group))
        of_part = None if weights is None else weights[part]
        shards[name] = Shards(x[part], y[part], np.concatenate([[0], np.cumsum(sizes)]), of_part)
        start = part.stop
    return shards


def flip(y: torch.Tensor, rows: np.ndarray, num_classes: int | None) -> torch.Tensor:
    """Return the labels, with those of `rows` replaced by C - 1 - y."""
    if len(rows) == 0 or num_classes is None:
        return y
    y, index = y.clone(), torch.from_numpy(rows).to(y.device)
    y[index] = num_classes - 1 - y[index]
    return y


@dataclass(frozen=True, eq=False)
class Clients:
    """The rows and roles of M clients, of which some never train.

    Attributes:
        rows: rows of all clients, concatenated.
        owner: client of each of `rows`, ascending.
        natural: id of each client in the source, ascending ``[M]``, or None.
        training, unseen, validation, test, flipped: numbers of the clients in each role, ascending.
    """

    rows: np.ndarray
    owner: np.ndarray
    natural: np.ndarray | None
    training: np.ndarray
    unseen: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    flipped: np.ndarray

    def rows_of(self, clients: np.ndarray) -> np.ndarray:
        """Return the rows of some clients."""
        return self.rows[np.isin(self.owner, clients)]

    @classmethod
    def cast(
        cls,
        held: list[np.ndarray],
        natural: np.ndarray | None,
        others: Mapping[str, int],
        flip_labels: float,
        seed: int,
    ) -> Clients:
        """Draw the clients that never train, and those of each role whose labels are flipped.

        Raises:
            ConfigurationError: if there are too few clients, or the share of flipped ones rounds to none.
        """

        def chosen(purpose: str, clients: np.ndarray, size: int) -> np.ndarray:
            return np.sort(generator(purpose, seed).choice(clients, size=size, replace=False))

        if (number := sum(others.values())) >= len(held):
            names = " + ".join(f"{name}_clients" for name, size in others.items() if size)
            raise refuse(names, given=number, needed=f"fewer than the {len(held)} clients that there are")
        everyone = training = np.arange(len(held))
        parts: dict[str, np.ndarray] = {}
        for name, size in others.items():
            parts[name] = chosen(f"{name} clients", training, size)
            training = np.setdiff1d(training, parts[name])
        flipped = [chosen("flipped clients", training, round(flip_labels * len(training)))]
        if flip_labels and not len(flipped[0]):
            needed = f"a share that is at least one of {len(training)} clients when rounded, or 0"
            raise refuse("flip_labels", given=flip_labels, needed=needed)
        flipped += [
            chosen(f"flipped {name} clients", part, round(flip_labels * len(part))) for name, part in parts.items()
        ]
        owner = np.repeat(everyone, [len(rows) for rows in held])
        return cls(np.concatenate(held), owner, natural, training, **parts, flipped=np.concatenate(flipped))


def own_examples(
    source: Examples,
    clients: Clients,
    test_rows: np.ndarray,
    client_test_fraction: float,
    validation_fraction: float,
    seed: int,
) -> dict[str, Shards]:
    """Return all shards of the source's training examples, gathered in one copy."""
    tests = held_out(clients.owner, client_test_fraction, seed, "tests of clients")
    validating = _validating(clients, tests, validation_fraction, seed)
    note_none(source.name, "client_test_fraction", client_test_fraction, tests)
    note_none(source.name, "validation_fraction", validation_fraction, validating)
    groups = {
        "train": (~tests & ~validating, clients.training),
        "validation": (validating, clients.training if validation_fraction else ()),
        "client_test": (tests, clients.training if client_test_fraction else ()),
        "unseen_train": (~tests, clients.unseen),
        "unseen_test": (tests, clients.unseen if client_test_fraction else ()),
        "unseen_validation": (np.ones_like(tests), clients.validation),
    }
    parts = {
        name: rows_of(clients.rows, clients.owner, mask, np.asarray(holders))
        for name, (mask, holders) in groups.items()
        if len(holders)
    }
    if len(clients.test):  # there are no `test_rows` then
        test_rows = clients.rows_of(clients.test)
    if len(clients.test) or len(test_rows):
        parts["test"] = (test_rows, np.array([len(test_rows)]))
    flipped = clients.rows_of(clients.flipped)
    shards = gather(source.x, flip(source.y, flipped, source.num_classes), parts, source.weights)
    _check_unseen(shards)
    return shards


def _check_unseen(shards: Mapping[str, Shards]) -> None:
    """Raise an error for unseen clients without examples."""
    if "unseen_train" in shards and (empty := (shards["unseen_train"].sizes == 0)).any():
        raise ConfigurationError(
            f"{empty.sum()} of {len(empty)} unseen clients have no examples: write fewer clients, a larger alpha, "
            "or empty='drop' in split()"
        )


def _validating(clients: Clients, tests: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Draw the rows for validation, a mask, among those of training clients that are not for tests."""
    validating = np.zeros_like(tests)
    if fraction:
        left = np.flatnonzero(~tests & np.isin(clients.owner, clients.training))
        validating[left[held_out(clients.owner[left], fraction, seed, "validation of clients")]] = True
    return validating


def official_tests(source: Examples, clients: Clients, client_test_fraction: float) -> dict[str, Shards]:
    """Return the shards of the official test split: by client if its clients are known, else pooled."""
    if source.test_x is None or source.test_y is None:
        return {}
    ids, known = source.test_client_ids, source.client_ids
    if clients.natural is None or ids is None or known is None or not np.isin(ids, known).any():
        return {"test": Shards.pooled(source.test_x, source.test_y, source.test_weights)}
    if client_test_fraction:
        needed = f"0, because {source.name} has official test examples for each client"
        raise refuse("client_test_fraction", given=client_test_fraction, needed=needed)
    if (unknown := ~np.isin(ids, known)).any():
        LOG.warning("%s: %d of %d test examples belong to clients without training examples, and are not used",
                    source.name, unknown.sum(), len(ids))  # fmt: skip
    client = np.searchsorted(clients.natural, ids).clip(max=len(clients.natural) - 1)
    owner = np.where(clients.natural[client] == ids, client, -1)
    order = np.argsort(owner, kind="stable")
    everyone = np.ones(len(order), dtype=bool)
    groups = {"client_test": rows_of(order, owner[order], everyone, clients.training)}
    if len(clients.unseen):
        groups["unseen_test"] = rows_of(order, owner[order], everyone, clients.unseen)
    flipped = np.flatnonzero(np.isin(owner, clients.flipped))
    return gather(source.test_x, flip(source.test_y, flipped, source.num_classes), groups, source.test_weights)
