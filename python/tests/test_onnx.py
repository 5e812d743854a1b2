"""ONNX models: arrays by name, and images."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file

import hipvit

GOLDEN = Path(__file__).parent.parent.parent / "tests" / "golden" / "onnx"


Arrays = dict[str, npt.NDArray[Any]]


def golden(name: str) -> tuple[Arrays, Arrays]:
    tensors = load_file(GOLDEN / name / "golden.safetensors")
    inputs = {key.split(".", 1)[1]: value for key, value in tensors.items() if key.startswith("input.")}
    outputs = {key.split(".", 1)[1]: value for key, value in tensors.items() if key.startswith("output.")}
    return inputs, outputs


@pytest.mark.parametrize("name", ["vit", "convnext", "clip_text"])
def test_outputs_by_name_are_those_of_onnx_runtime(name: str) -> None:
    inputs, expected = golden(name)
    with hipvit.load(GOLDEN / name / "model.onnx", "cpu") as model:
        assert model.input == "tensors"
        assert set(model.inputs) == set(inputs)
        outputs = model.run(inputs)
    assert set(outputs) == set(expected)
    for output, values in expected.items():
        assert outputs[output].dtype == values.dtype
        np.testing.assert_allclose(outputs[output], values, atol=1e-4 * np.abs(values).max())


def test_a_configuration_beside_the_file_makes_images_the_input(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "vit" / "model.onnx", tmp_path)
    config = {"architecture": "any", "pretrained_cfg": {"mean": 0.5, "std": 0.5, "crop_pct": 1.0}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = hipvit.load(tmp_path / "model.onnx", "cpu")
    assert model.input == "images"
    image = np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8)
    values = (image / np.float32(255) - np.float32(0.5)) / np.float32(0.5)
    logits = model.run({"input": values.transpose(2, 0, 1)[None].astype(np.float32)})["output"]
    np.testing.assert_allclose(model([image]), logits, atol=1e-4 * np.abs(logits).max())


def test_wrong_arrays_are_refused() -> None:
    model = hipvit.load(GOLDEN / "vit" / "model.onnx", "cpu")
    with pytest.raises(ValueError, match="`x` is not an input of the model. The inputs are `input`"):
        model.run({"x": np.zeros((1, 3, 24, 24), np.float32)})
    with pytest.raises(ValueError, match=r"has the shape \[1, 3, 24, 25\], expected \[B, 3, 24, 24\]"):
        model.run({"input": np.zeros((1, 3, 24, 25), np.float32)})
    with pytest.raises(ValueError, match="dtype complex64, which no model takes"):
        model.run({"input": np.zeros((1, 3, 24, 24), np.complex64)})
    with pytest.raises(ValueError, match="takes tensors by name, not images: no config.json"):
        model.run([np.zeros((24, 24, 3), np.uint8)])
