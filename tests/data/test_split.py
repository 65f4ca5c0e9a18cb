"""Splits of a source into clients and test sets."""

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.core.checks import ConfigurationError, DataError
from turnout.data import Equalize, Normalize
from turnout.data.federated import FederatedData
from turnout.data.partition import ById, ClassesPerClient, Dirichlet, Iid, LabelClusters, Partition
from turnout.data.shards import Shards
from turnout.data.source import Source
from turnout.data.split import split_source

from ..logs import logged

PARTS = ("train", "test", "client_test", "unseen_train", "unseen_test")


def source(n: int = 200, num_classes: int = 4, **changes: Any) -> Source:
    """Examples whose input is their own number, so that every row can be followed."""
    rng = np.random.default_rng(0)
    fields = {
        "name": "numbers",
        "x": torch.arange(n, dtype=torch.float32).view(n, 1),
        "y": torch.from_numpy(rng.integers(0, num_classes, n)),
        "num_classes": num_classes,
        "test_x": None,
        "test_y": None,
        "client_ids": None,
        "client_names": None,
        "test_client_ids": None,
        "transforms": (),
        "recipe": {"reader": "test"},
    }
    return Source(**(fields | changes))


def with_official_test(n: int = 200, m: int = 40, **changes: Any) -> Any:
    test_y = torch.from_numpy(np.random.default_rng(1).integers(0, 4, m))
    return source(n, test_x=1000.0 + torch.arange(m, dtype=torch.float32).view(m, 1), test_y=test_y, **changes)


def by_writer(**changes: Any) -> Any:
    """Twenty writers of ten examples each, and their official tests of two examples each."""
    order = np.random.default_rng(2)
    ids = order.permutation(np.repeat(np.arange(20), 10))
    test_ids = order.permutation(np.repeat(np.arange(20), 2))
    return with_official_test(200, 40, client_ids=ids, test_client_ids=test_ids, **changes)


def rows(shards: Shards | None) -> np.ndarray:
    return np.empty(0, dtype=np.int64) if shards is None else shards.x[:, 0].long().numpy()


def shards_of(data: FederatedData) -> dict[str, Shards]:
    return {part: getattr(data, part) for part in PARTS if getattr(data, part) is not None}


# ------------------------------------------------------------------------------------------------------- whatever is asked


@settings(max_examples=60, deadline=None)
@given(
    partition=st.sampled_from([Iid(), Dirichlet(1.0, min_examples=1), LabelClusters(2, 2), ClassesPerClient(2)]),
    num_clients=st.integers(2, 8),
    seed=st.integers(0, 1000),
    test_fraction=st.sampled_from([None, 0, 0.1, 0.5]),
    client_test_fraction=st.sampled_from([0.0, 0.2, 0.99]),
    unseen_clients=st.integers(0, 3),
    flip_labels=st.sampled_from([0.0, 0.3]),
)
def test_every_example_is_in_one_split_with_its_label(partition: Any, **options: Any) -> None:
    numbers = source()
    data = split_source(numbers, partition, **options)
    everything = np.concatenate([rows(shards) for shards in shards_of(data).values()])
    assert np.array_equal(np.sort(everything), np.arange(200))
    flipped = {"train": "flipped_clients", "client_test": "flipped_clients"}
    flipped |= {"unseen_train": "flipped_unseen_clients", "unseen_test": "flipped_unseen_clients"}
    for part, shards in shards_of(data).items():
        recipe: dict[str, Any] = data.recipe
        turned = np.isin(shards.owners(), recipe.get(flipped.get(part, ""), []))
        true = numbers.y[rows(shards)].numpy()
        assert np.array_equal(shards.y.numpy(), np.where(turned, 3 - true, true))
    assert data.num_clients == options["num_clients"]
    assert (data.client_test is None) == (options["client_test_fraction"] == 0)
    assert (data.unseen_train is None) == (options["unseen_clients"] == 0)
    again = split_source(numbers, partition, **options)
    assert all(torch.equal(a.x, b.x) for a, b in zip(shards_of(data).values(), shards_of(again).values(), strict=True))


def test_splits_are_views_of_one_copy() -> None:
    data = split_source(source(), Iid(), 4, client_test_fraction=0.2, unseen_clients=2)
    assert set(shards_of(data)) == set(PARTS)
    for field in ("x", "y"):
        assert len({getattr(shards, field).untyped_storage().data_ptr() for shards in shards_of(data).values()}) == 1


def test_rows_keep_the_assigned_order() -> None:
    numbers = source()
    data = split_source(numbers, Dirichlet(1.0), 5, seed=3, test_fraction=0)
    expected = Dirichlet(1.0).assign(numbers.y.numpy(), 5, seed=3)
    for k in range(5):
        assert rows(data.train)[data.train.offsets[k] : data.train.offsets[k + 1]].tolist() == expected[k].tolist()


def test_recorded_recipe_is_plain_and_complete() -> None:
    data = split_source(
        source(), Dirichlet(0.5), 4, seed=7, client_test_fraction=0.25, unseen_clients=1, flip_labels=0.5, empty="drop"
    )
    recipe = json.loads(json.dumps(data.recipe))
    assert recipe == {
        "source": "numbers",
        "source_recipe": {"reader": "test"},
        "partition": {"name": "Dirichlet", "alpha": 0.5, "min_examples": 0},
        "num_clients": 4,
        "seed": 7,
        "test_fraction": None,
        "client_test_fraction": 0.25,
        "unseen_clients": 1,
        "flip_labels": 0.5,
        "empty": "drop",
        "dropped_clients": 0,
        "flipped_clients": data.recipe["flipped_clients"],
        "flipped_unseen_clients": [],
    }
    assert data.name == "numbers"
    assert data.num_classes == 4


# ---------------------------------------------------------------------------------------------------------- pooled tests


def test_default_test_fraction_is_one_fifth() -> None:
    data = split_source(source(), Iid(), 4)
    assert data.test is not None
    assert data.test.num_clients == 1
    assert len(data.test.x) == 40
    assert data.train.sizes.tolist() == [40] * 4
    assert split_source(source(), Iid(), 4, test_fraction=0).test is None


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=2, max_size=6),
    fraction=st.floats(0.0, 0.8),
    seed=st.integers(0, 99),
)
def test_pooled_test_is_stratified(sizes: list[int], fraction: float, seed: int) -> None:
    y = torch.from_numpy(np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes)))
    some = source(len(y), num_classes=len(sizes), y=y)
    data = split_source(some, Iid(), 1, test_fraction=fraction, seed=seed)
    taken = np.zeros(len(sizes)) if data.test is None else data.test.label_counts(len(sizes))[0]
    assert (np.abs(taken - fraction * np.array(sizes)) < 1 + 1e-9).all()
    assert abs(taken.sum() - fraction * len(y)) < 1 + 1e-9


def test_test_examples_are_random() -> None:
    first, second = (set(rows(split_source(source(), Iid(), 4, seed=seed).test)) for seed in (0, 1))
    assert first != second


def test_official_test_split_can_join_the_other_examples() -> None:
    numbers = with_official_test()
    data = split_source(numbers, Iid(), 6, seed=1, test_fraction=0.25, client_test_fraction=0.1, official_test="pool")
    everything = np.concatenate([rows(shards) for shards in shards_of(data).values()])
    assert np.sort(everything).tolist() == [*range(200), *range(1000, 1040)]
    assert data.test is not None
    assert len(data.test.x) == 60
    assert data.recipe["source_recipe"] == {"reader": "test", "official_test": "pool"}
    for shards in shards_of(data).values():
        n = rows(shards)
        true = torch.cat([numbers.y, torch.zeros(800, dtype=torch.int64), numbers.test_y])  # type: ignore[list-item]
        assert torch.equal(shards.y, true[n])


def test_pooled_test_examples_belong_to_their_writers() -> None:
    data = split_source(by_writer(), client_test_fraction=0.25, test_fraction=0, official_test="pool")
    assert data.test is None
    assert data.client_test is not None
    assert (data.train.sizes + data.client_test.sizes).tolist() == [12] * 20


def test_contradictory_options_for_an_official_test_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="unknown value of official_test 'pol': did you mean 'pool'"):
        split_source(with_official_test(), Iid(), 4, official_test="pol")
    with pytest.raises(ConfigurationError, match="numbers has no official test split"):
        split_source(source(), Iid(), 4, official_test="pool")


def test_official_test_is_used_unchanged() -> None:
    numbers = with_official_test()
    data = split_source(numbers, Iid(), 4)
    assert data.test is not None
    assert data.test.x is numbers.test_x
    assert data.train.sizes.tolist() == [50] * 4
    with pytest.raises(
        ConfigurationError, match=r"test_fraction: got 0\.2, needed None, because numbers has an official"
    ):
        split_source(numbers, Iid(), 4, test_fraction=0.2)


# --------------------------------------------------------------------------------------------------------- clients' tests


@settings(max_examples=30, deadline=None)
@given(fraction=st.sampled_from([0.01, 0.1, 0.4, 0.5, 0.999]), seed=st.integers(0, 50))
def test_client_tests_have_their_fraction_and_leave_one_training_example(fraction: float, seed: int) -> None:
    data = split_source(source(), Dirichlet(0.3), 10, seed=seed, client_test_fraction=fraction, empty="drop")
    assert data.client_test is not None
    sizes = data.train.sizes + data.client_test.sizes
    assert data.client_test.num_clients == data.num_clients
    assert np.array_equal(data.client_test.sizes, np.minimum(np.rint(fraction * sizes), sizes - 1))


def test_client_test_examples_are_random() -> None:
    data = split_source(source(), Iid(), 2, test_fraction=0, client_test_fraction=0.5)
    assert data.client_test is not None
    plain = split_source(source(), Iid(), 2, test_fraction=0)
    place = np.isin(rows(plain.train), rows(data.client_test))
    assert place[:100].sum() == place[100:].sum() == 50
    assert 10 < place[:50].sum() < 40
    # What is left keeps its order.
    assert np.array_equal(rows(plain.train)[~place], rows(data.train))


# --------------------------------------------------------------------------------------------------------- unseen clients


def test_unseen_clients_are_a_subset_of_the_partition() -> None:
    together = split_source(source(), Dirichlet(0.3), 10, seed=1)
    apart = split_source(source(), Dirichlet(0.3), 7, seed=1, unseen_clients=3)
    assert apart.unseen_train is not None
    assert apart.unseen_train.num_clients == 3
    assert apart.unseen_test is None

    def holdings(shards: Shards) -> list[tuple[int, ...]]:
        return [tuple(shards.client(k)[0][:, 0].long().tolist()) for k in range(shards.num_clients)]

    assert sorted(holdings(together.train)) == sorted(holdings(apart.train) + holdings(apart.unseen_train))
    remaining = [mine for mine in holdings(together.train) if mine not in holdings(apart.unseen_train)]
    assert holdings(apart.train) == remaining


def test_unseen_clients_depend_on_the_seed() -> None:
    numbers = source(client_ids=np.repeat(np.arange(20), 10))
    chosen = {split_source(numbers, ById(), unseen_clients=3, seed=seed).client_names for seed in range(5)}
    assert len(chosen) > 2


def test_unseen_clients_have_tests_too() -> None:
    data = split_source(source(), Iid(), 6, test_fraction=0, unseen_clients=2, client_test_fraction=0.4)
    assert data.unseen_train is not None
    assert data.unseen_test is not None
    assert data.unseen_train.sizes.tolist() == [15, 15]
    assert data.unseen_test.sizes.tolist() == [10, 10]


def test_invalid_number_of_unseen_clients_is_refused() -> None:
    numbers = source(client_ids=np.repeat(np.arange(20), 10))
    with pytest.raises(ConfigurationError, match="unseen_clients: got 20, needed fewer than the 20 clients"):
        split_source(numbers, unseen_clients=20)
    with pytest.raises(ConfigurationError, match="unseen_clients: got -1"):
        split_source(numbers, unseen_clients=-1)


# ----------------------------------------------------------------------------------------------------------------- flips


def test_flipped_fraction_of_clients_has_reversed_labels() -> None:
    numbers = source()
    data = split_source(numbers, Iid(), 10, test_fraction=0, flip_labels=0.3, client_test_fraction=0.5)
    flipped = data.recipe["flipped_clients"]
    assert isinstance(flipped, list)
    assert len(set(flipped)) == 3
    for shards in (data.train, data.client_test):
        assert shards is not None
        for k in range(10):
            x, y = shards.client(k)
            true = numbers.y[x[:, 0].long()]
            assert torch.equal(y, 3 - true if k in flipped else true)


def test_flips_change_only_labels() -> None:
    plain = split_source(source(), Iid(), 10, unseen_clients=4)
    turned = split_source(source(), Iid(), 10, unseen_clients=4, flip_labels=1.0)
    assert plain.unseen_train is not None
    assert turned.unseen_train is not None
    assert torch.equal(plain.train.x, turned.train.x)
    assert torch.equal(turned.train.y, 3 - plain.train.y)
    assert torch.equal(turned.unseen_train.y, 3 - plain.unseen_train.y)
    assert turned.recipe["flipped_unseen_clients"] == [0, 1, 2, 3]
    assert plain.test is not None
    assert turned.test is not None
    assert torch.equal(plain.test.y, turned.test.y)


def test_flips_do_not_change_the_source() -> None:
    numbers = with_official_test()
    before = numbers.y.clone(), numbers.test_y.clone()
    split_source(numbers, Iid(), 4, flip_labels=1.0)
    assert torch.equal(numbers.y, before[0])
    assert torch.equal(numbers.test_y, before[1])


# ----------------------------------------------------------------------------------------------------------------- empty


def test_clients_without_examples_are_refused_or_dropped() -> None:
    few = source(40)
    with pytest.raises(ConfigurationError, match=r"clients have no training examples.*empty='drop'"):
        split_source(few, Dirichlet(0.5), 30)
    dropped = split_source(few, Dirichlet(0.5), 30, empty="drop")
    assert dropped.num_clients + int(str(dropped.recipe["dropped_clients"])) == 30
    assert 0 < dropped.num_clients < 30
    assert (dropped.train.sizes > 0).all()
    assert dropped.train.sizes.sum() == 32


def test_unseen_clients_without_examples_are_refused_or_dropped() -> None:
    few, empties = source(40), []
    for seed in range(40):
        try:
            split_source(few, Dirichlet(0.5), 3, seed=seed, unseen_clients=17)
        except ConfigurationError as error:
            empties += [seed] if "of 17 unseen clients have no examples" in str(error) else []
    assert len(empties) > 3
    data = split_source(few, Dirichlet(0.5), 3, seed=empties[0], unseen_clients=10, empty="drop")
    assert data.unseen_train is not None
    assert data.unseen_train.num_clients == 10
    assert (data.unseen_train.sizes > 0).all()


# --------------------------------------------------------------------------------------------------------- natural clients


def test_default_partition_uses_natural_clients() -> None:
    names = tuple(f"writer {k}" for k in range(20))
    ids = np.repeat(np.arange(20), 10)
    writers = source(client_ids=ids, client_names=names)
    data = split_source(writers)
    assert data.num_clients == 20
    assert data.client_names == names
    for k in range(20):
        assert set(ids[data.train.client(k)[0][:, 0].long()]) == {k}
    assert data.recipe["partition"] == {"name": "ById", "min_examples": 1}
    some = split_source(source(client_ids=np.repeat(np.arange(20), 10)), num_clients=3, seed=5)
    assert some.client_names == tuple(str(ids[int(some.train.client(k)[0][0])]) for k in range(3))


def test_artificial_clients_have_no_names() -> None:
    assert split_source(by_writer(), Iid(), 4).client_names is None


def test_data_without_clients_need_a_partition() -> None:
    with pytest.raises(ConfigurationError, match=r"numbers has no natural clients.*Dirichlet\(alpha=0\.1\).*Iid\(\)"):
        split_source(source(), num_clients=4)


def test_invalid_partition_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"partition: got .*Iid.*, needed a partition. Write to.partition.Iid\(\)"
    ):
        split_source(source(), Iid, 4)  # pyright: ignore[reportArgumentType]
    with pytest.raises(
        ConfigurationError, match=r"partition: got 'iid', needed a partition. Write to.partition.ById\(\), or one of"
    ):
        split_source(source(), "iid", 4)  # pyright: ignore[reportArgumentType]


def test_official_client_tests_stay_with_their_clients() -> None:
    writers = by_writer()
    data = split_source(writers, seed=4, unseen_clients=5, flip_labels=0.2)
    assert data.test is None
    assert data.client_test is not None
    assert data.unseen_test is not None
    assert data.client_test.sizes.tolist() == [2] * 15
    assert data.unseen_test.sizes.tolist() == [2] * 5
    assert data.client_names is not None
    flipped = data.recipe["flipped_clients"]
    assert isinstance(flipped, list)
    for k, name in enumerate(data.client_names):
        x, y = data.client_test.client(k)
        row = x[:, 0].long() - 1000
        assert set(writers.test_client_ids[row]) == {int(name)}
        true = writers.test_y[row]
        assert torch.equal(y, 3 - true if k in flipped else true)


def test_official_tests_of_omitted_clients_are_unused() -> None:
    data = split_source(by_writer(), num_clients=6)
    assert data.test is None
    assert data.client_test is not None
    assert len(data.client_test.x) == 12


def test_official_tests_of_unknown_clients_are_pooled() -> None:
    writers = by_writer()
    writers = replace(writers, test_client_ids=writers.test_client_ids + 20)
    data = split_source(writers)
    assert data.client_test is None
    assert data.test is not None
    assert data.test.x is writers.test_x
    pooled = split_source(by_writer(), Iid(), 5)
    assert pooled.test is not None
    assert pooled.client_test is None


def test_official_client_tests_exclude_other_tests() -> None:
    with pytest.raises(
        ConfigurationError, match=r"client_test_fraction: got 0\.2, needed 0, because numbers has official"
    ):
        split_source(by_writer(), client_test_fraction=0.2)


# -------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_clients": 161}, "num_clients: got 161, needed at most as many clients as examples, 160"),
        ({"num_clients": 0}, "num_clients: got 0"),
        ({"num_clients": None}, "num_clients: got None.*the number of clients that Iid makes"),
        ({"test_fraction": 1.0}, r"test_fraction: got 1\.0, needed a number >= 0 and < 1"),
        ({"test_fraction": -0.1}, r"test_fraction: got -0\.1"),
        ({"client_test_fraction": 1.0}, r"client_test_fraction: got 1\.0, needed a number >= 0 and < 1"),
        ({"flip_labels": 1.1}, r"flip_labels: got 1\.1, needed a probability"),
        (
            {"flip_labels": 0.1},
            r"flip_labels: got 0\.1, needed a share that is at least one of 4 clients when rounded, or 0",
        ),
        ({"empty": "dorp"}, "unknown value of empty 'dorp': did you mean 'drop'"),
        ({"seed": -1}, "seed: got -1, needed a whole number >= 0"),
        ({"seed": 0.5}, r"seed: got 0\.5, needed a whole number >= 0"),
    ],
)
def test_options_out_of_range_raise(options: dict[str, Any], message: str) -> None:
    options = {"num_clients": 4} | options
    with pytest.raises(ConfigurationError, match=message):
        split_source(source(), Iid(), **options)


@pytest.mark.parametrize("option", ["test_fraction", "client_test_fraction", "validation_fraction"])
def test_shares_that_are_rounded_to_no_example_are_named(option: str) -> None:
    with logged(rf"{option}=0\.001 of so few examples is rounded to none, so that these figures are missing"):
        options: dict[str, Any] = {option: 0.001}
        split_source(source(), Iid(), 4, **options)


def test_transforms_are_passed_on_and_checked() -> None:
    assert split_source(source(transforms=(Normalize(0.5, 0.5),)), Iid(), 4).transforms == (Normalize(0.5, 0.5),)
    with pytest.raises(ConfigurationError, match="Equalize works on colors"):
        split_source(source(transforms=(Normalize(0.5, 0.5), Equalize())), Iid(), 4)


@dataclass(frozen=True)
class Fixed(Partition):
    """Assign given rows."""

    rows: Any = ()

    def assign(self, labels: Any, num_clients: Any, seed: int, client_ids: Any = None) -> list[np.ndarray]:
        return self.rows


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([np.arange(10), np.arange(9, 20)], "got 21 rows of 2 clients, 20 of them different, from 0 to 19"),
        (
            [np.array([0, -1]), np.arange(5, 20)],
            "from -1 to 19; needed different indices of the 60 examples for 2 clients",
        ),
        ([np.arange(10), np.arange(50, 61)], "from 0 to 60"),
        ([np.arange(60) < 9, np.arange(60) >= 9], "got 120 rows of 2 clients, 2 of them different, from 0 to 1"),
        ([np.arange(3), np.arange(3, 9), np.arange(9, 12)], "got 12 rows of 3 clients"),
    ],
)
def test_rows_of_a_partition_are_checked(rows: Any, message: str) -> None:
    """An example of two clients would be a test of one and train the other; a mask or -1 would be other rows."""
    with pytest.raises(DataError, match=f"partition Fixed: .*{message}"):
        split_source(source(60), Fixed(rows), 2, test_fraction=0.0)
    kept = split_source(source(60), Fixed([[], [1, 0], np.arange(2, 9)]), 3, test_fraction=0.0, empty="drop")
    assert kept.train.sizes.tolist() == [2, 7]


def test_tests_of_clients_without_training_examples_are_named() -> None:
    x, ids = torch.zeros(6, 2), np.array([0, 0, 1, 1, 2, 2])
    y = torch.zeros(6, dtype=torch.int64)
    some = Source("toy", x, y, test_x=x, test_y=y, client_ids=ids, test_client_ids=ids * 2)
    with logged("toy: 2 of 6 test examples belong to clients without training examples, and are not used"):
        data = split_source(some)
    assert data.client_test is not None
    assert data.client_test.sizes.tolist() == [2, 0, 2]
