"""``hipvit.torch.TrainableModel`` beside the modules of timm and transformers. Skipped where torch is not installed."""

from __future__ import annotations

import copy
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN

import hipvit

torch: Any = pytest.importorskip("torch")
functional: Any = pytest.importorskip("torch.nn.functional")

IMAGES = 3
# Two orders of summation in float32.
TOLERANCE = 2e-5


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other would fill the cores that hipvit computes on."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def trainable(name: str = "timm_vit_class_token", **options: Any) -> Any:
    from hipvit.torch import TrainableModel

    return TrainableModel(GOLDEN / name, device="cpu", threads=1, **options)


def reference(name: str) -> Any:
    """The library's own module with the weights of the checkpoint."""
    if name.startswith("hf_"):
        transformers = pytest.importorskip("transformers")
        return transformers.AutoModelForImageClassification.from_pretrained(GOLDEN / name)
    timm = pytest.importorskip("timm")
    return timm.create_model(f"local-dir:{GOLDEN / name}", pretrained=True)


def batch(model: Any, seed: int = 0) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    height, width = model._engine.image_size
    images = torch.randn(IMAGES, 3, height, width, generator=generator)
    return images, torch.arange(IMAGES) % model._engine.num_classes


def logits_of(module: Any, images: Any) -> Any:
    result = module(images)
    return result if isinstance(result, torch.Tensor) else result.logits


def assert_close(ours: Any, theirs: Any, what: str, scale: float = 1.0) -> None:
    bound = TOLERANCE * (scale + theirs.abs().max().item())
    assert ours.shape == theirs.shape, what
    assert (ours - theirs).abs().max().item() <= bound, what


def counterparts(ours: Any, theirs: Any) -> dict[str, Any]:
    """The library's parameter for each of ours. Newer versions of transformers rename those of older files."""
    known = dict(theirs.named_parameters())

    def find(name: str, parameter: Any) -> Any:
        if name in known:
            return known[name]
        (same,) = (x for x in known.values() if x.shape == parameter.shape and torch.equal(x, parameter))
        return same

    found = {name: find(name, parameter) for name, parameter in ours.named_parameters()}
    assert len({id(x) for x in found.values()}) == len(known) == len(found)
    return found


@pytest.mark.parametrize("name", ["timm_vit_class_token", "timm_vit_pre_norm_layer_scale", "hf_vit"])
def test_logits_and_gradients_are_those_of_the_library(name: str) -> None:
    ours, theirs = trainable(name), reference(name).eval()
    found = counterparts(ours, theirs)
    if name.startswith("timm_"):
        assert set(ours.state_dict()) == set(theirs.state_dict())
    images, labels = batch(ours)
    results = []
    for module in (ours, theirs):
        logits = logits_of(module, images)
        functional.cross_entropy(logits, labels).backward()
        results.append(logits.detach())
    assert_close(results[0], results[1], "logits")
    norm = sum(x.grad.square().sum() for x in found.values()).sqrt().item()
    for key, parameter in ours.named_parameters():
        assert_close(parameter.grad, found[key].grad, key, norm)


def test_steps_of_sgd_are_those_of_the_library(tmp_path: Path) -> None:
    ours, theirs = trainable(), reference("timm_vit_class_token").train()
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9) for module in (ours, theirs)]
    for step in range(3):
        images, labels = batch(ours, step)
        losses = []
        for module, optimizer in zip((ours, theirs), optimizers):
            optimizer.zero_grad()
            loss = functional.cross_entropy(module(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert abs(losses[0] - losses[1]) <= 10 * TOLERANCE * losses[1]
    state = theirs.state_dict()
    for key, parameter in ours.state_dict().items():
        assert_close(parameter, state[key], key)
    ours.save(tmp_path / "trained")
    images, _ = batch(ours)
    saved = hipvit.load(tmp_path / "trained", "cpu", input="pixel_values")
    assert_close(torch.from_numpy(saved(images.numpy())), ours(images).detach(), "saved")


def test_pixels_are_normalised_by_the_model() -> None:
    values, pixels = trainable(), trainable(input="images")
    height, width = values._engine.image_size
    images = np.random.default_rng(0).integers(0, 256, (IMAGES, height, width, 3), np.uint8)
    config = json.loads((GOLDEN / "timm_vit_class_token" / "config.json").read_text())["pretrained_cfg"]
    mean, std = (torch.tensor(config[key]) for key in ("mean", "std"))
    tensor = torch.from_numpy(images)
    normalised = ((tensor / 255 - mean) / std).permute(0, 3, 1, 2)
    assert_close(pixels(tensor), values(normalised).detach(), "logits")


def test_new_models_have_new_classifiers() -> None:
    from hipvit.torch import TrainableModel

    tuned = trainable(classes=["a", "b", "c"])
    assert tuned.head.weight.shape[0] == 3
    original = trainable()
    assert torch.equal(tuned.blocks.get_submodule("0").norm1.weight, original.blocks.get_submodule("0").norm1.weight)
    new = TrainableModel("vit_tiny_patch16_224", classes=2, image_size=32, device="cpu", threads=1)
    assert new(torch.zeros(1, 3, 32, 32)).shape == (1, 2)
    with pytest.raises(hipvit.ArgumentError, match="classes"):
        TrainableModel("vit_tiny_patch16_224", device="cpu")


def test_a_loss_for_labels_and_frozen_parameters() -> None:
    model = trainable()
    images, labels = batch(model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith("head."))
    result = model(pixel_values=images, labels=labels)
    assert torch.equal(result["loss"], functional.cross_entropy(result["logits"], labels))
    result["loss"].backward()
    assert {name for name, parameter in model.named_parameters() if parameter.grad is not None} == {"head.weight", "head.bias"}
    with torch.no_grad():
        assert not model(images).requires_grad


def test_copies_and_dtypes_of_parameters() -> None:
    model = trainable()
    images, labels = batch(model)
    average = copy.deepcopy(model)
    with torch.no_grad():
        model.head.bias += 1.0
    assert_close(model(images), average(images).detach() + 1.0, "logits")
    half = copy.deepcopy(model).to(torch.bfloat16)
    functional.cross_entropy(half(images), labels).backward()
    assert all(parameter.grad.dtype == torch.bfloat16 for parameter in half.parameters())


def test_wrong_images_are_refused() -> None:
    model = trainable()
    images, _ = batch(model)
    with pytest.raises(hipvit.ArgumentError, match="images"):
        model(images[:, :, 1:])
    with pytest.raises(hipvit.ArgumentError, match="gradient"):
        model(images.requires_grad_())


def test_the_profiler_shows_both_passes() -> None:
    model = trainable()
    images, labels = batch(model)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        functional.cross_entropy(model(images), labels).backward()
    names = {event.key for event in profile.key_averages()}
    assert {"hipvit forward", "hipvit backward"} <= names


class Examples(torch.utils.data.Dataset):
    """Examples as transformers' Trainer takes them."""

    def __init__(self, images: Any, labels: Any) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"pixel_values": self.images[index], "labels": self.labels[index]}


def test_the_trainer_of_transformers_drives_it(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    losses = []
    ours = trainable("hf_vit")
    for module in (ours, reference("hf_vit")):
        arguments = transformers.TrainingArguments(
            str(tmp_path / "run"),
            max_steps=3,
            per_device_train_batch_size=IMAGES,
            learning_rate=1e-3,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(module, arguments, train_dataset=Examples(*batch(ours)))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            trainer.train()
        passes = {"hipvit forward": 3, "hipvit backward": 3} if module is ours else {}
        assert {event.key: event.count for event in profile.key_averages() if event.key.startswith("hipvit")} == passes
        losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert len(losses[0]) == 3 and losses[0][2] < losses[0][0]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


def test_lightning_drives_it(tmp_path: Path) -> None:
    lightning: Any = pytest.importorskip("lightning")

    class Classifier(lightning.LightningModule):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model
            self.losses: list[float] = []

        def training_step(self, batch: dict[str, Any], _: int) -> Any:
            logits = self.model(batch["pixel_values"])
            loss = functional.cross_entropy(getattr(logits, "logits", logits), batch["labels"])
            self.losses.append(float(loss.detach()))
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    losses = []
    ours = trainable("hf_vit")
    for module in (ours, reference("hf_vit")):
        classifier = Classifier(module)
        trainer = lightning.Trainer(
            max_steps=3,
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
        )
        loader = torch.utils.data.DataLoader(Examples(*batch(ours)), batch_size=IMAGES)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            trainer.fit(classifier, loader)
        losses.append(classifier.losses)
        passes = {"hipvit forward": 3, "hipvit backward": 3} if module is ours else {}
        assert {event.key: event.count for event in profile.key_averages() if event.key.startswith("hipvit")} == passes
    assert len(losses[0]) == 3 and losses[0][2] < losses[0][0]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def run_rank(rank: int, port: int, folder: str) -> None:
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    model = trainable()
    images, labels = batch(model)
    images, labels = torch.cat([images, -images]), torch.cat([labels, labels])
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    half = slice(IMAGES * rank, IMAGES * (rank + 1))
    functional.cross_entropy(parallel(images[half]), labels[half]).backward()
    optimizer.step()
    torch.save(model.state_dict(), Path(folder) / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    if not torch.distributed.is_available():
        pytest.skip("torch has no torch.distributed")
    torch.multiprocessing.spawn(run_rank, args=(free_port(), str(tmp_path)), nprocs=2)
    model = trainable()
    images, labels = batch(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    functional.cross_entropy(model(torch.cat([images, -images])), torch.cat([labels, labels])).backward()
    optimizer.step()
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for key, parameter in model.state_dict().items():
        assert torch.equal(first[key], second[key]), key
        assert_close(first[key], parameter, key)
