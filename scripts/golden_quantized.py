"""Writes tests/golden/quantized: a small ViT in 8 bits, in each form of compressed-tensors that hipvit reads. That library
compresses it, transformers saves it, reads it back and computes the logits. `logits` follow the file; `expected` have activations in
full precision where hipvit dequantises the weight. With --compare, the script reads the output of `hipvit quantize`:

    venv/bin/pip install -r scripts/requirements.txt
    venv/bin/python scripts/golden_quantized.py                       # writes the cases
    venv/bin/python scripts/golden_quantized.py --compare HIPVIT      # quantises tests/golden/hf_vit, compares the logits

See also: goldens.py, for models that are not quantised.
"""

import argparse
import json
import subprocess
import shutil
import tempfile
from pathlib import Path

import torch
import transformers as hf
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme, apply_quantization_config
from compressed_tensors.quantization.utils import calculate_qparams
from loguru import logger
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from golden_outputs import save_golden
from golden_weights import randomise

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "patch_size": 8, "image_size": 32,
         "intermediate_size": 60, "num_labels": 5}
IMAGES = ("tall.png", "wide.png")


def args(kind: str = "int", symmetric: bool = True, strategy: str = "channel", **more) -> QuantizationArgs:
    return QuantizationArgs(num_bits=8, type=kind, symmetric=symmetric, strategy=strategy, **more)


INT8, FP8 = args(), args("float")
TOKEN = args(strategy="token", dynamic=True)
TOKEN_RANGE = args(symmetric=False, strategy="token", dynamic=True)
STATIC = args(strategy="tensor")
STATIC_RANGE = args(symmetric=False, strategy="tensor")


def scheme(weights, inputs=None, targets=("Linear",), **more) -> QuantizationScheme:
    return QuantizationScheme(targets=list(targets), weights=weights, input_activations=inputs, **more)


# Groups, ignored layers, and the dtype of the model.
CASES = {
    "int8_token": ([scheme(INT8, TOKEN)], ["classifier"], torch.float32),
    "int8_token_range": ([scheme(INT8, TOKEN_RANGE)], ["re:.*classifier"], torch.bfloat16),
    "int8_static": ([scheme(args(strategy="tensor"), STATIC)], ["classifier"], torch.float32),
    "int8_static_range": ([scheme(INT8, STATIC_RANGE)], ["re:^(?!.*layer).*"], torch.float32),
    "int8_weights": ([scheme(INT8, format="naive-quantized")], ["classifier"], torch.float32),
    "int8_asymmetric": ([scheme(args(symmetric=False), TOKEN)], ["classifier"], torch.float32),
    "int8_asymmetric_tensor": ([scheme(args(symmetric=False, strategy="tensor"), format="naive-quantized")], [], torch.float32),
    "int8_groups_of_4": ([scheme(args(strategy="group", group_size=4), format="naive-quantized")], [], torch.float32),
    "fp8_dynamic": ([scheme(FP8, args("float", strategy="token", dynamic=True))], ["classifier"], torch.float32),
    "fp8_static": ([scheme(args("float", strategy="tensor"), args("float", strategy="tensor"))], ["classifier"], torch.float32),
    "fp8_weights": ([scheme(FP8)], ["classifier"], torch.float16),
    "fp8_block": ([scheme(args("float", strategy="block", block_structure=[16, 8]),
                          args("float", strategy="group", dynamic=True, group_size=4))], ["classifier"], torch.float32),
    "mixed": ([scheme(FP8, targets=[r"re:.*(mlp|intermediate|output\.dense).*"]), scheme(INT8, TOKEN)], ["classifier"],
              torch.float32),
}


def pixel_values(directory: Path) -> torch.Tensor:
    processor = ViTImageProcessorPil.from_pretrained(directory)
    images = [Image.open(GOLDEN / "images" / name).convert("RGB") for name in IMAGES]
    return torch.stack([processor(image, return_tensors="pt").pixel_values[0] for image in images])


@torch.no_grad()
def calibrate(model: torch.nn.Module, pixels: torch.Tensor) -> None:
    """Scales and zero points of weights and of static activations, by the smallest and the largest value."""
    modules = [module for module in model.modules() if getattr(module, "quantization_scheme", None)]

    def measure(module, inputs):
        spec = module.quantization_scheme.input_activations
        if spec and not spec.dynamic:
            # Slightly below the range: the largest would be a tie, and larger values must be clamped. Use few bits, so
            # that another processor's BLAS does not change them.
            ends = [(0.97 * end).half().to(end.dtype) for end in torch.aminmax(inputs[0])]
            scale, zero = calculate_qparams(*ends, spec)
            module.input_scale.copy_(scale)
            module.input_zero_point.copy_(zero)

    for module in modules:
        spec, weight = module.quantization_scheme.weights, module.weight
        rows, columns = weight.shape
        match spec.strategy:
            case "tensor":
                ends = torch.aminmax(weight)
            case "channel":
                ends = weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
            case "group":
                ends = [weight.unflatten(1, (-1, spec.group_size)).amin(2), weight.unflatten(1, (-1, spec.group_size)).amax(2)]
            case "block":
                down, right = spec.block_structure
                pad = torch.nn.functional.pad(weight, (0, -columns % right, 0, -rows % down))
                blocks = pad.unflatten(1, (-1, right)).unflatten(0, (-1, down))
                ends = blocks.amin((1, 3)), blocks.amax((1, 3))
        scale, zero = calculate_qparams(*ends, spec)
        module.weight_scale.copy_(scale)
        module.weight_zero_point.copy_(zero.to(module.weight_zero_point.dtype))
        module.quantization_enabled = False
    hooks = [module.register_forward_pre_hook(measure) for module in modules]
    model(pixels.to(model.dtype))
    for hook in hooks:
        hook.remove()
    for module in modules:
        module.quantization_enabled = True


@torch.no_grad()
def read_back(directory: Path, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """transformers' logits, in f32 from the weights as stored; and those with activations quantised only where weights stay int8."""
    model, report = hf.ViTForImageClassification.from_pretrained(directory, dtype=torch.float32, output_loading_info=True)
    problems = {key: value for key, value in report.items() if value}
    assert not problems, f"{directory.name}: {problems}"
    logits = model.eval()(pixels).logits
    for module in model.modules():
        if spec := getattr(module, "quantization_scheme", None):
            weights = spec.weights
            stays = weights.type == "int" and weights.symmetric and weights.strategy in ("tensor", "channel")
            module.quantization_enabled = stays
    return logits, model(pixels).logits


@torch.no_grad()
def write(name: str, groups: list, ignore: list, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    directory = GOLDEN / "quantized" / name
    shutil.rmtree(directory, ignore_errors=True)
    model = hf.ViTForImageClassification(hf.ViTConfig(**SIZES)).eval()
    randomise(model, "quantized")
    model = model.to(dtype)
    ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(directory)
    pixels = pixel_values(directory)
    full = model(pixels.to(dtype)).logits.float()
    config = QuantizationConfig(config_groups={f"group_{i}": group for i, group in enumerate(groups)}, ignore=ignore)
    apply_quantization_config(model, config, show_progress=False)
    calibrate(model, pixels)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(directory)
    compressor.update_config(directory)
    logits, expected = read_back(directory, pixels)
    error = ((logits - full).square().mean() / full.square().mean()).sqrt()
    kinds = sorted({str(tensor.dtype) for tensor in load_file(directory / "model.safetensors").values()})
    print(f"{name:24} logits {100 * error:.2f} % from full precision; {', '.join(kinds)}")
    return {"pixel_values": pixels, f"{name}.logits": logits, f"{name}.expected": expected}


def compare(program: str) -> None:
    """What `hipvit quantize` writes, read by transformers: the logits of both."""
    for to in ("int8", "fp8"):
        with tempfile.TemporaryDirectory() as temporary:
            directory = Path(temporary) / "model"
            subprocess.run([program, "quantize", GOLDEN / "hf_vit", "-o", directory, "--to", to], check=True)
            pixels = pixel_values(directory)
            expected, _ = read_back(directory, pixels)
            for name, row in zip(IMAGES, expected, strict=True):
                command = [program, "classify", "-m", directory, "--json", "--logits", GOLDEN / "images" / name]
                output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                difference = float((torch.tensor(json.loads(output)["logits"]) - row).abs().max() / row.abs().max())
                print(f"{to}, {name}: logits differ by {difference:.1e} of the largest")
                # f32 rounding, and rarely an activation that is rounded to the adjacent one of 255 levels.
                assert difference < 5e-3, (output, row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--compare", metavar="HIPVIT", help="the program whose files are read")
    program = parser.parse_args().compare
    torch.set_num_threads(1)
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    logger.disable("compressed_tensors")
    if program:
        compare(program)
        return
    tensors = {}
    for name, case in CASES.items():
        tensors |= write(name, *case)
    save_golden(tensors, GOLDEN / "quantized" / "golden.safetensors")


if __name__ == "__main__":
    main()
