"""Draw the rows of the pooled test and of the tests and validation of clients, and gather them as shards in one copy."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, below_one, refuse
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


def draw_test(source: Examples, test_fraction: float | None, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw the pooled test, and return the other rows and those of the test, each in the order of the data.

    Examples are sorted by class, in random order within a class, and the i-th is drawn where i * fraction passes an integer.
    The number of drawn examples is then correct to within one, overall and in each class.
    """
    n = len(source.y)
    if source.test_x is not None:
        if test_fraction is not None:
            needed = f"None, because {source.name} has an official test split of {len(source.test_x)} examples"
            instead = (
                "For tests inside each client, write client_test_fraction; to do without the official split, "
                "official_test='pool'"
            )
            raise refuse("test_fraction", given=test_fraction, needed=needed, instead=instead)
        return np.arange(n), np.empty(0, dtype=np.int64)
    fraction = 0.2 if test_fraction is None else test_fraction
    below_one("test_fraction", fraction)
    one_each = source.num_classes is not None and source.y.dim() == 1
    classes = source.y.numpy(force=True) if one_each else np.zeros(n)
    order = np.lexsort((generator("pooled test", seed).random(n), classes))
    passed = np.floor(np.arange(n + 1) * fraction)
    taken = np.zeros(n, dtype=bool)
    taken[order] = np.diff(passed) > 0
    note_none(source.name, "test_fraction", fraction, taken)
    return np.flatnonzero(~taken), np.flatnonzero(taken)


def no_pooled_test(source: Examples, test_fraction: float | None, test_clients: int) -> float:
    """Return 0, the share of examples for a pooled test if whole clients are the test, after checks."""
    if source.test_x is not None:
        raise ConfigurationError(
            f"test_clients: got {test_clients}, and {source.name} has an official test split, which would be another test: "
            "write official_test='pool' to give its examples to clients, or leave test_clients out"
        )
    if test_fraction:
        raise ConfigurationError(
            f"test_clients: got {test_clients} beside test_fraction={test_fraction}, and there is one pooled test: "
            "leave one of them out"
        )
    return 0.0


Part = tuple[np.ndarray, np.ndarray]
"""The rows of some clients, one client after another, and the number of rows of each."""

Arrays = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
"""Inputs, targets and weights of examples."""


@dataclass(frozen=True, eq=False)
class Held:
    """Rows that clients hold.

    Attributes:
        rows: rows of all clients, concatenated.
        owner: client of each of `rows`, ascending.
    """

    rows: np.ndarray
    owner: np.ndarray

    def by(self, clients: np.ndarray, mask: np.ndarray | bool = True) -> Part:
        """Return the rows under `mask` that some clients hold."""
        selected = mask & np.isin(self.owner, clients)
        return self.rows[selected], np.bincount(self.owner[selected], minlength=clients.max(initial=-1) + 1)[clients]


def gather(
    examples: Arrays, num_classes: int | None, parts: Mapping[str, Part], flipped: np.ndarray
) -> dict[str, Shards]:
    """Return the shards of several parts; all are views of one copy of the examples.

    Labels y of the rows `flipped` become C - 1 - y.
    """
    x, y, weights = examples
    rows = torch.from_numpy(np.concatenate([rows for rows, _ in parts.values()])).to(x.device)
    x, y = x.index_select(0, rows), y.index_select(0, rows)
    weights = None if weights is None else weights.index_select(0, rows)
    if len(flipped) and num_classes is not None:
        y = torch.where(torch.isin(rows, torch.from_numpy(flipped).to(rows.device)), num_classes - 1 - y, y)
    shards, start = {}, 0
    for name, (of_part, sizes) in parts.items():
        part = slice(start, start + len(of_part))
        of_examples = None if weights is None else weights[part]
        shards[name] = Shards(x[part], y[part], np.concatenate([[0], np.cumsum(sizes)]), of_examples)
        start = part.stop
    return shards


@dataclass(frozen=True, eq=False)
class Clients(Held):
    """The rows and roles of M clients, of which some never train.

    Attributes:
        natural: id of each client in the source, ascending ``[M]``, or None.
        training, unseen, validation, test, flipped: numbers of the clients in each role, ascending.
    """

    natural: np.ndarray | None
    training: np.ndarray
    unseen: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    flipped: np.ndarray

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


def own_parts(
    source: Examples,
    clients: Clients,
    test_rows: np.ndarray,
    client_test_fraction: float,
    validation_fraction: float,
    seed: int,
) -> dict[str, Part]:
    """Return the rows of the source's training examples in each split.

    Raises:
        ConfigurationError: if an unseen client has no examples.
    """
    tests = held_out(clients.owner, client_test_fraction, seed, "tests of clients")
    validating = _validating(clients, tests, validation_fraction, seed)
    note_none(source.name, "client_test_fraction", client_test_fraction, tests)
    note_none(source.name, "validation_fraction", validation_fraction, validating)
    nobody = clients.training[:0]
    groups = {
        "train": (clients.training, ~tests & ~validating),
        "validation": (clients.training if validation_fraction else nobody, validating),
        "client_test": (clients.training if client_test_fraction else nobody, tests),
        "unseen_train": (clients.unseen, ~tests),
        "unseen_test": (clients.unseen if client_test_fraction else nobody, tests),
        "unseen_validation": (clients.validation, True),
    }
    parts = {name: clients.by(holders, mask) for name, (holders, mask) in groups.items() if len(holders)}
    if "unseen_train" in parts and (empty := parts["unseen_train"][1] == 0).any():
        raise ConfigurationError(
            f"{empty.sum()} of {len(empty)} unseen clients have no examples: write fewer clients, a larger alpha, "
            "or empty='drop' in split()"
        )
    if len(clients.test):  # there are no `test_rows` then
        test_rows, _ = clients.by(clients.test)
    if len(clients.test) or len(test_rows):
        parts["test"] = (test_rows, np.array([len(test_rows)]))
    return parts


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
    examples = source.test_x, source.test_y, source.test_weights
    ids, known = source.test_client_ids, source.client_ids
    if clients.natural is None or ids is None or known is None or not np.isin(ids, known).any():
        return {"test": Shards.pooled(*examples)}
    if client_test_fraction:
        needed = f"0, because {source.name} has official test examples for each client"
        raise refuse("client_test_fraction", given=client_test_fraction, needed=needed)
    if (unknown := ~np.isin(ids, known)).any():
        LOG.warning("%s: %d of %d test examples belong to clients without training examples, and are not used",
                    source.name, unknown.sum(), len(ids))  # fmt: skip
    client = np.searchsorted(clients.natural, ids).clip(max=len(clients.natural) - 1)
    owner = np.where(clients.natural[client] == ids, client, -1)
    order = np.argsort(owner, kind="stable")
    tests = Held(order, owner[order])
    parts = {"client_test": tests.by(clients.training)}
    if len(clients.unseen):
        parts["unseen_test"] = tests.by(clients.unseen)
    return gather(examples, source.num_classes, parts, tests.by(clients.flipped)[0])
