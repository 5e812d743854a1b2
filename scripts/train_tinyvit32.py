"""Trains the embedded TinyViT32 (ten digits) and its one-logit sibling (is the digit odd?), and writes assets/.

    nice venv/bin/python scripts/train_tinyvit32.py --validate   # how the recipe was chosen; writes nothing
    nice venv/bin/python scripts/train_tinyvit32.py              # trains both and writes assets/, minutes on one core

The data are scikit-learn's 1,797 handwritten digits. A stratified fifth is held out: it is never trained on
and decides nothing. The recipe, epochs included, was fixed beforehand with --validate, which splits the other four fifths
once more. The last weights are kept, whatever they score, and the held-out fifth is scored once, at the end.

Seeded: the same versions on the same kind of CPU give the same weights. assets/README.md records the figures.
"""

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from timm.data import create_transform, resolve_data_config
from timm.models import save_for_hf

ASSETS = Path(__file__).resolve().parent.parent / "assets"
SEED = 32
SIDE = 32
BATCH = 64
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


@dataclass
class Recipe:
    directory: str
    width: int
    depth: int
    heads: int
    epochs: int
    # Names of the outputs; with one name the head has one logit.
    label_names: list[str]
    label_descriptions: dict[str, str]

    @property
    def binary(self) -> bool:
        return len(self.label_names) == 1

    def targets(self, digits: torch.Tensor) -> torch.Tensor:
        return digits % 2 if self.binary else digits

    def model(self) -> torch.nn.Module:
        return timm.create_model(
            "vit_tiny_patch16_224", img_size=SIDE, patch_size=4, embed_dim=self.width, depth=self.depth,
            num_heads=self.heads, mlp_ratio=2, num_classes=len(self.label_names), class_token=False, global_pool="avg")


TEN = Recipe("tinyvit32", width=64, depth=4, heads=4, epochs=100,
             label_names=[str(digit) for digit in range(10)],
             label_descriptions={str(digit): word for digit, word in enumerate(WORDS)})
ODD = Recipe("tinyvit32_odd", width=32, depth=2, heads=2, epochs=300,
             label_names=["odd"], label_descriptions={"odd": "an odd digit"})


def render(values: np.ndarray) -> np.ndarray:
    """[8,8] of 0..16 to [32,32] u8: white ink on black, enlarged by Pillow's bicubic filter."""
    grey = np.rint(values * (255 / 16)).astype(np.uint8)
    return np.asarray(Image.fromarray(grey).resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def normalise(grey: torch.Tensor) -> torch.Tensor:
    """[N,32,32] u8 to [N,3,32,32] f32 in -1..1, grey as RGB."""
    return ((grey.float() / 255 - 0.5) / 0.5).unsqueeze(1).expand(-1, 3, -1, -1)


def augment(pixels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A small random rotation, scale, shear and shift, contrast and noise; the border is filled with black."""
    count = len(pixels)

    def uniform(limit):
        return (torch.rand(count, generator=generator) * 2 - 1) * limit

    angle, shear = uniform(math.radians(14)), uniform(0.15)
    scale_x, scale_y = torch.exp(uniform(0.14)), torch.exp(uniform(0.14))
    cos, sin = torch.cos(angle), torch.sin(angle)
    theta = torch.stack([
        torch.stack([scale_x * cos, scale_x * (shear - sin), uniform(0.16)], -1),
        torch.stack([scale_y * sin, scale_y * (cos + shear * sin), uniform(0.16)], -1)], 1)
    grid = torch.nn.functional.affine_grid(theta, [count, 3, SIDE, SIDE], align_corners=False)
    ink = torch.nn.functional.grid_sample((pixels + 1) / 2, grid, align_corners=False)
    contrast = (1 + uniform(0.15)).view(-1, 1, 1, 1)
    noise = torch.randn((count, 1, SIDE, SIDE), generator=generator) * 0.03
    return (ink * contrast + noise).clamp(0, 1) * 2 - 1


def loss_of(recipe: Recipe, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    if recipe.binary:
        smooth = targets.float() * 0.95 + 0.025
        return torch.nn.functional.binary_cross_entropy_with_logits(logits[:, 0], smooth)
    return torch.nn.functional.cross_entropy(logits, targets, label_smoothing=0.1)


def train(recipe: Recipe, pixels: torch.Tensor, digits: torch.Tensor) -> torch.nn.Module:
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    model = recipe.model().train()
    decay = [p for p in model.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if p.ndim != 2]
    optimiser = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], lr=1.5e-3, betas=(0.9, 0.98))
    targets = recipe.targets(digits)
    steps = recipe.epochs * (len(pixels) // BATCH)
    warmup = steps // 20
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / warmup, 0.5 * (1 + math.cos(math.pi * step / steps)) + 1e-3))
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.998))
    started = time.monotonic()
    for epoch in range(recipe.epochs):
        order = torch.randperm(len(pixels), generator=generator)
        total = 0.0
        batches = order[: len(order) // BATCH * BATCH].split(BATCH)
        for batch in batches:
            loss = loss_of(recipe, model(augment(pixels[batch], generator)), targets[batch])
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            average.update_parameters(model)
            total += loss.item()
        if epoch % 20 == 19:
            print(f"  epoch {epoch + 1}: training loss {total / len(batches):.4f}, {time.monotonic() - started:.0f} s", flush=True)
    model.load_state_dict(average.module.state_dict())
    return model.eval()


def right(recipe: Recipe, logits: torch.Tensor, digits: torch.Tensor) -> torch.Tensor:
    guesses = (logits[:, 0] > 0).long() if recipe.binary else logits.argmax(1)
    return guesses == recipe.targets(digits)


def save(recipe: Recipe, model: torch.nn.Module, grey: torch.Tensor, digits: torch.Tensor) -> None:
    """Writes the model directory, and the double-precision logits of the held-out images as timm's transform sees them."""
    directory = ASSETS / recipe.directory
    save_for_hf(
        model, directory, safe_serialization=True,
        model_config={"label_names": recipe.label_names, "label_descriptions": recipe.label_descriptions,
                      "pretrained_cfg": {"tag": "digits", "license": "mit or apache-2.0"}},
        data_config={"crop_pct": 1.0, "interpolation": "bicubic", "mean": (0.5,) * 3, "std": (0.5,) * 3})
    model = timm.create_model(f"local-dir:{directory}", pretrained=True).eval()
    transform = create_transform(**resolve_data_config(model=model), is_training=False)
    pixels = torch.stack([transform(Image.fromarray(image.numpy()).convert("RGB")) for image in grey])
    assert (pixels - normalise(grey)).abs().max() < 1e-6, "timm's transform must leave a 32x32 image as it is"
    with torch.no_grad():
        single, double = model(pixels), model.double()(pixels.double())
    save_file({"logits": double}, directory / "golden.safetensors")
    for name, logits in (("f32", single), ("f64", double)):
        hits = right(recipe, logits, digits)
        print(f"  held out, {name}: {int(hits.sum())} of {len(hits)} right ({hits.float().mean():.4%})")
    # The smallest margin between the two best classes must exceed another implementation's rounding errors.
    margins = double[:, 0].abs() if recipe.binary else double.topk(2).values.diff(dim=1).abs()[:, 0]
    wrong = [index for index, hit in enumerate(hits.tolist()) if not hit]
    print(f"  smallest margin {margins.min():.4f}, f32 off by {(single.double() - double).abs().max():.2e}, wrong: {wrong}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--validate", action="store_true", help="train on 4/5 of the training part, score the rest of it")
    parser.add_argument("--only", choices=[TEN.directory, ODD.directory])
    arguments = parser.parse_args()
    # Use one thread, so that the order of sums does not depend on the machine's cores.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

    data = load_digits()
    grey = torch.from_numpy(np.stack([render(image) for image in data.images]))
    digits = torch.from_numpy(data.target).long()
    train_part, held_out = train_test_split(np.arange(len(digits)), test_size=0.2, stratify=digits, random_state=SEED)
    recipes = [recipe for recipe in (TEN, ODD) if arguments.only in (None, recipe.directory)]

    if arguments.validate:
        fit, check = train_test_split(train_part, test_size=0.2, stratify=digits[train_part], random_state=SEED)
        for recipe in recipes:
            print(f"{recipe.directory}: {len(fit)} images to fit, {len(check)} of the training part to check")
            model = train(recipe, normalise(grey[fit]), digits[fit])
            with torch.no_grad():
                hits = right(recipe, model(normalise(grey[check])), digits[check])
            print(f"  validation: {int(hits.sum())} of {len(hits)} right ({hits.float().mean():.4%})")
        return

    for recipe in recipes:
        print(f"{recipe.directory}: {len(train_part)} images to train on, {len(held_out)} held out")
        model = train(recipe, normalise(grey[train_part]), digits[train_part])
        save(recipe, model, grey[held_out], digits[held_out])
        weights = ASSETS / recipe.directory / "model.safetensors"
        print(f"  {sum(p.numel() for p in model.parameters()):,} parameters, {weights.stat().st_size:,} bytes")

    (ASSETS / "digits").mkdir(parents=True, exist_ok=True)
    (ASSETS / "samples").mkdir(parents=True, exist_ok=True)
    save_file({"images": grey[held_out], "labels": digits[held_out].to(torch.uint8),
               "indices": torch.from_numpy(held_out).to(torch.int32)}, ASSETS / "digits" / "heldout.safetensors")
    # One sample per digit: the first in the held-out order, right or wrong.
    for digit in range(10):
        index = held_out[int((digits[held_out] == digit).nonzero()[0])]
        Image.fromarray(grey[index].numpy()).convert("RGB").save(ASSETS / "samples" / f"{digit}.png", optimize=True)


if __name__ == "__main__":
    main()
