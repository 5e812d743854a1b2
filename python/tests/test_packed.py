"""Packed images of any aspect ratio, as timm's NaFlexViT takes them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import GOLDEN
from safetensors.numpy import load_file

import hipvit

PACKED = json.loads((GOLDEN / "packed" / "golden.json").read_text())
IMAGES = [GOLDEN / "naflex" / name for name in PACKED["images"]]
TOLERANCE = 2e-5


@pytest.mark.parametrize("case", PACKED["cases"], ids=lambda case: case["name"])
def test_outputs_of_packed_images_equal_timms(case: dict[str, str]) -> None:
    model = hipvit.load(GOLDEN / case["name"], "cpu", packed=45)
    outputs = model.run(IMAGES)
    expected = load_file(GOLDEN / "packed" / f"{case['name']}.safetensors")["output"]
    got = outputs.logits if case["output"] == "logits" else outputs.embeddings
    assert got is not None
    assert got.shape == expected.shape
    assert np.abs(got.astype(np.float64) - expected).max() <= TOLERANCE * np.abs(expected).max()


def test_what_is_not_packed_is_refused() -> None:
    with pytest.raises(hipvit.ArgumentError, match="tinyvit32: its library runs it on images of one size"):
        hipvit.load(device="cpu", packed=64)
