"""Writes tests/golden/wrapped: models of timm as transformers' wrapper saves them, with the wrapper's pixel values and double-precision
outputs of tests/golden/images/small.png:

    venv/bin/pip install -r scripts/requirements.txt
    venv/bin/python scripts/golden_wrapped.py

See also: goldens.py, for models as timm saves them.
"""

import shutil
from pathlib import Path

import torch
import transformers as hf
from PIL import Image
from safetensors.torch import save_file
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from golden_weights import randomise

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
DIRECTORY = GOLDEN / "wrapped"
SIZES = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 1, "num_heads": 2}
CFG = {"input_size": [3, 32, 32], "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.25, 0.3], "interpolation": "bicubic", "crop_pct": 0.9}


def run(name: str, model_class: type, processor=None, **config) -> None:
    directory = DIRECTORY / name
    shutil.rmtree(directory, ignore_errors=True)
    config = hf.TimmWrapperConfig(architecture="vit_tiny_patch16_224", model_args=SIZES, num_labels=5, **config)
    model = model_class(config)
    randomise(model, name)
    model.save_pretrained(directory)
    if processor:
        processor.save_pretrained(directory)
    model = model_class.from_pretrained(directory, dtype=torch.float64).eval()
    image = Image.open(GOLDEN / "images" / "small.png").convert("RGB")
    made = hf.AutoImageProcessor.from_pretrained(directory, **({"backend": "pil"} if processor else {}))
    pixels = made(image, return_tensors="pt").pixel_values
    with torch.no_grad():
        result = model(pixels.double())
    output = result.logits if model_class is hf.TimmWrapperForImageClassification else result.pooler_output
    save_file({"pixel_values": pixels.contiguous(), "output": output}, directory / "golden.safetensors")
    print(name, type(made).__name__, tuple(pixels.shape), output[0, :3])


if __name__ == "__main__":
    run("classifier", hf.TimmWrapperForImageClassification, pretrained_cfg=CFG)
    run("model", hf.TimmWrapperModel, pretrained_cfg=CFG)
    run("processor", hf.TimmWrapperForImageClassification,
        ViTImageProcessorPil(size={"height": 32, "width": 32}, image_mean=[0.3, 0.4, 0.5]))
