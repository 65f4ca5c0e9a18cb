"""The recurrence of an LSTM layer for many clients, with a derivative that takes few operations per step of time."""

from __future__ import annotations

from typing import Any

import torch


class Recurrence(torch.autograd.Function):
    """Compute an LSTM layer from zero states for B clients.

    Autograd, batched by `torch.func.vmap`, writes a matrix of the size of the weights for each client at every step of
    time, and takes 29 operations per step. Here the derivative by the weights is one product after the loop over time.

    It maps what the inputs contribute to the gates ``[T, B, M, 4H]`` and the weights ``[B, 4H, H]`` to outputs and cells
    ``[T, B, M, H]``, and gates ``[T, B, M, 4H]``. It can be differentiated twice.
    """

    @staticmethod
    def forward(wide: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return outputs, cells and gates."""
        h = c = wide.new_zeros(*wide.shape[1:3], weights.shape[2])
        transposed, results = weights.transpose(1, 2), []
        for from_input in wide.contiguous().unbind():
            h, c, gates = _cell(from_input, h, c, transposed)
            results.append((h, c, gates))
        return tuple(map(torch.stack, zip(*results, strict=True)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: tuple[torch.Tensor, ...]) -> None:
        """Save the weights and all results."""
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[1], *output)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: torch.Tensor) -> tuple[Any, tuple[int, int, int]]:
        """Compute the clients of all batches together."""
        number = info.batch_size
        wide, weights = (
            value.expand(number, *value.shape) if dim is None else value.movedim(dim, 0)
            for value, dim in zip(inputs, in_dims, strict=True)
        )
        results: Any = Recurrence.apply(wide.transpose(0, 1).flatten(1, 2), weights.flatten(0, 1))
        return tuple(result.unflatten(1, (number, -1)) for result in results), (1, 1, 1)

    @staticmethod
    def backward(ctx: Any, *slopes: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the derivatives by both inputs.

        r_t, ``[B, M, 5, H]``, are the derivatives by the four gates before their nonlinearities, and the part of that by
        c_{t-1} that passes through c_t. It is linear in its last part at t + 1, and in the derivative by h_t, which is the
        product of its other parts at t + 1 and the weights.
        """
        weights, outputs, cells, gates = ctx.saved_tensors
        i, f, g, o = gates.unflatten(-1, (4, -1)).unbind(-2)
        wide, zero = cells.tanh(), torch.zeros_like(cells)
        inner = i * (1 - i), f * (1 - f), 1 - g * g, o * (1 - o)
        by_c = g * inner[0], _before(cells) * inner[1], i * inner[2], zero, f
        by_h = [part * (o * (1 - wide * wide)) for part in by_c]
        by_h[3] = wide * inner[3]
        of_c, of_h = torch.stack(by_c, -2), torch.stack(by_h, -2)
        known = torch.zeros_like(of_h) if slopes[0] is None else of_h * slopes[0].unsqueeze(-2)
        if slopes[1] is not None:
            known = known + of_c * slopes[1].unsqueeze(-2)
        if slopes[2] is not None:
            parts = zip(slopes[2].unflatten(-1, (4, -1)).unbind(-2), inner, strict=True)
            known = known + torch.stack([*(slope * part for slope, part in parts), zero], -2)
        results = [known[-1]]
        for t in reversed(range(len(known) - 1)):
            r = results[-1]
            product = torch.bmm(r[..., :4, :].flatten(-2), weights)
            results.append(known[t].addcmul(of_c[t], r[..., 4:, :]).addcmul(of_h[t], product.unsqueeze(-2)))
        of_wide = torch.stack(results[::-1])[..., :4, :].flatten(-2)
        left, right = (rows.transpose(0, 1).flatten(1, 2) for rows in (of_wide, _before(outputs)))
        return of_wide, torch.bmm(left.transpose(1, 2), right)


def _before(states: torch.Tensor) -> torch.Tensor:
    """Return the states before each step of time, the first of which is zero."""
    return torch.cat([torch.zeros_like(states[:1]), states[:-1]])


def _cell(
    from_input: torch.Tensor, h: torch.Tensor, c: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the next output and cell ``[B, M, H]``, and the gates ``[B, M, 4H]``; on a GPU by a product and one kernel."""
    if _has_kernel(c):
        flat = (value.flatten(0, 1) for value in (from_input, torch.bmm(h, weights), c))
        h, c, gates = (v.unflatten(0, h.shape[:2]) for v in torch.ops.aten._thnn_fused_lstm_cell(*flat))
        return h, c, gates
    before = torch.baddbmm(from_input, h, weights)
    # Not of all gates at once: at the end of a tensor, sigmoid rounds in another way, and here that is the end of each row.
    both, g, o = before.split([2 * c.shape[2], c.shape[2], c.shape[2]], -1)
    both, g, o = both.sigmoid(), g.tanh(), o.sigmoid()
    i, f = both.chunk(2, -1)
    c = (i * g).addcmul(f, c)
    return o * c.tanh(), c, torch.cat([both, g, o], -1)


def _has_kernel(tensor: torch.Tensor) -> bool:
    """Return whether PyTorch has one kernel for a cell on the device of a tensor."""
    return tensor.is_cuda
