"""Split a source over clients, and into training, validation and test examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from turnout.core.checks import (
    ConfigurationError,
    DataError,
    below_one,
    check_seed,
    count,
    known_name,
    probability,
    refuse,
)
from turnout.core.other_names import explains_arguments
from turnout.data.columns import Columns
from turnout.data.examples import Examples
from turnout.data.federated import FederatedData
from turnout.data.gather import Clients, draw_test, gather, no_pooled_test, official_tests, own_parts
from turnout.data.partition import ById, Partition
from turnout.data.partition.base import ARTIFICIAL
from turnout.data.preparation import Preparation
from turnout.data.transformer import FittedTransform, Transformed
from turnout.data.transforms import check_transforms


@explains_arguments
def split_source(
    source: Examples,
    /,
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
    """Split a source over clients and into training, validation and test examples; no example is in two splits.

    The steps are, in this order: draw the pooled test; partition the rest over `num_clients` and the further clients that
    never train; drop clients without examples, with ``empty="drop"``; draw the clients that never train; draw the test and
    then the validation examples of each client; flip labels. Every step has its own random stream of `seed`, which training
    does not use. Rows of a client keep the order of the partition.

    Args:
        source: the data.
        partition: partition of the examples over clients; None is by natural client, as ``ById()``.
        num_clients: number of clients that train (N); None, for all natural clients, only with `ById`.
        seed: seed of all random choices.
        test_fraction: share of the examples for the pooled test, stratified by class; None is 0.2 without an official test
            split, and 0 is none. With an official test split, which is used as a whole, only None is allowed. If its examples
            belong to natural clients of the training data and the partition is `ById`, they are the tests of these clients,
            and those of clients that were not drawn are not used.
        client_test_fraction: share of each client's examples for its own test, drawn at random; rounded, and at least one
            example remains for training.
        validation_fraction: share of each client's remaining examples for validation, by which learning rates, rounds and
            methods are chosen; rounded, and at least one example remains for training.
        unseen_clients: number of further clients that never train, for `unseen_train` and `unseen_test`.
        validation_clients: number of further clients that never train, whose examples are `unseen_validation`, in place of
            `validation_fraction`. With personal models, each fits its model to half of its examples, by `adaptation_steps`,
            and validates it on the other half.
        test_clients: number of further clients that never train, whose examples are the pooled test, in place of
            `test_fraction`.
        flip_labels: share of the clients, drawn without replacement, whose labels y become C - 1 - y, in training and in
            their own tests. The same share of the unseen clients. Not for numbers to predict.
        empty: treatment of clients without examples: ``"refuse"`` raises an error, ``"drop"`` renumbers the others.
        official_test: ``"keep"`` uses an official test split, ``"pool"`` merges it into the training examples.

    Raises:
        ConfigurationError: if options are out of range or do not fit the data, and as the partition does.
        DataError: if a partition assigns an example twice.
    """
    others = {"unseen": unseen_clients, "validation": validation_clients, "test": test_clients}
    shares = {"client_test_fraction": client_test_fraction, "validation_fraction": validation_fraction}
    _check_options(source, others, shares, flip_labels, seed)
    known_name("value of empty", empty, ("refuse", "drop"))
    known_name("value of official_test", official_test, ("keep", "pool"))
    source = source.pooled() if official_test == "pool" else source
    check_transforms(source.transforms)
    partition = _partition(source, partition)
    if test_clients:
        test_fraction = no_pooled_test(source, test_fraction, test_clients)
    pool, test_rows = draw_test(source, test_fraction, seed)
    assigned = _assign(source, pool, partition, num_clients, sum(others.values()), seed)
    holders = list(filter(len, assigned)) if empty == "drop" else assigned
    ids = source.client_ids if isinstance(partition, ById) else None
    natural = None if ids is None else ids[[rows[0] for rows in holders]]
    clients = Clients.cast(holders, natural, others, flip_labels, seed)
    options = {
        "num_clients": num_clients, "seed": seed, "test_fraction": test_fraction,
        "client_test_fraction": client_test_fraction, "unseen_clients": unseen_clients, "flip_labels": flip_labels,
        "empty": empty, "dropped_clients": len(assigned) - len(holders),
    }  # fmt: skip
    later = {
        "validation_fraction": validation_fraction, "validation_clients": validation_clients, "test_clients": test_clients,
    }  # fmt: skip
    parts = own_parts(source, clients, test_rows, client_test_fraction, validation_fraction, seed)
    source, preparation = _prepared(source, parts["train"][0])
    examples = source.x, source.y, source.weights
    shards = gather(examples, source.num_classes, parts, clients.by(clients.flipped)[0])
    shards |= official_tests(source, clients, client_test_fraction)
    described: dict[str, Any] = {"preparation": preparation.plain()} if isinstance(preparation, Preparation) else {}
    return FederatedData(
        name=source.name,
        num_classes=source.num_classes,
        transforms=tuple(source.transforms),
        client_names=_names(source, natural, clients.training),
        recipe=_recipe(source, partition, options, clients, later) | described,
        preparation=preparation,
        **shards,
    )


def _prepared(source: Examples, rows: np.ndarray) -> tuple[Examples, Preparation | FittedTransform | None]:
    """Return the source with inputs by its `prepare`, and what that has fitted to the training rows."""
    if source.prepare is None:
        return source, None
    x, size = source.prepare(rows), len(source.x)
    fitted = source.prepare.fitted(rows) if isinstance(source.prepare, Columns | Transformed) else None
    return replace(source, x=x[:size], test_x=None if source.test_x is None else x[size:]), fitted


def _recipe(
    source: Examples,
    partition: Partition,
    options: Mapping[str, Any],
    clients: Clients,
    later: Mapping[str, float],
) -> dict[str, Any]:
    """Return the options of a split and what was drawn; `later` options are left out if 0, as in runs before them."""
    return {
        "source": source.name,
        "source_recipe": dict(source.recipe),
        "partition": {"name": type(partition).__name__} | asdict(partition),
        **options,
        "flipped_clients": np.flatnonzero(np.isin(clients.training, clients.flipped)).tolist(),
        "flipped_unseen_clients": np.flatnonzero(np.isin(clients.unseen, clients.flipped)).tolist(),
        **{name: value for name, value in later.items() if value},
    }


def _check_options(
    source: Examples, others: Mapping[str, int], shares: Mapping[str, float], flip_labels: float, seed: int
) -> None:
    """Check the numbers of clients that never train, the shares of clients' examples, and that labels can be flipped."""
    for name, share in shares.items():
        below_one(name, share)
    for name, number in others.items():
        count(f"{name}_clients", number, least=0)
    if others["validation"] and shares["validation_fraction"]:
        raise ConfigurationError(
            f"validation_clients: got {others['validation']} beside validation_fraction={shares['validation_fraction']}, and "
            "settings are chosen by one of the two: leave the other out"
        )
    check_seed(seed)
    probability("flip_labels", flip_labels)
    if flip_labels and (source.num_classes is None or source.y.dim() > 1):
        needed = f"0, because the targets of {source.name} are no class labels, one for each example"
        raise refuse("flip_labels", given=flip_labels, needed=needed)


def _partition(source: Examples, partition: Partition | None) -> Partition:
    """Return the partition, by default by natural client."""
    if isinstance(partition, Partition):
        return partition
    if partition is not None:
        hint = f"{partition.__name__}()" if isinstance(partition, type) else f"ById(), or one of {ARTIFICIAL}"
        raise refuse("partition", given=partition, needed="a partition", instead=f"Write to.partition.{hint}")
    if source.client_ids is None:
        raise ConfigurationError(
            f"partition: {source.name} has no natural clients, so it needs a partition; write to.partition.{ARTIFICIAL}"
        )
    return ById()


def _assign(
    source: Examples, pool: np.ndarray, partition: Partition, num_clients: int | None, others: int, seed: int
) -> list[np.ndarray]:
    """Return the rows of each client, including those that never train."""
    if num_clients is not None:
        count("num_clients", num_clients)
        num_clients += others
    ids = None if source.client_ids is None else source.client_ids[pool]
    targets = source.y if source.num_classes is not None else source.y.double()
    assigned = partition.assign(targets.numpy(force=True)[pool], num_clients, seed, ids)
    _check_rows(type(partition).__name__, assigned, len(pool), num_clients)
    return [pool[rows] for rows in assigned]


def _check_rows(partition: str, assigned: Sequence[Any], n: int, num_clients: int | None) -> None:
    """Check that rows of clients are disjoint indices of examples, so that no example is in two splits.

    Raises:
        DataError: if not, or if there are other clients than were asked for.
    """
    rows = np.concatenate([np.arange(0), *(part for part in assigned if len(part))])
    valid = rows.dtype.kind == "i" and not (rows < 0).any() and not (rows >= n).any()
    if not valid or np.bincount(rows, minlength=1).max() > 1 or num_clients not in (None, len(assigned)):
        raise DataError(
            f"partition {partition}: got {len(rows)} rows of {len(assigned)} clients, {len(np.unique(rows))} of them "
            f"different, from {rows.min(initial=n)} to {rows.max(initial=0)}; needed different indices of the {n} examples "
            f"for {num_clients or 'the'} clients"
        )


def _names(source: Examples, natural: np.ndarray | None, training: np.ndarray) -> tuple[str, ...] | None:
    """Return the names of the natural clients that train."""
    if natural is None:
        return None
    return tuple(str(k) if source.client_names is None else source.client_names[k] for k in natural[training])
