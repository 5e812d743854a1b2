"""How goldens keep outputs, for goldens.py, golden_naflex.py, golden_quantized.py and golden_zero_shot.py."""

import math
from pathlib import Path

import torch
from safetensors.torch import save_file

# Bits of the largest output. A processor's BLAS changes the last bits of a double (some 1e-15 of the largest output), and these
# may not change the file. Rounding costs at most 1.5e-8, a quarter of f32's own.
BITS = 26


def rounded(value: torch.Tensor) -> torch.Tensor:
    """Doubles in fixed point."""
    if value.dtype != torch.float64 or not value.numel():
        return value
    step = 2.0 ** (math.frexp(float(value.abs().max()))[1] - BITS)
    return torch.round(value / step) * step + 0.0  # no negative zero


def save_golden(tensors: dict[str, torch.Tensor], path: Path) -> None:
    save_file({name: rounded(value).clone().contiguous() for name, value in tensors.items()}, path)
