"""Wrap a transformer of Hugging Face as a module from tokens to logits, with padding masked."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from turnout.core.checks import ConfigurationError


class Transformer(nn.Module):
    """Map tokens ``[M, T]`` to logits: ``[M, T, V]`` of the next tokens, or ``[M, C]`` of whole texts.

    Tokens below 0 are padding behind a text (see `turnout.data.from_tokens`), which no other token sees.

    Args:
        network: a ``PreTrainedModel`` of `transformers` loaded with ``attn_implementation="eager"``, or a ``PeftModel`` of
            one.

    Attributes:
        network: the argument; ``save_pretrained`` of a ``PeftModel`` writes the adapter.
        causal: whether a token sees only those before it, determined by a forward pass.
        flat_mask: whether it takes a mask of tokens, not of pairs of tokens.
        padding: the number that stands for padding inside.

    Raises:
        ConfigurationError: if the implementation of attention is another one, or a classifier has no number for
            padding.
    """

    large_activations = True  # read by turnout.engine.choice

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network: Any = network
        attention = getattr(self.network.config, "_attn_implementation", "eager")
        if attention != "eager":
            raise ConfigurationError(
                f"the attention {attention!r} cannot be batched over clients: load the model with "
                "attn_implementation='eager'"
            )
        self.network.config.use_cache = False
        base = network.get_base_model() if hasattr(network, "get_base_model") else network  # type: ignore[operator]
        self.padding = _padding(base)
        self.causal = _is_causal(base)
        self.flat_mask = self.causal or not _takes_pairs(base)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of the tokens, or of the texts."""
        real = x >= 0
        tokens = x.where(real, self.padding).long()
        # Given a mask of tokens most encoders ask whether it masks anything, which `vmap` cannot answer.
        mask = real.long() if self.flat_mask else _bias(real, self.network.dtype)
        logits = self.network(input_ids=tokens, attention_mask=mask).logits
        return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


def _is_causal(network: Any) -> bool:
    """Return whether the network's state at the first of two tokens does not depend on the second."""
    training, body = network.training, network.eval().base_model
    pair = torch.tensor([[0, 2], [0, 3]], device=network.device)
    with torch.no_grad():
        first = body(input_ids=pair, attention_mask=torch.ones_like(pair)).last_hidden_state[:, 0].float()
    network.train(training)
    return torch.allclose(first[0], first[1], rtol=1e-3, atol=1e-5)


def _takes_pairs(network: Any) -> bool:
    """Return whether the network takes a bias of the attention scores of every pair of tokens."""
    training, body = network.training, network.eval().base_model
    real = torch.tensor([[True, True, True, False]], device=network.device)
    try:
        with torch.no_grad():
            body(input_ids=real.long(), attention_mask=_bias(real, network.dtype))
    except (RuntimeError, ValueError, IndexError):  # of a network that takes masks of tokens alone, such as DeBERTa
        return False
    finally:
        network.train(training)
    return True


def _padding(network: Any) -> int:
    """Return the number that stands for padding; causal classifiers take the last token before it as the end of a text."""
    config = network.config
    if config.pad_token_id is None and type(network).__name__.endswith("ForSequenceClassification"):
        end = getattr(config, "eos_token_id", None)
        if not isinstance(end, int):
            raise ConfigurationError(
                "the model's configuration has no pad_token_id, by which a classifier finds the end of a text: write one "
                "into it, a token that ends no text"
            )
        config.pad_token_id = end
    return config.pad_token_id or 0


def _bias(real: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the bias of attention scores, ``[M, 1, T, T]``: 0 for tokens, the least number for padding."""
    bias = torch.zeros_like(real, dtype=dtype).masked_fill(~real, torch.finfo(dtype).min)
    return bias[:, None, None, :].expand(-1, 1, real.shape[-1], -1)
