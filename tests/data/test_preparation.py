"""What was fitted to a table: declared by sites, applied to further rows, saved with a run, and exported with a model."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import turnout as to
from turnout.core.checks import ConfigurationError, DataError
from turnout.data.preparation import Preparation
from turnout.export.usage import loss_of, predictions, probabilities, usage

from ..logs import logged

N = 90
RNG = np.random.default_rng(0)
TABLE: dict[str, Any] = {
    "age": RNG.integers(20, 90, N).astype(float).tolist(),
    "dose": RNG.normal(5, 2, N).tolist(),
    "sex": RNG.choice(["f", "m"], N).tolist(),
    "smokes": (RNG.random(N) < 0.5).tolist(),
    "at": [f"h{i % 3}" for i in range(N)],
}
TABLE["ill"] = ["no" if age < 50 else "yes" for age in TABLE["age"]]
OPTIONS: dict[str, Any] = {"label": "ill", "client": "at", "categories": ("sex",), "scale": True}


def trained(model: Any = None, **options: Any) -> tuple[to.data.FederatedData, to.result.Result]:
    data = to.data.from_table(TABLE, **(OPTIONS | options)).split(test_fraction=0.2)
    run = to.Experiment(data=data, model=model or to.models.Mlp(hidden=(4,)), rounds=5)
    return data, run.run()


def rows(table: dict[str, Any], number: int = 7) -> dict[str, Any]:
    return {name: values[:number] for name, values in table.items() if name not in ("ill", "at")}


def test_prepared_rows_are_the_inputs_of_training() -> None:
    changes: tuple[dict[str, Any], ...] = ({}, {"scale": False}, {"missing": "fill"})
    for options in changes:
        source = to.data.from_table(TABLE, **(OPTIONS | options))
        data = source.split(test_fraction=0.0)
        preparation = data.preparation
        assert preparation is not None
        np.testing.assert_allclose(data.prepare(TABLE), source.x, atol=1e-6)
        order = [TABLE["at"].index(f"h{k}") for k in range(3)]
        np.testing.assert_array_equal(data.prepare(TABLE)[order], data.train.x[data.train.offsets[:3]])
        assert [column.name for column in preparation.columns] == ["age", "dose", "sex", "smokes"]  # type: ignore[union-attr]
        assert preparation.classes == ("no", "yes")


def test_statistics_are_those_of_the_training_rows() -> None:
    data = to.data.from_table(TABLE, **OPTIONS).split(test_fraction=0.5)
    assert isinstance(data.preparation, Preparation)
    age = data.preparation.columns[0]
    x = data.train.x[:, 0].double() * age.std + age.mean  # type: ignore[operator]
    assert age.mean == pytest.approx(float(x.mean()), rel=1e-6)
    assert age.std == pytest.approx(float(x.std(correction=0)), rel=1e-5)


def test_declared_names_and_scales_are_used(tmp_path: Path) -> None:
    declared = {"classes": ("yes", "no", "unknown"), "categories": {"sex": ("x", "m", "f")}, "scale": False}
    source = to.data.from_table(TABLE, **OPTIONS | declared, mean={"age": 50.0}, std={"age": 10.0})
    assert (source.num_classes, source.y[:5].tolist()) == (3, [["yes", "no"].index(v) for v in TABLE["ill"][:5]])
    np.testing.assert_allclose(source.x[:, 0], (np.array(TABLE["age"]) - 50) / 10, rtol=1e-6)
    np.testing.assert_array_equal(source.x[:, 2:5], [[v == c for c in "xmf"] for v in TABLE["sex"]])
    data = source.split(test_fraction=0.0)
    path = tmp_path / "preprocessing.json"
    assert isinstance(data.preparation, Preparation)
    path.write_text(data.preparation.text())
    again = to.data.Preparation.load(path)
    assert again == data.preparation
    np.testing.assert_array_equal(again(rows(TABLE)), data.prepare(rows(TABLE)))


@pytest.mark.parametrize("text", ["[]", "{}", '{"columns": 3, "classes": null}', '{"columns": [{"kind": "text"}]}'])
def test_file_of_another_form_is_no_preparation(tmp_path: Path, text: str) -> None:
    path = tmp_path / "preprocessing.json"
    path.write_text(text)
    with pytest.raises(DataError, match="this is no preparation of a table: "):
        to.data.Preparation.load(path)


def test_two_sites_number_declared_classes_alike() -> None:
    names = ("asthma", "cold", "flu")
    for site in (("asthma", "cold"), ("cold", "flu")):
        source = to.data.from_table({"x": [0.0, 1.0], "ill": site}, label="ill", classes=names)
        assert [names[k] for k in source.y] == list(site)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"classes": ("no", "maybe")},
            DataError,
            "has the labels yes, which are not among the declared classes no, maybe",
        ),
        ({"classes": ("no", "no")}, DataError, "needed different names"),
        ({"categories": {"sex": ("f",)}}, DataError, "column 'sex' has 'm' in row .*, which is none of f"),
        ({"mean": {"age": 1.0}}, ConfigurationError, r"mean and std: got those of \['age'\] and \[\], needed both"),
        ({"mean": {"sex": 1.0}, "std": {"sex": 1.0}}, ConfigurationError, "unknown column of inputs 'sex'"),
        ({"mean": {"age": 1.0}, "std": {"age": 0.0}}, ConfigurationError, "std.*got 0.0, needed a finite number > 0"),
        ({"task": "regresion"}, ConfigurationError, "unknown task 'regresion': did you mean 'regression'"),
        (
            {"task": "regression", "label": "dose", "features": ("age",), "categories": (), "classes": ("a", "b")},
            DataError,
            "classes: got a, b beside task='regression', which has none: leave them out",
        ),
        ({"task": "regression"}, DataError, "column 'ill' holds no numbers, which task='regression' needs"),
    ],
)
def test_declarations_that_do_not_fit_are_refused(options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        to.data.from_table(TABLE, **(OPTIONS | options))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sex": ["f", "q"]}, "column 'sex' has 'q' in row 2, which is none of f, m"),
        ({"age": [1.0, None]}, "column 'age' has no value in row 2, and the model was trained without missing values"),
        ({"sex": ["f", ""]}, "column 'sex' has no value in row 2"),
    ],
)
def test_rows_that_the_model_does_not_know_are_refused(change: Any, message: str) -> None:
    data = to.data.from_table(TABLE, **OPTIONS).split(test_fraction=0.0)
    with pytest.raises(DataError, match=message):
        data.prepare(rows(TABLE, 2) | change)
    with pytest.raises(ConfigurationError, match="unknown column 'age'"):
        data.prepare({"sex": ["f"], "dose": [1.0], "smokes": [True]})
    with pytest.raises(ConfigurationError, match="digits was not read by from_table"):
        to.data.digits().split(to.partition.Iid(), num_clients=2).prepare(TABLE)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0.0, 0.5], "column 'y' holds fractions, which are no classes: write task='regression'"),
        (
            np.array([0, 2**63], np.uint64),
            "column 'y' has the label 9223372036854775808, needed classes numbered from 0",
        ),
    ],
)
def test_numbers_that_are_no_classes_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        to.data.from_table({"x": [1.0, 2.0], "y": labels}, label="y", task="classification")


def test_whole_numbers_as_floats_are_explained() -> None:
    table = {"x": [1.0, 2.0, 3.0, 4.0], "y": [0.0, 1.0, float("nan"), 1.0]}
    with pytest.raises(
        DataError, match=r"whole numbers as floats \(0.0, 1.0\), as labels become beside missing.*Int64"
    ):
        to.data.from_table(table, label="y", missing="drop")
    assert to.data.from_table(table, label="y", missing="drop", task="classification").y.tolist() == [0, 1, 1]
    assert to.data.from_table(table, label="y", missing="drop", task="regression").num_classes is None


def test_regression_on_whole_numbers_is_declared_and_classes_are_noted() -> None:
    table = {"x": np.arange(30.0), "age": np.arange(30)}
    source = to.data.from_table(table, label="age", task="regression")
    assert (source.num_classes, source.y.is_floating_point()) == (None, True)
    with logged("column 'age' holds whole numbers, taken as 30 classes: write task='regression'"):
        assert to.data.from_table(table, label="age").num_classes == 30


def test_saved_run_predicts_as_the_model_that_was_trained(tmp_path: Path) -> None:
    data = to.data.from_table(TABLE, **OPTIONS).split(test_fraction=0.2)
    run = to.Experiment(data=data, model=to.models.Logistic(), rounds=5)
    result = run.run(tmp_path / "run")
    loaded = to.load(tmp_path / "run")
    outputs = result.model(data.prepare(TABLE))
    right = np.array(["no", "yes"])[outputs.argmax(1)]
    np.testing.assert_array_equal(result.predict(TABLE), right)
    np.testing.assert_array_equal(loaded.predict(TABLE), right)
    np.testing.assert_allclose(loaded.predict_proba(TABLE), outputs.detach().softmax(1), atol=1e-6)
    assert loaded.preparation == data.preparation


def test_predictions_on_transformed_inputs_are_left_to_the_user() -> None:
    source = replace(to.data.from_table(TABLE, **OPTIONS), transforms=(to.data.Normalize(50.0, 10.0),))
    data = source.split(test_fraction=0.2)
    result = to.Experiment(data=data, model=to.models.Logistic(), rounds=1).run()
    for ask in (result.predict, result.predict_proba):
        with pytest.raises(
            ConfigurationError, match=r"transformed by Normalize, which predict\(\) does not apply: apply it to"
        ):
            ask(TABLE)


@pytest.mark.parametrize("loss", ["cross_entropy", "BCEWithLogitsLoss"])
def test_outputs_with_nan_predict_no_class(loss: str) -> None:
    outputs = torch.tensor([[0.5], [math.nan]])
    outputs = outputs if loss.startswith("BCE") else torch.cat([outputs, 1 - outputs], dim=1)
    with pytest.raises(
        DataError, match="the outputs for row 2 are NaN, which predict no class: the model has diverged"
    ):
        predictions(outputs, None, loss)


class OneOutput(nn.Module):
    """A logistic regression with one output, a logit or the probability of class 1."""

    def __init__(self, probability: bool = False, outputs: int = 1) -> None:
        super().__init__()
        self.linear, self.probability = nn.Linear(2, outputs), probability

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.linear(x)) if self.probability else self.linear(x)


def run_on(label: Any, model: nn.Module, loss: Any, **options: Any) -> to.result.Result:
    table = {"age": TABLE["age"], "dose": TABLE["dose"], "ill": label}
    data = to.data.from_table(table, label="ill", scale=True, **options).split(to.partition.Iid(), num_clients=3)
    return to.Experiment(data=data, model=model, loss=loss, rounds=30, algorithm=to.fedavg(to.Sgd(lr=0.3))).run()


@pytest.mark.parametrize("numbers", [False, True], ids=["labels", "floats"])
@pytest.mark.parametrize("loss", [nn.BCEWithLogitsLoss(), nn.BCELoss()], ids=["logit", "probability"])
def test_probabilities_of_one_output_are_read_as_the_loss_does(numbers: bool, loss: nn.Module) -> None:
    options = {"task": "regression"} if numbers else {}
    label = [float(name == "yes") for name in TABLE["ill"]] if numbers else TABLE["ill"]
    result = run_on(label, OneOutput(isinstance(loss, nn.BCELoss)), loss, **options)
    outputs = result.model(result.preparation(TABLE)).detach()[:, 0]  # type: ignore[misc]
    share = outputs if isinstance(loss, nn.BCELoss) else torch.sigmoid(outputs)
    np.testing.assert_allclose(result.predict_proba(TABLE), torch.stack([1 - share, share], 1), atol=1e-6)
    names = np.array([0, 1]) if numbers else np.array(["no", "yes"])
    predicted = result.predict(TABLE)
    np.testing.assert_array_equal(predicted, names[(share > 0.5).long()])
    assert len(set(predicted)) == 2


@pytest.mark.parametrize("loss", [nn.BCEWithLogitsLoss(), nn.BCELoss()], ids=["logit", "probability"])
def test_card_reads_one_output_as_the_loss_does(tmp_path: Path, loss: nn.Module) -> None:
    result = run_on(TABLE["ill"], OneOutput(isinstance(loss, nn.BCELoss)), loss)
    result.export(tmp_path / "model.safetensors", card=True)
    line = re.findall(r"^classes = .*$", (tmp_path / "model-card.md").read_text(), flags=re.M)[0]
    names = {"preparation": {"classes": ["no", "yes"]}, "outputs": result.model(result.preparation(TABLE))}  # type: ignore[misc]
    exec(line, names)
    assert names["classes"] == result.predict(TABLE).tolist()


def test_probabilities_of_several_labels_are_those_of_each() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)).astype(np.float32), rng.integers(0, 2, (60, 3)).astype(np.float32)
    data = to.data.from_arrays(x, y).split(to.partition.Iid(), num_clients=3)
    run = to.Experiment(data=data, model=OneOutput(outputs=3), loss=nn.BCEWithLogitsLoss(), rounds=2)
    result = run.run()
    outputs = result.model(torch.from_numpy(x)).detach()
    shares = probabilities(outputs, loss_of(result.config))
    np.testing.assert_allclose(shares, torch.sigmoid(outputs), atol=1e-6)
    np.testing.assert_array_equal(predictions(outputs, None, "BCEWithLogitsLoss"), outputs > 0)


def test_one_output_of_an_unknown_loss_is_not_guessed() -> None:
    def squared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs[:, 0] - targets) ** 2

    result = run_on(TABLE["ill"], OneOutput(), squared)
    for ask in (result.predict, result.predict_proba):
        with pytest.raises(ConfigurationError, match=r"one output, which the loss .*squared may take for a logit or"):
            ask(TABLE)


def test_arrays_are_led_to_the_model() -> None:
    x = np.zeros((20, 2), np.float32)
    data = to.data.from_arrays(x, np.arange(20) % 2).split(to.partition.Iid(), num_clients=2)
    result = to.Experiment(data=data, model=to.models.Logistic(), rounds=1).run()
    with pytest.raises(ConfigurationError, match=r"the data of the run were arrays: write result.model\(inputs\)"):
        result.predict(x)


def test_numbers_are_predicted_and_have_no_probabilities() -> None:
    data = to.data.from_table(TABLE, label="dose", client="at", features=("age",)).split(test_fraction=0.0)
    result = to.Experiment(data=data, model=to.models.Logistic(), loss=to.loss.squared_error, rounds=2).run()
    assert result.predict(TABLE).shape == (N,)
    with pytest.raises(ConfigurationError, match="numbers, which have no probabilities: write predict"):
        result.predict_proba(TABLE)


@pytest.mark.parametrize("log_input", [True, False])
def test_predicted_counts_are_no_logarithms(log_input: bool) -> None:
    data = to.data.from_table({"age": TABLE["age"], "count": [3.0] * N}, label="count", scale=True, task="regression")
    last = nn.Flatten(0) if log_input else nn.Sequential(nn.Flatten(0), nn.Softplus())
    model, loss = nn.Sequential(nn.Linear(1, 1), last), nn.PoissonNLLLoss(log_input=log_input)
    parts, algorithm = data.split(to.partition.Iid(), num_clients=3), to.fedavg(to.Sgd(lr=0.1, steps=40))
    result = to.Experiment(data=parts, model=model, loss=loss, rounds=20, algorithm=algorithm).run()
    np.testing.assert_allclose(result.predict({"age": TABLE["age"]}), 3.0, rtol=0.1)


@pytest.mark.parametrize("model", [to.models.Logistic(), to.models.Mlp(hidden=(5,))], ids=["logistic", "mlp"])
@pytest.mark.parametrize("missing", ["refuse", "fill"])
def test_card_applies_the_model_without_turnout(tmp_path: Path, model: Any, missing: Any) -> None:
    _, result = trained(model, missing=missing)
    result.export(tmp_path / "model.safetensors", card=True)
    card = (tmp_path / "model-card.md").read_text()
    assert "age, dose, sex, smokes" in card
    assert "no, yes" in card
    code = re.findall(r"```python\n(.*?)```", card, flags=re.S)[-1]
    assert len(code.splitlines()) <= 30
    new = rows(TABLE, 20)
    if missing == "fill":
        new |= {"age": [None, *new["age"][1:]], "sex": [None, *new["sex"][1:]]}
    records = [dict(zip(new, row, strict=True)) for row in zip(*new.values(), strict=True)]
    (tmp_path / "rows.json").write_text(json.dumps(records))
    script = f"import json, sys\nsys.modules['turnout'] = None\nrows = json.load(open('rows.json'))\n{code}"
    script += "\njson.dump([outputs.tolist(), classes], open('outputs.json', 'w'))"
    (tmp_path / "apply.py").write_text(script)
    subprocess.run([sys.executable, "apply.py"], check=True, cwd=tmp_path, env={"OMP_NUM_THREADS": "1", "PATH": ""})
    outputs, classes = json.loads((tmp_path / "outputs.json").read_text())
    right = result.model(result.preparation(new))  # type: ignore[misc]
    np.testing.assert_allclose(outputs, right.detach(), atol=1e-6)
    assert classes == result.predict(new).tolist()


@pytest.mark.parametrize("missing", ["refuse", "fill"])
def test_card_reads_cells_as_turnout_does(missing: Any) -> None:
    """Whole numbers beside missing ones are floats in pandas, and categories and gaps that it does not know are errors."""
    pytest.importorskip("safetensors")
    table = {
        "stage": [1, 2, 3, 2] * 5,
        "smokes": [True, False] * 10,
        "dose": [0.5, 1.5] * 10,
        "ill": ["no", "yes"] * 10,
    }
    source = to.data.from_table(table, label="ill", categories=("stage", "smokes"), missing=missing)
    preparation = source.split(to.partition.Iid(), num_clients=2).preparation
    assert isinstance(preparation, Preparation)
    code = "\n".join(usage("model.safetensors", None, preparation, "cross_entropy"))
    names: dict[str, Any] = {"np": np, "torch": torch, "preparation": preparation.plain()}
    exec(code[code.index("def inputs") : code.index("model =")], names)
    good = [{"stage": stage, "smokes": smokes, "dose": 1} for stage in (2, 2.0, "2") for smokes in (True, np.True_)]
    np.testing.assert_array_equal(names["inputs"](good), [[0, 1, 0, 0, 1, 1]] * 6)
    wrong = [{"stage": 4}, {"smokes": "True"}]
    gaps = [{"stage": None}, {"stage": math.nan}, {"dose": None}, {"dose": math.nan}]
    for row in wrong + gaps * (missing == "refuse"):
        with pytest.raises(AssertionError, match=next(iter(row))):
            names["inputs"]([good[0] | row])
        with pytest.raises(DataError, match=next(iter(row))):
            preparation({name: [cell] for name, cell in (good[0] | row).items()})
    for row in gaps * (missing == "fill"):
        given = preparation({name: [good[0][name], cell] for name, cell in (good[0] | row).items()})
        np.testing.assert_array_equal(names["inputs"]([good[0] | row]), given[1:])


def test_metadata_of_safetensors_describe_module_and_preparation(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    data, result = trained()
    result.export(tmp_path / "model.safetensors")
    with safetensors.safe_open(tmp_path / "model.safetensors", "pt") as file:
        facts = file.metadata()
    assert "nn.Linear(in_features=5, out_features=4, bias=True)" in facts["module"]
    assert Preparation.of(json.loads(facts["preprocessing"])) == data.preparation
    assert Preparation.load(tmp_path / "preprocessing.json") == data.preparation


def test_fitted_transform_can_be_had_and_applied() -> None:
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    scaler = preprocessing.StandardScaler()
    data = to.data.from_table(TABLE, label="ill", client="at", features=("age", "dose"), transform=scaler).split(
        test_fraction=0.0
    )
    fitted: Any = data.preparation.transform  # type: ignore[union-attr]
    np.testing.assert_allclose(fitted.mean_, [np.mean(TABLE["age"]), np.mean(TABLE["dose"])])
    right = (np.stack([TABLE["age"], TABLE["dose"]], axis=1) - fitted.mean_) / fitted.scale_
    np.testing.assert_allclose(data.prepare(TABLE), right, atol=1e-6)
    result = to.Experiment(data=data, model=to.models.Logistic(), rounds=2).run()
    assert set(result.predict(TABLE)) <= {"no", "yes"}


def test_declared_class_lists_are_kept() -> None:
    pandas = pytest.importorskip("pandas")
    levels = pandas.Categorical(["low", "high"], categories=["low", "middle", "high"])
    source = to.data.from_table(pandas.DataFrame({"x": [0.0, 1.0], "risk": levels}), label="risk")
    assert (source.num_classes, source.y.tolist()) == (3, [0, 2])
    datasets = pytest.importorskip("datasets", reason="needs the extra huggingface")
    features = datasets.Features({"x": datasets.Value("float32"), "risk": datasets.ClassLabel(names=["a", "b", "c"])})
    source = to.data.from_table(
        datasets.Dataset.from_dict({"x": [0.0, 1.0], "risk": [2, 0]}, features=features), label="risk"
    )
    assert (source.num_classes, source.y.tolist(), source.recipe["classes"]) == (3, [2, 0], ["a", "b", "c"])


@pytest.mark.parametrize(
    ("options", "named"),
    [({"scale": True}, "age"), ({"missing": "fill"}, "age"), ({"categories": ("sex",)}, "sex")],
)
def test_private_runs_refuse_statistics_of_training_rows(options, named):
    """They are saved with the run and exported with the model, where one client's rows would change them without noise."""
    table = {
        "age": [61.0, 48.0, 55.0, 40.0],
        "sex": ["f", "m", "f", "m"],
        "ill": [0, 1, 1, 0],
        "at": ["A", "A", "B", "B"],
    }
    table = table if "categories" in options else {name: table[name] for name in ("age", "ill", "at")}

    def run(also, **options):
        source = to.data.from_table(table, label="ill", client="at", **options)
        algorithm = to.average_all(to.Sgd(lr=0.1, steps=1, batch_size=1), also=also)
        return to.Experiment(source.split(to.partition.ById()), to.models.Logistic(), algorithm, rounds=2)

    noise = (to.aggregation.PrivateSum(norm=1.0, noise_multiplier=1.0),)
    with pytest.raises(to.ConfigurationError, match=rf"of {named} are computed from training rows and published"):
        run(noise, **options)
    assert run((), **options)
    declared = {"mean": {"age": 50.0}, "std": {"age": 10.0}}
    declared |= {"categories": {"sex": ("f", "m")}} if "categories" in options else {}
    assert run(noise, **declared)


def test_outputs_of_an_unknown_loss_are_said_to_be_what_they_are() -> None:
    def hinge(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.multi_margin_loss(outputs, targets, reduction="none")

    def poisson(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.poisson_nll_loss(outputs.squeeze(1), targets, reduction="none")

    data = to.data.from_table(TABLE, **OPTIONS).split(test_fraction=0.2)
    result = to.Experiment(data=data, model=to.models.Logistic(), loss=hinge, rounds=1).run()
    with logged("predict_proba.*unknown what the loss .*hinge takes outputs for: their softmax is returned"):
        result.predict_proba(TABLE)
    assert set(result.predict(TABLE)) <= {"no", "yes"}
    doses = to.data.from_table(TABLE, label="dose", client="at", features=("age",)).split(test_fraction=0.0)
    result = to.Experiment(data=doses, model=to.models.Logistic(), loss=poisson, rounds=1).run()
    with logged("predict.*unknown what the loss .*poisson takes outputs for: they are returned as they are"):
        result.predict(TABLE)
