"""Writes tests/golden/depth: small models of transformers that estimate depth, with random weights, and the depth maps of the library in
double precision.

    venv/bin/python scripts/golden_depth.py

See also: goldens.py, and tests/golden/README.md for the files.
"""

import json
import shutil
import warnings
from pathlib import Path

import torch
import transformers as hf
from PIL import Image
from transformers.models.depth_anything import modeling_depth_anything
from transformers.models.dpt import modeling_dpt
from transformers.models.dpt.image_processing_pil_dpt import DPTImageProcessorPil

from golden_outputs import save_golden
from golden_weights import randomise, silent_tensors

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
DIRECTORY = GOLDEN / "depth"
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
NECK = {"neck_hidden_sizes": [4, 6, 8, 10], "fusion_hidden_size": 8}
THREE = {"neck_hidden_sizes": [4, 6, 8]}
VIT = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "patch_size": 8, "image_size": 32}
IMAGES = ["wide.png", "tall.png", "small.png"]
# The first fusion layer has one input, so that its first residual unit has no part in the result. The mask token is for pre-training, and the
# class token's norm ends DPT's own encoder, whose result is not read.
UNUSED = ("neck.fusion_stage.layers.0.residual_layer1.", "backbone.embeddings.mask_token", "dpt.layernorm.", "key.bias", "k_proj.bias")


def backbone(**more) -> hf.Dinov2Config:
    return hf.Dinov2Config(**VIT | {"mlp_ratio": 2, "reshape_hidden_states": False} | more)


def depth_anything(config: hf.Dinov2Config, **more):
    return hf.DepthAnythingForDepthEstimation(hf.DepthAnythingConfig(
        backbone_config=config, patch_size=8, reassemble_hidden_size=16, head_hidden_size=6, **NECK | more))


def dpt(**more):
    return hf.DPTForDepthEstimation(hf.DPTConfig(**NECK | more))


def processor(side: int, **more) -> DPTImageProcessorPil:
    return DPTImageProcessorPil(size={"height": side, "width": side}, **more)


# What has no part in the result of depth_anything_metric: the last block, the norm, and all that is only in the last of the fused maps.
UNUSED_IN = {
    "depth_anything_metric": ("backbone.encoder.layer.3.", "backbone.layernorm.", "neck.reassemble_stage.layers.0.", "neck.convs.0.",
                              "neck.fusion_stage.layers.2."),
    "dpt_dinov2": ("backbone.layernorm.",),
}

KEEPS_ASPECT = {"keep_aspect_ratio": True, "ensure_multiple_of": 8, **IMAGENET}
CASES = {
    # As Depth-Anything V2: grids of 5x7, 16x5 and 5x8 patches. Some are odd, so that maps differ in their sizes.
    "depth_anything": (
        lambda: depth_anything(backbone(out_indices=[1, 2, 3, 4])), processor(40, **KEEPS_ASPECT), IMAGES,
    ),
    # As Depth-Anything V2 metric: a sigmoid times the largest depth. Stages by name, the embeddings among them, no norm.
    "depth_anything_metric": (
        lambda: depth_anything(
            backbone(out_features=["stem", "stage1", "stage3"], apply_layernorm=False, use_swiglu_ffn=True),
            depth_estimation_type="metric", max_depth=20, reassemble_factors=[2, 1, 0.25], head_in_index=-2, **THREE,
        ), processor(32, **KEEPS_ASPECT, resample=2), IMAGES[1:],
    ),
    # As Intel/dpt-large: the class token projected into the others, square images of a size other than the stored positions'.
    "dpt": (
        lambda: dpt(**VIT | {"intermediate_size": 24}, backbone_out_indices=[0, 1, 2, 3]), processor(48), IMAGES[1:],
    ),
    "dpt_add": (
        lambda: dpt(**VIT | {"intermediate_size": 24}, backbone_out_indices=[0, 1, 3], readout_type="add", reassemble_factors=[2, 1, 0.5],
                    **THREE),
        processor(40), IMAGES[2:],
    ),
    # As facebook/dpt-dinov2-small-nyu, but the class token has no part: a projection before the head, residual units without biases.
    "dpt_dinov2": (
        lambda: dpt(
            backbone_config=backbone(out_indices=[1, 2, 3, 4], apply_layernorm=False), add_projection=True, readout_type="ignore",
            use_bias_in_fusion_residual=False, hidden_size=16,
        ), processor(40, **KEEPS_ASPECT), IMAGES[1:],
    ),
}


def narrow_projection() -> None:
    """The library's projection before the head has 256 channels, whatever the configuration says. Makes it as wide as the maps, to keep the
    files small."""
    original = modeling_dpt.DPTDepthEstimationHead.__init__

    def init(self, config) -> None:
        original(self, config)
        if self.projection is not None:
            channels = config.fusion_hidden_size
            self.projection = torch.nn.Conv2d(channels, channels, kernel_size=3, padding=1)

    modeling_dpt.DPTDepthEstimationHead.__init__ = init


def scale(depth_model, pixels: list[torch.Tensor]) -> None:
    """Scales the last layer so that depths differ by about 1, and a tenth of those of relative models is cut to zero."""
    is_metric = getattr(depth_model.config, "depth_estimation_type", None) == "metric"
    last = depth_model.head.conv3 if hasattr(depth_model.head, "conv3") else depth_model.head.head[4]
    seen = []
    hook = last.register_forward_hook(lambda _module, _inputs, output: seen.append(output.flatten()))
    for image in pixels:
        depth_model(image)
    hook.remove()
    values = torch.cat(seen)
    last.weight /= values.std()
    last.bias.copy_((last.bias - values.quantile(0.5 if is_metric else 0.1)) / values.std())


@torch.no_grad()
def write(name: str, make, image_processor, images: list[str]) -> dict:
    directory = DIRECTORY / name
    directory.mkdir(parents=True)
    model = make().eval()
    randomise(model, name)
    opened = [Image.open(GOLDEN / "images" / image).convert("RGB") for image in images]
    # One by one: images of different sizes make no batch.
    scale(model, [image_processor(image, return_tensors="pt").pixel_values for image in opened])
    model.save_pretrained(directory)
    image_processor.save_pretrained(directory)

    image_processor = type(image_processor).from_pretrained(directory)
    assert image_processor.backend == "pil"
    model = type(model).from_pretrained(directory, dtype=torch.float64).eval()
    tensors, sizes = {}, []
    for image, file in zip(opened, images):
        pixels = image_processor(image, return_tensors="pt").pixel_values
        outputs = model(pixels.double())
        [result] = image_processor.post_process_depth_estimation(outputs, [(image.height, image.width)])
        tensors[f"{file}.pixel_values"] = pixels[0]
        tensors[f"{file}.predicted_depth"] = outputs.predicted_depth[0]
        if file == images[-1]:
            # Of one image, since it is large.
            tensors[f"{file}.depth"] = result["predicted_depth"].float()
        sizes.append({"image": file, "size": list(pixels.shape[2:])})
    silent = silent_tensors(model, lambda: model(pixels.double()).predicted_depth)
    unused = UNUSED + UNUSED_IN.get(name, ())
    unexpected = [tensor for tensor in silent if not any(part in tensor for part in unused)]
    assert not unexpected, f"{name}: {unexpected}"
    save_golden(tensors, directory / "golden.safetensors")
    for file in directory.iterdir():
        file.chmod(0o644)
    bytes_ = sum(file.stat().st_size for file in directory.iterdir())
    spread = [f"{float(tensors[f'{file}.predicted_depth'].std()):.3f}" for file in images]
    print(f"{name:24} {bytes_ / 1000:7.1f} kB  {sizes}  std {spread}")
    return {"name": name, "architecture": type(model).__name__, "images": sizes, "transformers": hf.__version__}


class Depths(torch.nn.Module):
    """A model whose only result is its depths."""

    def __init__(self, model) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.model(pixel_values).predicted_depth


def export(name: str) -> None:
    """Writes a case's model as an ONNX file that takes images of any size, with its processor beside it."""
    model = hf.DepthAnythingForDepthEstimation.from_pretrained(DIRECTORY / name, attn_implementation="eager").eval()
    directory = DIRECTORY / "onnx"
    directory.mkdir()
    open_axes = {"pixel_values": {0: "batch", 2: "height", 3: "width"}, "predicted_depth": {0: "batch", 1: "height", 2: "width"}}
    # The library makes the height of the result an integer of Python, which a trace would fix.
    modeling_depth_anything.int = lambda value: value
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Depths(model), (torch.randn(2, 3, 40, 56),), str(directory / "model.onnx"), input_names=["pixel_values"],
            output_names=["predicted_depth"], opset_version=18, dynamo=False, dynamic_axes=open_axes,
        )
    del modeling_depth_anything.int
    shutil.copy(DIRECTORY / name / "preprocessor_config.json", directory)
    print(f"{'onnx':24} {(directory / 'model.onnx').stat().st_size / 1000:7.1f} kB")


def main() -> None:
    torch.set_num_threads(1)
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    narrow_projection()
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    cases = [write(name, *case) for name, case in CASES.items()]
    export("depth_anything")
    (DIRECTORY / "cases.json").write_text(json.dumps(cases, indent=2) + "\n")


if __name__ == "__main__":
    main()
