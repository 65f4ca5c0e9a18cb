"""The synthetic federations of FedProx."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from turnout.core.checks import ConfigurationError
from turnout.core.random import generator
from turnout.data.named.synthetic import linear_labels, synthetic, synthetic_iid
from turnout.data.source import Source


def recipe(alpha: float, beta: float, num_clients: int, rng: np.random.Generator) -> list[tuple[np.ndarray, list[int]]]:
    """The recipe of Synthetic(alpha, beta), number by number, in the order in which the paper states it."""
    clients = []
    sizes = [int(np.floor(np.exp(4 + 2 * rng.standard_normal()))) + 50 for _ in range(num_clients)]
    for size in sizes:
        u, center = rng.normal(0, alpha), rng.normal(0, beta)
        v = np.array([rng.normal(center, 1) for _ in range(60)])
        w = np.array([[rng.normal(u, 1) for _ in range(10)] for _ in range(60)])
        b = np.array([rng.normal(u, 1) for _ in range(10)])
        x = rng.multivariate_normal(v, np.diag([(j + 1) ** -1.2 for j in range(60)]), size)
        clients.append((x, [int(np.argmax(w.T @ row + b)) for row in x]))
    return clients


def by_client(source: Source) -> list[tuple[np.ndarray, np.ndarray]]:
    assert source.client_ids is not None
    cuts = np.cumsum(np.bincount(source.client_ids))[:-1]
    return list(zip(np.split(source.x.numpy(), cuts), np.split(source.y.numpy(), cuts), strict=True))


def figures(clients: list[tuple[np.ndarray, Any]]) -> dict[str, np.ndarray]:
    """Return the statistics whose distribution the recipe determines, one number per client."""
    counts = [np.bincount(y, minlength=10) for _, y in clients]
    return {
        "log size": np.log([len(x) - 49.5 for x, _ in clients]),
        "mean input": np.array([x.mean() for x, _ in clients]),
        "spread of means": np.array([x.mean(axis=0).std() for x, _ in clients]),
        "first variance": np.array([x[:, 0].var() for x, _ in clients]),
        "last variance": np.array([x[:, -1].var() for x, _ in clients]),
        "correlation": np.array([np.corrcoef(x[:, 0], x[:, 1])[0, 1] for x, _ in clients]),
        "share of the commonest label": np.array([count.max() / count.sum() for count in counts]),
        "labels held": np.array([(count > 0).sum() for count in counts]),
    }


def close(a: np.ndarray, b: np.ndarray, errors: float = 4.5) -> bool:
    """Whether the means, and the standard deviations, of two samples agree within some standard errors."""
    mean = abs(a.mean() - b.mean()) <= errors * np.sqrt(a.var() / len(a) + b.var() / len(b))
    centered = [(sample - sample.mean()) ** 2 for sample in (a, b)]
    spread = abs(a.var() - b.var()) <= errors * np.sqrt(sum(sample.var() / len(sample) for sample in centered))
    return bool(mean and spread)


@pytest.fixture(scope="module")
def slow() -> dict[str, np.ndarray]:
    return figures(recipe(1.0, 0.5, 100, np.random.default_rng(11)))


def test_distribution_follows_the_recipe(slow: dict[str, np.ndarray]) -> None:
    ours = figures(by_client(synthetic(1.0, 0.5, num_clients=400, seed=5)))
    assert [name for name in slow if not close(ours[name], slow[name])] == []


@pytest.mark.parametrize(("other", "what"), [((1.0, 2.0), "mean input"), ((1.0, 0.0), "mean input")])
def test_comparison_detects_another_distribution(
    slow: dict[str, np.ndarray], other: tuple[float, float], what: str
) -> None:
    assert not close(figures(by_client(synthetic(*other, num_clients=400, seed=5)))[what], slow[what])


def test_moments_are_the_known_ones() -> None:
    ours = figures(by_client(synthetic(1.0, 2.0, num_clients=600, seed=1)))
    assert ours["log size"].mean() == pytest.approx(4, abs=0.3)
    assert ours["log size"].std() == pytest.approx(2, abs=0.25)
    assert ours["mean input"].std() == pytest.approx(np.sqrt(4 + 1 / 60), rel=0.1)  # B_k, and the mean of 60 v_kj
    assert ours["spread of means"].mean() == pytest.approx(1, abs=0.05)
    assert ours["first variance"].mean() == pytest.approx(1, abs=0.03)
    assert ours["last variance"].mean() == pytest.approx(60**-1.2, rel=0.03)
    assert abs(ours["correlation"].mean()) < 0.03


def test_draws_equal_the_equations_in_float64() -> None:
    """The same random numbers, one client and one example at a time."""
    rng = generator("synthetic data", 9)
    sizes = np.floor(np.exp(4 + 2 * rng.standard_normal(6))).astype(int) + 50
    u, center = 1.5 * rng.standard_normal(6), 0.5 * rng.standard_normal(6)
    v = center[:, None] + rng.standard_normal((6, 60))
    w = u[:, None, None] + rng.standard_normal((6, 60, 10))
    b = u[:, None] + rng.standard_normal((6, 10))
    noise = rng.standard_normal((sizes.sum(), 60), dtype=np.float32).astype(np.float64)
    source = synthetic(1.5, 0.5, num_clients=6, seed=9)
    row = 0
    for k in range(6):
        for _ in range(sizes[k]):
            x = v[k] + noise[row] * np.arange(1, 61) ** -0.6
            np.testing.assert_allclose(source.x[row].numpy(), x, atol=1e-5)
            logits = np.sort(w[k].T @ x + b[k])
            if logits[-1] - logits[-2] > 1e-3:
                assert source.y[row] == np.argmax(w[k].T @ x + b[k])
            row += 1
    assert row == len(source.x)


def test_labels_follow_each_clients_model() -> None:
    rng = np.random.default_rng(0)
    sizes, weights, bias = np.array([3, 0, 5]), rng.normal(size=(3, 4, 6)), rng.normal(size=(3, 6))
    x = rng.normal(size=(8, 4)).astype(np.float32)
    expected = [int(np.argmax(weights[k].T @ row + bias[k])) for k, row in zip([0] * 3 + [2] * 5, x, strict=True)]
    assert linear_labels(x, sizes, weights, bias).tolist() == expected


def test_alpha_changes_no_label() -> None:
    """u_k (1 + sum_j x_j) is added to every logit."""
    one, other = synthetic(0.0, 1.0, seed=3), synthetic(5.0, 1.0, seed=3)
    assert torch.equal(one.x, other.x)
    assert (one.y == other.y).float().mean() > 0.999  # but for logits that are equal to the last digits
    assert not torch.equal(one.x, synthetic(0.0, 0.9, seed=3).x)


def test_iid_clients_share_one_model() -> None:
    source = synthetic_iid(num_clients=200, seed=2)
    clients = by_client(source)
    assert np.abs(source.x.numpy().mean(axis=0)).max() < 0.05
    np.testing.assert_allclose(source.x.numpy().var(axis=0), np.arange(1, 61) ** -1.2, rtol=0.05)
    # Counts of a label at the clients scatter as those of independent draws do; those of Synthetic(0, 0) do not.
    assert chi_square(clients) == pytest.approx(1, abs=0.15)
    assert chi_square(by_client(synthetic(0.0, 0.0, num_clients=200, seed=2))) > 10
    # One linear model labels them all: the one that is drawn first.
    rng = generator("synthetic data", 2)
    rng.lognormal(4.0, 2.0, 200)
    w, b = rng.standard_normal((60, 10)), rng.standard_normal(10)
    assert (source.x.numpy() @ w + b).argmax(axis=1).tolist() == source.y.tolist()


def chi_square(clients: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Pearson's statistic of equal label shares over its degrees of freedom; 1 on average where shares are equal."""
    counts = np.array([np.bincount(y, minlength=10) for _, y in clients])
    counts = counts[:, counts.sum(axis=0) > 500]
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / counts.sum()
    return float(((counts - expected) ** 2 / expected).sum() / ((len(counts) - 1) * (counts.shape[1] - 1)))


@pytest.mark.parametrize("make", [synthetic, synthetic_iid])
def test_everything_depends_only_on_the_seed(make: Callable[..., Source]) -> None:
    one, again, other = make(seed=4), make(seed=4), make(seed=5)
    assert torch.equal(one.x, again.x)
    assert torch.equal(one.y, again.y)
    assert len(one.x) != len(other.x)
    assert one.recipe["seed"] == 4


@pytest.mark.parametrize("make", [synthetic, synthetic_iid])
def test_each_client_is_natural_with_its_own_tests(make: Callable[..., Source]) -> None:
    source = make(seed=1)
    data = source.split(test_fraction=0, client_test_fraction=0.1)
    assert data.num_clients == 30
    assert data.test is None
    assert data.client_test is not None
    sizes = data.train.sizes + data.client_test.sizes
    assert sizes.min() >= 50
    assert sizes.tolist() == np.bincount(source.client_ids).tolist()  # type: ignore[arg-type]
    assert data.client_test.sizes.tolist() == np.rint(0.1 * sizes).tolist()


def test_sizes_are_equal_in_both_variants() -> None:
    a, b = synthetic(seed=8).client_ids, synthetic_iid(seed=8).client_ids
    assert np.array_equal(a, b)  # type: ignore[arg-type]


def test_names_contain_the_parameters() -> None:
    assert synthetic().name == "synthetic_1_1"
    assert synthetic(0.5, 0.25).name == "synthetic_0.5_0.25"
    assert synthetic_iid().name == "synthetic_iid"


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (synthetic, {"alpha": -1.0}, r"alpha: got -1\.0, needed a finite number >= 0"),
        (synthetic, {"beta": float("inf")}, "beta: got inf, needed a finite number >= 0"),
        (synthetic, {"num_clients": 0}, "num_clients: got 0, needed a whole number >= 1"),
        (synthetic, {"seed": -1}, "seed: got -1, needed a whole number >= 0"),
        (synthetic_iid, {"num_clients": 1.5}, r"num_clients: got 1\.5, needed a whole number >= 1"),
        (synthetic_iid, {"seed": None}, "seed: got None, needed a whole number >= 0"),
    ],
)
def test_invalid_parameters_are_refused(make: Callable[..., Source], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make(**options)
