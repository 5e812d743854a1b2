"""Writes tests/golden/segment: small SAM models of transformers with random weights, and masks and scores of the library in double
precision for prompts.

    venv/bin/python scripts/golden_segment.py

See also: goldens.py, and tests/golden/README.md for the files.
"""

import json
import shutil
from pathlib import Path

import torch
import transformers as hf
from PIL import Image
from transformers.models.sam.image_processing_pil_sam import SamImageProcessorPil

from golden_outputs import save_golden
from golden_weights import randomise, silent_tensors

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
DIRECTORY = GOLDEN / "segment"
DECODER = {"hidden_size": 32, "mlp_dim": 48, "num_attention_heads": 2, "iou_head_hidden_dim": 24}
# Masks are no prompts, one mask is no output, and a softmax does not depend on what the bias of the keys adds to all scores.
UNUSED = ("prompt_encoder.mask_embed.", "mask_decoder.output_hypernetworks_mlps.0.", "k_proj.bias")


def model(image: int, vision: dict, decoder: dict):
    side = {"image_size": image, "patch_size": 8}
    vision = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "mlp_ratio": 2.0, "output_channels": 32,
              "num_pos_feats": 16, **side, **vision}
    return hf.SamModel(hf.SamConfig(
        vision_config=vision, prompt_encoder_config={"hidden_size": 32, "mask_input_channels": 4, **side},
        mask_decoder_config=DECODER | decoder,
    ))


def processor(side: int, **more) -> SamImageProcessorPil:
    return SamImageProcessorPil(size={"longest_edge": side}, pad_size={"height": side, "width": side}, **more)


# Prompts of an image: points with labels, then a box or none. Coordinates are in pixels.
POINT = ([(40, 30)], [1], None)
POINTS = ([(12.5, 40), (60, 7.25), (33, 21)], [1, 0, 1], None)
BOX = ([], [], (10.5, 6, 61.25, 49))
BOTH = ([(30, 20), (55, 44)], [1, 0], (5, 3, 60, 58))
PROMPTS = [POINT, POINTS, BOX, BOTH]

CASES = {
    # As facebook/sam-vit-base: windows that pad the grid of 8x8, blocks that attend to all of it, and decomposed relative positions.
    "sam": (
        lambda: model(64, {"window_size": 3, "global_attn_indexes": [1]}, {}), processor(64),
        {"wide.png": PROMPTS, "tall.png": PROMPTS[:3], "small.png": PROMPTS},
    ),
    # The other value of each key: no positions, no bias, windows that divide the grid, one mask, other depths and activations.
    "sam_plain": (
        lambda: model(
            96,
            {"window_size": 4, "global_attn_indexes": [0, 2], "use_rel_pos": False, "use_abs_pos": False, "qkv_bias": False, "mlp_dim": 40,
             "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-5},
            {"num_hidden_layers": 3, "num_multimask_outputs": 1, "attention_downsample_rate": 1, "iou_head_depth": 4, "hidden_act": "gelu",
             "layer_norm_eps": 1e-4},
        ), processor(96, resample=3, image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.3, 0.4]), {"small.png": PROMPTS},
    ),
}


def prompt_inputs(image_processor, image: Image.Image, prompt) -> dict[str, torch.Tensor]:
    points, labels, box = prompt
    both = hf.SamProcessor(image_processor)
    inputs = both(
        image, input_points=[[list(map(list, points))]] if points else None, input_labels=[[labels]] if points else None,
        input_boxes=[[list(box)]] if box else None, return_tensors="pt",
    )
    # The library adds the padding in f32.
    return {name: inputs[name].double() if name != "input_labels" else inputs[name]
            for name in ("pixel_values", "input_points", "input_labels", "input_boxes") if name in inputs}


def scale(model, inputs: list[dict[str, torch.Tensor]]) -> None:
    """Scales the decoder's attention, and the last layers so that logits differ by about 5 around 0, and scores are about 0.5."""
    # Attention that is nearly a maximum amplifies rounding too much to compare results in 16 bits.
    for name, parameter in model.mask_decoder.named_parameters():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            parameter.mul_(0.4)
    outputs = [model(**each, multimask_output=True) for each in inputs]
    logits = torch.cat([each.pred_masks.flatten() for each in outputs])
    for mlp in model.mask_decoder.output_hypernetworks_mlps:
        for parameter in mlp.proj_out.parameters():
            parameter.mul_(5.0 / logits.std())
    scores = torch.cat([each.iou_scores.flatten() for each in outputs])
    for parameter in model.mask_decoder.iou_prediction_head.proj_out.parameters():
        parameter.mul_(0.5 / scores.square().mean().sqrt())


@torch.no_grad()
def write(name: str, make, image_processor, images: dict) -> dict:
    directory = DIRECTORY / name
    directory.mkdir(parents=True)
    sam = make().eval()
    randomise(sam, name)
    opened = {file: Image.open(GOLDEN / "images" / file).convert("RGB") for file in images}
    sam.double()
    scale(sam, [prompt_inputs(image_processor, opened[file], prompt) for file, prompts in images.items() for prompt in prompts])
    sam.float().save_pretrained(directory)
    image_processor.save_pretrained(directory)

    image_processor = type(image_processor).from_pretrained(directory)
    assert image_processor.backend == "pil"
    sam = type(sam).from_pretrained(directory, dtype=torch.float64, attn_implementation="eager").eval()
    tensors, listed = {}, []
    for file, prompts in images.items():
        image = opened[file]
        processed = image_processor(image, return_tensors="pt")
        pixels = processed.pixel_values
        if file == list(images)[-1]:
            tensors[f"{file}.pixel_values"] = pixels[0]
        tensors[f"{file}.image_embeddings"] = sam.get_image_embeddings(pixels.double())[0]
        for index, prompt in enumerate(prompts):
            outputs = sam(**prompt_inputs(image_processor, image, prompt))
            tensors[f"{file}.{index}.pred_masks"] = outputs.pred_masks[0, 0].float()
            tensors[f"{file}.{index}.iou_scores"] = outputs.iou_scores[0, 0]
        if file in ("small.png", "tall.png"):
            # Of one prompt, since they are large.
            [masks] = image_processor.post_process_masks(
                outputs.pred_masks, [(image.height, image.width)], processed.reshaped_input_sizes, binarize=False)
            tensors[f"{file}.logits"] = masks[0, 0].float()
        listed.append({"image": file, "prompts": [
            {"points": points, "labels": labels, "box": box} for points, labels, box in prompts]})
    last = list(images)[-1]
    inputs = [prompt_inputs(image_processor, opened[last], prompt) for prompt in PROMPTS]

    def output() -> torch.Tensor:
        outputs = [sam(**each) for each in inputs]
        return torch.cat([part.flatten() for each in outputs for part in (each.pred_masks, each.iou_scores)])

    silent = silent_tensors(sam, output)
    unexpected = [tensor for tensor in silent if not any(part in tensor for part in UNUSED)]
    assert not unexpected, f"{name}: {unexpected}"
    save_golden(tensors, directory / "golden.safetensors")
    for path in directory.iterdir():
        path.chmod(0o644)
    logits = torch.cat([tensors[key].flatten() for key in tensors if key.endswith("pred_masks")])
    inside = float((logits > 0).double().mean())
    scores = [tensors[key].tolist() for key in tensors if key.endswith("iou_scores")]
    size = sum(path.stat().st_size for path in directory.iterdir())
    print(f"{name:12} {size / 1000:7.1f} kB  logits' std {float(logits.std()):.2f}, inside {inside:.2f}, scores {scores}")
    return {"name": name, "images": listed, "transformers": hf.__version__}


def main() -> None:
    torch.set_num_threads(1)
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    cases = [write(name, *case) for name, case in CASES.items()]
    (DIRECTORY / "cases.json").write_text(json.dumps(cases, indent=2) + "\n")


if __name__ == "__main__":
    main()
