"""Fixtures of the tests: the goldens and the embedded model's samples, which are in the repository."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file

import hipvit

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
SAMPLES = ROOT / "assets" / "samples"


@dataclass(frozen=True)
class Golden:
    """A small random model of timm or transformers, and what that library computes."""

    name: str
    library: str
    output: str
    images: list[Path]
    image_size: Union[tuple[int, int], None]

    @property
    def directory(self) -> Path:
        return GOLDEN / self.name

    def load(self, **options: Any) -> hipvit.Model:
        return hipvit.load(self.directory, "cpu", image_size=self.image_size, **options)

    def tensors(self) -> dict[str, npt.NDArray[Any]]:
        return load_file(self.directory / "golden.safetensors")

    def expected(self) -> npt.NDArray[np.float64]:
        """In double precision; of a model that gives all tokens, the first stands for the image."""
        output = self.tensors()[self.output]
        return output[:, 0] if output.ndim == 3 else output

    def select(self, outputs: hipvit.Outputs) -> npt.NDArray[np.float32]:
        if self.output != "logits":
            return outputs.embeddings
        assert outputs.logits is not None
        return outputs.logits


def _goldens() -> list[Golden]:
    cases = []
    for case in json.loads((GOLDEN / "cases.json").read_text()):
        resized = case.get("interpolate_pos_encoding") or case.get("override_image_size")
        height, width = case["image_size"]
        images = [GOLDEN / "images" / name for name in case["images"]]
        size = (height, width) if resized else None
        cases.append(Golden(case["name"], case["library"], case["output"], images, size))
    assert len(cases) > 40
    return cases


GOLDENS = _goldens()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "golden" in metafunc.fixturenames:
        metafunc.parametrize("golden", GOLDENS, ids=lambda golden: golden.name)


@pytest.fixture(scope="session")
def digits() -> hipvit.Model:
    return hipvit.load(device="cpu")


@pytest.fixture(scope="session")
def seven() -> Path:
    return SAMPLES / "7.png"


@pytest.fixture(scope="session")
def photo() -> Path:
    return GOLDEN / "images" / "photo.jpg"


@pytest.fixture(scope="session")
def vit() -> hipvit.Model:
    return hipvit.load(GOLDEN / "timm_vit_class_token", "cpu", batch=2)
