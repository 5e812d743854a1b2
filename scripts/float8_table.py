"""Writes tests/data/float8.safetensors: for each 8-bit floating-point format, the values of all 256 bit patterns, and f32
numbers that `ml_dtypes` has converted. The numbers are the values themselves, the midpoints between neighbours, the f32 numbers next
to either, numbers near the largest and the smallest, subnormal numbers, zeros, infinities and NaN.

    venv/bin/pip install -r scripts/requirements.txt
    venv/bin/python scripts/float8_table.py
"""

from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

FILE = Path(__file__).resolve().parent.parent / "tests" / "data" / "float8.safetensors"
F32 = np.finfo(np.float32)


def cases(values: np.ndarray) -> np.ndarray:
    finite = np.unique(values[np.isfinite(values)]).astype(np.float64)
    # One more step covers numbers that round up beyond the largest.
    step = finite[-1] - finite[-2]
    finite = np.concatenate([[finite[0] - step], finite, [finite[-1] + step]])
    middle = (finite[1:] + finite[:-1]) / 2
    exact = np.concatenate([finite, middle]).astype(np.float32)
    near = [np.nextafter(exact, np.float32(limit), dtype=np.float32) for limit in (-np.inf, np.inf)]
    least = np.float32(np.min(np.abs(exact[exact != 0])))
    others = [0.0, -0.0, np.inf, -np.inf, np.nan, F32.max, F32.min, F32.tiny, -F32.tiny, F32.smallest_subnormal,
              -F32.smallest_subnormal, least / 4, -least / 4]
    return np.concatenate([exact, *near, np.array(others, np.float32)])


def main() -> None:
    tensors = {}
    for name in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz"):
        dtype = getattr(ml_dtypes, f"float8_{name}")
        values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
        inputs = cases(values)
        with np.errstate(all="ignore"):
            bits = inputs.astype(dtype).view(np.uint8)
        tensors |= {f"{name}.values": values, f"{name}.cases": inputs, f"{name}.bits": bits}
    save_file(tensors, FILE)


if __name__ == "__main__":
    main()
