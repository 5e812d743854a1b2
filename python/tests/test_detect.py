"""Objects in images, beside those of transformers."""

import json
from pathlib import Path

import numpy as np
import pytest

import hipvit

ROOT = Path(__file__).parent.parent.parent
GOLDEN = ROOT / "tests" / "golden"
IMAGES = GOLDEN / "images"


@pytest.mark.parametrize("model", ["rt_detr/rt_detr", "rt_detr/rt_detr_v2", "detect/rt_detr/model.onnx"])
def test_objects_are_those_of_transformers(model: str) -> None:
    path = GOLDEN / model
    # hipvit's own tests have the tighter bounds.
    golden = json.loads(((path if path.is_dir() else path.parent) / "golden.json").read_text())
    detector = hipvit.Detector(path, "cpu", batch=2)
    assert detector.device == "cpu"
    assert detector.labels == [f"thing {index}" for index in range(5)]
    found = detector.detect([IMAGES / name for name in golden["images"]], golden["threshold"])
    for objects, expected in zip(found, golden["images"].values()):
        assert [(each.index, each.label) for each in objects] == [(each["label"], f"thing {each['label']}") for each in expected]
        np.testing.assert_allclose([each.score for each in objects], [each["score"] for each in expected], atol=2e-3)
        np.testing.assert_allclose([each.box for each in objects], [each["box"] for each in expected], atol=0.5)


def test_what_is_wrong_is_said() -> None:
    model = GOLDEN / "rt_detr" / "rt_detr"
    detector = hipvit.Detector(model, "cpu")
    assert detector.name == "rt_detr"
    with pytest.raises(ValueError, match="threshold"):
        detector.detect(IMAGES / "wide.png", 1.5)
    with pytest.raises(ValueError, match="use `hipvit detect` or Detector"):
        hipvit.load(model, "cpu")
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        hipvit.Detector(model, "cpu", colour="red")
