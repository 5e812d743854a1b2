"""Compares 100 training steps with PyTorch's, on Fashion-MNIST and on digits, in f32: gradients, updates and losses.

    apt-get download dataset-fashion-mnist && dpkg -x dataset-fashion-mnist_*.deb data
    cargo build --release -p hipvit-train --example follow
    python3 benches/training_proof.py --fashion data/usr/share/datasets/fashion-mnist

PyTorch trains in f32 (AdamW, clipping by norm, label smoothing). hipvit makes each step from PyTorch's weights and moments, and PyTorch makes
it in f64 as the reference. Needs torch, timm, scikit-learn, Pillow and safetensors.

Two figures for each tensor must be at most 1, and the largest of all steps is printed, beside that of PyTorch's own f32 step:

- gradient: the error's norm, over BOUND times the norm of the gradient and of rounding errors of the whole model's gradient
- update: the largest error of an element, over the error that the gradient's bound causes in AdamW's formula

Then a run of 100 steps of hipvit on its own has its losses compared with those of PyTorch.
"""

import argparse
import copy
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from timm.models import save_for_hf

import sys

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))
from train_fashion_mnist import read  # noqa: E402

STEPS, BATCH, RATE, DECAY, SMOOTHING = 100, 32, 5e-4, 1e-3, 0.1
BETAS, EPSILON = (0.9, 0.999), 1e-8
# Without a class token, each state of hipvit is a tensor of the model.
POOLED = {"class_token": False, "global_pool": "avg"}
# A gradient passes through some 4 sums for each of 6 blocks, forwards and backwards. Sums of up to 32·49 terms have a relative error of about
# 2**-24 · sqrt(32·49) = 2.4e-6 each, which add up to 48 · 2.4e-6 = 1.1e-4 if all have the same sign.
BOUND = 1.1e-4


def digits():
    from sklearn.datasets import load_digits

    data = load_digits()
    grey = [np.rint(image * (255 / 16)).astype(np.uint8) for image in data.images]
    grey = [np.asarray(Image.fromarray(image).resize((32, 32), Image.Resampling.BICUBIC)) for image in grey]
    model = {"img_size": 32, "patch_size": 4, "embed_dim": 64, "depth": 4, "num_heads": 4, "mlp_ratio": 2}
    return torch.from_numpy(np.stack(grey)), torch.from_numpy(data.target), model | POOLED


def fashion(folder):
    grey, labels = read(folder, "train")
    return grey, labels.long(), {"img_size": 28, "patch_size": 4, "embed_dim": 64, "depth": 6, "num_heads": 4} | POOLED


class Reference:
    """A model with AdamW's states, whose steps return what they computed."""

    def __init__(self, model):
        self.model = model.train()
        decayed = [p for p in model.parameters() if p.ndim == 2]
        others = [p for p in model.parameters() if p.ndim != 2]
        groups = [{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, eps=EPSILON)

    def states(self):
        found = {}
        for name, p in self.model.named_parameters():
            state = self.optimizer.state[p]
            found[f"weight.{name}"] = p.detach().clone()
            found[f"first_moment.{name}"] = state["exp_avg"].clone() if state else torch.zeros_like(p)
            found[f"second_moment.{name}"] = state["exp_avg_sq"].clone() if state else torch.zeros_like(p)
        return found

    def set(self, states, step):
        for name, p in self.model.named_parameters():
            p.data.copy_(states[f"weight.{name}"])
            moments = {"exp_avg": f"first_moment.{name}", "exp_avg_sq": f"second_moment.{name}"}
            self.optimizer.state[p] = {key: states[of].to(p.dtype).clone() for key, of in moments.items()}
            self.optimizer.state[p]["step"] = torch.tensor(float(step))

    def step(self, pixels, targets):
        dtype = next(self.model.parameters()).dtype
        logits = self.model((pixels.to(dtype) / 255 - 0.5) / 0.5)
        loss = torch.nn.functional.cross_entropy(logits, targets.to(dtype))
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return float(loss.detach())


def errors(before, exact, found, step):
    """Returns the largest shares of the bounds by the errors of gradients and of updates of all tensors."""
    names = [name.removeprefix("weight.") for name in exact if name.startswith("weight.")]
    before, exact, found = ({key: value.double() for key, value in of.items()} for of in (before, exact, found))

    def gradient(after, name):
        key = f"first_moment.{name}"
        return (after[key] - BETAS[0] * before[key]) / (1 - BETAS[0])

    gradients = {name: gradient(exact, name) for name in names}
    whole = sum(g.pow(2).sum() for g in gradients.values()).sqrt()
    elements = sum(g.numel() for g in gradients.values())
    worst = [0.0, 0.0]
    for name, g in gradients.items():
        # A gradient that is zero but for rounding errors, such as that of a bias of keys, has those of the sums that it is part of. The moments
        # are stored in f32.
        stored = 2**-24 * (exact[f"first_moment.{name}"].norm() + before[f"first_moment.{name}"].norm()) / (1 - BETAS[0])
        allowed = BOUND * (g.norm() + whole * (g.numel() / elements) ** 0.5) + stored
        worst[0] = max(worst[0], float((gradient(found, name) - g).norm() / allowed))
        # The bound of an element, if errors are spread over the elements within a factor of 8.
        tau = 8 * allowed / g.numel() ** 0.5
        c1, c2 = 1 - BETAS[0] ** (step + 1), 1 - BETAS[1] ** (step + 1)
        m, v, w = (exact[f"{part}.{name}"] for part in ("first_moment", "second_moment", "weight"))
        d_m = (1 - BETAS[0]) * tau + 2**-23 * m.abs()
        d_v = (1 - BETAS[1]) * (2 * g.abs() * tau + tau**2) + 2**-23 * v
        root = (v / c2).sqrt()
        d_root = torch.minimum((d_v / c2).sqrt(), d_v / c2 / (2 * root).clamp_min(1e-300))
        lower = (root - d_root).clamp_min(0) + EPSILON
        bound = RATE * (d_m / c1 / lower + m.abs() / c1 * d_root / (lower * (root + EPSILON))) + 2**-22 * w.abs() + 2**-22 * RATE
        worst[1] = max(worst[1], float(((found[f"weight.{name}"] - w).abs() / bound).max()))
    return worst


def prove(name, grey, labels, arguments, follow, device):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    classes = int(labels.max()) + 1
    model = timm.create_model("vit_tiny_patch16_224", num_classes=classes, **arguments)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "steps").mkdir()
        data = {"crop_pct": 1.0, "interpolation": "bicubic", "mean": (0.5,) * 3, "std": (0.5,) * 3}
        with torch.no_grad():
            for p in model.parameters():
                # No two tensors are equal, and none is all zeros.
                p += torch.randn(p.shape, generator=generator) * 1e-3
        save_for_hf(model, folder / "model", safe_serialization=True, model_config={"model_args": arguments}, data_config=data)
        trained, exact = Reference(model), Reference(copy.deepcopy(model).double())
        steps, losses = [], []
        for step in range(STEPS):
            chosen = torch.randint(len(grey), (BATCH,), generator=generator)
            pixels = grey[chosen].unsqueeze(-1).expand(-1, -1, -1, 3).contiguous()
            targets = torch.nn.functional.one_hot(labels[chosen], classes).float() * (1 - SMOOTHING) + SMOOTHING / classes
            before = trained.states()
            save_file(before | {"pixels": pixels, "targets": targets, "rate": torch.tensor([RATE])}, folder / f"steps/{step:03}.safetensors")
            exact.set(before, step)
            planes = pixels.permute(0, 3, 1, 2)
            exact.step(planes, targets)
            losses.append(trained.step(planes, targets))
            steps.append((before, exact.states(), trained.states()))
        lines = subprocess.run([follow, folder, device], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        lines = [json.loads(line) for line in lines]
        followed = [load_file(folder / f"followed/{step:03}.safetensors") for step in range(STEPS)]
    shares = {"hipvit": [0.0, 0.0], "PyTorch": [0.0, 0.0]}
    for step, (before, reference, pytorch) in enumerate(steps):
        for who, found in (("hipvit", followed[step]), ("PyTorch", pytorch)):
            found = {key: value.reshape(reference[key].shape) for key, value in found.items()}
            shares[who] = [max(pair) for pair in zip(shares[who], errors(before, reference, found, step))]
    followed_loss = max(abs(line["loss"] - loss) for line, loss in zip(lines, losses))
    free = [abs(line["free_loss"] - loss) for line, loss in zip(lines, losses)]
    print(f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f}")
    for who, (gradient, update) in shares.items():
        print(f"  {who:7} largest error as a share of its bound: gradient {gradient:.3f}, update {update:.3f}")
    print(f"  losses of single steps differ by at most {followed_loss:.1e}, those of the free run by at most {max(free):.1e}")
    return max(shares["hipvit"]) <= 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--fashion", type=Path, help="the folder with the files of Fashion-MNIST; without it, only digits")
    parser.add_argument("--follow", default="target/release/examples/follow")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    sets = {"digits": digits()}
    if arguments.fashion:
        sets["Fashion-MNIST"] = fashion(arguments.fashion)
    passed = [prove(name, *of, arguments.follow, arguments.device) for name, of in sets.items()]
    if not all(passed):
        sys.exit("an error exceeds its bound")


if __name__ == "__main__":
    main()
