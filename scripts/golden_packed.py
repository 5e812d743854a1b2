"""Writes tests/golden/packed: what timm's NaFlexViT makes of images of several aspect ratios in one batch, for the models of
goldens.py.

    venv/bin/python scripts/golden_packed.py

Images come from timm's evaluation transform for NaFlex, in a batch of timm's collator. `output` is the model's in double
precision. The first case also has the `patches`. golden_naflex.py does this for SigLIP 2 of transformers.
"""

import json

import timm
import torch
from PIL import Image
from timm.data import create_transform, resolve_data_config
from timm.data.naflex_dataset import NaFlexCollator

from golden_naflex import IMAGES
from golden_outputs import save_golden
from golden_zero_shot import GOLDEN

DIRECTORY = GOLDEN / "packed"
CASES = ["timm_naflex", "timm_naflex_factorized", "timm_naflex_siglip", "timm_naflex_radio"]


@torch.no_grad()
def run(name: str, images: list) -> dict:
    model = timm.create_model(f"local-dir:{GOLDEN / name}", pretrained=True).eval()
    data = resolve_data_config({}, model=model)
    patch = model.embeds.patch_size[0]
    most = (data["input_size"][1] // patch) * (data["input_size"][2] // patch)
    transform = create_transform(**data, is_training=False, naflex=True, patch_size=patch, max_seq_len=most, patchify=True)
    batch, _ = NaFlexCollator(max_seq_len=most)([(transform(image), 0) for image in images])
    grids = (batch["patch_coord"].amax(1) + 1).tolist()
    assert len(set(map(tuple, grids))) > 3, f"{name}: {grids}"
    valid = batch["patch_valid"]
    model.double()

    def output() -> torch.Tensor:
        return model({**batch, "patches": batch["patches"].double()})

    made = output()
    # Padded patches must not matter.
    noisy = batch["patches"].clone()
    noisy[~valid] = 3.0
    batch, kept = {**batch, "patches": noisy}, batch
    assert torch.allclose(output(), made, atol=1e-9), f"{name}: padding matters"
    patches = {"patches": kept["patches"]} if name == CASES[0] else {}
    save_golden({"output": made} | patches, DIRECTORY / f"{name}.safetensors")
    print(f"{name:24} max {float(made.abs().max()):5.2f}  grids {grids} of {most}")
    return {
        "name": name, "output": "logits" if model.num_classes else "embedding", "grids": grids, "max_num_patches": most,
        "timm": timm.__version__,
    }


def main() -> None:
    torch.set_num_threads(1)
    DIRECTORY.mkdir(exist_ok=True)
    images = [Image.open(GOLDEN / "naflex" / image).convert("RGB") for image in IMAGES]
    cases = [run(name, images) for name in CASES]
    text = json.dumps({"images": IMAGES, "cases": cases}, indent=2)
    (DIRECTORY / "golden.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
