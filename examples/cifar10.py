"""An algorithm and a model of one's own on CIFAR-10: a residual network with GroupNorm, and a weighting by training loss.

    python examples/cifar10.py --data ~/data                      # a folder with cifar-10-batches-bin or -py
    python examples/cifar10.py --data ~/data --device cuda --rounds 500
    python examples/cifar10.py                                    # no folder: scanned digits as 16x16 images, and it says so

Step sizes are chosen by validation clients, which never train; the test accuracy is printed once, for the chosen one.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import nn
from torch.nn.functional import interpolate, relu

import turnout as to
from turnout.base import Weighting
from turnout.data import cifar_augmentation


@dataclass(frozen=True)
class ByLoss(Weighting):
    """Weight each report by a power of its client's loss: ``w_b <- w_b loss_b^power``."""

    power: float = 1.0

    def factors(self, report, version, state, federation):  # noqa: D102 - as little as it takes
        return report.seen["loss"].double() ** self.power


class Block(nn.Module):
    """Two convolutions, and what came in added to what comes out."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.GroupNorm(8, outputs) for _ in range(2))
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 or inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``relu(f(x) + shortcut(x))``."""
        inner = relu(self.norms[0](self.first(x)))
        return relu(self.norms[1](self.second(inner)) + self.shortcut(x))


def resnet(channels: int, classes: int, width: int = 16, blocks: int = 1, seed: int = 0) -> nn.Module:
    """Return a residual network of three stages; ``width=16, blocks=3`` is a ResNet-20, with GroupNorm for BatchNorm."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1), nn.GroupNorm(8, width), nn.ReLU()]
    sizes = [width, width, 2 * width, 4 * width]
    for stage, (inputs, outputs) in enumerate(pairwise(sizes)):
        layers += [Block(inputs, outputs, 2 if stage > 0 else 1)]
        layers += [Block(outputs, outputs, 1) for _ in range(blocks - 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, classes))


def images(folder: str | None) -> to.data.Source:
    """Return CIFAR-10, or where no folder is given digits as images of 16x16 pixels."""
    if folder is not None:
        return replace(to.data.cifar10(folder), transforms=cifar_augmentation())
    print("No --data: these are scanned digits of scikit-learn, not CIFAR-10, and say nothing about it.")
    digits = to.data.digits()
    return replace(digits, x=interpolate(digits.x.reshape(-1, 1, 8, 8), scale_factor=2), transforms=())


def experiment(source: to.data.Source, options: argparse.Namespace, lr: float) -> to.Experiment:
    """Return the experiment with a step size."""
    data = source.split(
        to.partition.Dirichlet(alpha=0.3),
        num_clients=options.clients,
        validation_clients=max(1, options.clients // 10),
        empty="drop",
    )
    local = to.Sgd(lr=lr, steps=options.steps, batch_size=32, momentum=0.9)
    pieces = (to.selection.Uniform(options.cohort), ByLoss(), to.weighting.DivideBySum(), local)
    return to.Experiment(
        data=data,
        model=resnet(data.input_shape[0], data.num_outputs, options.width, options.blocks),
        algorithm=to.compose(*pieces, name="by_loss"),
        rounds=options.rounds,
        evaluate_every=max(1, options.rounds // 5),
        device=options.device,
    )


def main() -> None:
    """Choose the step size by validation, and print the test accuracy of the chosen run."""
    options = _options()
    source = images(options.data)
    results = {lr: experiment(source, options, lr).run(progress=options.progress) for lr in options.lr}
    chosen = max(results, key=lambda lr: results[lr].summary()["validation_accuracy"])
    for lr, result in results.items():
        print(f"lr {lr}: validation {result.summary()['validation_accuracy']:.1%}")
    print(f"chosen: lr {chosen}, test {results[chosen].summary()['test_accuracy']:.1%}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", help="a folder with cifar-10-batches-bin or cifar-10-batches-py")
    add("--rounds", type=int, default=20)
    add("--clients", type=int, default=20)
    add("--cohort", type=int, default=5)
    add("--steps", type=int, default=5)
    add("--width", type=int, default=16)
    add("--blocks", type=int, default=1)
    add("--lr", type=float, nargs="+", default=[0.03, 0.1])
    add("--device", default="cpu")
    add("--progress", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
