"""Evaluate a model, its loss and their gradient at flat parameter vectors."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator
from copy import copy
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import nn

from turnout.core.checks import ConfigurationError
from turnout.engine import validate
from turnout.engine.batch_norm import Statistics
from turnout.engine.choice import Choice, Engine, Precision, chosen, expected
from turnout.engine.compile.backends import forced
from turnout.engine.compile.compiled import Compiled, shared
from turnout.engine.compile.transforms import batched, grad_and_value
from turnout.engine.loss import Loss, cross_entropy
from turnout.engine.network import Network
from turnout.engine.padding import LaneSizes
from turnout.engine.reading import metric_of, score
from turnout.engine.term import Minibatch, Term, mean_loss
from turnout.engine.threads import ClientThreads

LOG = logging.getLogger(__name__)

# By default, rounding in Intel's matrix library depends on the alignment of operands, so a client's bits would depend on its
# lane. The library reads this setting before its first product, and is no slower with it.
os.environ.setdefault("MKL_CBWR", "AUTO")

_MOST_COMPILED = 64  # compiled functions; a run has one for each kind of step, so usually a few


class Objective:
    """Compute losses, scores and gradients of examples, at one parameter vector or at those of B clients.

    Args:
        module: the user's model; it is copied and never changed.
        loss: function that returns one loss for each example.
        engine: ``"vectorized"`` (all clients in one call), ``"one_by_one"``, or ``"auto"``.
        device: device of the computation; None is the CPU.
        personal: names of the parameters that stay with their client.
        weighted: whether masks hold weights of examples, > 0, in place of ones.
        offsets: whether offsets may be added to the frozen weights below adapters (see `Network.rebase`).
        precision: precision of local steps, ``"full"`` or ``"bf16"`` (see `Network`); evaluations are always in full
            precision.
        statistics: running statistics of BatchNorm, ``"own"`` or ``"average"`` (see `Network`).

    Attributes:
        network: the model as a function of its parameters.
        layout: layout of the parameters in the vector.
        initial: parameters of the module, ``[P]``.
        threads: threads that compute clients.
        choice: the engine in use, and the reason.
        examples_per_call: number of examples in a forward pass of an evaluation.
        lane_sizes: numbers of clients that take local steps together.

    Raises:
        ConfigurationError: if the model has layers that cannot be trained here (BatchNorm, unkeyed randomness).
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss = cross_entropy,
        engine: Engine = "auto",
        device: torch.device | None = None,
        personal: Collection[str] = (),
        weighted: bool = False,
        offsets: bool = False,
        precision: Precision = "full",
        statistics: Statistics = "own",
    ) -> None:
        forced()  # reports an unknown setting before any work is done
        self.device, self.loss = device or torch.device("cpu"), loss
        self.choice = expected(module, engine, self.device)
        self.network = Network(module, self.device, personal, offsets, precision, statistics)
        self.use(self.choice)
        self.layout, self.initial = self.network.layout, self.network.initial
        self.threads = ClientThreads(None if self.device.type == "cpu" else 1)
        self.examples_per_call = 500  # large enough for matrix products, small enough for a processor's cache
        self._images_last = self.device.type == "cpu" and any(isinstance(m, nn.Conv2d) for m in module.modules())
        self.weighted = weighted
        one = grad_and_value(partial(_loss_of_one, self.network, self.loss, weighted))
        self._all = (batched(one, in_dims=(0, 0, 0, None, 0)), batched(one, in_dims=(0, 0, 0, 0, 0)))
        self._compiled: dict[Hashable, Compiled] = {}
        self.lane_sizes = LaneSizes.of(self.device)

    @property
    def engine(self) -> str:
        """``"vectorized"`` or ``"one_by_one"``."""
        return self.choice.engine

    def metric(self, targets: torch.Tensor) -> str:
        """Return the name of the metric for predictions of these targets (see `turnout.engine.reading.metric_of`)."""
        return metric_of(targets, self.loss)

    def use(self, choice: Choice) -> None:
        """Switch to an engine."""
        self.choice = choice
        self.network.alone = choice.engine == "one_by_one"

    def choose(self, x: torch.Tensor) -> Choice:
        """Choose the faster engine by the multiplications of a minibatch ``[b, ...]``, unless the choice is settled."""
        if not self.choice.settled:
            self.use(chosen(self.choice, validate.products(self.network, x)))
        return self.choice

    @torch.no_grad()
    def evaluate(
        self, params: torch.Tensor, batches: Iterator[tuple[torch.Tensor, torch.Tensor]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return loss and score (`turnout.engine.reading.score`) of each example at one vector, float64 ``[n]``."""
        losses, scores = zip(*self.threads.map(lambda batch: self._scores_of_one(params, *batch), batches), strict=True)
        return torch.cat(losses), torch.cat(scores)

    @torch.no_grad()
    def judged(
        self, params: torch.Tensor, batches: Iterator[tuple[torch.Tensor, torch.Tensor]]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the results of `evaluate`, and the outputs and targets of all examples.

        Raises:
            ConfigurationError: if the model does not return a single tensor.
        """

        def of_batch(batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, ...]:
            x, y = batch
            outputs = self._outputs(params, x)
            if not isinstance(outputs, torch.Tensor):
                raise ConfigurationError(
                    f"metrics: the model returns a {type(outputs).__name__}, but metrics need one tensor: remove metrics"
                )
            return *self._scores(outputs, y), outputs, y

        loss, scores, outputs, targets = map(torch.cat, zip(*self.threads.map(of_batch, batches), strict=True))
        return loss, scores, outputs, targets

    @torch.no_grad()
    def scores(self, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return losses and scores of B clients at B vectors, as in `evaluate`: float64 ``[B, b]`` each.

        Args:
            params: the vectors, ``[B, P]``.
            x, y: examples of each client, ``[B, b, ...]``.
        """
        if self.engine == "vectorized":
            self.network.mode(training=False)
            return batched(lambda w, x, y: self._scores(self.network.outputs(w, x), y), (0, 0, 0))(params, x, y)
        pairs = self.threads.map(lambda i: self._scores_of_one(params[i], x[i], y[i]), range(len(params)))
        losses, scores = zip(*pairs, strict=True)
        return torch.stack(losses), torch.stack(scores)

    @torch.no_grad()
    def _scores_of_one(
        self, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return loss and score of each example, ``[b]``; may be called in any thread."""
        return self._scores(self._outputs(params, x), y)

    def _outputs(self, params: torch.Tensor, x: torch.Tensor) -> Any:
        """Return the outputs at one vector in evaluation mode; may be called in any thread."""
        self.network.mode(training=False)
        return self.network.outputs(params, self._in_order(x))

    def _scores(self, outputs: Any, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return loss and score of each example, ``[b]``."""
        return self.loss(outputs, y).double(), score(outputs, y, self.loss)

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
        """Return the loss ``[B]`` and gradient ``[B, P]`` of B clients, each on its minibatch.

        Args:
            params: parameters, ``[B, P]``.
            x, y: minibatches, ``[B, b, ...]``.
            mask: 1, or its weight, for an example and 0 for padding, ``[B, b]``; None without padding and weights.
            key: 64 random bits for each client, int64 ``[B]``, for dropout.
            training: whether to use training mode, with dropout.
            replay: whether to trace and replay the computation; False inside a function that is itself replayed.
        """
        self.network.mode(training)
        if self.engine == "vectorized":
            of_all = self._all[mask is not None]
            if replay:  # a trace has the operations of one mode of the layers, so there is one per mode
                of_all = self.compiled(("gradient", training, mask is not None), of_all)
            gradients, losses = of_all(params, x, y, mask, key)
            return losses, gradients

        def of_one(i: int) -> tuple[torch.Tensor, torch.Tensor]:
            self.network.mode(training)
            leaf = params[i].detach().requires_grad_()
            loss, (gradient,) = self._derivatives(leaf, [leaf], x[i], y[i], None if mask is None else mask[i], key[i])
            assert gradient is not None  # all parameters are views of the leaf, which is therefore used
            return loss, gradient

        if len(params) == 1:  # models that are computed one by one are large: do not copy their gradient
            loss, gradient = of_one(0)
            return loss[None], gradient[None]
        losses, gradients = zip(*self.threads.map(of_one, range(len(params))), strict=True)
        return torch.stack(losses), torch.stack(gradients)

    def gradient_of(
        self,
        term: Term,
        params: torch.Tensor,
        others: tuple[torch.Tensor, ...],
        x: torch.Tensor,
        mask: torch.Tensor | None,
        key: torch.Tensor,
    ) -> torch.Tensor:
        """Return the gradient of the mean of a further term of the loss, ``[B, P]``.

        It is meant for steps that are traced as a whole.

        Args:
            term: the term on the minibatch of one client.
            params: parameters to differentiate by, ``[B, P]``.
            others: further tensors that the term depends on, ``[B, ...]`` each.
            x, mask, key: as in `gradient`.
        """

        def mean(
            params: torch.Tensor, x: torch.Tensor, mask: torch.Tensor | None, key: torch.Tensor, *others: torch.Tensor
        ):
            return mean_loss(term(Minibatch(self.network, x, mask, key), params, *others), mask)

        one, arguments = grad_and_value(mean), (params, x, mask, key, *others)
        if self.engine == "vectorized":
            return batched(one, tuple(None if value is None else 0 for value in arguments))(*arguments)[0]
        rows = [[None if value is None else value[i] for value in arguments] for i in range(len(params))]
        return torch.stack([one(*row)[0] for row in rows])

    def compiled(self, key: Hashable, function: Callable[..., Any], changes: tuple[int, ...] = ()) -> Compiled:
        """Return a function that is traced and replayed; `key` identifies it in all rounds."""
        key = (self.engine, self.weighted, key)
        if key not in self._compiled:
            if len(self._compiled) >= _MOST_COMPILED:
                LOG.info(
                    "more than %d kinds of steps are traced one after the other, which takes longer than it saves: have "
                    "corrections hold what differs from round to round in tensors, not in numbers",
                    _MOST_COMPILED,
                )
                del self._compiled[next(iter(self._compiled))]
            same = (self.network.identity, self.loss, self.device.type, key)
            known = shared(same) if same[0] is not None and isinstance(self.loss, FunctionType) else None
            self._compiled[key] = Compiled(function, changes, self.threads, known)
        return self._compiled[key]

    def without_traces(self) -> Objective:
        """Return the same objective without its compiled functions, one of which can hold it without a cycle."""
        other = copy(self)
        other._compiled = {}
        return other

    @property
    def backends(self) -> dict[str, int]:
        """The number of traces of this run by backend (see `turnout.engine.compile.backends`)."""
        return dict(Counter(name for compiled in self._compiled.values() for name in compiled.backends.values()))

    def gradient_by_layer(
        self, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor | None, key: torch.Tensor
    ) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]:
        """Return the loss of one client and, for each used layer, the view of `params` ``[P]`` and its gradient.

        Concatenating the gradients of all layers of a large model would take as long as a convolution.
        """
        self.network.mode(training=True)
        views = self.layout.split(params)
        leaves = {name: view.detach().requires_grad_() for name, view in views.items()}
        loss, gradients = self._derivatives(leaves, list(leaves.values()), x, y, mask, key)
        used = zip(views.values(), gradients, strict=True)
        return loss, [(view, gradient) for view, gradient in used if gradient is not None]

    def _derivatives(
        self,
        params: torch.Tensor | dict[str, torch.Tensor],
        leaves: list[torch.Tensor],
        x: torch.Tensor,
        y: torch.Tensor,
        mask: torch.Tensor | None,
        key: torch.Tensor,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor | None, ...]]:
        """Return the loss of one client and its derivatives by `leaves`. Padding is cut off and not masked."""
        weights = None
        if mask is not None:
            real = int((mask > 0).sum())
            x, y, weights = x[:real], y[:real], mask[:real] if self.weighted else None
        loss = _loss_of_one(self.network, self.loss, self.weighted, params, self._in_order(x), y, weights, key)
        return loss.detach(), torch.autograd.grad(loss, leaves, allow_unused=True)

    def bytes_per_lane(self, x: torch.Tensor, y: torch.Tensor) -> int:
        """Estimate the bytes per client: six vectors and, if clients train together, twice the saved activations."""
        vectors = 6 * self.initial.numel() * self.initial.element_size()
        if self.engine == "one_by_one":
            return vectors
        return vectors + 2 * validate.saved_bytes(self.network, self.loss, x, y)

    def _in_order(self, x: torch.Tensor) -> torch.Tensor:
        """Return images in the channels-last memory format, in which CPU convolutions take half the time."""
        if not self._images_last or x.dim() != 4:
            return x
        _, channels, height, width = x.shape
        # With explicit strides, because the two formats are ambiguous for a single channel.
        strides = (channels * height * width, 1, channels * width, channels)
        return x.contiguous(memory_format=torch.channels_last).as_strided(x.shape, strides)


def _loss_of_one(
    network: Network,
    loss: Loss,
    weighted: bool,
    params: torch.Tensor | dict[str, torch.Tensor],
    x: torch.Tensor,
    y: torch.Tensor,
    mask: torch.Tensor | None,
    key: torch.Tensor,
) -> torch.Tensor:
    """Return the mean loss over a minibatch of one client, with losses multiplied by the weights of examples.

    `mask` ``[b]`` is 1, or its weight, for an example and 0 for padding. The divisor is the number of examples.
    """
    inside = mask.sign() if weighted and mask is not None else mask
    return mean_loss(loss(network.outputs(params, x, key, inside), y), mask, inside)
