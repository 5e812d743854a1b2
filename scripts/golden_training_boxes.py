"""Writes tests/golden/training/boxes_NAME.safetensors: training of the models of tests/golden/rt_detr on boxes, with the loss of transformers'
RTDetrForObjectDetection without denoising queries, in double precision.

    venv/bin/python scripts/golden_training_boxes.py

Batch norms have the means and variances of the files, as in evaluation. Each file has the gradients of the first step in f32, under the names in
the weight file, except for those that cancel. The series `losses` and `norms` are those of ten steps of AdamW as in golden_training.py. The figure `single` is
the largest root mean square error of PyTorch's own gradients in f32, relative to those of the tensor.
"""

import copy

import torch
import transformers as hf
from safetensors.torch import save_file

from golden_generation import GOLDEN
from golden_training_texts import IMAGES, RATE, STEPS, gradients_of, numbers

NAMES = ["rt_detr", "rt_detr_plain", "rt_detr_v2"]
CLASSES = 5
SMALL = 1e-6
COUNTS = [3, 1, 0, 2]  # objects of each image


def labels_of(turn):
    """Returns objects whose numbers are multiples of 1/64."""
    labels = []
    for image, count in enumerate(COUNTS):
        place = torch.arange(count)[:, None] * 11 + image * 5 + turn * 3 + torch.arange(4) * 7
        boxes = torch.cat([16 + place[:, :2] % 33, 8 + place[:, 2:] % 17], 1).double() / 64
        labels.append({"class_labels": (torch.arange(count) * 2 + image + turn) % CLASSES, "boxes": boxes})
    return labels


def batch_of(size, turn, dtype=torch.float64):
    labels = [{key: value.to(dtype) if key == "boxes" else value for key, value in label.items()} for label in labels_of(turn)]
    return {"pixel_values": numbers(turn, IMAGES, 3, *size).to(dtype), "labels": labels}


def of_parameters(trained):
    buffers = {name for name, _ in trained.named_buffers()}
    return {key: value for key, value in gradients_of(trained).items() if key not in buffers}


def size(value):
    return float(value.double().square().mean().sqrt())


def without_small(gradients):
    """Leaves out the gradients that are sums that cancel."""
    largest = max(map(size, gradients.values()))
    return {key: value for key, value in gradients.items() if size(value) > SMALL * largest}


def error_of_single(trained, image, gradients):
    single = copy.deepcopy(trained).float()
    single.zero_grad()
    single(**batch_of(image, 0, torch.float32)).loss.backward()
    found = of_parameters(single)
    return max(size(found[key] - value) / size(value) for key, value in gradients.items())


def train(name):
    directory = GOLDEN / "rt_detr" / name
    architecture = getattr(hf, hf.AutoConfig.from_pretrained(directory).architectures[0])
    trained = architecture.from_pretrained(directory, num_denoising=0, dtype=torch.float64, attn_implementation="eager").eval()
    processor = hf.AutoImageProcessor.from_pretrained(directory)
    image = (processor.size["height"], processor.size["width"])
    parameters = list(trained.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=RATE, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.05)
    losses, norms, tensors = [], [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        outputs = trained(**batch_of(image, step % 2))
        outputs.loss.backward()
        if step == 0:
            tensors = without_small(of_parameters(trained))
            single = error_of_single(trained, image, tensors)
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, 1.0)))
        optimizer.step()
        losses.append(float(outputs.loss.detach()))
    series = {"losses": losses, "norms": norms, "single": [single]}
    tensors |= {key: torch.tensor(values, dtype=torch.float64) for key, values in series.items()}
    save_file(tensors, GOLDEN / "training" / f"boxes_{name}.safetensors", metadata={"loss": "boxes"})
    print(name, losses, norms, single, len(tensors))


if __name__ == "__main__":
    for name in NAMES:
        train(name)
