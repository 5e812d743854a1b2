"""Writes tests/golden/training: losses and weights of ten steps of training in PyTorch, in double precision, from the weights of
tests/golden. Needs the packages of scripts/requirements.txt.

    venv/bin/python scripts/golden_training.py

A step is AdamW with weight decay on all tensors, after clipping by norm. The batches are numbers of a formula, which the test repeats:
two batches of four images take turns. Each file has `losses`, `norms` and, as f32, the trained tensors under their names in the weight file.
"""

import json
import tempfile
from pathlib import Path

import timm
import torch
import transformers
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parent.parent / "tests" / "golden"
STEPS, IMAGES, RATE, SMOOTHING = 10, 4, 1e-3, 0.1
LOSSES = {"timm_vit_class_token": "cross_entropy", "timm_vit_pre_norm_layer_scale": "binary_cross_entropy", "hf_vit": "cross_entropy"}


def numbers(seed, *shape):
    """Returns multiples of 1/16 from -1 to 1."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7919 + seed * 104729) % 33).double().div(16).sub(1).reshape(shape)


def model(name, config):
    if "architecture" not in config:
        return transformers.AutoModelForImageClassification.from_pretrained(ROOT / name, attn_implementation="eager")
    size = config["pretrained_cfg"]["input_size"][1:]
    arguments = {"num_classes": config["num_classes"], "img_size": size} | config["model_args"]
    created = timm.create_model(config["architecture"], **arguments)
    created.load_state_dict(load_file(ROOT / name / "model.safetensors"))
    return created


def stored(trained):
    """Returns the parameters under their names in the weight file, which transformers changes as it loads and saves."""
    if not hasattr(trained, "save_pretrained"):
        return trained.named_parameters()
    with tempfile.TemporaryDirectory() as folder:
        trained.save_pretrained(folder)
        return load_file(Path(folder) / "model.safetensors").items()


def loss_of(kind, logits, targets):
    if kind == "cross_entropy":
        return torch.nn.functional.cross_entropy(logits, targets)
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)


def train(name, kind):
    torch.manual_seed(0)
    config = json.loads((ROOT / name / "config.json").read_text())
    trained = model(name, config).double().eval()  # dropout is off, and nothing else depends on the mode
    optimizer = torch.optim.AdamW(trained.parameters(), lr=RATE, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.05)
    size = trained.config.image_size if hasattr(trained, "config") else trained.patch_embed.img_size
    height, width = (size, size) if isinstance(size, int) else size
    losses, norms = [], []
    for step in range(STEPS):
        values = numbers(step % 2, IMAGES, 3, height, width)
        output = trained(values)
        logits = getattr(output, "logits", output)
        classes = logits.shape[1]
        hard = torch.nn.functional.one_hot((torch.arange(IMAGES) * 3 + step % 2) % classes, classes).double()
        loss = loss_of(kind, logits, hard * (1 - SMOOTHING) + SMOOTHING / classes)
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained.parameters(), 1.0)))
        optimizer.step()
        losses.append(float(loss.detach()))
    tensors = {key: value.detach().float().contiguous() for key, value in stored(trained)}
    tensors |= {"losses": torch.tensor(losses, dtype=torch.float64), "norms": torch.tensor(norms, dtype=torch.float64)}
    save_file(tensors, ROOT / "training" / f"{name}.safetensors", metadata={"loss": kind})
    print(name, [height, width], losses[0], losses[-1], norms[:3])


if __name__ == "__main__":
    (ROOT / "training").mkdir(exist_ok=True)
    for name, kind in LOSSES.items():
        train(name, kind)
