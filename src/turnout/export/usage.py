"""Describe how an exported model is rebuilt and applied without turnout, rebuild that of a run, and apply one to tables."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from turnout import models
from turnout.core.checks import ConfigurationError, DataError
from turnout.core.numerics import default_settings
from turnout.data.preparation import FILE, Preparation
from turnout.data.transformer import FittedTransform
from turnout.record import checkpoint, contents
from turnout.record.trained import Trained

LOG = logging.getLogger(__name__)

Prepared = Preparation | FittedTransform

BINARY = ("BCEWithLogitsLoss", "BCELoss", "MultiLabelSoftMarginLoss")
"""Losses of labels 0 and 1, with one output for each."""

LOGITS = ("cross_entropy", "CrossEntropyLoss", "NLLLoss")  # losses with an output for each class
_OF_NUMBERS = ("squared_error", "MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "PoissonNLLLoss")


def preparation_of(config: Mapping[str, Any] | None) -> Preparation | None:
    """Return the preparation of a run's table, from its configuration as plain values; None for other data."""
    recipe = ((config or {}).get("data") or {}).get("recipe") or {}
    values = recipe.get("preparation")
    return None if values is None else Preparation.of(values)


def module_code(module: nn.Module) -> str | None:
    """Return an expression of torch that rebuilds a sequence of torch's layers; None for other modules.

    >>> module_code(nn.Sequential(nn.Flatten(), nn.Linear(3, 2)))
    'nn.Sequential(OrderedDict({"0": nn.Flatten(start_dim=1, end_dim=-1), "1": nn.Linear(in_features=3, out_features=2, bias=True)}))'
    """  # noqa: E501
    layers = dict(module.named_children())
    plain = all(
        type(layer).__module__.startswith("torch.nn.") and not any(layer.children()) for layer in layers.values()
    )
    if type(module) is not nn.Sequential or not plain:
        return None
    parts = ", ".join(f"{json.dumps(name)}: nn.{layer!r}" for name, layer in layers.items())
    return f"nn.Sequential(OrderedDict({{{parts}}}))"


def metadata(module: nn.Module | None, preparation: Prepared | None) -> dict[str, str]:
    """Return the metadata of a safetensors file: an expression for the module, and the preparation as JSON."""
    code = None if module is None else module_code(module)
    facts = {"format": "pt"}
    if code is not None:
        facts["module"] = code
    if isinstance(preparation, Preparation):
        facts["preprocessing"] = json.dumps(preparation.plain())
    return facts


def usage(file: str, module: nn.Module | None, preparation: Preparation, loss: str) -> list[str]:
    """Return the lines of Python, of NumPy and torch, that apply a model that was trained by a loss to rows of a table."""
    model = (module and module_code(module)) or "Net()  # the module that was trained"
    names = [column.name for column in preparation.columns]
    code = f"""
import json
from collections import OrderedDict
import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

preparation = json.load(open("{FILE}", encoding="utf-8"))


def inputs(rows):  # rows: dictionaries with the keys {", ".join(names)}
    parts = []
    for column in preparation["columns"]:
        cells = [None if (cell := row.get(column["name"])) != cell else cell for row in rows]  # NaN is missing
        if column["kind"] == "category":
            cells = [cell if isinstance(cell, str | None) else str(cell).lower().removesuffix(".0") for cell in cells]
            assert set(cells) <= {{*column["values"], *[None] * preparation["fills"]}}, (column["name"], set(cells))
            parts += [[float(cell == value) for cell in cells] for value in column["values"]]
        else:  # dates are days since 1970
            numbers = np.array([column.get("fill") if cell is None else cell for cell in cells], dtype=np.float64)
            assert not np.isnan(numbers).any(), (column["name"], "missing value")
            parts.append((numbers - column.get("mean", 0.0)) / column.get("std", 1.0))
    return torch.from_numpy(np.array(parts, dtype=np.float64).T.astype(np.float32))


model = {model}
model.load_state_dict(load_file("{file}"))
with torch.no_grad():
    outputs = model.eval()(inputs(rows))
"""
    return [*code.strip().splitlines(), *(_classes(loss) if preparation.classes else [])]


def _classes(loss: str) -> list[str]:
    """Return the line of Python that names the predicted classes; none for a loss that is not torch's."""
    if loss in BINARY:
        limit = "0.5" if loss == "BCELoss" else "0"
        return [f"classes = [preparation['classes'][int(output > {limit})] for output in outputs.flatten()]"]
    return ["classes = [preparation['classes'][i] for i in outputs.argmax(1)]"] if loss in LOGITS else []


def described(preparation: Prepared) -> dict[str, str]:
    """Return the names of columns and classes in words, for a model card."""
    columns = preparation.columns
    names = [column if isinstance(column, str) else column.name for column in columns]
    classes = {} if preparation.classes is None else {"Classes": ", ".join(preparation.classes)}
    return {"Columns of inputs": ", ".join(names), "Column of targets": preparation.label} | classes


def outputs_of(module: nn.Module, preparation: Prepared | None, table: Any) -> torch.Tensor:
    """Return the outputs of a model for the rows of a table, ``[n, ...]``.

    Raises:
        ConfigurationError: if the run was not on a table, or its folder does not hold the preparation.
    """
    if preparation is None and isinstance(table, np.ndarray | torch.Tensor):
        raise ConfigurationError(
            "predict() takes rows of a table, with the names of columns, and the data of the run were arrays: write "
            "result.model(inputs), with a tensor of inputs as in training"
        )
    if preparation is None:
        raise ConfigurationError(
            "the run's folder has no preparation of a table: its data were not a table, or a transform= of scikit-learn "
            "prepared them, which is not saved: write result.model(data.prepare(table))"
        )
    first = next(module.parameters(), torch.zeros(()))
    with torch.no_grad():
        return module(preparation(table).to(first.dtype))


def loss_of(config: Mapping[str, Any] | None) -> str:
    """Return the name of a run's loss, from its configuration as plain values."""
    loss = (config or {}).get("loss", "cross_entropy")
    return loss["kind"] if isinstance(loss, Mapping) else str(loss)


def probabilities(outputs: torch.Tensor, loss: str) -> np.ndarray:
    """Return the probabilities of classes, or of several labels, ``[n, C]``, from outputs as the loss takes them.

    Of a loss that is not known, outputs count as logits.

    Raises:
        ConfigurationError: if there is a single output, and the loss is not known to take a logit or a probability.

    >>> probabilities(torch.tensor([0.0, 9.0]), "BCEWithLogitsLoss").round(2).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    single = outputs.dim() < 2 or outputs.shape[1] == 1
    if loss in BINARY:
        positive = outputs.double() if loss == "BCELoss" else torch.sigmoid(outputs.double())
        positive = positive.reshape(len(outputs), -1)
        return (torch.cat([1 - positive, positive], dim=1) if single else positive).numpy()
    if single:
        raise ConfigurationError(
            f"the model has one output, which the loss {loss} may take for a logit or for a probability: write "
            "loss=torch.nn.BCEWithLogitsLoss() or torch.nn.BCELoss(), or read the outputs yourself, those of "
            "result.model(result.preparation(table))"
        )
    return torch.softmax(outputs.double(), dim=1).numpy()


def numbers(outputs: torch.Tensor, config: Mapping[str, Any] | None) -> np.ndarray:
    """Return predicted numbers, without the second axis if there is one for each example."""
    if (loss := loss_of(config)) not in _OF_NUMBERS:
        LOG.warning("predict(): it is unknown what the loss %s takes outputs for: they are returned as they are", loss)
    given = (config or {}).get("loss")
    options = given.get("options") if isinstance(given, Mapping) else None
    if loss == "PoissonNLLLoss" and (options or {}).get("log_input"):  # outputs are logarithms of the numbers
        outputs = outputs.exp()
    return (outputs.squeeze(1) if outputs.dim() == 2 and outputs.shape[1] == 1 else outputs).numpy()


def predictions(outputs: torch.Tensor, preparation: Prepared | None, loss: str) -> np.ndarray:
    """Return names of classes, their numbers where they have no names, or several labels 0 and 1.

    Raises:
        DataError: if outputs are NaN.
    """
    shares = probabilities(outputs, loss)
    if (missing := np.isnan(shares).any(axis=1)).any():
        row = int(missing.argmax()) + 1
        raise DataError(
            f"the outputs for row {row} are NaN, which predict no class: the model has diverged, train it anew"
        )
    if loss in BINARY and outputs.dim() > 1 and outputs.shape[1] > 1:
        return (shares > 0.5).astype(np.int64)
    labels = shares.argmax(axis=1)
    names = None if preparation is None else preparation.classes
    return labels if names is None else np.array(names)[labels]


def builder(folder: Path, trained: Trained) -> Callable[[], nn.Module] | None:
    """Return a function that builds a ready-made model by its specification, before its parameters are loaded."""
    if (spec := trained.spec) is None:
        return None
    file = folder / checkpoint.FILE
    with contents.restoring(file, "model.spec"):
        made = models.model(spec["name"], **spec["options"])

    @default_settings()
    def build() -> nn.Module:
        with contents.restoring(file, "model.spec"):
            module = made.build(tuple(spec["input_shape"]), spec["num_outputs"], spec.get("seed", 0))
            shapes = dict(zip(trained.layout.names, trained.layout.shapes, strict=True))
            for name, tensor in module.state_dict().items():
                if name in trained.names and tuple(tensor.shape) != shapes[trained.names[name]]:
                    raise ValueError(
                        f"{name} would have shape {tuple(tensor.shape)}, not {shapes[trained.names[name]]}"
                    )
        return module

    return build
