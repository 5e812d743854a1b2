"""Writes tests/golden/training/texts_NAME.safetensors: training of the models of tests/golden/generation on images and labels of tokens, with the
loss of transformers' VisionEncoderDecoderModel, in double precision.

    venv/bin/python scripts/golden_training_texts.py

Each file has the gradients of the first step in f32, under the names in the weight file. The series `losses` and `norms` are those of ten steps of AdamW as in
golden_training.py. The figure `single` is the largest root mean square error of PyTorch's own gradients in f32, relative to those of the tensor.
"""

import copy
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import VisionEncoderDecoderModel

from golden_generation import GOLDEN, loaded

NAMES = ["trocr_base", "trocr_small", "trocr_untied"]
STEPS, IMAGES, TOKENS, RATE = 10, 4, 12, 1e-3


def numbers(seed, *shape):
    """Returns multiples of 1/16 from -1 to 1."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7919 + seed * 104729) % 33).double().div(16).sub(1).reshape(shape)


def labels_of(vocabulary, turn):
    """Returns tokens of texts of different lengths. What follows the end, token 2, is left out."""
    place, row = torch.arange(TOKENS), torch.arange(IMAGES)[:, None]
    last = 2 + (row * 3 + turn) % (TOKENS - 3)
    ids = 4 + (place * 31 + row * 7 + turn * 13) % (vocabulary - 4)
    return torch.where(place < last, ids, torch.where(place == last, 2, -100))


def gradients_of(trained):
    """Returns the gradients under the names in the weight file, which transformers changes as it loads and saves."""
    gradients = copy.deepcopy(trained).float()
    for copied, parameter in zip(gradients.parameters(), trained.parameters()):
        # The pooler has no gradient.
        copied.data = torch.full_like(copied, torch.nan) if parameter.grad is None else parameter.grad.float()
    with tempfile.TemporaryDirectory() as folder:
        gradients.save_pretrained(folder)
        stored = load_file(Path(folder) / "model.safetensors")
    return {key: value for key, value in stored.items() if not value.isnan().any()}


def is_zero(key):
    """A bias of keys does not change a softmax. Its gradient is zero but for rounding errors."""
    return key.endswith(("key.bias", "k_proj.bias"))


def error_of_single(trained, batch, gradients):
    single = copy.deepcopy(trained).float()
    positions = single.decoder.model.decoder.embed_positions
    if hasattr(positions, "weights"):
        positions.weights = positions.weights.float()
    single.zero_grad()
    single(pixel_values=batch["pixel_values"].float(), labels=batch["labels"]).loss.backward()
    found = gradients_of(single)
    return max(float((found[key] - value).double().norm() / value.double().norm()) for key, value in gradients.items() if not is_zero(key))


def train(name):
    trained = loaded(GOLDEN / "generation" / name, VisionEncoderDecoderModel)  # dropout is off
    parameters = list(trained.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=RATE, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.05)
    size, vocabulary = trained.config.encoder.image_size, trained.config.decoder.vocab_size
    losses, norms, tensors = [], [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        batch = {"pixel_values": numbers(step % 2, IMAGES, 3, size, size), "labels": labels_of(vocabulary, step % 2)}
        loss = trained(**batch).loss
        loss.backward()
        if step == 0:
            tensors = gradients_of(trained)
            single = error_of_single(trained, batch, tensors)
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, 1.0)))
        optimizer.step()
        losses.append(float(loss.detach()))
    series = {"losses": losses, "norms": norms, "single": [single]}
    tensors |= {key: torch.tensor(values, dtype=torch.float64) for key, values in series.items()}
    save_file(tensors, GOLDEN / "training" / f"texts_{name}.safetensors", metadata={"loss": "texts"})
    print(name, losses[0], losses[-1], norms[:3], single, len(tensors))


if __name__ == "__main__":
    for name in NAMES:
        train(name)
