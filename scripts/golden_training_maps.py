"""Writes tests/golden/training/maps_NAME.safetensors: a step of training of the models of tests/golden/depth on images and depths, in double
precision.

    venv/bin/python scripts/golden_training_maps.py

transformers has no loss of depths. The losses are those of `hipvit_train::DepthLoss`: for metric models the scale-invariant one of Depth Anything V2, for
others the scale-and-shift-invariant one of MiDaS, which a least-squares solver of PyTorch computes here.

Each file has the gradients in f32, under the names in the weight file, the series `losses` with the loss, and the figure `single` as in
golden_training_texts.py.
"""

import copy

import torch
import transformers as hf
from safetensors.torch import save_file

from golden_depth import GOLDEN
from golden_training_texts import IMAGES, gradients_of, is_zero, numbers

CLASSES = {
    "depth_anything": hf.DepthAnythingForDepthEstimation, "depth_anything_metric": hf.DepthAnythingForDepthEstimation,
    "dpt": hf.DPTForDepthEstimation,
}
SIDE = 32
UNKNOWN = -1.0


def targets_of(height, width, is_metric):
    """Returns depths of 1 to 9 metres, or inverse depths from 0 to 1. Every seventh is unknown."""
    index = torch.arange(IMAGES * height * width)
    values = ((index * 104729 + 13) % 257).double() / 256
    values = 1 + 8 * values if is_metric else values
    return torch.where(index % 7 == 3, UNKNOWN, values).reshape(IMAGES, height, width)


def scale_invariant(prediction, target):
    known = target >= 0
    difference = prediction[known].log() - target[known].log()
    return (difference.pow(2).mean() - 0.5 * difference.mean() ** 2).sqrt()


def scale_and_shift_invariant(prediction, target):
    known = target >= 0
    rows = torch.stack([prediction[known], torch.ones_like(target[known])], dim=1)
    line = torch.linalg.lstsq(rows, target[known][:, None]).solution
    return (rows @ line - target[known][:, None]).pow(2).mean() / 2


def loss_of(trained, pixels, is_metric):
    depths = trained(pixels).predicted_depth
    targets = targets_of(*depths.shape[1:], is_metric).to(depths)
    loss = scale_invariant if is_metric else scale_and_shift_invariant
    return torch.stack([loss(depth, target) for depth, target in zip(depths, targets)]).mean()


def train(name):
    trained = CLASSES[name].from_pretrained(GOLDEN / "depth" / name).double().eval()
    is_metric = getattr(trained.config, "depth_estimation_type", None) == "metric"
    pixels = numbers(0, IMAGES, 3, SIDE, SIDE)
    loss = loss_of(trained, pixels, is_metric)
    loss.backward()
    tensors = gradients_of(trained)
    single = copy.deepcopy(trained).float()
    single.zero_grad()
    loss_of(single, pixels.float(), is_metric).backward()
    found = gradients_of(single)
    error = max(float((found[key] - value).double().norm() / value.double().norm()) for key, value in tensors.items() if not is_zero(key))
    series = {"losses": [float(loss.detach())], "single": [error]}
    tensors |= {key: torch.tensor(values, dtype=torch.float64) for key, values in series.items()}
    save_file(tensors, GOLDEN / "training" / f"maps_{name}.safetensors", metadata={"loss": "maps"})
    print(name, float(loss.detach()), error, len(tensors), tuple(trained(pixels).predicted_depth.shape))


if __name__ == "__main__":
    for name in CLASSES:
        train(name)
