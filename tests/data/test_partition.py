"""Partitions of examples among clients."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from turnout.core.checks import ConfigurationError, DataError
from turnout.core.random import generator
from turnout.data.partition import (
    ById,
    ClassesPerClient,
    Dirichlet,
    HsuDirichlet,
    Iid,
    LabelClusters,
    Partition,
    PowerLaw,
)
from turnout.data.partition.dirichlet import cut_by_shares, log_dirichlet

ARTIFICIAL = [
    Dirichlet(0.1),
    Dirichlet(1.0, min_examples=1),
    HsuDirichlet(0.5),
    HsuDirichlet(0.01, examples_per_client=3),
    LabelClusters(2, 2),
    ClassesPerClient(2),
    PowerLaw(least=1),
    PowerLaw(classes_per_client=1, least=1),
    PowerLaw(classes_per_client=4, least=1, sigma=5.0),
    Iid(),
]
USES_EVERYTHING = [Dirichlet(0.1), Dirichlet(1e-8), ClassesPerClient(4), LabelClusters(2, 2), Iid()]


def balanced(num_classes: int, each: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.repeat(np.arange(num_classes), each))


def histogram(labels: np.ndarray, clients: list[np.ndarray], num_classes: int) -> np.ndarray:
    return np.array([np.bincount(labels[rows], minlength=num_classes) for rows in clients])


four_classes = hnp.arrays(np.int64, st.integers(0, 80), elements=st.integers(0, 3)).map(
    lambda some: np.concatenate([some, np.repeat(np.arange(4), 8)])  # at least 8 of each class
)


@pytest.mark.parametrize("partition", ARTIFICIAL, ids=repr)
@settings(max_examples=25, deadline=None)
@given(labels=four_classes, num_clients=st.integers(2, 6), seed=st.integers(0, 2**70))
def test_partition_is_n_disjoint_reproducible_sets(
    partition: Partition, labels: np.ndarray, num_clients: int, seed: int
) -> None:
    clients = partition.assign(labels, num_clients, seed)
    rows = np.concatenate(clients)
    assert len(clients) == num_clients
    assert rows.dtype == np.int64
    assert len(np.unique(rows)) == len(rows)
    assert len(rows) == 0 or (rows.min() >= 0 and rows.max() < len(labels))
    again = partition.assign(labels, num_clients, seed)
    assert all(np.array_equal(a, b) for a, b in zip(clients, again, strict=True))


@pytest.mark.parametrize("partition", USES_EVERYTHING, ids=repr)
@settings(max_examples=25, deadline=None)
@given(labels=four_classes, num_clients=st.integers(2, 8), seed=st.integers(0, 99))
def test_every_example_is_used(partition: Partition, labels: np.ndarray, num_clients: int, seed: int) -> None:
    rows = np.concatenate(partition.assign(labels, num_clients, seed))
    assert np.array_equal(np.sort(rows), np.arange(len(labels)))


@pytest.mark.parametrize("partition", ARTIFICIAL, ids=repr)
def test_partition_depends_on_the_seed(partition: Partition) -> None:
    labels = balanced(4, 100)
    first, second = (partition.assign(labels, 8, seed) for seed in (0, 1))
    assert any(not np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("partition", ARTIFICIAL, ids=repr)
def test_more_clients_than_examples_are_refused(partition: Partition) -> None:
    with pytest.raises(ConfigurationError, match=r"num_clients: got 9, needed at most as many clients as examples, 8"):
        partition.assign(balanced(4, 2), 9, seed=0)


@pytest.mark.parametrize("num_clients", [0, -1, 2.5, True])
def test_invalid_number_of_clients_is_refused(num_clients: int) -> None:
    with pytest.raises(ConfigurationError, match=r"num_clients: got .*, needed a whole number >= 1"):
        Iid().assign(balanced(4, 2), num_clients, seed=0)


def test_artificial_partition_requires_num_clients() -> None:
    with pytest.raises(ConfigurationError, match=r"num_clients: got None.*Dirichlet makes.*Only ById\(\)"):
        Dirichlet().assign(balanced(4, 2), None, seed=0)


@pytest.mark.parametrize("labels", [np.zeros(3), np.zeros((3, 1), int)], ids=["float", "2d"])
def test_partition_by_label_requires_classes(labels: np.ndarray) -> None:
    with pytest.raises(DataError, match=r"Dirichlet goes by class labels, one whole number for each example"):
        Dirichlet().assign(labels, 1, seed=0)
    for partition in (Iid(), ById()):
        (rows,) = partition.assign(labels, 1, seed=0, client_ids=np.zeros(3, int))
        assert sorted(rows) == [0, 1, 2]


@pytest.mark.parametrize("partition", [Iid(), ById()], ids=repr)
def test_empty_data_is_refused(partition: Partition) -> None:
    with pytest.raises(DataError, match="there are no examples to partition"):
        partition.assign(np.zeros(0, int), 1, seed=0, client_ids=np.zeros(0, int))


# -------------------------------------------------------------------------------------------------------- FedAU's rule


def fedau_rule(labels: list[int], kappa: list[list[float]]) -> list[list[int]]:
    """The paper's rule, one number at a time; Python's `round` takes halves to the even number."""
    clients: list[list[int]] = [[] for _ in kappa]
    for c, label in enumerate(range(min(labels), max(labels) + 1)):
        of_class = [row for row, value in enumerate(labels) if value == label]
        total = sum(client[c] for client in kappa)
        cumulative, start = 0.0, 0
        for client, mine in zip(clients, kappa, strict=True):
            cumulative += mine[c]
            end = round(len(of_class) * cumulative / total)
            client.extend(of_class[start:end])
            start = end
    return clients


@settings(max_examples=200, deadline=None)
@given(
    labels=st.lists(st.integers(3, 6), min_size=1, max_size=60),
    kappa=st.lists(st.lists(st.floats(1e-6, 1.0), min_size=4, max_size=4), min_size=1, max_size=7),
)
def test_shares_are_cut_by_fedaus_rule(labels: list[int], kappa: list[list[float]]) -> None:
    clients = cut_by_shares(np.array(labels), np.array(kappa)[:, : max(labels) - min(labels) + 1])
    assert [rows.tolist() for rows in clients] == fedau_rule(labels, kappa)


def test_halves_are_rounded_to_even() -> None:
    five_twos = cut_by_shares(np.zeros(5, int), np.ones((2, 1)))  # ends 2.5 -> 2
    assert [rows.tolist() for rows in five_twos] == [[0, 1], [2, 3, 4]]
    three = cut_by_shares(np.zeros(3, int), np.ones((2, 1)))  # ends 1.5 -> 2
    assert [rows.tolist() for rows in three] == [[0, 1], [2]]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("alpha", [0.05, 0.1, 1.0])
def test_dirichlet_follows_fedaus_rule(alpha: float, seed: int) -> None:
    labels = balanced(10, 60)
    kappa = np.exp(log_dirichlet(alpha, (30, 10), generator("partition", seed)))
    expected = fedau_rule(labels.tolist(), kappa.tolist())
    assert [rows.tolist() for rows in Dirichlet(alpha).assign(labels, 30, seed)] == expected


@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0])
def test_draws_have_the_moments_of_the_dirichlet_distribution(alpha: float) -> None:
    draws, C = np.exp(log_dirichlet(alpha, (40_000, 5), np.random.default_rng(0))), 5
    np.testing.assert_allclose(draws.sum(axis=1), 1.0)
    np.testing.assert_allclose(draws.mean(axis=0), 1 / C, atol=0.01)
    np.testing.assert_allclose(draws.var(axis=0), (C - 1) / C**2 / (C * alpha + 1), rtol=0.03)


def test_draws_follow_unequal_concentrations() -> None:
    draws = np.exp(log_dirichlet(np.array([0.2, 0.6]), (40_000, 2), np.random.default_rng(0)))
    np.testing.assert_allclose(draws.mean(axis=0), [0.25, 0.75], atol=0.01)


@pytest.mark.parametrize("alpha", [1e-4, 1e-10, 1e-300, 5e-324])
def test_tiny_alpha_gives_one_class_per_client(alpha: float) -> None:
    """Clients that favor a class share it equally; a class that none favors goes to a single client."""
    labels = balanced(10, 60)
    clients = Dirichlet(alpha).assign(labels, 15, seed=3)
    favorite = log_dirichlet(alpha, (15, 10), generator("partition", 3)).argmax(axis=1)
    fans = np.bincount(favorite, minlength=10)
    assert min(fans) == 0
    assert max(fans) > 1
    held = histogram(labels, clients, 10)
    for c in range(10):
        assert (held[:, c] > 0).sum() == max(fans[c], 1)
        assert np.ptp(held[held[:, c] > 0, c]) <= 1
        assert (held[favorite == c, c] > 0).all()
    assert held.sum() == 600


def test_huge_alpha_gives_equal_clients() -> None:
    labels = balanced(10, 60)
    held = histogram(labels, Dirichlet(1e12).assign(labels, 12, seed=0), 10)
    assert (held == 5).all()


def test_absent_class_keeps_its_share_of_the_draw() -> None:
    labels = np.repeat([0, 2], 30)
    kappa = np.exp(log_dirichlet(0.5, (4, 3), generator("partition", 0)))
    assert [r.tolist() for r in Dirichlet(0.5).assign(labels, 4, 0)] == fedau_rule(labels.tolist(), kappa.tolist())


def test_min_examples_redraws_only_if_violated() -> None:
    labels = balanced(10, 60)
    plain = Dirichlet(0.1).assign(labels, 20, seed=0)
    least = min(len(rows) for rows in plain)
    same = Dirichlet(0.1, min_examples=least).assign(labels, 20, seed=0)
    assert all(np.array_equal(a, b) for a, b in zip(plain, same, strict=True))
    more = Dirichlet(0.1, min_examples=least + 1).assign(labels, 20, seed=0)
    assert min(len(rows) for rows in more) > least


def test_unattainable_min_examples_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"min_examples: got 9.*in the best of 100, the smallest had \d examples"
    ):
        Dirichlet(0.001, min_examples=9).assign(balanced(10, 60), 60, seed=0)
    with pytest.raises(
        ConfigurationError, match=r"min_examples: got 7.*needed at most 6: 100 clients share 600 examples"
    ):
        Dirichlet(100.0, min_examples=7).assign(balanced(10, 60), 100, seed=0)


@pytest.mark.parametrize("kind", [Dirichlet, HsuDirichlet])
@pytest.mark.parametrize("alpha", [0, -0.1, math.nan, math.inf, "0.1"])
def test_alpha_must_be_positive(kind: type, alpha: float) -> None:
    with pytest.raises(ConfigurationError, match=r"alpha: got .*, needed a finite number > 0"):
        kind(alpha)


def test_min_examples_must_be_a_count() -> None:
    with pytest.raises(ConfigurationError, match="min_examples: got -1, needed a whole number >= 0"):
        Dirichlet(0.1, min_examples=-1)


# ------------------------------------------------------------------------------------------------------------------ Hsu


@settings(max_examples=30, deadline=None)
@given(labels=four_classes, num_clients=st.integers(1, 9), alpha=st.floats(1e-12, 1e3), seed=st.integers(0, 99))
def test_hsu_clients_have_equal_sizes(labels: np.ndarray, num_clients: int, alpha: float, seed: int) -> None:
    clients = HsuDirichlet(alpha).assign(labels, num_clients, seed)
    assert {len(rows) for rows in clients} == {len(labels) // num_clients}


def test_hsu_mixtures_have_dirichlet_moments() -> None:
    labels = np.repeat([0, 1], [30_000, 90_000])
    held = histogram(labels, HsuDirichlet(2.0, examples_per_client=50).assign(labels, 600, seed=0), 2) / 50
    np.testing.assert_allclose(held.mean(axis=0), [0.25, 0.75], atol=0.03)
    mean, concentration, size = 0.25, 2.0, 50
    spread = mean * (1 - mean) / (concentration + 1) * (1 + concentration / size)  # of a Dirichlet multinomial share
    np.testing.assert_allclose(held[:, 0].var(), spread, rtol=0.15)


@pytest.mark.parametrize(("alpha", "classes"), [(0.5, 1.5 / 1.05), (5.0, 6.0 / 1.5)])
def test_per_class_and_total_concentration_differ(alpha, classes):
    """``E sum_c q_c^2 = (alpha / C + 1) / (alpha + 1)``, which drawing n examples changes to ``1/n + (1 - 1/n) E``."""
    labels = balanced(10, 4000)
    held = histogram(labels, HsuDirichlet(alpha, examples_per_client=50).assign(labels, 400, seed=0), 10) / 50
    same = (held**2).sum(axis=1).mean()
    assert 50 / 49 * (same - 1 / 50) == pytest.approx(1 / classes, rel=0.1)


def test_hsu_with_tiny_alpha_uses_one_class_until_it_is_exhausted() -> None:
    labels = balanced(4, 1000)
    held = histogram(labels, HsuDirichlet(1e-9, examples_per_client=50).assign(labels, 20, seed=0), 4)
    assert ((held > 0).sum(axis=1) == 1).all()


def test_hsu_with_large_alpha_resembles_the_data() -> None:
    labels = np.repeat([0, 1], [1000, 3000])
    held = histogram(labels, HsuDirichlet(1e9).assign(labels, 10, seed=0), 2)
    np.testing.assert_allclose(held[:, 1] / 400, 0.75, atol=0.12)


def test_hsu_treats_the_last_client_like_the_first() -> None:
    """Distributing all examples exhausts classes; client by client, the last one would receive the remainder."""
    labels = balanced(4, 400)
    held = histogram(labels, HsuDirichlet(0.05).assign(labels, 16, seed=1), 4)
    main = held.max(axis=1) / held.sum(axis=1)
    assert np.median(main) > 0.5
    assert main.min() > 0.3


def test_hsu_order_of_clients_is_random() -> None:
    labels, unlucky = balanced(2, 10), []
    for seed in range(60):
        favorite = log_dirichlet(np.full(2, 5e-10), (20, 2), generator("partition", seed)).argmax(axis=1)
        held = labels[np.concatenate(HsuDirichlet(1e-9).assign(labels, 20, seed))]
        unlucky += np.flatnonzero(held != favorite).tolist()
    assert len(unlucky) > 60
    assert 7.5 < np.mean(unlucky) < 11.5


def test_hsu_with_one_client_uses_all_examples() -> None:
    (rows,) = HsuDirichlet(0.01).assign(balanced(4, 10), 1, seed=0)
    assert sorted(rows) == list(range(40))


def test_hsu_clients_larger_than_the_data_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"examples_per_client: got 5, needed at most 4: 10 clients share 40"):
        HsuDirichlet(1.0, examples_per_client=5).assign(balanced(4, 10), 10, seed=0)
    with pytest.raises(ConfigurationError, match="examples_per_client: got 0, needed a whole number >= 1"):
        HsuDirichlet(1.0, examples_per_client=0)


# ------------------------------------------------------------------------------------------------------- label clusters


@settings(max_examples=30, deadline=None)
@given(num_clients=st.integers(5, 40), seed=st.integers(0, 999))
def test_clusters_have_disjoint_nonempty_label_ranges(num_clients: int, seed: int) -> None:
    labels = balanced(10, 40)
    held = histogram(labels, LabelClusters().assign(labels, num_clients, seed), 10) > 0
    clusters = {tuple(np.flatnonzero(mine) // 2) for mine in held}
    assert {c for owned in clusters for c in owned} == {0, 1, 2, 3, 4}
    assert all(len(set(owned)) == 1 for owned in clusters)


def test_clients_of_a_cluster_share_it_equally_at_random() -> None:
    labels = np.repeat(np.arange(4), 500)
    clients = LabelClusters(2, 2).assign(labels, 10, seed=0)
    held = histogram(labels, clients, 4)
    for first, second in ((0, 1), (2, 3)):
        members = held[held[:, first] + held[:, second] > 0][:, [first, second]]
        assert np.ptp(members.sum(axis=1)) <= 1
        np.testing.assert_allclose(members[:, 0] / members.sum(axis=1), 0.5, atol=0.15)


def test_clients_join_clusters_at_random() -> None:
    labels = balanced(4, 500)
    sizes = [
        int((histogram(labels, LabelClusters(2, 2).assign(labels, 12, seed), 4)[:, :2].sum(axis=1) > 0).sum())
        for seed in range(40)
    ]
    assert min(sizes) >= 1
    assert len(set(sizes)) > 3
    assert 5 < np.mean(sizes) < 7
    first = [int(labels[LabelClusters(2, 2).assign(labels, 12, seed)[0][0]]) // 2 for seed in range(40)]
    assert 8 < sum(first) < 32


def test_labels_beyond_the_clusters_are_not_used() -> None:
    labels = balanced(10, 20)
    rows = np.concatenate(LabelClusters(2, 3).assign(labels, 7, seed=0))
    assert sorted(set(labels[rows])) == [0, 1, 2, 3, 4, 5]
    assert len(rows) == 120


def test_invalid_clusters_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"got '5 clusters x 2 labels', needed at most the 4 classes"):
        LabelClusters().assign(balanced(4, 10), 8, seed=0)
    with pytest.raises(ConfigurationError, match="num_clients: got 3, needed at least one for each of 5 clusters"):
        LabelClusters().assign(balanced(10, 10), 3, seed=0)
    with pytest.raises(ConfigurationError, match=r"clients in cluster \d', needed no more than its 2 examples"):
        LabelClusters(2, 1).assign(np.array([0, 0, 1, 1, 2, 2, 2, 2]), 8, seed=0)
    with pytest.raises(ConfigurationError, match="num_clusters: got 0"):
        LabelClusters(0, 2)
    with pytest.raises(ConfigurationError, match="labels_per_cluster: got 0"):
        LabelClusters(2, 0)


# --------------------------------------------------------------------------------------------------- classes per client


@settings(max_examples=40, deadline=None)
@given(k=st.integers(1, 6), num_clients=st.integers(1, 40), seed=st.integers(0, 99))
def test_classes_per_client_are_balanced(k: int, num_clients: int, seed: int) -> None:
    labels = balanced(6, 60)
    held = histogram(labels, ClassesPerClient(k).assign(labels, num_clients, seed), 6)
    assert ((held > 0).sum(axis=1) == k).all()
    holders = (held > 0).sum(axis=0)
    assert np.ptp(holders) <= 1
    assert (held.sum(axis=0) == np.where(holders > 0, 60, 0)).all()
    for of_class in held.T:
        assert of_class.sum() == 0 or np.ptp(of_class[of_class > 0]) <= 1


def test_class_pairs_are_random() -> None:
    labels = balanced(10, 100)
    held = histogram(labels, ClassesPerClient(2).assign(labels, 50, seed=0), 10) > 0
    assert len({tuple(np.flatnonzero(mine)) for mine in held}) > 15


def test_invalid_classes_per_client_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="k: got 5, needed at most 4, the number of classes"):
        ClassesPerClient(5).assign(balanced(4, 10), 8, seed=0)
    with pytest.raises(ConfigurationError, match="needed an example of class 0 for each of its 10 holders, of 5"):
        ClassesPerClient(2).assign(balanced(2, 5), 10, seed=0)
    with pytest.raises(ConfigurationError, match="k: got 0"):
        ClassesPerClient(0)


# ------------------------------------------------------------------------------------------------------------ power law


def test_power_law_clients_have_neighboring_classes_and_a_minimum() -> None:
    labels = balanced(10, 300)
    held = histogram(labels, PowerLaw().assign(labels, 200, seed=0), 10)
    for u, mine in enumerate(held):
        assert set(np.flatnonzero(mine)) == {u % 10, (u + 1) % 10}
        assert mine[[u % 10, (u + 1) % 10]].min() >= 5
    unused = 300 - held.sum(axis=0)
    assert ((unused >= 0) & (unused < 40)).all()  # less than one for each of 40 holders


@pytest.mark.parametrize("classes", [1, 2, 5, 10])
def test_power_law_clients_have_the_requested_number_of_classes(classes: int) -> None:
    labels = balanced(10, 700)
    clients = PowerLaw(classes_per_client=classes).assign(labels, 100, seed=1)
    held = histogram(labels, clients, 10)
    assert set((held > 0).sum(axis=1)) == {classes}
    assert held[held > 0].min() >= 5
    unused = 700 - held.sum(axis=0)
    assert ((unused >= 0) & (unused < 10 * classes)).all()  # less than one for each holder
    assert np.ptp([len(rows) for rows in clients]) > 100


def fedprox_counts(class_sizes: list[int], z: np.ndarray) -> np.ndarray:
    """How many examples of its j-th class each user has in the authors' script, with shares z[class, user // 10, j]."""
    users = 10 * z.shape[1]
    counts = np.full((users, 2), 5)
    for user in range(users):
        for j in range(2):
            label = (user + j) % 10
            rest = class_sizes[label] - 5 * 2 * z.shape[1]
            counts[user, j] += int(rest * z[label, user // 10, j] / z[label].sum())
    return counts


def test_power_law_counts_equal_the_authors_script() -> None:
    sizes = [400 + 10 * c for c in range(10)]
    labels = np.repeat(np.arange(10), sizes)
    clients = PowerLaw().assign(labels, 100, seed=4)
    drawn = np.exp(2.0 * generator("partition", 4).standard_normal((100, 2)))
    z = np.empty((10, 10, 2))
    for user in range(100):
        for j in range(2):
            z[(user + j) % 10, user // 10, j] = drawn[user, j]
    expected = fedprox_counts(sizes, z)
    held = histogram(labels, clients, 10)
    for user in range(100):
        assert held[user, [user % 10, (user + 1) % 10]].tolist() == expected[user].tolist()


def test_power_law_minimum_uses_the_first_examples() -> None:
    clients = PowerLaw(classes_per_client=1, least=2).assign(np.zeros(100, int), 4, seed=0)
    assert [rows[:2].tolist() for rows in clients] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_power_law_sigma_controls_inequality() -> None:
    labels = balanced(2, 105)
    equal = PowerLaw(sigma=0.0, least=1).assign(labels, 10, seed=0)
    assert {len(rows) for rows in equal} == {20}
    huge = PowerLaw(sigma=1e6, least=1).assign(labels, 10, seed=0)
    assert sorted(len(rows) for rows in huge)[:8] == [2] * 8


def test_invalid_power_laws_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"num_clients: got 40, needed 5 examples of class 0 .* of 80"):
        PowerLaw().assign(balanced(4, 80), 40, seed=0)
    with pytest.raises(ConfigurationError, match="classes_per_client: got 5, needed at most 4"):
        PowerLaw(classes_per_client=5).assign(balanced(4, 80), 4, seed=0)
    with pytest.raises(ConfigurationError, match="classes_per_client: got 0"):
        PowerLaw(classes_per_client=0)
    with pytest.raises(ConfigurationError, match=r"sigma: got -1\.0"):
        PowerLaw(sigma=-1.0)
    with pytest.raises(ConfigurationError, match="least: got 0"):
        PowerLaw(least=0)


# ---------------------------------------------------------------------------------------------------------------- by id


IDS = np.array([7, 3, 7, 9, 3, 7, 7])


def test_natural_clients_keep_their_rows_in_order() -> None:
    clients = ById().assign(np.zeros(7, int), None, seed=0, client_ids=IDS)
    assert [rows.tolist() for rows in clients] == [[1, 4], [0, 2, 5, 6], [3]]


def test_subset_of_natural_clients_is_random() -> None:
    ids = np.repeat(np.arange(100), 3)
    chosen = [
        [int(ids[rows[0]]) for rows in ById().assign(np.zeros(300, int), 10, seed, client_ids=ids)] for seed in (0, 1)
    ]
    assert all(len(set(some)) == 10 and some == sorted(some) for some in chosen)
    assert chosen[0] != chosen[1]


def test_natural_clients_below_min_examples_are_skipped() -> None:
    clients = ById(min_examples=2).assign(np.zeros(7, int), None, seed=0, client_ids=IDS)
    assert [rows.tolist() for rows in clients] == [[1, 4], [0, 2, 5, 6]]


def test_natural_partition_without_clients_is_refused() -> None:
    labels = np.zeros(7, int)
    with pytest.raises(
        ConfigurationError,
        match=r"no client ids; write to.partition.Dirichlet\(alpha.*ClassesPerClient\(k=2\), PowerLaw\(\) or Iid",
    ):
        ById().assign(labels, 3, seed=0)
    with pytest.raises(ConfigurationError, match="num_clients: got 4, needed at most 3, the natural clients"):
        ById().assign(labels, 4, seed=0, client_ids=IDS)
    with pytest.raises(ConfigurationError, match=r"num_clients: got None, needed at most 0, .* that have 5 examples"):
        ById(min_examples=5).assign(labels, None, seed=0, client_ids=IDS)
    with pytest.raises(DataError, match="client_ids: got 6, needed one for each of 7 examples"):
        ById().assign(labels, None, seed=0, client_ids=IDS[:6])
    with pytest.raises(ConfigurationError, match="min_examples: got 0"):
        ById(min_examples=0)


def test_iid_sizes_differ_by_at_most_one_and_labels_match_the_data() -> None:
    labels = balanced(2, 1000)
    clients = Iid().assign(labels, 7, seed=0)
    assert np.ptp([len(rows) for rows in clients]) <= 1
    held = histogram(labels, clients, 2)
    np.testing.assert_allclose(held[:, 0] / held.sum(axis=1), 0.5, atol=0.1)


def test_large_partitions_are_fast() -> None:
    """Remaining loops are over classes or turns; a quadratic loop over clients would not finish in time."""
    labels = balanced(10, 20_000)
    for partition in (Dirichlet(0.1), ById(), Iid(), PowerLaw(least=1), LabelClusters()):
        clients = partition.assign(labels, 20_000, seed=0, client_ids=np.arange(200_000) % 30_000)
        assert len(clients) == 20_000
