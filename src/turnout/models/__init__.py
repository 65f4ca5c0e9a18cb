"""Models: specifications that become a `torch.nn.Module` once the sizes of the data are known."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from turnout.core.checks import known_name
from turnout.core.registry import lookup as _lookup
from turnout.models.cnn import Cnn as Cnn
from turnout.models.cnn import GroupNormCnn as GroupNormCnn
from turnout.models.huggingface import HuggingFace as HuggingFace
from turnout.models.layers import group_norm as group_norm
from turnout.models.linear import Logistic as Logistic
from turnout.models.linear import SplitLogistic as SplitLogistic
from turnout.models.lstm import CharLstm as CharLstm
from turnout.models.lstm import TextLstm as TextLstm
from turnout.models.mlp import Mlp as Mlp
from turnout.models.spec import ModelSpec as ModelSpec
from turnout.models.transformer import Transformer as Transformer

MODELS = ModelSpec.family
"""Every built-in model by the name it has on the command line and in files."""


def model(name: str, **options: Any) -> ModelSpec:
    """Return a model by name, with options as they come from files: ``model("mlp", hidden=[64, 30])``; lists become tuples.

    Raises:
        ConfigurationError: if a name or an option is unknown, naming the nearest one, or a value is invalid.
    """
    kind: Any = MODELS[known_name("model", name, MODELS)]
    known = [field.name for field in fields(kind)]
    for option in options:
        known_name(f"option of model {name}", option, known)
    return kind(**{option: tuple(v) if isinstance(v, list) else v for option, v in options.items()})


__getattr__ = _lookup(__name__)
