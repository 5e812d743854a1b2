"""Every golden model, as the Rust suite compares it: pixel values bit for bit, outputs within 2e-5 of the largest."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from conftest import Golden

TOLERANCE = 2e-5


def close(got: npt.NDArray[np.float32], expected: npt.NDArray[np.float64]) -> None:
    assert got.shape == expected.shape
    error = np.abs(got.astype(np.float64) - expected).max() / np.abs(expected).max()
    assert error <= TOLERANCE, error


def test_pixel_values_equal_the_libraries(golden: Golden) -> None:
    values = golden.load().preprocess(golden.images)
    assert values.dtype == np.float32
    assert np.array_equal(values, golden.tensors()["pixel_values"])


def test_outputs_from_files_equal_the_libraries(golden: Golden) -> None:
    outputs = golden.load().run(golden.images)
    close(golden.select(outputs), golden.expected())


def test_outputs_from_pixel_values_equal_the_libraries(golden: Golden) -> None:
    outputs = golden.load(input="pixel_values").run(golden.tensors()["pixel_values"])
    close(golden.select(outputs), golden.expected())
