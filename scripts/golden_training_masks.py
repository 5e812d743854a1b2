"""Writes tests/golden/training/masks_NAME.safetensors: a step of training of the models of tests/golden/segment on images with a prompt each, in double
precision.

    venv/bin/python scripts/golden_training_masks.py

transformers has no loss of masks. It is that of SAM's training (https://arxiv.org/abs/2304.02643, appendix A): 20 times the focal loss plus the dice
loss of the mask with the least of it, plus the mean squared error of the predicted intersections over unions.

Each file has the gradients in f32, under the names in the weight file, and the series `losses` with the loss. The figure `single` is the largest
relative error of a tensor's gradient in f32, by PyTorch on one and on two threads. They sum in different orders: the gradients of the last attention's
queries and keys are differences that nearly cancel, and their errors differ by a factor of up to four.
"""

import copy

import torch
from safetensors.torch import save_file
from torch.nn.functional import binary_cross_entropy_with_logits
from transformers import SamModel

from golden_segment import GOLDEN
from golden_training_texts import IMAGES, gradients_of, is_zero, numbers

NAMES = ["sam", "sam_plain"]


def prompt_of(index, side):
    """Returns a point for even images, and a box for the others, in pixels of the model's image."""
    if index % 2 == 0:
        place = [3 + 5 * index, side - 4 - 3 * index]
        return {"input_points": torch.tensor([[[place]]], dtype=torch.float64), "input_labels": torch.tensor([[[1 - index // 2]]])}
    return {"input_boxes": torch.tensor([[[2 + index, 3, side - 5, side - 2 - index]]], dtype=torch.float64)}


def target_of(index, pixels):
    place = torch.arange(pixels)
    return ((place * 31 + place // 7 * 17 + index * 11) % 23 < 9).double()


def loss_of(trained, pixels, dtype):
    side = trained.config.vision_config.image_size
    losses = []
    for index in range(IMAGES):
        prompt = {key: value.to(dtype) if value.is_floating_point() else value for key, value in prompt_of(index, side).items()}
        output = trained(pixel_values=pixels[index : index + 1], **prompt, multimask_output=True)
        logits, scores = output.pred_masks[0, 0].flatten(1), output.iou_scores[0, 0]
        target = target_of(index, logits.shape[1]).to(dtype).expand_as(logits)
        entropy = binary_cross_entropy_with_logits(logits, target, reduction="none")
        probability = logits.sigmoid()
        right = probability * target + (1 - probability) * (1 - target)
        focal = ((0.25 * target + 0.75 * (1 - target)) * (1 - right) ** 2 * entropy).mean(1)
        dice = 1 - (2 * (probability * target).sum(1) + 1) / (probability.sum(1) + target.sum(1) + 1)
        found = logits > 0
        overlap = (found * target).sum(1) / torch.where(found, 1, target).sum(1).clamp(min=1)
        losses.append((20 * focal + dice).min() + (scores - overlap.detach()).pow(2).mean())
    return torch.stack(losses).mean()


def error_in_f32(trained, pixels, expected, threads):
    """Returns the largest relative error of a tensor's gradient in f32."""
    torch.set_num_threads(threads)
    single = copy.deepcopy(trained).float()
    single.zero_grad()
    loss_of(single, pixels.float(), torch.float32).backward()
    found = gradients_of(single)
    return max(float((found[key] - value).double().norm() / value.double().norm()) for key, value in expected.items() if not is_zero(key))


def train(name):
    trained = SamModel.from_pretrained(GOLDEN / "segment" / name).double().eval()
    side = trained.config.vision_config.image_size
    pixels = numbers(0, IMAGES, 3, side, side)
    loss = loss_of(trained, pixels, torch.float64)
    loss.backward()
    tensors = gradients_of(trained)
    scale = max(float(value.double().norm()) for value in tensors.values())
    # Tensors without influence have gradients of rounding errors only.
    tensors = {key: value for key, value in tensors.items() if is_zero(key) or float(value.double().norm()) > 1e-9 * scale}
    error = max(error_in_f32(trained, pixels, tensors, threads) for threads in [1, 2])
    series = {"losses": [float(loss.detach())], "single": [error]}
    tensors |= {key: torch.tensor(values, dtype=torch.float64) for key, values in series.items()}
    save_file(tensors, GOLDEN / "training" / f"masks_{name}.safetensors", metadata={"loss": "masks"})
    unused = sorted(set(dict(trained.named_parameters())) - set(tensors))
    print(name, float(loss.detach()), error, len(tensors), side, unused)


if __name__ == "__main__":
    for name in NAMES:
        train(name)
