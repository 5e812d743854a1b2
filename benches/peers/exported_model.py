"""Writes directories of timm's architectures with random weights, each with the model exported to ONNX:

    python3 benches/peers/exported_model.py models resnet50 convnext_tiny swin_tiny_patch4_window7_224 vit_base_patch16_224

`benches/peers` then times hipvit on model.onnx, and the others on the weights. Needs timm, onnx and onnxscript.
"""

import argparse
import json
import sys
import warnings
from pathlib import Path

import timm
import torch
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from onnx_models import calibrate, disturb, random_inputs  # noqa: E402


def write(directory: Path, architecture: str, exporter: str) -> None:
    torch.manual_seed(16)
    model = timm.create_model(architecture).eval()
    config = {**model.pretrained_cfg, "num_classes": model.num_classes}
    disturb(model, architecture)
    inputs = random_inputs({"pixels": config["input_size"]})(2)
    calibrate(model, inputs)
    directory.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, directory / "model.safetensors")
    kept = ["input_size", "fixed_input_size", "interpolation", "crop_pct", "crop_mode", "mean", "std", "num_classes", "first_conv", "classifier"]
    written = {
        "architecture": architecture,
        "num_classes": model.num_classes,
        "num_features": model.num_features,
        "pretrained_cfg": {name: config[name] for name in kept if name in config},
    }
    (directory / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    batch = {0: torch.export.Dim("batch", min=1, max=4096)} if exporter == "dynamo" else {0: "batch"}
    axes = {"dynamic_shapes": (batch,)} if exporter == "dynamo" else {"dynamic_axes": {"pixels": batch, "logits": batch}}
    with warnings.catch_warnings(), torch.inference_mode(exporter != "dynamo"):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (inputs["pixels"],), str(directory / "model.onnx"), input_names=["pixels"], output_names=["logits"],
            dynamo=exporter == "dynamo", external_data=False, **axes,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("folder", type=Path, help="the folder that gets a directory for each model")
    parser.add_argument("models", nargs="+", metavar="ARCHITECTURE", help="timm's names")
    parser.add_argument("--exporter", choices=["dynamo", "torchscript"], default="dynamo")
    arguments = parser.parse_args()
    for model in arguments.models:
        write(arguments.folder / model, model, arguments.exporter)
        print(arguments.folder / model)


if __name__ == "__main__":
    main()
