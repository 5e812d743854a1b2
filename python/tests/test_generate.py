"""Texts of images, beside those of transformers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import GOLDEN

import hipvit

CASES: list[dict[str, Any]] = json.loads((GOLDEN / "generation" / "cases.json").read_text())
TILED: list[dict[str, Any]] = json.loads((GOLDEN / "smolvlm" / "cases.json").read_text())
LENGTH = 24


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_texts_are_those_of_transformers(case: dict[str, Any]) -> None:
    images = [GOLDEN / "images" / text["image"] for text in case["texts"]]
    expected = [text["text"] for text in case["texts"]]
    prompt = case["prompt"]
    with hipvit.load(GOLDEN / "generation" / case["name"], "cpu", batch=3) as model:
        shorter = model.generate(images, 2, prompt=prompt)
        assert all(text.startswith(short) for text, short in zip(expected, shorter))
        # A longer text needs a larger cache.
        assert model.generate(images, max_tokens=LENGTH, prompt=prompt) == expected
        assert model.generate(images[0], LENGTH, prompt=prompt) == expected[:1]
        assert model.generate([]) == []
        sampled = model.generate(images, LENGTH, temperature=2.0, seed=1)
        assert sampled == model.generate(images, LENGTH, temperature=2.0, top_p=1.0, seed=1)
        assert sampled != expected
        assert model.generate(images, LENGTH, speculate=4, beams=1, prompt=prompt) == expected
        smaller = GOLDEN / "generation" / case["name"]
        assert model.generate(images, LENGTH, speculate=4, draft_model=smaller, beams=1, prompt=prompt) == expected
        assert model.generate(images, LENGTH, beams=3, prompt=prompt) != expected
    with pytest.raises(hipvit.ClosedError):
        model.generate(images)


@pytest.mark.parametrize("case", TILED, ids=lambda case: case["name"])
def test_questions_are_answered_as_by_transformers(case: dict[str, Any]) -> None:
    images = [GOLDEN / "images" / text["image"] for text in case["texts"]]
    model = hipvit.load(GOLDEN / "smolvlm" / case["name"], "cpu", batch=2)
    assert model.generate(images, LENGTH, prompt=case["prompt"]) == [text["text"] for text in case["texts"]]


def test_what_makes_no_text_is_refused() -> None:
    image = GOLDEN / "images" / "photo.jpg"
    with pytest.raises(hipvit.ArgumentError, match="embedded one, which makes no texts"):
        hipvit.load(device="cpu").generate(image)
    with pytest.raises(hipvit.ConfigError, match="model_type"):
        hipvit.load(GOLDEN / "hf_vit", "cpu").generate(image)
    model = hipvit.load(GOLDEN / "generation" / "trocr_base", "cpu")
    with pytest.raises(hipvit.ArgumentError, match="temperature: is 0"):
        model.generate(image, temperature=0.0)
    with pytest.raises(hipvit.ArgumentError, match="beams: exclude a random choice"):
        model.generate(image, temperature=1.0, beams=2)
    with pytest.raises(hipvit.ArgumentError, match="prompt: is empty"):
        model.generate(image, prompt="")
    with pytest.raises(hipvit.ArgumentError, match="40 are more than the 39"):
        model.generate(image, max_tokens=40)
    with pytest.raises(hipvit.ImageError) as failed:
        model.generate([image, b"no image"])
    assert failed.value.index == 1
