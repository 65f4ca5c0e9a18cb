"""Columns are fitted to training rows only, like a pipeline of scikit-learn."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest
import torch

import turnout as to
from turnout.core.checks import ConfigurationError, DataError
from turnout.data import from_table

N = 240


def table(**changes: Any) -> dict[str, Any]:
    """Ages of which some are missing, incomes, wards, and a number that tells rows apart."""
    draw = np.random.default_rng(0)
    age: list[Any] = draw.normal(50, 20, N).round(1).tolist()
    for row in range(0, N, 7):
        age[row] = None
    columns = {
        "age": age,
        "income": draw.lognormal(10, 1, N),
        "ward": [None if k % 11 == 0 else "abc"[k % 3] for k in range(N)],
        "row": np.arange(N, dtype=np.float64),
        "hospital": [f"H{k % 8}" for k in range(N)],
        "ill": [("no", "yes")[k % 2] for k in draw.integers(0, 2, N)],
    }
    return columns | changes


def split(source: to.data.Source) -> to.data.FederatedData:
    """Natural clients, some of them for validation, others never seen, and shares of the others' rows for tests."""
    return source.split(validation_clients=2, unseen_clients=1, client_test_fraction=0.2, test_fraction=0.1, seed=3)


def numbered(**options: Any) -> to.data.FederatedData:
    """Return the same split of the row numbers."""
    return split(from_table(table(), label="ill", client="hospital", features=("row",), **options))


def rows_of(shards: to.data.Shards | None) -> np.ndarray:
    assert shards is not None
    return shards.x[:, 0].numpy().astype(int)


def transformer() -> Any:
    compose, pipeline = pytest.importorskip("sklearn.compose"), pytest.importorskip("sklearn.pipeline")
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    pytest.importorskip("pandas")
    number = pipeline.make_pipeline(SimpleImputer(), StandardScaler())
    kinds = [("number", number, ["age", "income"]), ("ward", OneHotEncoder(handle_unknown="ignore"), ["ward"])]
    return compose.ColumnTransformer(kinds)


FEATURES = ("age", "income", "ward")
OPTIONS: dict[str, dict[str, Any]] = {
    "scikit-learn": {"transform": transformer},
    "numpy alone": {"scale": True, "categories": ("ward",), "missing": "fill"},
}


def source_of(kind: str, data: dict[str, Any]) -> to.data.Source:
    options: dict[str, Any] = {name: value() if callable(value) else value for name, value in OPTIONS[kind].items()}
    return from_table(data, label="ill", client="hospital", features=FEATURES, **options)


@pytest.mark.parametrize("kind", OPTIONS)
def test_inputs_equal_a_pipeline_fitted_to_training_rows(kind: str) -> None:
    pandas = pytest.importorskip("pandas")
    data, by_row = split(source_of(kind, table())), numbered()
    frame = pandas.DataFrame(table())[list(FEATURES)]
    fitted = transformer().fit(frame.iloc[rows_of(by_row.train)])
    width = 5 if kind == "numpy alone" else 6  # a missing ward has a column of its own in scikit-learn
    for name, shards in data.splits.items():
        expected = fitted.transform(frame.iloc[rows_of(by_row.splits[name])])[:, :width]
        np.testing.assert_allclose(shards.x.numpy()[:, :width], expected, rtol=1e-5, atol=1e-6)
    assert set(data.splits) == {"train", "test", "client_test", "unseen_validation", "unseen_train", "unseen_test"}


@pytest.mark.parametrize("kind", OPTIONS)
def test_held_out_rows_do_not_affect_training_inputs(kind: str) -> None:
    """Other values in all held-out rows change no bit of training inputs; another value in one training row does."""
    by_row = numbered()
    train = rows_of(by_row.train)
    other, one = table(), table()
    for row in set(range(N)) - set(train):
        other["age"][row], other["income"][row] = 1e6, 1e9
    one["income"][train[5]] = 1e9
    before, after, changed = (split(source_of(kind, each)).train for each in (table(), other, one))
    assert torch.equal(before.x, after.x)
    assert not torch.equal(before.x, changed.x)


def test_imputation_uses_the_means_of_training_rows() -> None:
    data = split(from_table(table(), label="ill", client="hospital", features=("age", "row"), missing="fill"))
    train = data.train.x[:, 1].numpy().astype(int)
    age = np.array([np.nan if each is None else each for each in table()["age"]])
    assert data.test is not None
    for shards in (data.train, data.test):
        missing = np.isnan(age[shards.x[:, 1].numpy().astype(int)])
        assert missing.any()
        np.testing.assert_allclose(shards.x[missing, 0].numpy(), np.nanmean(age[train]), rtol=1e-6)


def test_official_test_is_transformed_like_training_rows() -> None:
    test = {name: values[:20] for name, values in table().items()}
    options: dict[str, Any] = {"features": ("income",), "scale": True}
    source = from_table(table(), label="ill", client="hospital", test=test, **options)
    data = source.split()
    income = table()["income"]
    train = np.concatenate([np.flatnonzero(np.array(table()["hospital"]) == f"H{k}") for k in range(8)])
    expected = (income[:20] - income[train].mean()) / income[train].std()
    assert data.client_test is not None
    np.testing.assert_allclose(sorted(data.client_test.x[:, 0].tolist()), sorted(expected), rtol=1e-5)
    pooled = source.split(official_test="pool", test_fraction=0.0)
    assert len(pooled.train.x) == N + 20
    np.testing.assert_allclose(pooled.train.x.mean().item(), 0.0, atol=1e-6)


def test_user_transform_stays_unfitted_and_does_not_change_the_split() -> None:
    pytest.importorskip("pandas")
    made = transformer()
    data = split(from_table(table(), label="ill", client="hospital", features=FEATURES, transform=made))
    assert not hasattr(made, "transformers_")
    plain = numbered()
    assert torch.equal(data.train.y, plain.train.y)
    assert np.array_equal(data.train.offsets, plain.train.offsets)


def test_dates_and_times_become_days() -> None:
    days = [datetime.date(1970, 1, 2), datetime.date(2000, 1, 1), datetime.date(1969, 12, 31)]
    times = [datetime.datetime(1970, 1, 1, 12), datetime.datetime(1970, 1, 3), datetime.datetime(1970, 1, 1)]
    source = from_table({"day": days, "time": times, "y": [0, 1, 0]}, label="y")
    assert source.x.tolist() == [[1.0, 0.5], [10957.0, 2.0], [-1.0, 0.0]]


def test_constant_column_becomes_zero() -> None:
    source = from_table({"a": [3.0, 3.0], "b": [0.0, 2.0], "y": [0, 1]}, label="y", scale=True)
    assert source.x.tolist() == [[0.0, -1.0], [0.0, 1.0]]


def test_unsupported_columns_are_refused() -> None:
    pytest.importorskip("pandas")
    with pytest.raises(ConfigurationError, match=r"transform: got .*, needed an object with fit\(frame, y\)"):
        from_table(table(), label="ill", transform="scale")  # type: ignore[arg-type]
    replaced: dict[str, Any] = {"categories": ("ward",), "scale": True}
    for name, value in replaced.items():
        with pytest.raises(ConfigurationError, match=f"{name}: the transform makes all inputs"):
            from_table(table(), label="ill", transform=transformer(), **{name: value})
    with pytest.raises(ConfigurationError, match="transform: ColumnTransformer fails on these columns"):
        from_table(table(), label="ill", features=("row",), transform=transformer())

    class Short:
        def fit(self, frame: Any, y: Any = None) -> None: ...

        def transform(self, frame: Any) -> Any:
            return np.zeros(len(frame) - N + 3)

    class Gaps(Short):
        def transform(self, frame: Any) -> Any:
            return np.full((len(frame), 1), np.nan)

    with pytest.raises(
        ConfigurationError, match=r"transform: Short returns \[3\], needed a row of numbers for each of 240"
    ):
        from_table(table(), label="ill", transform=Short())
    with pytest.raises(
        ConfigurationError, match="transform: Gaps leaves missing or infinite values: add a SimpleImputer"
    ):
        from_table(table(), label="ill", transform=Gaps())


def test_column_without_training_values_is_named() -> None:
    columns = {"a": [None, None, 1.0, 2.0], "b": [1.0, 2.0, 3.0, 4.0], "who": [0, 0, 1, 1], "y": [0, 1, 0, 1]}
    source = from_table(columns, label="y", client="who", missing="fill")

    def split_six_times() -> None:
        for seed in range(6):
            source.split(unseen_clients=1, test_fraction=0.0, seed=seed)

    with pytest.raises(DataError, match="column 'a' has no value in the training rows, and so no mean"):
        split_six_times()
