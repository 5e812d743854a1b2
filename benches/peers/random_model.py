"""Writes model directories as timm saves them, with random weights, to time models where none can be fetched:

    python3 benches/peers/random_model.py models vit_small_patch16_224 vit_base_patch16_224 vit_large_patch16_224

Needs numpy and safetensors. The same seed gives the same bytes.
"""

import argparse
import json
from pathlib import Path

# Channels, blocks, heads.
MODELS = {
    "vit_tiny_patch16_224": (192, 12, 3),
    "vit_small_patch16_224": (384, 12, 6),
    "vit_base_patch16_224": (768, 12, 12),
    "vit_large_patch16_224": (1024, 24, 16),
}
SIZE, PATCH, CLASSES = 224, 16, 1000


def weights(channels: int, blocks: int, seed: int) -> dict:
    """timm's tensors by name."""
    import numpy

    random = numpy.random.default_rng(seed)

    def normal(*shape: int, deviation: float = 0.02):
        return random.standard_normal(shape, dtype=numpy.float32) * numpy.float32(deviation)

    tokens = (SIZE // PATCH) ** 2 + 1
    tensors = {
        "cls_token": normal(1, 1, channels),
        "pos_embed": normal(1, tokens, channels),
        "patch_embed.proj.weight": normal(channels, 3, PATCH, PATCH),
        "patch_embed.proj.bias": normal(channels),
    }

    def norm(name: str) -> None:
        tensors[f"{name}.weight"] = 1 + normal(channels)
        tensors[f"{name}.bias"] = normal(channels)

    def linear(name: str, outputs: int, inputs: int, deviation: float = 0.02) -> None:
        tensors[f"{name}.weight"] = normal(outputs, inputs, deviation=deviation)
        tensors[f"{name}.bias"] = normal(outputs)

    for block in range(blocks):
        at = f"blocks.{block}"
        norm(f"{at}.norm1")
        linear(f"{at}.attn.qkv", 3 * channels, channels)
        linear(f"{at}.attn.proj", channels, channels)
        norm(f"{at}.norm2")
        linear(f"{at}.mlp.fc1", 4 * channels, channels)
        linear(f"{at}.mlp.fc2", channels, 4 * channels)
    norm("norm")
    # Ten times timm's deviation gives logits of a few units, so that a tolerance is meaningful.
    linear("head", CLASSES, channels, deviation=0.2)
    return tensors


def write(directory: Path, architecture: str, seed: int = 16) -> None:
    from safetensors.numpy import save_file

    channels, blocks, _ = MODELS[architecture]
    directory.mkdir(parents=True, exist_ok=True)
    save_file(weights(channels, blocks, seed), directory / "model.safetensors", metadata={"format": "pt"})
    pretrained = {
        "input_size": [3, SIZE, SIZE],
        "fixed_input_size": True,
        "interpolation": "bicubic",
        "crop_pct": 0.9,
        "crop_mode": "center",
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
        "num_classes": CLASSES,
        "first_conv": "patch_embed.proj",
        "classifier": "head",
    }
    config = {
        "architecture": architecture,
        "num_classes": CLASSES,
        "num_features": channels,
        "global_pool": "token",
        "pretrained_cfg": pretrained,
    }
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("folder", type=Path, help="the folder that gets a directory for each model")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)} (default: all but the first)")
    parser.add_argument("--seed", type=int, default=16)
    arguments = parser.parse_args()
    models = arguments.models or list(MODELS)[1:]
    for model in models:
        if model not in MODELS:
            parser.error(f"{model} is not one of {', '.join(MODELS)}")
    for model in models:
        write(arguments.folder / model, model, arguments.seed)
        print(arguments.folder / model)


if __name__ == "__main__":
    main()
