"""Properties of a model and its results."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from conftest import GOLDEN, ROOT, SAMPLES
from safetensors.numpy import load_file

import hipvit


def test_the_embedded_model_reads_digits(digits: hipvit.Model) -> None:
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    assert digits.labels == names
    tops = digits.top([image for _, image in hipvit.samples()], k=1)
    assert [top[0].label for top in tops] == names
    assert [top[0].label for top in digits.top(sorted(SAMPLES.glob("*.png")), k=1)] == names


def test_accuracy_on_the_held_out_digits(digits: hipvit.Model) -> None:
    held_out = load_file(ROOT / "assets" / "digits" / "heldout.safetensors")
    images = np.repeat(held_out["images"][..., None], 3, axis=-1)
    assert len(images) == 360
    assert int((digits(images).argmax(axis=1) == held_out["labels"]).sum()) == 357


def test_properties(vit: hipvit.Model) -> None:
    assert (vit.name, vit.architecture) == ("timm_vit_class_token", "vit_tiny_patch16_224")
    assert (vit.device, vit.dtype, vit.batch, vit.input) == ("cpu", "float32", 2, "images")
    assert vit.image_size == (48, 48)
    assert vit.num_classes == len(vit.labels) == 10
    assert vit.no_gpu is None
    assert vit.info["library"] == "timm" and vit.info["parameters"] > 1000
    assert repr(vit) == (
        "<hipvit.Model timm_vit_class_token: vit_tiny_patch16_224, 48x48, 10 classes, float32 on cpu, batch 2>"
    )


def test_outputs(photo: Path) -> None:
    model = hipvit.load(GOLDEN / "timm_vit_class_token", "cpu", tokens=True, hidden_layers=[0])
    outputs = model.run([photo, photo, photo])
    patches = (48 // model.info["patch_size"][0]) ** 2
    assert len(outputs) == 3 and outputs.errors == {}
    assert outputs.logits is not None and outputs.probabilities is not None
    np.testing.assert_allclose(outputs.probabilities.sum(axis=1), 1, rtol=1e-6)
    assert outputs.embeddings.shape == (3, model.num_features)
    assert outputs.tokens is not None and outputs.tokens.shape == (3, patches, model.info["dim"])
    assert np.array_equal(model.tokens([photo] * 3), outputs.tokens)
    assert list(outputs.hidden_layers) == [0]
    assert outputs.hidden_layers[0].shape == (3, model.info["tokens"], model.info["dim"])
    assert all(array.flags.c_contiguous for array in (outputs.logits, outputs.embeddings, outputs.tokens))
    for top, logits, probabilities in zip(outputs.top(3), outputs.logits, outputs.probabilities):
        assert [p.index for p in top] == list(np.argsort(-logits, kind="stable")[:3])
        assert [p.probability for p in top] == pytest.approx([probabilities[p.index] for p in top])
        assert [p.label for p in top] == [model.labels[p.index] for p in top]


def test_normalised_embeddings_have_length_one(vit: hipvit.Model, photo: Path) -> None:
    embeddings = vit.embed(photo)
    normalized = vit.embed(photo, normalize=True)
    np.testing.assert_allclose(np.linalg.norm(normalized.astype(np.float64), axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(normalized, embeddings / np.linalg.norm(embeddings), rtol=1e-5)


def test_labels_by_list_and_file(tmp_path: Path, seven: Path) -> None:
    names = [f"class {i}" for i in range(10)]
    file = tmp_path / "labels.txt"
    file.write_text("\n".join(names))
    for labels in (names, tuple(names), file, str(file)):
        model = hipvit.load(device="cpu", labels=labels)
        assert model.labels == names
        assert model.top(seven, 1)[0][0].label == "class 7"


def test_context_manager_closes(seven: Path) -> None:
    with hipvit.load(device="cpu") as model:
        assert model(seven).shape == (1, 10)
    assert "closed" in repr(model)
    with pytest.raises(hipvit.ClosedError, match="was closed"):
        model(seven)
    model.close()


def test_a_pickled_model_is_loaded_again(seven: Path) -> None:
    model = hipvit.load(device="cpu", dtype=np.float32, batch=3, labels=[str(i) for i in range(10)])
    again = pickle.loads(pickle.dumps(model))
    assert (again.batch, again.labels) == (3, model.labels)
    assert np.array_equal(again(seven), model(seven))
    prediction = model.top(seven, 1)[0][0]
    assert pickle.loads(pickle.dumps(prediction)) == prediction


def test_without_a_head_there_are_embeddings(photo: Path) -> None:
    model = hipvit.load(GOLDEN / "hf_vit_model", "cpu")
    assert model.num_classes == 0 and model.labels == []
    assert model.embed(photo).shape == (1, model.num_features)
    assert model.run(photo).logits is None and model.top(photo) == [[]]
    with pytest.raises(hipvit.ArgumentError, match=r"no classification head; use embed"):
        model(photo)


def test_the_fastest_dtype_is_measured() -> None:
    model = hipvit.load(device="cpu", dtype="auto", calibrate=[SAMPLES / "7.png", SAMPLES], batch=2)
    assert model.dtype in ("float32", "float16", "bfloat16")
    assert model.top(SAMPLES / "3.png", k=1)[0][0].label == "three"
    with pytest.raises(hipvit.ArgumentError, match="calibration images"):
        hipvit.load(device="cpu", dtype="auto")


def test_dtypes_by_name_and_type() -> None:
    for dtype in ("f32", "float32", np.float32, np.dtype("float32")):
        assert hipvit.load(device="cpu", dtype=dtype).dtype == "float32"
    for dtype in ("bf16", "BFloat16", "torch.bfloat16"):
        assert hipvit.load(device="CPU", dtype=dtype).dtype == "bfloat16"
    for dtype in ("fp16", "half", "f16"):
        assert hipvit.load(device="cpu", dtype=dtype).dtype == "float16"
    assert hipvit.load(device="cpu", dtype=np.float16).dtype == "float16"
    with pytest.raises(hipvit.ArgumentError, match="int8"):
        hipvit.load(device="cpu", dtype=np.int8)
