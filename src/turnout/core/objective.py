"""The model as a function of a flat vector, and its loss and gradient for many clients at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.func import grad_and_value, vmap

from turnout.core.checks import ConfigurationError
from turnout.core.crew import Crew
from turnout.core.engine import Choice, Engine, expected, faster
from turnout.core.network import Network
from turnout.core.replay import Replayed

# Unless asked not to, Intel's matrix library rounds by where in memory an operand lies, so a client's bits would depend on
# its lane. It reads this before its first product, and is no slower for it.
os.environ.setdefault("MKL_CBWR", "AUTO")

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From outputs ``[b, ...]`` and targets ``[b, ...]`` to one loss for each example, ``[b]``."""


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Softmax cross-entropy of each example, ``[b]``, from logits ``[b, C]`` and labels ``[b]``."""
    # As torch.nn.functional.cross_entropy, without the tests for labels to ignore, which cost more than a small model.
    return -outputs.log_softmax(dim=-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


_measured: dict[tuple[object, ...], Choice] = {}
"""What was measured in this process, so that two runs of one experiment do not differ by what else the machine did."""


class Objective:
    """Loss and gradient of B clients at B parameter vectors.

    Args:
        module: the user's model; it is copied, never changed.
        loss: one loss for each example.
        engine: ``"vectorised"`` (all clients in one call), ``"one_by_one"``, or ``"auto"``.
        device: where to compute.
        personal: names of the parameters that stay with their client.

    Attributes:
        network: the model.
        layout: which stretch of the vector is which parameter.
        initial: the module's own parameters, ``[P]``.
        crew: the threads that share what is computed.
        choice: the engine in use, and why.

    Raises:
        ConfigurationError: for layers that have no sound meaning here (BatchNorm, unkeyed randomness).
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss = cross_entropy,
        engine: Engine = "auto",
        device: torch.device | None = None,
        personal: Collection[str] = (),
    ) -> None:
        self.device, self.loss = device or torch.device("cpu"), loss
        self.choice = expected(module, engine, self.device)
        self.network = Network(module, self.device, personal)
        self.use(self.choice)
        self.layout, self.initial = self.network.layout, self.network.initial
        self.crew = Crew(None if self.device.type == "cpu" else 1)
        self._images_last = self.device.type == "cpu" and any(isinstance(m, nn.Conv2d) for m in module.modules())
        one = grad_and_value(self._loss_of_one)
        self._all = (vmap(one, in_dims=(0, 0, 0, None, 0)), vmap(one, in_dims=(0, 0, 0, 0, 0)))
        self._replays: dict[Hashable, Replayed] = {}

    @property
    def engine(self) -> str:
        """``"vectorised"`` or ``"one_by_one"``."""
        return self.choice.engine

    def use(self, choice: Choice) -> None:
        """Compute this way from now on."""
        self.choice = choice
        self.network.alone = choice.engine == "one_by_one"

    def measure(self, x: torch.Tensor, y: torch.Tensor) -> Choice:
        """Choose by measuring on a minibatch, where nothing but speed says which way to take.

        Results of the two ways agree within rounding. The choice is known to `expected` unless the other way is twice as
        fast or more; it is made once in a process for a model and a shape.
        """
        if self.choice.settled:
            return self.choice
        key = (repr(self.network), x.shape, x.dtype, y.shape, self.device.type)
        if key not in _measured:
            first = self.choice

            def gradients(engine: str, clients: int) -> None:
                self.use(replace(first, engine=engine))
                params, xs, ys = (v.expand(clients, *v.shape).contiguous() for v in (self.initial, x, y))
                self.gradient(params, xs, ys, None, torch.arange(clients, device=self.device), replay=False)
                if self.device.type == "cuda":
                    torch.cuda.synchronize(self.device)

            ways = partial(gradients, "vectorised"), partial(gradients, "one_by_one", 1)
            # In one of the threads, which is where gradients will be computed.
            (_measured[key],) = self.crew.map(lambda _: faster(first, *ways), [None])
        self.use(_measured[key])
        return self.choice

    def _loss_of_one(
        self,
        params: torch.Tensor | dict[str, torch.Tensor],
        x: torch.Tensor,
        y: torch.Tensor,
        mask: torch.Tensor | None,
        key: torch.Tensor,
    ) -> torch.Tensor:
        """Mean loss over a minibatch of one client; `mask` ``[b]`` is 1 for examples and 0 for padding."""
        losses = self.loss(self.network.outputs(params, x, key), y)
        if mask is None:
            return losses.mean()
        return (losses * mask).sum() / mask.sum()

    @property
    def draws(self) -> bool:
        """Whether the model draws random numbers in training: it has dropout."""
        return self.network.draws

    def gradient(
        self,
        params: torch.Tensor,
        x: torch.Tensor,
        y: torch.Tensor,
        mask: torch.Tensor | None,
        key: torch.Tensor,
        training: bool = True,
        replay: bool = True,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss ``[B]`` and gradient ``[B, P]`` at `params` ``[B, P]`` on minibatches ``[B, b, ...]`` of B clients.

        Args:
            mask: 1 for examples and 0 for padding, ``[B, b]``; None where nothing is padded.
            key: 64 random bits a client, ``[B]``, for dropout.
            training: whether layers are in training mode, in which dropout drops.
            replay: False inside of a function that is replayed itself.
        """
        self.network.mode(training)
        if self.engine == "vectorised":
            of_all = self._all[mask is not None]
            if replay:  # a trace holds what layers did in the mode that they were in, so each mode has one of its own
                of_all = self.replayed(("gradient", training, mask is not None), of_all) or of_all
            gradients, losses = of_all(params, x, y, mask, key)
            return losses, gradients

        def of_one(i: int) -> tuple[torch.Tensor, torch.Tensor]:
            self.network.mode(training)
            return self._gradient_of_one(params[i], x[i], y[i], None if mask is None else mask[i], key[i])

        if len(params) == 1:  # what is computed one by one is large, and not to be copied
            loss, gradient = of_one(0)
            return loss[None], gradient[None]
        losses, gradients = zip(*self.crew.map(of_one, range(len(params))), strict=True)
        return torch.stack(losses), torch.stack(gradients)

    def replayed(self, key: Hashable, function: Callable[..., Any], changes: tuple[int, ...] = ()) -> Replayed | None:
        """The function, replayed; `key` says what it is, the same in every round. None where clients are computed alone."""
        if self.engine != "vectorised":
            return None
        if key not in self._replays:
            self._replays[key] = Replayed(function, changes, self.crew)
        return self._replays[key]

    def _gradient_of_one(
        self, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor | None, key: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss and gradient of one client by plain autograd."""
        leaf = params.detach().requires_grad_()
        loss, (gradient,) = self._derivatives(leaf, [leaf], x, y, mask, key)
        assert gradient is not None  # each parameter is a view of the leaf, whether it is used or not
        return loss, gradient

    def step_alone(
        self,
        params: torch.Tensor,
        x: torch.Tensor,
        y: torch.Tensor,
        mask: torch.Tensor | None,
        key: torch.Tensor,
        lr: torch.Tensor,
    ) -> torch.Tensor:
        """A step of one client down its gradient, and the loss before it; `params` ``[P]`` is changed in place.

        Layer by layer: of a large model, joining the gradients of all layers takes as long as a convolution.
        """
        self.network.mode(training=True)
        views = self.layout.split(params)
        leaves = {name: view.detach().requires_grad_() for name, view in views.items()}
        loss, gradients = self._derivatives(leaves, list(leaves.values()), x, y, mask, key)
        with torch.no_grad():
            for view, gradient in zip(views.values(), gradients, strict=True):
                if gradient is not None:  # of a layer that the model does not use
                    view.addcmul_(gradient, lr, value=-1)
        return loss

    def _derivatives(
        self,
        params: torch.Tensor | dict[str, torch.Tensor],
        leaves: list[torch.Tensor],
        x: torch.Tensor,
        y: torch.Tensor,
        mask: torch.Tensor | None,
        key: torch.Tensor,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor | None, ...]]:
        """Loss of one client, and its derivatives by `leaves`. Here padding is cut off, not masked."""
        if mask is not None:
            real = int(mask.sum())
            x, y = x[:real], y[:real]
        loss = self._loss_of_one(params, self._in_order(x), y, None, key)
        return loss.detach(), torch.autograd.grad(loss, leaves, allow_unused=True)

    def _in_order(self, x: torch.Tensor) -> torch.Tensor:
        """Images with the channels of a pixel side by side in memory, in which CPU convolutions take half the time."""
        if not self._images_last or x.dim() != 4:
            return x
        _, channels, height, width = x.shape
        # The strides are spelt out because with a single channel torch cannot tell the two orders apart, and guesses.
        strides = (channels * height * width, 1, channels * width, channels)
        return x.contiguous(memory_format=torch.channels_last).as_strided(x.shape, strides)

    @torch.no_grad()
    def evaluate(
        self, params: torch.Tensor, batches: Iterator[tuple[torch.Tensor, torch.Tensor]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss and correctness of each example at one vector, in evaluation mode: float64 ``[n]`` each.

        Correct (1, else 0) means that the largest of the outputs is the label's; NaN where targets are no labels.
        """
        losses, correct = zip(*self.crew.map(lambda batch: self._scores_of_one(params, *batch), batches), strict=True)
        return torch.cat(losses), torch.cat(correct)

    @torch.no_grad()
    def scores(self, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss and correctness, as `evaluate` has them, of B clients at B vectors: float64 ``[B, b]`` each.

        Args:
            params: the vectors, ``[B, P]``.
            x, y: some examples of each client, ``[B, b, ...]``.
        """
        if self.engine == "vectorised":
            self.network.mode(training=False)
            return vmap(self._scores)(params, x, y)
        pairs = self.crew.map(lambda i: self._scores_of_one(params[i], x[i], y[i]), range(len(params)))
        losses, correct = zip(*pairs, strict=True)
        return torch.stack(losses), torch.stack(correct)

    @torch.no_grad()
    def _scores_of_one(
        self, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss and correctness of each example ``[b]``, in whichever thread."""
        self.network.mode(training=False)
        return self._scores(params, self._in_order(x), y)

    def _scores(self, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss and correctness of each example ``[b]``."""
        outputs = self.network.outputs(params, x)
        loss = self.loss(outputs, y).double()
        if y.is_floating_point():
            return loss, torch.full_like(loss, torch.nan)
        return loss, (outputs.argmax(dim=-1) == y).double()

    def bytes_per_lane(self, x: torch.Tensor, y: torch.Tensor) -> int:
        """Estimate the memory that a client takes: 6 vectors, and if all train together, saved activations twice."""
        vectors = 6 * self.initial.numel() * self.initial.element_size()
        if self.engine == "one_by_one":
            return vectors
        saved = 0

        def count(value: torch.Tensor) -> torch.Tensor:
            nonlocal saved
            saved += value.numel() * value.element_size()
            return value

        with torch.autograd.graph.saved_tensors_hooks(count, lambda value: value):
            leaf = self.initial.detach().requires_grad_()
            self._loss_of_one(leaf, x, y, None, torch.zeros((), dtype=torch.int64, device=self.device))
        return 2 * saved + vectors

    def check(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """Try the model on a minibatch, so that what cannot work is said before the first round.

        Raises:
            ConfigurationError: where the model does not take these inputs, returns something that the loss or the
                labels do not fit, draws random numbers of its own, or changes its buffers.
        """
        self.network.mode(training=True)
        random, constants = (
            self._random_state(),
            {name: value.clone() for name, value in self.network.constants.items()},
        )
        key = torch.zeros((), dtype=torch.int64, device=self.device)
        try:
            losses = self.loss(self.network.outputs(self.initial, x, key), y)
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            raise ConfigurationError(
                f"the model does not fit the data: inputs {tuple(x.shape)} ({x.dtype}) and targets {tuple(y.shape)} "
                f"({y.dtype}) of a minibatch failed with: {error}"
            ) from error
        if losses.shape != (len(x),):
            raise ConfigurationError(
                f"the loss must give one number for each of {len(x)} examples, it gave {tuple(losses.shape)}: write "
                "reduction='none'"
            )
        if not torch.equal(random, self._random_state()):
            raise ConfigurationError(
                "the model draws random numbers in forward(), which no seed of a client controls: use nn.Dropout layers, "
                "which are made reproducible for each client"
            )
        changed = [name for name, value in constants.items() if not torch.equal(value, self.network.constants[name])]
        if changed:
            raise ConfigurationError(
                f"the model changes its buffer {changed[0]!r} in forward(); buffers are neither averaged nor sent, so one "
                "client's would leak into the next: make it a parameter, or leave it unchanged"
            )

    def _random_state(self) -> torch.Tensor:
        """The state of torch's own random numbers where the model computes."""
        return torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else torch.get_rng_state()
