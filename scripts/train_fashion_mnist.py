"""Trains a ViT-Ti/4 on Fashion-MNIST, and writes it beside the test and calibration images that benches/accuracy_8bit.py takes.

    apt-get download dataset-fashion-mnist && dpkg -x dataset-fashion-mnist_*.deb data
    venv/bin/python scripts/train_fashion_mnist.py data/usr/share/datasets/fashion-mnist -o fashion   # minutes on a GPU

fashion/model is a directory as timm writes it: timm's VisionTransformer with ViT-Ti's width, depth and heads for 28x28 pixels in
patches of 4. fashion/test.safetensors has the 10,000 test images and fashion/calibration.safetensors 256 of the training images, as
`hipvit eval` takes them. Nothing of it is committed.

The data are Zalando's Fashion-MNIST, MIT licence: 60,000 images to train on, 10,000 to test with. The test images decide nothing:
the last averaged weights are kept, whatever they score.

Seeded: the same versions on the same kind of device give the same weights.
"""

import argparse
import gzip
import math
import os
import time
from pathlib import Path

# cuBLAS is deterministic with a workspace of fixed size.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import numpy as np
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from timm.data import create_transform, resolve_data_config
from timm.models import save_for_hf

SEED = 28
SIDE = 28
BATCH = 1024
SHIFT = 2
CALIBRATION = 256
LABELS = ["T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"]


def read_idx(file: Path) -> torch.Tensor:
    """A u8 array in IDX: two zero bytes, the type (8), the number of dimensions, each dimension as a big-endian u32, the values."""
    data = gzip.decompress(file.read_bytes())
    if data[:3] != b"\0\0\x08":
        raise SystemExit(f"{file}: not an IDX file of u8")
    header = 4 + 4 * data[3]
    shape = np.frombuffer(data[4:header], ">u4").astype(int).tolist()
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=header).reshape(shape).copy())


def read(folder: Path, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images u8 [N,28,28] and labels u8 [N]."""
    return read_idx(folder / f"{part}-images-idx3-ubyte.gz"), read_idx(folder / f"{part}-labels-idx1-ubyte.gz")


def normalise(grey: torch.Tensor) -> torch.Tensor:
    """[N,28,28] u8 to [N,3,28,28] f32 in -1..1, grey as RGB."""
    return ((grey.float() / 255 - 0.5) / 0.5).unsqueeze(1).expand(-1, 3, -1, -1)


def augment(grey: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each image shifted by up to SHIFT pixels in both directions over black, and mirrored or not."""
    count, device = len(grey), grey.device
    padded = torch.nn.functional.pad(grey, (SHIFT,) * 4)
    start = torch.randint(2 * SHIFT + 1, (2, count, 1), generator=generator, device=device)
    rows, columns = start + torch.arange(SIDE, device=device)
    mirrored = torch.rand((count, 1), generator=generator, device=device) < 0.5
    columns = torch.where(mirrored, columns.flip(1), columns)
    image = torch.arange(count, device=device).view(-1, 1, 1)
    return padded[image, rows[:, :, None], columns[:, None, :]]


def create(depth: int) -> torch.nn.Module:
    return timm.create_model(
        "vit_tiny_patch16_224", img_size=SIDE, patch_size=4, depth=depth, num_classes=len(LABELS), drop_path_rate=0.1)


def train(depth: int, epochs: int, grey: torch.Tensor, labels: torch.Tensor) -> torch.nn.Module:
    device = grey.device
    torch.manual_seed(SEED)
    generator = torch.Generator(device).manual_seed(SEED)
    model = create(depth).to(device).train()
    decay = [p for p in model.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if p.ndim != 2]
    optimiser = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], lr=1.5e-3, betas=(0.9, 0.98))
    each = len(grey) // BATCH
    steps = epochs * each
    warmup = max(steps // 20, 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / warmup, 0.5 * (1 + math.cos(math.pi * step / steps)) + 1e-3))
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.998))
    started = time.monotonic()
    for epoch in range(epochs):
        order = torch.randperm(len(grey), generator=generator, device=device)
        total = torch.zeros((), device=device)
        for batch in order[: each * BATCH].split(BATCH):
            with torch.autocast(device.type, torch.bfloat16):
                logits = model(normalise(augment(grey[batch], generator)))
            loss = torch.nn.functional.cross_entropy(logits.float(), labels[batch], label_smoothing=0.1)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            average.update_parameters(model)
            total += loss.detach()
        print(f"  epoch {epoch + 1}: training loss {total.item() / each:.4f}, {time.monotonic() - started:.0f} s", flush=True)
    model.load_state_dict(average.module.state_dict())
    return model.eval()


def save(directory: Path, model: torch.nn.Module, grey: torch.Tensor, labels: torch.Tensor) -> None:
    """Writes the model's directory, and prints how many test images the model classifies correctly as timm loads it again."""
    save_for_hf(
        model.cpu(), directory, safe_serialization=True,
        model_config={"label_names": LABELS, "pretrained_cfg": {"tag": "fashion_mnist", "license": "mit"}},
        data_config={"crop_pct": 1.0, "interpolation": "bicubic", "mean": (0.5,) * 3, "std": (0.5,) * 3})
    model = timm.create_model(f"local-dir:{directory}", pretrained=True).eval()
    transform = create_transform(**resolve_data_config(model=model), is_training=False)
    pixels = torch.stack([transform(Image.fromarray(image.numpy()).convert("RGB")) for image in grey[:64].cpu()])
    assert (pixels - normalise(grey[:64].cpu())).abs().max() < 1e-6, "timm's transform must leave a 28x28 image as it is"
    model = model.to(grey.device)
    with torch.no_grad():
        hits = torch.cat([model(normalise(images)).argmax(1) for images in grey.split(1000)]) == labels
    print(f"  test: {int(hits.sum())} of {len(hits)} classified correctly ({hits.float().mean():.2%})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", type=Path, help="the folder with the dataset's four .gz files")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=40)
    arguments = parser.parse_args()
    torch.use_deterministic_algorithms(True)

    device = torch.device(arguments.device)
    (grey, labels), (test_grey, test_labels) = (read(arguments.data, part) for part in ("train", "t10k"))
    arguments.output.mkdir(parents=True, exist_ok=True)
    save_file({"images": test_grey, "labels": test_labels}, arguments.output / "test.safetensors")
    some = torch.randperm(len(grey), generator=torch.Generator().manual_seed(SEED))[:CALIBRATION]
    save_file({"images": grey[some], "labels": labels[some]}, arguments.output / "calibration.safetensors")

    print(f"{len(grey)} images to train on, {len(test_grey)} to test with; timm {timm.__version__}, PyTorch {torch.__version__}, {device}")
    model = train(arguments.depth, arguments.epochs, grey.to(device), labels.long().to(device))
    save(arguments.output / "model", model, test_grey.to(device), test_labels.to(device))
    print(f"  {sum(p.numel() for p in model.parameters()):,} parameters")


if __name__ == "__main__":
    main()
