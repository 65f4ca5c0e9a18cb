"""From a source to federated data: what is set aside for tests, who holds what, who never trains."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np

from turnout.core.checks import ConfigurationError, count, known_name, probability, refuse
from turnout.core.random import generator
from turnout.data.examples import Examples
from turnout.data.federated import FederatedData, Shards
from turnout.data.gather import flip, gather, held_out, rows_of
from turnout.data.partition import ById, Partition
from turnout.data.partition.by_id import ARTIFICIAL
from turnout.data.transforms import check_transforms


def split_source(
    source: Examples,
    partition: Partition | None = None,
    num_clients: int | None = None,
    *,
    seed: int = 0,
    test_fraction: float | None = None,
    client_test_fraction: float = 0.0,
    validation_fraction: float = 0.0,
    unseen_clients: int = 0,
    validation_clients: int = 0,
    test_clients: int = 0,
    flip_labels: float = 0.0,
    empty: str = "refuse",
    official_test: str = "keep",
) -> FederatedData:
    """Divide a source into clients and tests; every example is in one place at most.

    In this order: pooled test examples are set aside; `num_clients` and the further clients that never train share the rest
    by the partition; clients without examples are dropped, if so asked; those that never train are chosen at random; each
    client sets its own test examples aside, and then those for validation; labels are flipped. Every choice has random
    numbers of its own from `seed`, which none of the training shares. Rows within a client keep the order in which the
    partition assigned them.

    Args:
        source: the data.
        partition: who holds what; None takes the clients that the data have, as ``ById()``.
        num_clients: clients that train (N); None, for all that there are, only with `ById`.
        seed: of all that is random here.
        test_fraction: share of the examples, the same of each class to within one example, that becomes the pooled
            test set; None is 0.2 where the data have no official test split, 0 is none. An official test split is used
            whole and leaves no place for another, so anything but None is refused then. Where its examples belong to
            the natural clients of the training data and the partition is `ById`, each client has its own for its test,
            and those of clients that were not chosen are not used.
        client_test_fraction: share of each client's examples, at random, that becomes its own test set; rounded, and
            at least one example remains for training.
        validation_fraction: share of what each client has left, at random, that becomes its validation set, by which step
            sizes, rounds and methods are chosen; rounded, and at least one example remains for training.
        unseen_clients: further clients that never train, for `unseen_train` and `unseen_test`.
        validation_clients: further clients that never train, whose examples are all for `unseen_validation`, by which
            settings are chosen in place of examples of training clients.
        test_clients: further clients that never train, whose examples are the pooled test set, in place of
            `test_fraction`.
        flip_labels: share of the clients, at random without replacement, whose labels y become C - 1 - y, in training
            and in their own tests (they see the world so). The same share of the unseen clients. Not for numbers to predict.
        empty: what becomes of clients without examples: ``"refuse"``, or ``"drop"``, which renumbers the others.
        official_test: what becomes of an official test split: ``"keep"``, or ``"pool"``, after which its examples are
            like all others and the data have none.

    Raises:
        ConfigurationError: for options out of range or that do not fit the data, and whatever the partition refuses.
    """
    _check(seed, client_test_fraction, validation_fraction, flip_labels, empty)
    others = _Roles(unseen_clients, validation_clients, test_clients)
    if validation_clients and validation_fraction:
        raise ConfigurationError(
            f"validation_clients: got {validation_clients} beside validation_fraction={validation_fraction}, and "
            "settings are chosen by one of the two: leave the other out"
        )
    known_name("value of official_test", official_test, ("keep", "pool"))
    source = source.pooled() if official_test == "pool" else source
    check_transforms(source.transforms)
    if flip_labels and (source.num_classes is None or source.y.dim() > 1):
        raise refuse(
            "flip_labels",
            given=flip_labels,
            needed=f"0, because the targets of {source.name} are no class labels, one for each example",
        )
    partition = _partition(source, partition)
    if test_clients:
        test_fraction = _no_pooled_test(source, test_fraction, test_clients)
    pool, test_rows = _set_aside(source, test_fraction, seed)
    held = _hold(source, pool, partition, num_clients, sum(others), seed)
    kept = [rows for rows in held if len(rows)] if empty == "drop" else held
    natural = None
    if isinstance(partition, ById) and source.client_ids is not None:
        natural = source.client_ids[[rows[0] for rows in kept]]
    clients = _Clients.cast(kept, natural, others, flip_labels, seed)
    recipe = {
        "source": source.name,
        "source_recipe": dict(source.recipe),
        "partition": {"name": type(partition).__name__} | asdict(partition),
        "num_clients": num_clients,
        "seed": seed,
        "test_fraction": test_fraction,
        "client_test_fraction": client_test_fraction,
        "unseen_clients": unseen_clients,
        "flip_labels": flip_labels,
        "empty": empty,
        "dropped_clients": len(held) - len(kept),
        "flipped_clients": np.flatnonzero(np.isin(clients.training, clients.flipped)).tolist(),
        "flipped_unseen_clients": np.flatnonzero(np.isin(clients.unseen, clients.flipped)).tolist(),
    }
    if validation_fraction:  # left out otherwise, so that runs of versions without it can be resumed
        recipe["validation_fraction"] = validation_fraction
    for name, number in others._asdict().items():
        if number and name != "unseen":
            recipe |= {f"{name}_clients": number}
    shards = _examples(source, clients, test_rows, client_test_fraction, validation_fraction, seed)
    shards |= _official_tests(source, clients, client_test_fraction)
    return FederatedData(
        name=source.name,
        num_classes=source.num_classes,
        transforms=tuple(source.transforms),
        client_names=None if natural is None else _names(source, natural[clients.training]),
        recipe=recipe,
        **shards,
    )


def _check(
    seed: int,
    client_test_fraction: float,
    validation_fraction: float,
    flip_labels: float,
    empty: str,
) -> None:
    """Refuse arguments that no data could meet."""
    count("seed", seed, least=0, most=None)
    _share("client_test_fraction", client_test_fraction)
    _share("validation_fraction", validation_fraction)
    probability("flip_labels", flip_labels)
    known_name("value of empty", empty, ("refuse", "drop"))


class _Roles(NamedTuple):
    """Count the clients that never train, by what they are for."""

    unseen: int
    validation: int
    test: int

    def check(self, num_clients: int) -> None:
        """Refuse numbers that leave nobody to train."""
        for name, number in self._asdict().items():
            count(f"{name}_clients", number, least=0)
        if sum(self) >= num_clients:
            names = [f"{name}_clients" for name, number in self._asdict().items() if number]
            raise refuse(
                " + ".join(names), given=sum(self), needed=f"fewer than the {num_clients} clients that there are"
            )


def _no_pooled_test(source: Examples, test_fraction: float | None, test_clients: int) -> float:
    """Return the share of examples for a pooled test where whole clients are the test: none."""
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


def _share(name: str, value: float) -> None:
    """Refuse a share that leaves nothing over."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < 1.0:
        raise refuse(name, given=value, needed="a share, 0 <= value < 1")


def _partition(source: Examples, partition: Partition | None) -> Partition:
    """Return the partition that was asked for; by the clients that the data have, if none was."""
    if isinstance(partition, Partition):
        return partition
    if partition is not None:
        hint = f"{partition.__name__}()" if isinstance(partition, type) else f"ById() or one of {ARTIFICIAL}"
        raise ConfigurationError(f"partition: got {partition!r}, needed a partition; write {hint}")
    if source.client_ids is None:
        raise ConfigurationError(
            f"partition: {source.name} has no clients of its own, so say who holds what; write one of {ARTIFICIAL}"
        )
    return ById()


def _set_aside(source: Examples, test_fraction: float | None, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that clients share, and those of the pooled test, each in the order of the data.

    With the examples in order of class, at random within a class, the i-th is taken where i * fraction passes a whole
    number: so many, to within one, of all and of each class.
    """
    n = len(source.y)
    if source.test_x is not None:
        if test_fraction is not None:
            raise refuse(
                "test_fraction",
                given=test_fraction,
                needed=f"None, because {source.name} has an official test split of {len(source.test_x)} examples",
                instead="For tests inside each client, write client_test_fraction; to do without the official split, "
                "official_test='pool'",
            )
        return np.arange(n), np.empty(0, dtype=np.int64)
    fraction = 0.2 if test_fraction is None else test_fraction
    _share("test_fraction", fraction)
    one_each = source.num_classes is not None and source.y.dim() == 1
    classes = source.y.numpy(force=True) if one_each else np.zeros(n)
    order = np.lexsort((generator("pooled test", seed).random(n), classes))
    passed = np.floor(np.arange(n + 1) * fraction)
    taken = np.zeros(n, dtype=bool)
    taken[order] = np.diff(passed) > 0
    return np.flatnonzero(~taken), np.flatnonzero(taken)


def _hold(
    source: Examples, pool: np.ndarray, partition: Partition, num_clients: int | None, others: int, seed: int
) -> list[np.ndarray]:
    """Return the rows of each client, those that will not train among them."""
    if num_clients is not None:
        count("num_clients", num_clients)
        num_clients += others
    ids = None if source.client_ids is None else source.client_ids[pool]
    targets = source.y if source.num_classes is not None else source.y.double()
    return [pool[rows] for rows in partition.assign(targets.numpy(force=True)[pool], num_clients, seed, ids)]


@dataclass(frozen=True, eq=False)
class _Clients:
    """Map clients to their examples and their parts; M clients train or never do.

    Attributes:
        rows: what they hold, client after client.
        owner: the client of each of `rows`, ascending.
        natural: the id of each client in the source, ascending ``[M]``, or None.
        training, unseen, validation, test, flipped: client numbers, ascending.
    """

    rows: np.ndarray
    owner: np.ndarray
    natural: np.ndarray | None
    training: np.ndarray
    unseen: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    flipped: np.ndarray

    @classmethod
    def cast(
        cls, held: list[np.ndarray], natural: np.ndarray | None, others: _Roles, flip_labels: float, seed: int
    ) -> _Clients:
        """Choose at random the clients that never train, and of each kind those whose labels are flipped."""
        others.check(len(held))
        everyone = training = np.arange(len(held))
        parts: list[np.ndarray] = []
        for name, number in others._asdict().items():
            parts.append(_some(f"{name} clients", training, number, seed))
            training = np.setdiff1d(training, parts[-1])
        flipped = [_some("flipped clients", training, round(flip_labels * len(training)), seed)]
        for name, part in zip(others._fields, parts, strict=True):
            flipped.append(_some(f"flipped {name} clients", part, round(flip_labels * len(part)), seed))
        owner = np.repeat(everyone, [len(rows) for rows in held])
        rows, (unseen, validation, test) = np.concatenate(held), parts
        return cls(rows, owner, natural, training, unseen, validation, test, np.concatenate(flipped))


def _some(purpose: str, clients: np.ndarray, size: int, seed: int) -> np.ndarray:
    """So many of the clients, at random without replacement, ascending."""
    return np.sort(generator(purpose, seed).choice(clients, size=size, replace=False))


def _examples(
    source: Examples,
    clients: _Clients,
    test_rows: np.ndarray,
    client_test_fraction: float,
    validation_fraction: float,
    seed: int,
) -> dict[str, Shards]:
    """Everything that comes from the source's training examples, gathered once."""
    own_test = held_out(clients.owner, client_test_fraction, seed, "tests of clients")
    training = ~own_test
    if validation_fraction:
        left = np.flatnonzero(~own_test & np.isin(clients.owner, clients.training))
        training[left[held_out(clients.owner[left], validation_fraction, seed, "validation of clients")]] = False
    groups = {"train": (training, clients.training)}
    if validation_fraction:
        groups["validation"] = (~own_test & ~training, clients.training)
    if client_test_fraction:
        groups["client_test"] = (own_test, clients.training)
    if len(clients.unseen):
        groups["unseen_train"] = (~own_test, clients.unseen)
        if client_test_fraction:
            groups["unseen_test"] = (own_test, clients.unseen)
    chosen = {name: rows_of(clients.rows, clients.owner, mask, some) for name, (mask, some) in groups.items()}
    whole = np.ones_like(own_test)
    for name, some in (("unseen_validation", clients.validation), ("test", clients.test)):
        if len(some):
            rows, sizes = rows_of(clients.rows, clients.owner, whole, some)
            chosen[name] = (rows, np.array([sizes.sum()]))
    if len(test_rows):
        chosen["test"] = (test_rows, np.array([len(test_rows)]))
    flipped = clients.rows[np.isin(clients.owner, clients.flipped)]
    shards = gather(source.x, flip(source.y, flipped, source.num_classes), chosen, source.weights)
    if "unseen_train" in shards and (shards["unseen_train"].sizes == 0).any():
        raise ConfigurationError(
            f"{(shards['unseen_train'].sizes == 0).sum()} of {len(clients.unseen)} unseen clients have no examples: write "
            "fewer clients, a larger alpha, or empty='drop' in split()"
        )
    return shards


def _official_tests(source: Examples, clients: _Clients, client_test_fraction: float) -> dict[str, Shards]:
    """Return the official test split: each client's own, where it is one by client, else pooled."""
    if source.test_x is None or source.test_y is None:
        return {}
    ids = source.test_client_ids
    known = source.client_ids
    if clients.natural is None or ids is None or known is None or not np.isin(ids, known).any():
        return {"test": Shards.pooled(source.test_x, source.test_y, source.test_weights)}
    if client_test_fraction:
        raise refuse(
            "client_test_fraction",
            given=client_test_fraction,
            needed=f"0, because {source.name} has official test examples for each client",
        )
    place = np.searchsorted(clients.natural, ids).clip(max=len(clients.natural) - 1)
    owner = np.where(clients.natural[place] == ids, place, -1)
    order = np.argsort(owner, kind="stable")
    everyone = np.ones(len(order), dtype=bool)
    groups = {"client_test": rows_of(order, owner[order], everyone, clients.training)}
    if len(clients.unseen):
        groups["unseen_test"] = rows_of(order, owner[order], everyone, clients.unseen)
    flipped = np.flatnonzero(np.isin(owner, clients.flipped))
    return gather(source.test_x, flip(source.test_y, flipped, source.num_classes), groups, source.test_weights)


def _names(source: Examples, natural: np.ndarray) -> tuple[str, ...]:
    """Return what natural clients are called."""
    return tuple(str(k) if source.client_names is None else source.client_names[k] for k in natural)
