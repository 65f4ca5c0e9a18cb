"""Call the user's module as a function of a flat parameter vector."""

from __future__ import annotations

import copy
import hashlib
import pickle
import threading
from collections.abc import Collection, Hashable
from functools import cached_property
from typing import Any, NamedTuple, cast

import torch
from torch import nn
from torch.func import functional_call

from turnout.core.adapter import BASE_OFFSET
from turnout.core.checks import ConfigurationError
from turnout.core.types import State
from turnout.engine.adapters import adapters_of, add_offsets, split_offset
from turnout.engine.batch_norm import Statistics, with_own_batch_norm
from turnout.engine.choice import Precision
from turnout.engine.dropout import KeyedDropout, with_keyed_dropout
from turnout.engine.layer_checks import check_layers
from turnout.engine.parameters import Layout
from turnout.engine.windows import use_windows


class Copy(NamedTuple):
    """The module that one thread calls, and its dropout layers."""

    module: nn.Module
    dropouts: list[KeyedDropout]


class ThreadCopies:
    """One copy of a module per thread, made when the thread asks for it first.

    Copies share the parameters and buffers of the module, because every call replaces them all.

    Args:
        module: the module; must not be changed.
        alone: whether the module is called with the parameters of one client at a time; layers with an attribute of this
            name receive it.

    Example:
        >>> copies = ThreadCopies(nn.Linear(2, 1), alone=False)
        >>> copies.of_thread() is copies.of_thread()
        True
    """

    def __init__(self, module: nn.Module, alone: bool) -> None:
        self._module, self._alone = module, alone
        self._copies = threading.local()

    def of_thread(self) -> Copy:
        """Return the copy of the calling thread."""
        if not hasattr(self._copies, "copy"):
            tensors = {id(value): value for value in (*self._module.parameters(), *self._module.buffers())}
            module = copy.deepcopy(self._module, tensors)
            for layer in module.modules():
                if hasattr(layer, "alone"):
                    cast("Any", layer).alone = self._alone
            self._copies.copy = Copy(module, [m for m in module.modules() if isinstance(m, KeyedDropout)])
        return self._copies.copy


_TENSORS = ("_parameters", "_buffers", "_modules", "training", "_flat_weights", "_flat_weight_refs")
"""Attributes of a layer that are no options; the last two refer to parameters of recurrent layers once more."""


class Network:
    """Evaluate a model as a function of its parameters.

    A call replaces the parameters of the module while it runs, so every thread has its own module, with the same
    tensors.

    Args:
        module: the user's model; it is copied and never changed.
        device: device of the computation.
        personal: names of the parameters that stay with their client.
        offsets: whether the server may add offsets to the frozen weights below adapters (see `rebase`).
        precision: precision in training mode; ``"bf16"`` computes in bfloat16 by autocast. Parameters stay float32, and
            so do their gradients, because each cast is an operation whose derivative casts back. Autocast is used
            instead of casting all parameters, so that softmax and norms stay in float32 as in PyTorch's lists, and
            modules that create tensors still work.
        statistics: running statistics of BatchNorm, which each client has for itself (``"own"``) or which are averaged with
            the parameters (``"average"``).

    Attributes:
        layout: layout of the parameters in the vector.
        adapters: low-rank adapters with shared factors.
        initial: initial parameters, ``[P]``.
        module: the model with replaced layers; must not be changed.
        constants: frozen parameters and buffers by name, stored once for all clients and threads.
        precision: precision in training mode.
        draws: True if the model draws random numbers in training, because it has dropout.
        alone: True if it is called with the parameters of one client at a time, initially False; layers with an
            attribute of this name receive it.

    Raises:
        ConfigurationError: if the model has layers that cannot be trained here (unkeyed randomness, BatchNorm with
            statistics that are neither personal nor averaged).
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device,
        personal: Collection[str],
        offsets: bool = False,
        precision: Precision = "full",
        statistics: Statistics = "own",
    ) -> None:
        check_layers(module)
        copied, self._key_names = with_keyed_dropout(module)
        self.module, running, self._mask_names = with_own_batch_norm(copied, bool(personal), statistics)
        use_windows(self.module, device)
        self.module.to(device).train()  # layers that stay in evaluation mode leave the mode that they were created in
        self.layout = Layout.of(self.module, lambda name: name in personal, running, statistics == "average")
        self.initial = self.layout.flatten(self.module)
        self._hold_parameters_once()
        self.adapters = adapters_of(self.module, self.layout)
        dtype = self.initial.dtype
        self._offsets = add_offsets(self.module, self.adapters, dtype, device) if offsets else []
        frozen = {n: p.detach() for n, p in self.module.named_parameters() if not p.requires_grad}
        self.constants = frozen | {
            n: b for n, b in self.module.named_buffers() if n not in (*self._key_names, *self._mask_names)
        }
        self.draws = bool(self._key_names)
        if precision == "bf16" and dtype != torch.float32:
            kind = str(dtype).removeprefix("torch.")
            raise ConfigurationError(
                f"precision='bf16' needs float32 parameters to sum updates in, and those of {type(module).__name__} are "
                f"{kind}: write model.float() and float32 inputs, or leave precision out"
            )
        self.precision: Precision = precision
        self.alone = False
        self._has_ties = _has_ties(self.module)
        self._copies = {alone: ThreadCopies(self.module, alone) for alone in (False, True)}

    def __repr__(self) -> str:
        return repr(self.module)

    @property
    def reads_masks(self) -> bool:
        """True if a layer reads the whole minibatch, so that it computes otherwise with a mask."""
        return bool(self._mask_names)

    @cached_property
    def identity(self) -> Hashable:
        """A value that is equal for two networks only if they compute the same function; None if that is unknown."""
        if self._offsets:  # a trace reads the offsets of the network that was traced
            return None
        layers = dict(self.module.named_modules())
        kinds = tuple((name, type(layer)) for name, layer in layers.items())
        options = [
            {key: value for key, value in vars(layer).items() if key not in _TENSORS} for layer in layers.values()
        ]
        constants = {name: (value.dtype, value.shape, _bytes(value)) for name, value in self.constants.items()}
        try:
            return kinds, self.layout, self.precision, hashlib.sha256(pickle.dumps((options, constants))).digest()
        except Exception:  # layers of users may have attributes that cannot be pickled
            return None

    def _hold_parameters_once(self) -> None:
        """Make the parameters of the copy views of `initial`."""
        # Calls replace them, so they are never read. Views save the memory of a second copy of a large model.
        named = dict(self.module.named_parameters())
        for name, value in self.layout.split(self.initial).items():
            if type(named[name]) is nn.Parameter:  # a subclass may have further attributes
                named[name].data = value

    def module_of_thread(self) -> nn.Module:
        """Return the module that this thread calls for the present value of `alone`."""
        return self._copies[self.alone].of_thread().module

    def rebase(self, shared: State) -> None:
        """Set the offsets of the frozen weights below adapters to the broadcast ones.

        Args:
            shared: ``task.shared``; if it has no offsets, the present ones stay.
        """
        if self._offsets and (offset := shared.get(BASE_OFFSET)) is not None:
            for buffer, value in zip(self._offsets, split_offset(offset, self.adapters), strict=True):
                buffer.copy_(value)

    def mode(self, training: bool) -> None:
        """Put layers in training or evaluation mode for the next calls in this thread."""
        module = self.module_of_thread()
        if module.training != training:
            module.train(training)

    def outputs(
        self,
        params: torch.Tensor | dict[str, torch.Tensor],
        x: torch.Tensor,
        key: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the model's outputs ``[b, ...]`` at one vector ``[P]`` or at parameters by name.

        Args:
            params: the vector, or the parameters.
            x: a minibatch, ``[b, ...]``.
            key: 64 random bits for dropout.
            mask: 1 for examples and 0 for padding, ``[b]``, for layers that read the whole minibatch.
        """
        module, dropouts = self._copies[self.alone].of_thread()
        named = (params if isinstance(params, dict) else self.layout.split(params)) | self.constants
        for dropout in dropouts:
            dropout.uses = 0
        if key is not None:
            named |= dict.fromkeys(self._key_names, key)
        if mask is not None:
            named |= dict.fromkeys(self._mask_names, mask)
        if self.precision == "full" or not module.training:
            return functional_call(module, named, (x,), tie_weights=self._has_ties)
        # Without autocast's cache of converted weights: a trace would keep those while the weights move.
        with torch.autocast(x.device.type, torch.bfloat16, cache_enabled=False):
            outputs = functional_call(module, named, (x,), tie_weights=self._has_ties)
        lower = isinstance(outputs, torch.Tensor) and outputs.dtype == torch.bfloat16
        return outputs.float() if lower else outputs

    def outputs_and_assigned(
        self, params: torch.Tensor, x: torch.Tensor, key: torch.Tensor
    ) -> tuple[torch.Tensor, list[str]]:
        """Return the outputs, and the names of buffers that forward() replaces by other tensors.

        The replacements are lost when the call returns.
        """
        module, replaced = self.module_of_thread(), list[str]()

        def compare(module: nn.Module, *_: Any) -> None:
            buffers = dict(module.named_buffers())
            replaced.extend(name for name, value in self.constants.items() if buffers.get(name, value) is not value)

        hook = module.register_forward_hook(compare)
        try:
            return self.outputs(params, x, key), replaced
        finally:
            hook.remove()


def _has_ties(module: nn.Module) -> bool:
    """Return True if a parameter or buffer has several names; `functional_call` searches for these only on request."""
    of_both = (module.named_parameters, module.named_buffers)
    return any(len([*names()]) < len([*names(remove_duplicate=False)]) for names in of_both)


def _bytes(tensor: torch.Tensor) -> bytes:
    """Return the bytes of a tensor of any type."""
    return tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
