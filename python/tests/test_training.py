"""``hipvit.train`` on small sets of handwritten digits."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from PIL import Image
from safetensors.numpy import load_file

import hipvit

CONFIG = {
    "architecture": "vit_tiny_patch16_224",
    "model_args": {
        "img_size": 32,
        "patch_size": 8,
        "embed_dim": 32,
        "depth": 1,
        "num_heads": 2,
        "mlp_ratio": 2,
        "class_token": False,
        "global_pool": "avg",
    },
    "pretrained_cfg": {
        "input_size": [3, 32, 32],
        "interpolation": "bicubic",
        "crop_pct": 1.0,
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
    },
}
OPTIONS: dict[str, Any] = {"device": "cpu", "threads": 1, "batch": 16, "lr": 1e-2, "log_every": 1, "schedule": {"warmup_epochs": 0}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of three digits, and a small model."""
    folder = tmp_path_factory.mktemp("training")
    tensors = load_file(ROOT / "assets" / "digits" / "heldout.safetensors")
    for name, first, last in (("train", 0, 16), ("val", 16, 24)):
        for digit in range(3):
            images = tensors["images"][tensors["labels"] == digit][first:last]
            directory = folder / "data" / name / str(digit)
            directory.mkdir(parents=True)
            for index, image in enumerate(images):
                Image.fromarray(image.reshape(32, 32)).save(directory / f"{index}.png")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def log(run: Path) -> list[dict[str, Any]]:
    """The steps and epochs, without the planned memory."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] != "memory"]


def weights(run: Path) -> dict[str, Any]:
    return load_file(run / "model" / "model.safetensors")


def test_a_run_learns_and_reports_its_events(folder: Path, tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    output = tmp_path / "run"
    options = {**OPTIONS, "loss": {"label_smoothing": 0.0}, "augmentation": {"crop": "none"}}
    result = hipvit.train(
        folder / "data", folder / "config.json", output=output, epochs=15, callback=events.append, **options
    )
    assert [event for event in events if event["event"] in ("step", "epoch")] == log(output)
    assert {event["event"] for event in events} == {"step", "epoch", "checkpoint"}
    assert (result.epochs, result.steps, result.skipped) == (15, 45, 0)
    first, *_, last = (event for event in events if event["event"] == "epoch")
    assert (result.loss, result.val_accuracy) == (last["loss"], last["val_accuracy"])
    assert last["loss"] < 0.8 * first["loss"]
    assert result.model == output / "model"
    assert hipvit.load(result.model, "cpu").labels == ["0", "1", "2"]


@pytest.mark.parametrize("cause", ["exception", "signal"])
def test_an_interrupted_run_is_resumed(folder: Path, tmp_path: Path, cause: str) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    hipvit.train(folder / "data", folder / "config.json", output=whole, epochs=2, **OPTIONS)

    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["step"] == 4:
            if cause == "exception":
                raise LookupError("stop")
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(LookupError if cause == "exception" else KeyboardInterrupt):
        hipvit.train(folder / "data", folder / "config.json", output=parts, epochs=2, callback=stop, **OPTIONS)
    assert (parts / "checkpoints").is_dir() and len(log(parts)) < len(log(whole))
    resumed: dict[str, Any] = {"output": parts, "resume": True, "device": "cpu", "threads": 1, "log_every": 1}
    for memory, message in (("1K", "at least"), ("much", "much")):
        with pytest.raises(hipvit.ArgumentError, match=message):
            hipvit.train(folder / "data", memory=memory, **resumed)
    result = hipvit.train(folder / "data", memory="100M", **resumed)
    assert (result.epochs, result.steps) == (2, 6)
    assert [line["step"] for line in log(parts)] == [line["step"] for line in log(whole)]
    for name, tensor in weights(whole).items():
        assert np.array_equal(weights(parts)[name], tensor), name


def test_keys_of_the_recipe_are_keyword_arguments(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    options = {**OPTIONS, "clip_norm": 0.5, "optimizer": {"betas": [0.8, 0.9]}, "lora": 2, "seed": 3, "freeze": None}
    hipvit.train(folder / "data", folder / "config.json", output=output, epochs=1, **options)
    recipe = (output / "recipe.toml").read_text()
    for line in ("clip_norm = 0.5", "betas = [0.8, 0.9]", "lr = 0.01", "rank = 2", "seed = 3", "freeze = 0"):
        assert f"\n{line}\n" in "\n" + recipe, line
    assert (output / "adapter" / "adapter_config.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"momentum": 0.9}, "momentum"),
        ({"optimizer": {"dampening": 0.9}}, "dampening"),
        ({"epochs": 0}, "epochs"),
        ({"epochs": float("nan")}, "epochs"),
        ({"holdout": 0.5}, "validation set"),
        ({"recipe": "imagenet"}, "fine-tune"),
        ({"resume": True}, "resume"),
        ({"model": None}, "model"),
    ],
)
def test_wrong_arguments(folder: Path, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    arguments = {"model": folder / "config.json", "epochs": 1, **OPTIONS, **options}
    with pytest.raises(hipvit.ArgumentError, match=message):
        hipvit.train(folder / "data", output=tmp_path / "run", **arguments)
    assert not (tmp_path / "run").exists()


def test_data_and_outputs_that_cannot_be_used(folder: Path, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"model": folder / "config.json", "epochs": 1, **OPTIONS}
    with pytest.raises(FileNotFoundError):
        hipvit.train(tmp_path / "absent", output=tmp_path / "run", **arguments)
    (tmp_path / "file").write_text("")
    with pytest.raises(hipvit.ArgumentError, match="not empty"):
        hipvit.train(folder / "data", output=tmp_path, **arguments)
    (tmp_path / "data" / "empty").mkdir(parents=True)
    with pytest.raises(hipvit.ConfigError, match="empty"):
        hipvit.train(tmp_path / "data", output=tmp_path / "run", **arguments)


def test_pairs_of_images_and_captions_train_both_towers(folder: Path, tmp_path: Path) -> None:
    """The loss falls, the epochs have the recall, and captions classify images with the model."""
    words = ["zero", "one", "two"]
    for split in ("train", "val"):
        images = sorted((folder / "data" / split).glob("*/*.png"))
        lines = [f"{image},a photo of the {words[int(image.parent.name)]}" for image in images]
        (tmp_path / f"{split}.csv").write_text("\n".join(["filepath,title", *lines]) + "\n")
    model = ROOT / "tests" / "golden" / "zero_shot" / "hf_clip"
    options = OPTIONS | {"recipe": "pairs", "augmentation": {"crop": "none"}, "lr": 5e-3}
    hipvit.train(tmp_path, model, output=tmp_path / "run", epochs=6, **options)
    epochs = [line for line in log(tmp_path / "run") if line["event"] == "epoch"]
    assert epochs[-1]["loss"] < 0.95 * epochs[0]["loss"]
    recall = epochs[-1]["recall"]
    assert recall["image_to_text_5"] == 1.0
    assert recall["image_to_text_1"] == epochs[-1]["val_accuracy"]
    labels = [f"a photo of the {word}" for word in words]
    image = folder / "data" / "val" / "1" / "0.png"
    zero_shot = hipvit.load(tmp_path / "run" / "model").zero_shot(labels)
    assert zero_shot.top(image, k=1)[0][0].label in labels
    with pytest.raises(ValueError, match="no text tower"):
        hipvit.train(tmp_path, ROOT / "assets" / "tinyvit32", output=tmp_path / "refused", **options)
