"""Time convolutions of clients in three ways: client after client, grouped in one call, and as batched products.

    python benchmarks/convolutions.py            # a minute; milliseconds per client for loss and gradient, one thread

All ways take turns on the same minibatches of five clients, and the script checks that they agree. The first network is
that of W1 in `turnout speed`.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import nn

import turnout
from turnout.engine.objective import Objective
from turnout.models.cnn import Cnn

_CASES = (  # shape of an image, channels, hidden layers, minibatch
    ((3, 32, 32), (32, 32), (256, 64), 16),
    ((1, 28, 28), (8, 8), (32,), 10),
    ((1, 8, 8), (32, 32), (128,), 10),
)
_CLIENTS = 5


class Unfolded(nn.Conv2d):
    """Compute a convolution as a product of its weights and all windows, batched over clients."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Convolve as `nn.Conv2d` does with a square kernel, stride 1 and zero padding."""
        assert self.bias is not None
        windows = nn.functional.unfold(input, self.kernel_size, padding=self.padding)  # type: ignore[arg-type]
        weight = self.weight.flatten(1).expand(len(input), -1, -1)
        return torch.baddbmm(self.bias[:, None], weight, windows).unflatten(2, input.shape[2:])


def main() -> None:
    """Time all networks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=30)
    given = parser.parse_args()
    torch.set_num_threads(1)
    turnout.keep_large_buffers()
    torch.manual_seed(0)
    print("input      channels  hidden     batch  one by one  grouped  unfolded")
    for shape, channels, hidden, batch_size in _CASES:
        module = Cnn(hidden=hidden, channels=channels).build(shape, 10, seed=0)
        ways = [
            Objective(module, engine="one_by_one"),
            Objective(module, engine="vectorized"),
            Objective(_unfolded(module), engine="vectorized"),
        ]
        x, y = torch.randn(_CLIENTS, batch_size, *shape), torch.randint(10, (_CLIENTS, batch_size))
        figures = "  ".join(f"{1e3 * seconds:8.2f}" for seconds in _in_turns(ways, x, y, given.repeats))
        print(f"{'x'.join(map(str, shape)):9s}  {channels!s:8s}  {hidden!s:9s}  {batch_size:5d}  {figures}", flush=True)


def _unfolded(module: nn.Module) -> nn.Module:
    """Return the same network with unfolded convolutions; it shares the other layers."""
    other = nn.Sequential()
    for name, layer in module.named_children():
        if isinstance(layer, nn.Conv2d):
            same = Unfolded(layer.in_channels, layer.out_channels, layer.kernel_size, padding=layer.padding)  # type: ignore[arg-type]
            same.load_state_dict(layer.state_dict())
            layer = same
        other.add_module(name, layer)
    return other


def _in_turns(ways: list[Objective], x: torch.Tensor, y: torch.Tensor, repeats: int) -> list[float]:
    """Return the median seconds per client of the second half of the calls, for each way; the first half is for tracing."""
    seconds: list[list[float]] = [[] for _ in ways]
    keys = torch.zeros(_CLIENTS, dtype=torch.int64)
    for _ in range(2 * repeats):
        gradients = []
        for objective, own in zip(ways, seconds, strict=True):
            params = objective.initial.expand(_CLIENTS, -1).contiguous()
            begin = time.perf_counter()
            _, gradient = objective.gradient(params, x, y, None, keys)
            own.append((time.perf_counter() - begin) / _CLIENTS)
            gradients.append(gradient)
        for gradient in gradients[1:]:
            torch.testing.assert_close(gradient, gradients[0], rtol=1e-4, atol=1e-5)
    return [statistics.median(own[repeats:]) for own in seconds]


if __name__ == "__main__":
    main()
