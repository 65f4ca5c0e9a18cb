"""Evaluate a model and its loss at flat parameter vectors, by forward passes."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import torch
from torch import nn

from turnout.core.checks import ConfigurationError
from turnout.engine.batch_norm import Statistics
from turnout.engine.choice import Choice, Engine, Precision, expected
from turnout.engine.compile.transforms import batched
from turnout.engine.loss import Loss, cross_entropy
from turnout.engine.network import Network
from turnout.engine.reading import metric_of, score
from turnout.engine.threads import ClientThreads


class Forward:
    """Compute losses and scores of examples, at one parameter vector or at those of B clients.

    Args:
        module: the user's model; it is copied and never changed.
        loss: function that returns one loss for each example.
        engine: ``"vectorized"`` (all clients in one call), ``"one_by_one"``, or ``"auto"``.
        device: device of the computation; None is the CPU.
        personal: names of the parameters that stay with their client.
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
        offsets: bool = False,
        precision: Precision = "full",
        statistics: Statistics = "own",
    ) -> None:
        self.device, self.loss = device or torch.device("cpu"), loss
        self.choice = expected(module, engine, self.device)
        self.network = Network(module, self.device, personal, offsets, precision, statistics)
        self.use(self.choice)
        self.layout, self.initial = self.network.layout, self.network.initial
        self.threads = ClientThreads(None if self.device.type == "cpu" else 1)
        self.examples_per_call = 500  # large enough for matrix products, small enough for a processor's cache
        self._images_last = self.device.type == "cpu" and any(isinstance(m, nn.Conv2d) for m in module.modules())

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
            self.network.mode(training=False)
            x, y = batch
            outputs = self.network.outputs(params, self._in_order(x))
            if not isinstance(outputs, torch.Tensor):
                raise ConfigurationError(
                    f"metrics: the model returns a {type(outputs).__name__}, but metrics need one tensor: remove metrics"
                )
            return self.loss(outputs, y).double(), score(outputs, y, self.loss), outputs, y

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
            return batched(self._scores, (0, 0, 0))(params, x, y)
        pairs = self.threads.map(lambda i: self._scores_of_one(params[i], x[i], y[i]), range(len(params)))
        losses, scores = zip(*pairs, strict=True)
        return torch.stack(losses), torch.stack(scores)

    @torch.no_grad()
    def _scores_of_one(
        self, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return loss and score of each example, ``[b]``; may be called in any thread."""
        self.network.mode(training=False)
        return self._scores(params, self._in_order(x), y)

    def _scores(self, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return loss and score of each example, ``[b]``."""
        outputs = self.network.outputs(params, x)
        return self.loss(outputs, y).double(), score(outputs, y, self.loss)

    def _in_order(self, x: torch.Tensor) -> torch.Tensor:
        """Return images in the channels-last memory format, in which CPU convolutions take half the time."""
        if not self._images_last or x.dim() != 4:
            return x
        _, channels, height, width = x.shape
        # With explicit strides, because the two formats are ambiguous for a single channel.
        strides = (channels * height * width, 1, channels * width, channels)
        return x.contiguous(memory_format=torch.channels_last).as_strided(x.shape, strides)
