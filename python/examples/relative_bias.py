"""Learn the relative position bias of attention: a table with an element for each distance of two patches, and each head.

python relative_bias.py                    # on the CPU
python relative_bias.py --device cuda      # on a GPU of ROCm's or CUDA's PyTorch

The target is attention with another table. PyTorch's optimiser changes the table by the gradient that hipvit computes.
"""

from __future__ import annotations

import argparse

import torch

import hipvit
from hipvit import patterns

GRID = (7, 7)
HEADS, HEAD_DIM = 4, 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    options = {"device": arguments.device, "dtype": getattr(torch, arguments.dtype)}
    q, k, v = torch.randn(3, 8, HEADS, GRID[0] * GRID[1], HEAD_DIM, **options)
    distances = (2 * GRID[0] - 1) * (2 * GRID[1] - 1)
    target = torch.randn(distances, HEADS, device=arguments.device)
    expected = hipvit.attention(q, k, v, score=patterns.relative_bias(target, GRID))

    table = torch.zeros_like(target, requires_grad=True)
    optimizer = torch.optim.Adam([table], lr=0.1)
    for step in range(arguments.steps + 1):
        result = hipvit.attention(q, k, v, score=patterns.relative_bias(table, GRID))
        loss = (result - expected).float().square().mean()
        if step % 10 == 0:
            # The softmax does not change if the same number is added to all scores of a head.
            difference = (table - target).detach()
            distance = (difference - difference.mean(0)).abs().mean()
            print(f"step {step:3}: mean squared error {loss.item():.6f}, mean distance of the tables {distance.item():.3f}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
