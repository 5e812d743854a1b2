"""Trains a ViT of 208,000 parameters on Fashion-MNIST by hipvit and by PyTorch, with equal recipes and several seeds.

    apt-get download dataset-fashion-mnist && dpkg -x dataset-fashion-mnist_*.deb data
    python3 benches/fashion_twin.py data/usr/share/datasets/fashion-mnist --hipvit target/release/hipvit --epochs 30 --seeds 0,1,2

Recipe and model are benches/fashion/recipe.toml and config.json. PyTorch's twin has the same initial distributions, augmentation, groups of
weight decay and learning rates, with other random numbers. Both compute in f32 without TF32. On a GPU, PyTorch replays a CUDA graph of a step, and
its images are in the GPU's memory. Needs only torch and numpy.
"""

import argparse
import gzip
import json
import math
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

HERE = Path(__file__).resolve().parent / "fashion"
SIDE, TEST_BATCH = 28, 2000


def read_idx(file):
    data = gzip.decompress(file.read_bytes())
    header = 4 + 4 * data[3]
    shape = np.frombuffer(data[4:header], ">u4").astype(int).tolist()
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=header).reshape(shape).copy())


def read(folder, part, device):
    images, labels = (read_idx(folder / f"{part}-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1"))
    return images.to(device), labels.long().to(device)


class Block(nn.Module):
    def __init__(self, channels, heads, hidden):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.LayerNorm(channels, eps=1e-6) for _ in range(2))
        self.qkv, self.proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.fc1, self.fc2 = nn.Linear(channels, hidden), nn.Linear(hidden, channels)

    def forward(self, x):
        images, tokens, channels = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(images, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*qkv.unbind(0)).transpose(1, 2).reshape(images, tokens, channels)
        x = x + self.proj(attended)
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class ViT(nn.Module):
    """The model of config.json, with the initial distributions of timm and hipvit."""

    def __init__(self, arguments, classes):
        super().__init__()
        channels, patch = arguments["embed_dim"], arguments["patch_size"]
        self.patches = nn.Conv2d(3, channels, patch, patch)
        self.positions = nn.Parameter(torch.empty(1, (SIDE // patch) ** 2, channels))
        hidden = int(channels * arguments["mlp_ratio"])
        self.blocks = nn.Sequential(*(Block(channels, arguments["num_heads"], hidden) for _ in range(arguments["depth"])))
        self.norm, self.head = nn.LayerNorm(channels, eps=1e-6), nn.Linear(channels, classes)
        nn.init.trunc_normal_(self.positions, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        fan_in = self.patches.weight[0].numel()
        # LeCun's normal distribution, as timm truncates it.
        nn.init.trunc_normal_(self.patches.weight, std=math.sqrt(1 / fan_in) / 0.87962566103423978)
        nn.init.zeros_(self.patches.bias)

    def forward(self, grey):
        """`grey`: u8 [images,28,28]."""
        pixels = ((grey.float() / 255 - 0.5) / 0.5).unsqueeze(1).expand(-1, 3, -1, -1)
        x = self.patches(pixels).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.norm(self.blocks(x).mean(1)))


def augment(grey, padding):
    """Each image cut out of the padded image at random, and mirrored or not."""
    count, device = len(grey), grey.device
    padded = F.pad(grey, (padding,) * 4)
    start = torch.randint(2 * padding + 1, (2, count, 1), device=device)
    rows, columns = start + torch.arange(SIDE, device=device)
    columns = torch.where(torch.rand((count, 1), device=device) < 0.5, columns.flip(1), columns)
    return padded[torch.arange(count, device=device).view(-1, 1, 1), rows[:, :, None], columns[:, None, :]]


class Twin:
    def __init__(self, recipe, arguments, images, labels, seed):
        torch.manual_seed(seed)
        self.recipe, self.images, self.labels, self.device = recipe, images, labels, images.device
        self.model = ViT(arguments, int(labels.max()) + 1).to(self.device)
        decayed = [p for name, p in self.model.named_parameters() if p.ndim > 1 and name != "positions"]
        others = [p for name, p in self.model.named_parameters() if p.ndim == 1 or name == "positions"]
        self.rate = torch.tensor(0.0, device=self.device)
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": recipe["optimizer"]["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
            lr=self.rate, fused=True, capturable=self.device.type == "cuda")
        self.places = torch.zeros(recipe["batch"], dtype=torch.long, device=self.device)
        self.step = self.captured() if self.device.type == "cuda" else self.eager

    def eager(self):
        grey = augment(self.images[self.places], self.recipe["augmentation"]["padding"])
        loss = F.cross_entropy(self.model(grey), self.labels[self.places])
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)

    def captured(self):
        # At a rate of 0, the warm-up changes no weight; the moments and their count start again.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.eager()
        torch.cuda.current_stream().wait_stream(stream)
        for state in self.optimizer.state.values():
            for value in state.values():
                value.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.eager()
        return graph.replay

    def learning_rate(self, step, steps, each):
        schedule, peak = self.recipe["schedule"], self.recipe["optimizer"]["lr"]
        warmup = round(schedule["warmup_epochs"] * each)
        if step < warmup:
            return schedule["warmup_lr"] + step * (peak - schedule["warmup_lr"]) / warmup
        return schedule["min_lr"] + (peak - schedule["min_lr"]) * 0.5 * (1 + math.cos(math.pi * step / steps))

    def train(self, epochs):
        batch = self.recipe["batch"]
        each = len(self.images) // batch
        for epoch in range(epochs):
            order = torch.randperm(len(self.images), device=self.device)
            for number in range(each):
                self.places.copy_(order[number * batch : (number + 1) * batch])
                self.rate.fill_(self.learning_rate(epoch * each + number, epochs * each, each))
                self.step()

    @torch.no_grad()
    def accuracy(self, images, labels):
        hits = [self.model(part).argmax(1) for part in images.split(TEST_BATCH)]
        return 100 * (torch.cat(hits) == labels).double().mean().item()


def hipvit(program, data, recipe, epochs, seed, more):
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [program, "train", data, "-m", HERE / "config.json", "-o", run, "--recipe", recipe,
                   "--epochs", epochs, "--seed", seed, "--log-every", 1000, *more]
        done = subprocess.run([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        return 100 * [line for line in lines if line["event"] == "epoch"][-1]["val_accuracy"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", type=Path, help="the folder with the dataset's four .gz files")
    parser.add_argument("--hipvit", help="the program; without it, only PyTorch trains")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-twin", action="store_true", help="train by hipvit only")
    parser.add_argument("--images", type=int, help="train PyTorch's twin on fewer images, to try the script")
    arguments = parser.parse_args()
    recipe = tomllib.loads((HERE / "recipe.toml").read_text())
    model = json.loads((HERE / "config.json").read_text())["model_args"]
    torch.set_float32_matmul_precision("highest")
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    found = {}
    for seed in seeds if arguments.hipvit else []:
        begun = time.perf_counter()
        more = ["--device", "cpu" if arguments.device == "cpu" else "hip", "--dtype", "f32"]
        accuracy = hipvit(arguments.hipvit, arguments.data, HERE / "recipe.toml", arguments.epochs, seed, more)
        found.setdefault("hipvit", []).append(accuracy)
        print(f"hipvit   seed {seed}: {accuracy:.2f} %, {time.perf_counter() - begun:.1f} s", flush=True)
    for seed in [] if arguments.no_twin else seeds:
        begun = time.perf_counter()
        images, labels = read(arguments.data, "train", arguments.device)
        twin = Twin(recipe, model, images[: arguments.images], labels[: arguments.images], seed)
        twin.train(arguments.epochs)
        accuracy = twin.accuracy(*read(arguments.data, "t10k", arguments.device))
        found.setdefault("PyTorch", []).append(accuracy)
        print(f"PyTorch  seed {seed}: {accuracy:.2f} %, {time.perf_counter() - begun:.1f} s", flush=True)
    card = torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU"
    print(f"{arguments.epochs} epochs, {len(seeds)} seeds, f32, {card}, PyTorch {torch.__version__}")
    for who, accuracies in found.items():
        print(f"{who:8} mean {np.mean(accuracies):.2f} %, standard deviation {np.std(accuracies):.2f}")


if __name__ == "__main__":
    main()
