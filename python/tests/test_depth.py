"""Depths of images of any size, beside those of transformers."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import hipvit

ROOT = Path(__file__).parent.parent.parent
GOLDEN = ROOT / "tests" / "golden" / "depth"
IMAGES = ROOT / "tests" / "golden" / "images"


def test_depths_are_those_of_transformers() -> None:
    expected = load_file(GOLDEN / "depth_anything" / "golden.safetensors")["small.png.depth"]
    with hipvit.load(GOLDEN / "depth_anything", "cpu") as model:
        assert model.input == "tensors"
        wide, small = model.depth([IMAGES / "wide.png", IMAGES / "small.png"])
        [again] = model.depth(IMAGES / "small.png")
        with pytest.raises(ValueError, match=r"preprocessing.*224×300"):
            model.preprocess(IMAGES / "wide.png")
        pixels = np.zeros((1, 40, 40, 3), np.uint8)
        assert model.run({"pixels": pixels})["predicted_depth"].shape == (1, 40, 40)
    assert wide.shape == (224, 300)
    np.testing.assert_allclose(small, expected, atol=1e-4 * np.abs(expected).max())
    np.testing.assert_allclose(again, small, atol=1e-4 * np.abs(expected).max())
    with pytest.raises(hipvit.ClosedError):
        model.depth(IMAGES / "small.png")


def test_other_models_estimate_no_depth() -> None:
    with hipvit.load(ROOT / "tests" / "golden" / "hf_vit", "cpu") as model:
        with pytest.raises(ValueError, match="estimates no depth"):
            model.depth(IMAGES / "small.png")
    with pytest.raises(ValueError, match="was not loaded from a path"):
        hipvit.load(device="cpu").depth(IMAGES / "small.png")
