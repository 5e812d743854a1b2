"""The goldens compared with timm and transformers in this process. Skipped where these are not installed."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from conftest import GOLDENS, Golden
from PIL import Image

TIMM = [golden for golden in GOLDENS if golden.library == "timm" and golden.image_size is None]
TRANSFORMERS = [golden for golden in GOLDENS if golden.name in ("hf_vit", "hf_deit", "hf_dinov2", "hf_siglip_classifier")]
# Both are in float32, and each is within 2e-5 of the exact result.
TOLERANCE = 4e-5


def _close(got: Any, expected: Any) -> None:
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("case", TIMM, ids=lambda case: case.name)
def test_timm(case: Golden) -> None:
    timm: Any = pytest.importorskip("timm")
    torch: Any = pytest.importorskip("torch")
    config = json.loads((case.directory / "config.json").read_text())
    if config["architecture"] not in timm.list_models():
        pytest.skip(f"this timm has no {config['architecture']}")
    try:
        peer = timm.create_model(f"local-dir:{case.directory}", pretrained=True).eval()
    except TypeError as error:
        # The mixers' functions set these arguments themselves; goldens.py creates the models from their classes.
        if "multiple values" not in str(error):
            raise
        pytest.skip(f"timm's {config['architecture']} is of one size: {error}")
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(peer))
    images = [Image.open(path).convert("RGB") for path in case.images]
    values = torch.stack([transform(image) for image in images])
    model = case.load()
    assert np.array_equal(model.preprocess(images), values.numpy())
    with torch.inference_mode():
        expected = peer(values).numpy()
    _close(case.select(model.run(images)), expected)


@pytest.mark.parametrize("case", TRANSFORMERS, ids=lambda case: case.name)
def test_transformers(case: Golden) -> None:
    transformers: Any = pytest.importorskip("transformers")
    torch: Any = pytest.importorskip("torch")
    config = json.loads((case.directory / "config.json").read_text())
    peer = getattr(transformers, config["architectures"][0]).from_pretrained(case.directory).eval()
    values = torch.from_numpy(case.tensors()["pixel_values"])
    with torch.inference_mode():
        expected = peer(pixel_values=values).logits.numpy()
    _close(case.select(case.load().run(case.images)), expected)
