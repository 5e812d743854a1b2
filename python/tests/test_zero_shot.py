"""Images classified by texts, compared with transformers and open_clip."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import GOLDEN
from safetensors.numpy import load_file

import hipvit

CASES = ["hf_clip", "hf_clip_older", "open_clip", "hf_siglip", "hf_siglip2"]


class Case:
    """A small random model with a text tower."""

    def __init__(self, name: str) -> None:
        self.directory = GOLDEN / "zero_shot" / name
        golden: dict[str, Any] = json.loads((self.directory / "golden.json").read_text())
        self.texts: list[str] = golden["texts"]
        self.labels: list[str] = golden["labels"]
        self.templates: list[str] = golden["templates"]
        self.images = [GOLDEN / "images" / name for name in golden["images"]]
        self.expected = load_file(self.directory / "golden.safetensors")

    def load(self) -> hipvit.Model:
        return hipvit.load(self.directory, "cpu")


def assert_close(got: npt.NDArray[np.float32], expected: npt.NDArray[np.float64], tolerance: float) -> None:
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("name", CASES)
def test_texts_and_images_agree_with_the_libraries(name: str) -> None:
    case = Case(name)
    model = case.load()
    embeddings = model.embed_texts(case.texts)
    assert_close(embeddings, case.expected["text_embeds"], 2e-5)
    lengths = np.linalg.norm(model.embed_texts(case.texts, normalize=True), axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=1e-6)

    # The last text is longer than the context.
    labels = model.zero_shot(case.texts)
    assert (labels.labels, labels.truncated[-1]) == (case.texts, case.texts[-1])
    assert labels.embeddings.shape == embeddings.shape
    assert_close(labels(case.images), case.expected["logits_per_image"], 1e-4)

    labels = model.zero_shot(case.labels, case.templates)
    assert_close(labels(case.images), case.expected["ensemble"], 1e-4)


def test_results_are_those_of_the_labels(tmp_path: Path) -> None:
    case = Case("hf_clip")
    model = case.load()
    labels = model.zero_shot(case.labels, "a photo of a {}.")
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    outputs = labels.run([case.images[0], broken], on_error="skip")
    assert outputs.logits is not None and outputs.probabilities is not None
    assert np.array_equal(outputs.logits[:1], labels(case.images[0]))
    assert np.isnan(outputs.logits[1]).all() and list(outputs.errors) == [1]
    np.testing.assert_allclose(outputs.probabilities[0].sum(), 1, rtol=1e-6)
    assert np.array_equal(outputs.embeddings[0], model.embed(case.images[0])[0])
    best = labels.top(case.images[0], k=1)[0][0]
    assert best.label == case.labels[int(outputs.logits[0].argmax())]
    assert best == outputs.top(1)[0][0]
    assert repr(labels) == f"<hipvit.ZeroShot: {len(case.labels)} labels>"


def test_what_will_not_do_is_named(digits: hipvit.Model) -> None:
    model = Case("hf_clip").load()
    for make, message in (
        (lambda: model.zero_shot([]), "labels: the list is empty"),
        (lambda: model.zero_shot(["a cat", " "]), "label 1, counted from 0, is blank"),
        (lambda: model.zero_shot("a cat", "a photo"), 'template: "a photo" has no {}'),
        (lambda: digits.zero_shot("seven"), "texts: "),
        (lambda: digits.embed_texts("seven"), "texts: "),
    ):
        with pytest.raises(hipvit.ArgumentError, match=message):
            make()
    with pytest.raises(TypeError, match="labels: .* is neither a str nor a sequence of str"):
        model.zero_shot(7)  # type: ignore[arg-type]
    labels = model.zero_shot("a cat")
    model.close()
    with pytest.raises(hipvit.ClosedError):
        labels(Case("hf_clip").images)
