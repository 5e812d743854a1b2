"""Writes tests/golden/rt_detr: small RT-DETR models of transformers with random weights, and what the library computes and detects with
them in double precision.

    venv/bin/python scripts/golden_rt_detr.py [CASE...]

See also: golden_detect.py for ONNX files, and tests/golden/README.md for the files.
"""

import json
import shutil
import sys
import warnings
import zlib
from collections import Counter
from pathlib import Path

import torch
import transformers as hf
from PIL import Image
from transformers.models.rt_detr.image_processing_pil_rt_detr import RTDetrImageProcessorPil

from golden_outputs import save_golden
from golden_weights import randomise, silent_tensors

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
DIRECTORY = GOLDEN / "rt_detr"
IMAGES = ["wide.png", "tall.png"]
NAMES = {str(index): f"thing {index}" for index in range(5)}
# Scores closer than this could be in another order in single precision.
LEAST_GAP = 1e-4
# Distance of the last selected score from the next one of the first image, in standard deviations: 16 bits must not select other pixels.
BOUNDARY = 0.25
# The case that is compared in 16 bits. Rounding samples other pixels of discrete points.
NARROW = "rt_detr"
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# Seeds before these are known to fail.
FIRST = {"rt_detr": 34, "rt_detr_plain": 1}
# Numbers of queries, of which the one with the largest distance is taken.
QUERIES = range(5, 13)
THRESHOLDS = [0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8, 0.1, 0.9, 0.95, 0.05]
# Training only, all layers' classes but the last one's, the order of the scores does not depend on small changes, and a softmax does not
# depend on what the bias of the keys adds to all scores.
UNUSED = ("denoising_class_embed", "decoder.class_embed.0", "enc_score_head", "k_proj.bias")

STAGES = {"embedding_size": 8, "hidden_sizes": [16, 16, 24, 32], "depths": [1, 2, 1, 1], "out_features": ["stage2", "stage3", "stage4"]}
SIZES = {"encoder_in_channels": [16, 24, 32], "encoder_hidden_dim": 16, "encoder_ffn_dim": 24, "encoder_attention_heads": 2, "d_model": 16,
         "decoder_in_channels": [16, 16, 16], "decoder_ffn_dim": 24, "decoder_layers": 2, "decoder_attention_heads": 2, "num_queries": 9,
         "num_denoising": 2, "id2label": NAMES}


def version_1(backbone: dict, **more) -> hf.PreTrainedModel:
    return hf.RTDetrForObjectDetection(hf.RTDetrConfig(backbone_config=hf.RTDetrResNetConfig(**STAGES | backbone), **SIZES | more))


def version_2(backbone: dict, **more) -> hf.PreTrainedModel:
    return hf.RTDetrV2ForObjectDetection(hf.RTDetrV2Config(backbone_config=hf.RTDetrResNetConfig(**STAGES | backbone), **SIZES | more))


def processor(height: int, width: int, **more) -> RTDetrImageProcessorPil:
    return RTDetrImageProcessorPil(size={"height": height, "width": width}, **more)


CASES = {
    # As PekingU/rtdetr_r50vd.
    "rt_detr": (lambda: version_1({}), processor(64, 96)),
    # The other value of each key: basic layers whose first ones have strides, other widths and activations, two levels more than maps, and
    # one level beyond them whose boxes are too large, so that no query starts there.
    "rt_detr_plain": (
        lambda: version_1(
            {"layer_type": "basic", "hidden_sizes": [8, 12, 20, 28], "hidden_act": "silu", "downsample_in_first_stage": True,
             "depths": [1, 1, 1, 1], "out_features": ["stage1", "stage2", "stage3"]},
            encoder_in_channels=[8, 12, 20], encoder_layers=2, encode_proj_layers=[1, 2], encoder_hidden_dim=24,
            decoder_in_channels=[24, 24, 24], d_model=24, hidden_expansion=0.5, normalize_before=True, activation_function="relu",
            encoder_activation_function="silu", decoder_activation_function="gelu", num_feature_levels=6, decoder_n_points=3,
            freeze_backbone_batch_norms=False, batch_norm_eps=1e-3, layer_norm_eps=1e-4, positional_encoding_temperature=100,
            num_denoising=0),
        processor(64, 64, do_normalize=True),
    ),
    # Nearest pixels, no positions in the encoder, and strides in the first convolution of a bottleneck.
    "rt_detr_v2": (
        lambda: version_2({"downsample_in_bottleneck": True}, decoder_method="discrete", decoder_offset_scale=0.75, eval_size=64,
                          anchor_image_size=[64, 64]),
        processor(64, 64),
    ),
}


def draw_statistics(model: torch.nn.Module, case: str, images: torch.Tensor) -> torch.Tensor:
    """Fills the running statistics of batch norms with about those of the images, so that maps differ from pixel to pixel. Returns the best
    score of each pixel."""

    def measured(module: torch.nn.Module, inputs: tuple) -> None:
        [x] = inputs
        generator = torch.Generator().manual_seed(zlib.crc32(f"{case}/{names[module]}".encode()))
        around = 0.8 + 0.4 * torch.rand(x.shape[1], generator=generator)
        module.running_mean.copy_(x.mean((0, 2, 3)) * around)
        module.running_var.copy_((x.var((0, 2, 3)) + 1e-3) * around.flip(0))
        if "Frozen" in type(module).__name__:  # Its weights are buffers.
            module.weight.copy_(0.6 + 0.8 * torch.rand(x.shape[1], generator=generator))
            module.bias.copy_(0.25 * torch.randn(x.shape[1], generator=generator))

    names = {module: name for name, module in model.named_modules() if "BatchNorm" in type(module).__name__}
    hooks = [module.register_forward_pre_hook(measured) for module in names]
    scores = model(images).enc_outputs_class.max(-1).values
    for hook in hooks:
        hook.remove()
    return scores


def pixels(image_processor, name: str) -> torch.Tensor:
    image = Image.open(GOLDEN / "images" / name).convert("RGB")
    return image_processor(images=image, return_tensors="pt")["pixel_values"]


def ranked(outputs) -> torch.Tensor:
    return outputs.enc_outputs_class.max(-1).values[0].sort(descending=True)


def detections(outputs, image_processor, name: str, threshold: float) -> list:
    image = Image.open(GOLDEN / "images" / name)
    [found] = image_processor.post_process_object_detection(outputs, threshold=0.0, target_sizes=[(image.height, image.width)])
    scores, order = found["scores"].sort(descending=True, stable=True)
    gaps = (scores[:-1] - scores[1:]).min()
    assert gaps > LEAST_GAP and (scores - threshold).abs().min() > LEAST_GAP, "scores are too close"
    kept = [int(i) for i in order if found["scores"][i] > threshold]
    assert 1 < len(kept) < len(scores), "all objects or none are above the threshold"
    return [{"label": int(found["labels"][i]), "score": float(found["scores"][i]), "box": found["boxes"][i].tolist()} for i in kept]


def selection(outputs) -> torch.Tensor:
    scores, order = outputs.enc_outputs_class.max(-1).values[0].sort(descending=True)
    queries = outputs.logits.shape[1]
    assert (scores[:queries] - scores[1:queries + 1]).min() > LEAST_GAP, "scores of pixels are too close"
    selected = order[:queries]
    return selected


@torch.no_grad()
def written(name: str, seed: int, model: hf.PreTrainedModel, values: dict[str, torch.Tensor]) -> None:
    """Writes a case. Raises AssertionError if the seed's results could not be compared."""
    image_processor = CASES[name][1]
    model.float()
    randomise(model, f"{name} {seed}")
    scores = draw_statistics(model, f"{name} {seed}", torch.cat(list(values.values())).float())[0]
    ordered = scores.sort(descending=True).values
    distances = {queries: float((ordered[queries - 1] - ordered[queries]) / scores.std()) for queries in QUERIES}
    model.config.num_queries = max(distances, key=distances.get)
    assert distances[model.config.num_queries] > (BOUNDARY if name == NARROW else 0.02), "the next score is too close"
    of_images = [selection(model.double()(pixel_values)) for pixel_values in values.values()]
    first = values[IMAGES[0]][0, 0].numel() // 64  # pixels of the first level
    assert any((selected >= first).any() and (selected < first).any() for selected in of_images), "all are of one level"
    directory = DIRECTORY / name
    shutil.rmtree(directory, ignore_errors=True)
    model.float().save_pretrained(directory)
    image_processor.save_pretrained(directory)

    model = type(model).from_pretrained(directory, dtype=torch.float64, attn_implementation="eager").eval()
    tensors, all_outputs, errors = {}, {}, {}
    for file, pixel_values in values.items():
        outputs = model(pixel_values)
        selected = selection(outputs)
        tensors[f"{file}.selected"] = selected.double()
        tensors[f"{file}.logits"] = outputs.logits[0]
        tensors[f"{file}.pred_boxes"] = outputs.pred_boxes[0]
        all_outputs[file] = outputs
        for dtype in DTYPES if name == NARROW and file == IMAGES[0] else ["f32"]:
            torch_dtype = DTYPES[dtype]
            computed = type(model).from_pretrained(directory, dtype=torch_dtype, attn_implementation="eager").eval()(pixel_values.to(torch_dtype))
            order = computed.enc_outputs_class.max(-1).values[0].topk(len(selected)).indices.tolist()
            assert set(order) == set(selected.tolist()), f"{dtype} selects other pixels"
            order = [order.index(place) for place in selected.tolist()]
            for part in ("logits", "pred_boxes"):
                error = (computed[part][0, order] - outputs[part][0]).abs().max() / outputs[part].abs().max()
                errors[dtype] = max(errors.get(dtype, 0.0), float(f"{float(error):.1e}"))

    def output() -> torch.Tensor:
        outputs = [model(pixel_values) for pixel_values in values.values()]
        return torch.cat([part.flatten() for each in outputs for part in (each.logits, each.pred_boxes)])

    unused = UNUSED + (("encoder.stages.3.",) if name == "rt_detr_plain" else ())  # no map of it is read
    silent = [tensor for tensor in silent_tensors(model, output) if not any(part in tensor for part in unused)]
    assert not silent, f"silent: {silent}"
    save_golden(tensors, directory / "golden.safetensors")
    images, threshold = None, None
    for threshold in THRESHOLDS:
        try:
            images = {file: detections(outputs, image_processor, file, threshold) for file, outputs in all_outputs.items()}
            break
        except AssertionError as reason:
            last = reason
    assert images, last
    print(name, "seed", seed, distances[model.config.num_queries], {file: len(found) for file, found in images.items()})
    golden = {
        "threshold": threshold,
        "narrow": IMAGES[0] if name == NARROW else None,
        "errors": errors,  # of the library itself in these dtypes, relative to the largest value
        "images": images,
    }
    (directory / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")


def case(name: str) -> None:
    build, image_processor = CASES[name]
    model = build().eval()
    values = {file: pixels(image_processor, file).double() for file in IMAGES}
    reasons = []
    for seed in range(FIRST.get(name, 0), 500):
        try:
            return written(name, seed, model, values)
        except AssertionError as reason:
            print(seed, reason, file=sys.stderr, flush=True)
            reasons.append(str(reason)[:90])
    raise SystemExit(f"{name}: no seed has results that can be compared: {Counter(reasons)}")


if __name__ == "__main__":
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or CASES:
        case(name)
