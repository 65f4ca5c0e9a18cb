"""Where FedAvg-P and Scaffold-P end under gradient noise: both algorithms in plain torch, many seeds side by side.

Shares no code with the package. `python floor.py --sigma 3 --rho 0.1 --gamma 0.02 --rounds 1200` prints G_u, G_v, their
sum in the theorems and ||u||^2, means over the last quarter of the rounds and the seeds.
"""

import argparse
import math

import numpy as np
import torch
from sklearn.datasets import load_digits

N, D, SHARED = 10, 64, 56


def problem() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Inputs ``[N, n, D]``, signs and weights ``[N, n]`` of ten clients sorted by digit; padding has weight 0."""
    x, y = load_digits(return_X_y=True)
    order = np.argsort(y, kind="stable")
    parts = np.array_split(order, N)
    most = max(map(len, parts))
    inputs, signs, weights = np.zeros((N, most, D)), np.zeros((N, most)), np.zeros((N, most))
    for i, part in enumerate(parts):
        inputs[i, : len(part)], signs[i, : len(part)] = x[part] / 16, 2 * (y[part] >= 5) - 1
        weights[i, : len(part)] = 1 / len(part)
    return torch.from_numpy(inputs).float(), torch.from_numpy(signs).float(), torch.from_numpy(weights).float()


def gradients(data: tuple[torch.Tensor, ...], w: torch.Tensor, rho: float) -> torch.Tensor:
    """Of clients' losses at ``w [S, m, D]``; `data` has the leading axes ``[S, m]``."""
    x, c, share = data
    residual = -c * torch.sigmoid(-c * torch.einsum("smnp,smp->smn", x, w)) * share
    found = torch.einsum("smnp,smn->smp", x, residual)
    for part in (slice(0, SHARED), slice(SHARED, D)):
        square = w[..., part].square().sum(-1, keepdim=True)
        found[..., part] += 2 * rho * w[..., part] / (1 + square) ** 2
    return found


def run(args: argparse.Namespace, scaffold: bool, m: int) -> torch.Tensor:
    """G_u, G_v and ||u||^2 in every fifth round, ``[E, 3, S]``."""
    draw, seeds, steps = torch.Generator().manual_seed(0), args.seeds, args.steps
    eta_u, eta_v = args.eta_u or math.sqrt(m), args.eta_v or math.sqrt(N / m)
    whole = tuple(part.expand(seeds, *part.shape) for part in problem())
    u, v, c_i = torch.zeros(seeds, SHARED), torch.zeros(seeds, N, D - SHARED), torch.zeros(seeds, N, SHARED)
    scale = torch.full((D,), args.sigma / math.sqrt(SHARED))
    scale[SHARED:] = args.sigma_v / math.sqrt(D - SHARED)

    def everyone() -> torch.Tensor:
        return gradients(whole, torch.cat([u[:, None].expand(seeds, N, SHARED), v], -1), args.rho)

    if scaffold:
        noise = scale[:SHARED] / math.sqrt(steps) * torch.randn(seeds, N, SHARED, generator=draw)
        c_i = everyone()[..., :SHARED] + noise
    c, found, row = c_i.mean(1), [], torch.arange(seeds)[:, None]
    for t in range(args.rounds + 1):
        if t % 5 == 0:
            g = everyone().double()
            g_u, g_v = g[..., :SHARED].mean(1).square().sum(-1), g[..., SHARED:].square().sum(-1).mean(1)
            found.append(torch.stack([g_u, g_v, u.double().square().sum(-1)]))
        who = torch.rand(seeds, N, generator=draw).argsort(1)[:, :m]
        cohort = tuple(part[row, who] for part in whole)
        w = torch.cat([u[:, None].expand(seeds, m, SHARED), v[row, who]], -1)
        start, total = w[..., SHARED:].clone(), torch.zeros(seeds, m, SHARED)
        size = torch.full((D,), args.gamma / eta_u)
        size[SHARED:] = args.gamma / eta_v
        for _ in range(steps):
            g = gradients(cohort, w, args.rho) + scale * torch.randn(seeds, m, D, generator=draw)
            total += g[..., :SHARED]
            if scaffold:
                g[..., :SHARED] += c[:, None] - c_i[row, who]
            w = w - size * g
        v[row, who] = (1 - eta_v) * start + eta_v * w[..., SHARED:]
        if scaffold:
            c = c + (total / steps - c_i[row, who]).sum(1) / N
            c_i[row, who] = total / steps
        u = (1 - eta_u) * u + eta_u * w[..., :SHARED].mean(1)
    return torch.stack(found)


def main() -> None:
    """Print the floors."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in {"gamma": 0.01, "rho": 1.0, "sigma": 1.0, "sigma_v": 0.0, "eta_u": 0.0, "eta_v": 0.0}.items():
        parser.add_argument(f"--{name}", type=float, default=default)
    for name, default in {"seeds": 4, "rounds": 150, "steps": 25}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--m", default="2,5,9")
    args = parser.parse_args()
    for scaffold in (True, False):
        for m in map(int, args.m.split(",")):
            late = run(args, scaffold, m)
            late = late[3 * len(late) // 4 :].mean(0)
            g_u, g_v, square = late.mean(1).tolist()
            by_seed = " ".join(f"{value:.2g}" for value in (late[0] + m / N * late[1]).tolist())
            name = "Scaffold-P" if scaffold else "FedAvg-P"
            print(f"{name} m = {m}: G_u {g_u:.3g}, G_v {g_v:.3g}, sum by seed {by_seed}, ||u||^2 {square:.2g}")


if __name__ == "__main__":
    main()
