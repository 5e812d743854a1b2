"""Writes the handwritten digits of TinyViT32 as a dataset for `hipvit train`: class folders of PNGs in DIR/train and DIR/val.

    python scripts/digits_folder.py digits

The images are scikit-learn's. DIR/val has the held-out fifth of assets/digits/heldout.safetensors, DIR/train the others.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import load_file
from sklearn.datasets import load_digits

ROOT = Path(__file__).resolve().parent.parent
SIDE = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    held_out = set(load_file(ROOT / "assets/digits/heldout.safetensors")["indices"].tolist())
    data = load_digits()
    for index, (values, digit) in enumerate(zip(data.images, data.target)):
        folder = directory / ("val" if index in held_out else "train") / str(digit)
        folder.mkdir(parents=True, exist_ok=True)
        grey = np.rint(values * (255 / 16)).astype(np.uint8)
        image = Image.fromarray(grey).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        image.convert("RGB").save(folder / f"{index:04}.png")
    print(f"{directory}: {len(data.images) - len(held_out)} images in train, {len(held_out)} in val")


if __name__ == "__main__":
    main()
