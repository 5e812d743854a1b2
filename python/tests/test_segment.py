"""Masks of objects at points and in boxes, beside those of transformers."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import hipvit

ROOT = Path(__file__).parent.parent.parent
MODEL = ROOT / "tests" / "golden" / "segment" / "sam"
SMALL = ROOT / "tests" / "golden" / "images" / "small.png"


def test_masks_are_those_of_transformers() -> None:
    golden = load_file(MODEL / "golden.safetensors")
    segmenter = hipvit.Segmenter(MODEL, "cpu")
    assert (segmenter.name, segmenter.device) == ("sam", "cpu")
    embedding = segmenter.encode(SMALL)
    assert embedding.size == (61, 97)
    assert embedding.values().shape == (64, 32)
    # The prompts of the golden file: a point, and points with a box.
    masks, scores = segmenter.segment(embedding, points=[(40, 30)])
    assert masks.shape == (1, 3, 61, 97)
    np.testing.assert_allclose(scores[0], golden["small.png.0.iou_scores"], atol=2e-4)
    masks, scores = segmenter.segment(SMALL, points=[(30, 20), (55, 44)], labels=[1, 0], boxes=[(5, 3, 60, 58)])
    np.testing.assert_allclose(scores[0], golden["small.png.3.iou_scores"], atol=2e-4)
    logits = golden["small.png.logits"]
    clear = np.abs(logits) > 1e-2
    np.testing.assert_array_equal(masks[0, 0][clear], (logits > 0)[clear])
    masks, scores = segmenter.segment(embedding, boxes=[(10.5, 6, 61.25, 49), (3, 3, 30, 30)])
    assert (masks.shape, scores.shape) == ((2, 3, 61, 97), (2, 3))
    np.testing.assert_allclose(scores[0], golden["small.png.2.iou_scores"], atol=2e-4)


def test_what_is_wrong_with_prompts_is_said() -> None:
    segmenter = hipvit.Segmenter(MODEL, "cpu")
    with pytest.raises(ValueError, match="neither a point nor a box"):
        segmenter.segment(SMALL)
    with pytest.raises(ValueError, match="outside of the image"):
        segmenter.segment(SMALL, points=[(98, 3)])
    with pytest.raises(ValueError, match="labels: are 2, but there are 1 points"):
        segmenter.segment(SMALL, points=[(9, 3)], labels=[1, 0])
    with pytest.raises(ValueError, match="neither 1"):
        segmenter.segment(SMALL, points=[(9, 3)], labels=[-1])
    with pytest.raises(ValueError, match="several boxes"):
        segmenter.segment(SMALL, points=[(9, 3)], boxes=[(1, 1, 9, 9), (2, 2, 9, 9)])
    with pytest.raises(ValueError, match="expected one image"):
        segmenter.segment([SMALL, SMALL], points=[(9, 3)])
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        hipvit.Segmenter(MODEL, "cpu", colour="red")
    with pytest.raises(ValueError, match="Segmenter"):
        hipvit.load(MODEL, "cpu")
