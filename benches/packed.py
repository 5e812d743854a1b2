"""Images per second of packed and of padded batches, for a mix of aspect ratios.

    venv/bin/python benches/packed.py --hipvit target/release/hipvit [--device hip --dtype bf16]

The model is transformers' SigLIP 2 with NaFlex, as large as ViT-S/16, with random weights and at most 64 patches per image.
`padded` is hipvit without --packed: each image takes all patches. `packed N` has sequences of N patches. A time is the
difference between runs on all images and on half of them, without the time to load. Each is the least of several runs, in
turns. Needs the packages of scripts/requirements.txt.
"""

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import transformers as hf
from PIL import Image
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

# Width and height.
SIZES = [(400, 300), (300, 400), (480, 270), (300, 300), (600, 200), (210, 297), (640, 160), (100, 900)]


def write_model(directory: Path, patches: int) -> None:
    torch.manual_seed(0)
    config = hf.Siglip2VisionConfig(hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536)
    hf.Siglip2VisionModel(config).save_pretrained(directory)
    Siglip2ImageProcessorPil(patch_size=16, max_num_patches=patches).save_pretrained(directory)


def write_images(directory: Path, count: int) -> list[Path]:
    generator, paths = np.random.default_rng(0), []
    for index in range(count):
        width, height = SIZES[index % len(SIZES)]
        small = Image.fromarray(generator.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        paths.append(directory / f"{index}.png")
        small.resize((width, height), Image.Resampling.BICUBIC).save(paths[-1])
    return paths


def seconds(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--hipvit", default="target/release/hipvit")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--patches", type=int, default=64, help="maximum of an image")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    forms = {"padded": []} | {f"packed {n}": ["--packed", str(n)] for n in (options.patches, 4 * options.patches, 16 * options.patches)}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model")
        write_model(model, options.patches)
        images = write_images(Path(folder), options.images)
        least: dict[tuple[str, int], float] = {}
        for _ in range(options.runs):
            for name, arguments in forms.items():
                for count in (options.images // 2, options.images):
                    command = [options.hipvit, "embed", *map(str, images[:count]), "--model", str(model), "--quiet", "--device",
                               options.device, "--dtype", options.dtype, "--batch", "32", "--format", "csv", *arguments]
                    least[name, count] = min(least.get((name, count), float("inf")), seconds(command))
    for name in forms:
        took = least[name, options.images] - least[name, options.images // 2]
        print(f"| {name} | {options.images // 2 / took:.1f} |")


if __name__ == "__main__":
    main()
