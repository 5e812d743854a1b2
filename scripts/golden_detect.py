"""Writes tests/golden/detect: small detectors of transformers with random weights as ONNX files, and what the library detects with them.

    venv/bin/python scripts/golden_detect.py

See also: golden_depth.py, and tests/golden/README.md for the files.
"""

import json
import shutil
import warnings
from pathlib import Path

import torch
import transformers as hf
from PIL import Image
from transformers.models.rt_detr.image_processing_pil_rt_detr import RTDetrImageProcessorPil
from transformers.models.yolos.image_processing_pil_yolos import YolosImageProcessorPil

from golden_weights import randomise

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
DIRECTORY = GOLDEN / "detect"
IMAGES = ["wide.png", "tall.png", "small.png"]
NAMES = {str(index): f"thing {index}" for index in range(5)}
# Scores closer than this could be in another order in single precision.
LEAST_GAP = 1e-4


def rt_detr() -> hf.PreTrainedModel:
    backbone = hf.RTDetrResNetConfig(embedding_size=8, hidden_sizes=[8, 12, 16, 24], depths=[1, 1, 1, 1], layer_type="basic",
                                     out_features=["stage2", "stage3", "stage4"])
    return hf.RTDetrForObjectDetection(hf.RTDetrConfig(
        backbone_config=backbone, encoder_in_channels=[12, 16, 24], encoder_hidden_dim=16, encoder_ffn_dim=16, encoder_attention_heads=2,
        d_model=16, decoder_in_channels=[16, 16, 16], decoder_ffn_dim=16, decoder_layers=2, decoder_attention_heads=2, num_queries=12,
        id2label=NAMES))


def yolos() -> hf.PreTrainedModel:
    return hf.YolosForObjectDetection(hf.YolosConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=[48, 64], patch_size=16,
        num_detection_tokens=9, id2label=NAMES))


CASES = {
    # Sigmoids, and as many pairs of query and class as there are queries.
    "rt_detr": (rt_detr, RTDetrImageProcessorPil(size={"height": 64, "width": 64}), 0.5),
    # A softmax with a class for no object.
    "yolos": (yolos, YolosImageProcessorPil(size={"height": 48, "width": 64}), 0.2),
}


def detections(model, processor, threshold: float, name: str) -> list:
    image = Image.open(GOLDEN / "images" / name).convert("RGB")
    pixels = processor(images=image, return_tensors="pt")["pixel_values"].double()
    with torch.no_grad():
        outputs = model(pixels)
    size = [(image.height, image.width)]
    [found] = processor.post_process_object_detection(outputs, threshold=threshold, target_sizes=size)
    order = found["scores"].argsort(descending=True, stable=True)
    scores = found["scores"][order]
    everything = processor.post_process_object_detection(outputs, threshold=0.0, target_sizes=size)[0]["scores"].sort(descending=True).values
    gaps = (everything[:-1] - everything[1:]).min()
    assert gaps > LEAST_GAP and (everything - threshold).abs().min() > LEAST_GAP, (gaps, everything)
    assert 1 < len(scores) < len(everything), (len(scores), everything)
    return [{"label": int(found["labels"][i]), "score": float(found["scores"][i]), "box": found["boxes"][i].tolist()} for i in order]


def case(name: str) -> None:
    build, processor, threshold = CASES[name]
    for seed in range(1000):
        model = build().eval()
        randomise(model, f"{name} {seed}")
        try:
            found = {image: detections(model.double(), processor, threshold, image) for image in IMAGES}
        except AssertionError:
            continue
        break
    else:
        raise SystemExit(f"{name}: no seed has scores that are apart")
    folder = DIRECTORY / name
    folder.mkdir()
    model.float()
    pixels = torch.zeros(1, 3, processor.size["height"], processor.size["width"])
    torch.onnx.export(model, (pixels,), folder / "model.onnx", input_names=["pixel_values"], output_names=["logits", "pred_boxes"],
                      dynamo=False, opset_version=17, do_constant_folding=True, dynamic_axes={"pixel_values": {0: "batch"}})
    model.config.save_pretrained(folder)
    processor.save_pretrained(folder)
    (folder / "golden.json").write_text(json.dumps({"threshold": threshold, "images": found}, indent=1) + "\n")
    print(name, "seed", seed, {image: len(all) for image, all in found.items()})


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir()
    for name in CASES:
        case(name)
