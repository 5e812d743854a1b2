"""Fine-tunes a 2:4 sparse ViT-Ti/4 on Fashion-MNIST; every weight that was pruned stays zero.

    hipvit quantize fashion/model --sparse 2:4 --calibrate fashion/calibration.safetensors -o fashion/sparse
    venv/bin/python scripts/finetune_sparse.py DATA fashion/sparse -o fashion/finetuned      # DATA as train_fashion_mnist.py takes it
    hipvit quantize fashion/finetuned --sparse 2:4 -o fashion/packed

It reads what `quantize --sparse 2:4` wrote and writes a dense directory, as timm does. `quantize --sparse 2:4` then packs it and
changes no weight, since the smaller two of each four are zero. The test images decide nothing: the last weights are kept.
"""

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from train_fashion_mnist import SEED, augment, create, normalise, read, save


def dense(packed: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors of a model in the format sparse-24-bitmask, its weights unpacked."""
    tensors = dict(packed)
    for name in [name.removesuffix(".compressed") for name in packed if name.endswith(".compressed")]:
        values, mask, shape = (tensors.pop(f"{name}.{part}") for part in ("compressed", "bitmask", "shape"))
        kept = np.unpackbits(mask.numpy(), axis=-1, count=int(shape[-1]), bitorder="little").astype(bool)
        weight = torch.zeros(shape.flatten().tolist(), dtype=values.dtype)
        weight[torch.from_numpy(kept)] = values.flatten()
        tensors[f"{name}.weight"] = weight
    return tensors


def finetune(model: torch.nn.Module, masks: dict[str, torch.Tensor], grey: torch.Tensor, labels: torch.Tensor,
             options: argparse.Namespace) -> None:
    device = grey.device
    generator = torch.Generator(device).manual_seed(SEED)
    masked = [(parameter, masks[name]) for name, parameter in model.named_parameters() if name in masks]
    optimiser = torch.optim.AdamW(model.parameters(), lr=options.rate, betas=(0.9, 0.98), weight_decay=0.01)
    steps = max(1, round(options.epochs * len(grey) / options.batch))
    warmup = max(steps // 20, 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / warmup, 0.5 * (1 + math.cos(math.pi * step / steps)) + 1e-3))
    started, order = time.monotonic(), torch.empty(0, dtype=torch.long, device=device)
    model.train()
    for step in range(steps):
        if len(order) < options.batch:
            order = torch.randperm(len(grey), generator=generator, device=device)
        batch, order = order[:options.batch], order[options.batch:]
        # On a CPU without AMX, PyTorch is slower in bf16 than in f32.
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = model(normalise(augment(grey[batch], generator)))
        loss = torch.nn.functional.cross_entropy(logits.float(), labels[batch], label_smoothing=0.1)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        with torch.no_grad():
            for parameter, mask in masked:
                parameter *= mask
        if step % 10 == 9 or step + 1 == steps:
            print(f"  step {step + 1} of {steps}: training loss {loss.item():.4f}, {time.monotonic() - started:.0f} s", flush=True)
    model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", type=Path, help="the folder with the dataset's four .gz files")
    parser.add_argument("sparse", type=Path, help="a model that `hipvit quantize --sparse 2:4` wrote, not in 8 bits")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--epochs", type=float, default=2, help="may be a fraction [2]")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=2e-4, help="the highest learning rate [0.0002]")
    options = parser.parse_args()
    torch.manual_seed(SEED)
    device = torch.device(options.device)
    (grey, labels), (test_grey, test_labels) = (read(options.data, part) for part in ("train", "t10k"))
    packed = load_file(options.sparse / "model.safetensors")
    tensors = dense(packed)
    # Mask the packed weights by their zeros.
    masks = {name: (tensors[name] != 0).to(device) for name in tensors if name not in packed}
    model = create(1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("blocks.")))
    model.load_state_dict(tensors)
    model = model.to(device)
    print(f"{len(masks)} weights are sparse; {options.epochs:g} epochs")
    finetune(model, masks, grey.to(device), labels.long().to(device), options)
    save(options.output, model, test_grey.to(device), test_labels.to(device))


if __name__ == "__main__":
    main()
