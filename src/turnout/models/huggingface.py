"""Fine-tune transformers of Hugging Face, as a whole or by LoRA."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import nn

from turnout.core.checks import ConfigurationError, DataError, count, known_name, refuse
from turnout.core.ranges import Positive
from turnout.data.federated import FederatedData
from turnout.models.layers import quantize
from turnout.models.pretrained import TASKS, config_of, files_of, first_line, has_weights, needed, plain, short
from turnout.models.spec import DropoutRate, ModelSpec
from turnout.models.transformer import Transformer

DTYPES = ("float32", "bfloat16", "float16", "float64")

_ATTENTION_DROPOUT = ("attention_dropout", "attention_probs_dropout_prob", "attn_pdrop")
"""Names in configurations of the dropout of attention weights, which is drawn by a function, once for all clients."""


@dataclass(frozen=True)
class HuggingFace(ModelSpec, name="huggingface"):
    """Transformer of Hugging Face with low-rank updates that clients train (LoRA): ``W + alpha / r B A``.

    Only what is trained is in the vector that clients send: the matrices A ``[r, in]`` and B ``[out, r]`` of every adapted
    layer and, for classification, the new last layer. The base is held once and shared by all clients that train together;
    it is neither sent nor saved in run folders, which name it.

    Texts come from `turnout.data.from_tokens`. The loss of a text is the mean over its tokens that count, whatever its
    length. Attention weights are not dropped in training; what else the base drops is as its configuration has it.

    Attributes:
        base: a folder with weights, a name on the Hub that is fetched by `transformers`, or a configuration: a folder or file
            ``config.json`` without weights beside it, a mapping with ``model_type``, or its JSON text. With a configuration
            alone, the base is random, drawn from the experiment's seed.
        task: ``"causal_lm"``, the next token at each token, or ``"classification"`` of whole texts.
        lora: rank r; None trains all of the base.
        alpha: scale of the update.
        targets: endings of the names of the adapted layers, such as ``("q_proj", "v_proj")``; none are those that `peft` has
            for the architecture.
        lora_dropout: probability of dropping an input of A in training.
        base_dropout: False sets every rate of dropout in the base's configuration to 0, which is needed for bases that call
            dropout as a function and not as a layer, such as OPT.
        frozen: patterns of parameters that are not trained: ``("*lora_A*",)`` is FFA-LoRA.
        dtype: type of the base; what is trained is float32 beside a bfloat16 or float16 base.
        load_in_4bit: whether frozen linear layers but the last are held in 4 bits (NF4), and computed in `dtype`; needs
            `bitsandbytes`. The base is loaded in `dtype` first.

    Raises:
        ConfigurationError: if values are out of range; `build` refuses bases that are not there, or that do not fit the
            task, and patterns that match nothing.

    References: Hu et al., "LoRA: low-rank adaptation of large language models", ICLR 2022; Sun et al., "Improving LoRA in
    privacy-preserving federated learning" (FFA-LoRA), ICLR 2024; Guo et al., "Selective aggregation for low-rank adaptation
    in federated learning" (FedSA-LoRA), ICLR 2025.
    """

    base: str = "gpt2"
    task: str = "causal_lm"
    lora: int | None = 8
    alpha: Positive = 16.0
    targets: tuple[str, ...] = ()
    lora_dropout: DropoutRate = 0.0
    base_dropout: bool = True
    frozen: tuple[str, ...] = ()
    dtype: str = "float32"
    load_in_4bit: bool = False

    def __post_init__(self) -> None:
        if isinstance(config := plain(self.base), Mapping):
            object.__setattr__(self, "base", json.dumps(config, sort_keys=True))
        if not isinstance(self.base, str) or not self.base:
            raise refuse("base", given=self.base, needed="a folder, a name on the Hub, or a configuration")
        known_name("task", self.task, TASKS)
        known_name("dtype", self.dtype, DTYPES)
        if self.lora is not None:
            count("lora", self.lora, instead="It is the rank; None trains the whole base")
        elif self.load_in_4bit:
            raise refuse(
                "load_in_4bit",
                given=True,
                needed="low-rank updates, with lora=None all weights are trained",
                instead="Write lora=8",
            )

    def fits(self, data: FederatedData) -> None:
        """Refuse data whose targets are not those of the task, and tokens that the base does not know."""
        if len(data.train.x) == 0:  # a server that has none
            return
        of_tokens = data.train.y.dim() == 2
        if data.num_classes is None or of_tokens != (self.task == "causal_lm"):
            needed = "the next token at each token" if self.task == "causal_lm" else "one label for each text"
            raise ConfigurationError(
                f"task={self.task!r} needs {needed} as targets, those of {data.name} are {data.train.y.dtype} "
                f"{list(data.train.y.shape)}: read texts with to.data.from_tokens, or write the other task "
                f"({' or '.join(TASKS)})"
            )
        size = config_of(self.base).vocab_size
        largest = max(int(shards.x.max()) for shards in data.splits.values() if len(shards.x))
        largest = max(largest, data.num_outputs - 1 if of_tokens else 0)
        if largest >= size:
            raise DataError(
                f"{data.name} has the token {largest}, and the base {short(self.base)} knows 0 to {size - 1}: tokenize with "
                "the tokenizer of the base"
            )

    def check_size(self, input_shape: tuple[int, ...], num_classes: int, most: float) -> None:
        """Check nothing: the size of a base is known once it is loaded."""

    @property
    def files(self) -> list[Path]:
        """The local files of the base, whose contents runs are compared by."""
        return files_of(self.base)

    def module(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return a `Transformer`.

        Raises:
            ConfigurationError: if a package is missing, there is no such base, or it does not fit the task.
        """
        if len(input_shape) != 1:
            raise refuse(
                "input_shape of HuggingFace",
                given=input_shape,
                needed="(T,), token numbers of a text",
                instead="Read texts with to.data.from_tokens",
            )
        with warnings.catch_warnings():  # of one of the two packages about the other
            warnings.simplefilter("ignore", FutureWarning)
            model = Transformer(self._adapted(self._loaded(num_classes)))
        if self.task == "causal_lm" and not model.causal:
            raise ConfigurationError(
                f"the base {short(self.base)} is no causal model, its outputs at a token depend on later ones, which are to "
                "be predicted: take a causal one, write is_decoder=true into its configuration, or task='classification'"
            )
        if self.frozen:
            _freeze(model, self.frozen)
        return model

    def _loaded(self, num_classes: int) -> nn.Module:
        """Return the base, with the last layer that the task needs."""
        transformers, config = needed("transformers"), config_of(self.base)
        rates = [name for name in vars(config) if "drop" in name or name.endswith("_pdrop")]
        for name in _ATTENTION_DROPOUT if self.base_dropout else rates:
            if isinstance(getattr(config, name, None), float | int):
                setattr(config, name, 0.0)
        if self.task == "classification":
            config.num_labels = num_classes
        maker = getattr(transformers, TASKS[self.task][1])
        options = {"attn_implementation": "eager", "dtype": getattr(torch, self.dtype)}
        try:
            if has_weights(self.base):
                return maker.from_pretrained(self.base, config=config, **options)
            return maker.from_config(config, **options)
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"base {short(self.base)} for task {self.task!r}: {first_line(error)}") from error

    def _adapted(self, network: nn.Module) -> nn.Module:
        """Return the network with low-rank updates and all else frozen; unchanged where all of it is trained."""
        if self.lora is None:
            return network
        peft = needed("peft")
        config = peft.LoraConfig(
            r=self.lora,
            lora_alpha=self.alpha,
            lora_dropout=self.lora_dropout,
            target_modules=list(self.targets) or None,
            task_type=TASKS[self.task][0],
            fan_in_fan_out=any(type(layer).__name__ == "Conv1D" for layer in network.modules()),
        )
        try:
            adapted = peft.get_peft_model(network, config)
        except ValueError as error:
            layers = sorted(
                {name.rpartition(".")[2] for name, m in network.named_modules() if isinstance(m, nn.Linear)}
            )
            raise ConfigurationError(
                f"targets: got {self.targets}, needed endings of the names of layers, such as {', '.join(layers)}: "
                f"{first_line(error)}"
            ) from error
        if self.dtype in ("bfloat16", "float16"):
            _widen_last_layer(adapted, peft)
        if self.load_in_4bit:
            quantize(adapted)
        return adapted


def _widen_last_layer(adapted: nn.Module, peft: Any) -> None:
    """Make the last layer float32, as peft makes A and B but not that layer."""
    for layer in adapted.modules():
        if isinstance(layer, peft.utils.ModulesToSaveWrapper):
            layer.float().register_forward_pre_hook(_as_float32)


def _as_float32(layer: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Convert the inputs of a layer to the type of its parameters."""
    del layer
    return tuple(value.float() for value in inputs)


def _freeze(model: nn.Module, patterns: tuple[str, ...]) -> None:
    """Freeze trainable parameters by name."""
    trainable = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    for pattern in patterns:
        names = [name for name in trainable if fnmatchcase(name, pattern)]
        if not names:
            raise ConfigurationError(f"frozen: {pattern!r} matches none of {', '.join(trainable)}")
        for name in names:
            trainable[name].requires_grad_(False)
