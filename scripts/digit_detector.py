"""Writes a small RT-DETR with random weights for the scenes of scripts/digit_scenes.py, for `hipvit train`:

    python scripts/digits_folder.py digits
    python scripts/digit_scenes.py scenes --digits digits --scenes 10000
    python scripts/digit_detector.py scenes detector

The means and variances of its batch norms, which training does not change, are those of 64 training images. Needs torch, transformers and Pillow.
"""

import argparse
import json
from pathlib import Path

import torch
import transformers as hf
from PIL import Image
from transformers.models.rt_detr.image_processing_pil_rt_detr import RTDetrImageProcessorPil

from small_recipe import RECIPE

IMAGES = 64


def detector() -> hf.RTDetrForObjectDetection:
    backbone = hf.RTDetrResNetConfig(embedding_size=32, hidden_sizes=[32, 64, 96, 128], depths=[1, 1, 1, 1], layer_type="basic",
                                     out_features=["stage2", "stage3", "stage4"])
    return hf.RTDetrForObjectDetection(hf.RTDetrConfig(
        backbone_config=backbone, freeze_backbone_batch_norms=False, encoder_in_channels=[64, 96, 128], encoder_hidden_dim=64,
        encoder_ffn_dim=128, encoder_attention_heads=4, d_model=64, decoder_in_channels=[64, 64, 64], decoder_ffn_dim=128, decoder_layers=2,
        decoder_attention_heads=4, hidden_expansion=0.5, num_queries=10, num_denoising=0, id2label={index: str(index) for index in range(10)}))


@torch.no_grad()
def measure_norms(model: torch.nn.Module, pixel_values: torch.Tensor) -> None:
    """Sets the means and variances of batch norms to those of the images, from the first to the last."""

    def measured(module: torch.nn.Module, inputs: tuple) -> None:
        module.running_mean.copy_(inputs[0].mean((0, 2, 3)))
        module.running_var.copy_(inputs[0].var((0, 2, 3)))

    norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    hooks = [norm.register_forward_pre_hook(measured) for norm in norms]
    model(pixel_values)
    for hook in hooks:
        hook.remove()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("scenes", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    train = arguments.scenes / "data" / "train"
    rows = [json.loads(line) for line in (train / "metadata.jsonl").read_text().splitlines()[:IMAGES]]
    images = [Image.open(train / row["file_name"]).convert("RGB") for row in rows]
    processor = RTDetrImageProcessorPil(size={"height": images[0].height, "width": images[0].width})
    model = detector().eval()
    measure_norms(model, processor(images=images, return_tensors="pt")["pixel_values"])
    model.save_pretrained(arguments.folder)
    processor.save_pretrained(arguments.folder)
    every = max(1, arguments.epochs // 5)
    (arguments.folder / "recipe.toml").write_text(RECIPE.format(lr="5e-4", clip_norm=0.1, epochs=arguments.epochs, every=every))
    print(f"{arguments.folder}: {sum(parameter.numel() for parameter in model.parameters()):,} parameters")


if __name__ == "__main__":
    main()
