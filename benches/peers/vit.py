"""Loads a timm model directory in PyTorch: by timm where it is installed, otherwise as a plain Vision Transformer of the
same graph and the same tensor names."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from .float8 import Float8Linear, quantize

WIDTHS = {"tiny": (192, 12, 3), "small": (384, 12, 6), "base": (768, 12, 12), "large": (1024, 24, 16)}


class Attention(nn.Module):
    def __init__(self, channels: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)

    def forward(self, x):
        images, tokens, channels = x.shape
        qkv = self.qkv(x).reshape(images, tokens, 3, self.heads, channels // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(images, tokens, channels))


class Mlp(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.fc1 = nn.Linear(channels, 4 * channels)
        self.fc2 = nn.Linear(4 * channels, channels)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, channels: int, heads: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(channels, eps=1e-6)
        self.attn = Attention(channels, heads)
        self.norm2 = nn.LayerNorm(channels, eps=1e-6)
        self.mlp = Mlp(channels)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchEmbed(nn.Module):
    def __init__(self, channels: int, patch: int):
        super().__init__()
        self.proj = nn.Conv2d(3, channels, patch, patch)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class VisionTransformer(nn.Module):
    """The graph of timm's class of this name, with a class token."""

    def __init__(self, channels: int, depth: int, heads: int, patch: int, size: int, classes: int):
        super().__init__()
        self.patch_embed = PatchEmbed(channels, patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, channels))
        self.pos_embed = nn.Parameter(torch.zeros(1, (size // patch) ** 2 + 1, channels))
        self.blocks = nn.Sequential(*(Block(channels, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.patch_embed(x)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


@dataclass
class Loaded:
    """A model with what its input needs."""

    name: str
    module: nn.Module
    size: tuple[int, int]
    mean: list[float]
    std: list[float]
    # The code that defines the module, with its version.
    source: str

    def flops(self) -> float | None:
        """Floating-point operations per image of the GEMMs and of attention, two for each multiplication with addition."""
        module = self.module
        try:
            tokens = module.pos_embed.shape[1]
            channels = module.pos_embed.shape[2]
            linear = sum(m.weight.numel() for m in module.blocks.modules() if isinstance(m, nn.Linear | Float8Linear))
            patches = tokens - 1
            macs = patches * module.patch_embed.proj.weight.numel() + tokens * linear + module.head.weight.numel()
            return 2.0 * (macs + len(module.blocks) * 2 * tokens**2 * channels)
        except AttributeError:
            return None


def plain(architecture: str, classes: int) -> nn.Module:
    found = re.match(r"vit_(tiny|small|base|large)_patch(\d+)_(\d+)$", architecture.split(".")[0])
    if not found:
        raise ValueError(f"{architecture} needs timm, which is not installed")
    width, patch, size = found[1], int(found[2]), int(found[3])
    return VisionTransformer(*WIDTHS[width], patch, size, classes)


def load(directory: Path, prefer_timm: bool = True) -> Loaded:
    """The model of a directory, in f32 on the CPU, with every tensor of its file in place."""
    from safetensors.torch import load_file

    config = json.loads((directory / "config.json").read_text())
    architecture, classes = config["architecture"], config.get("num_classes", 1000)
    try:
        timm = __import__("timm") if prefer_timm else None
    except ImportError:
        timm = None
    source = f"timm {timm.__version__}" if timm else f"plain PyTorch {torch.__version__}"

    def create() -> nn.Module:
        if timm:
            return timm.create_model(architecture, **{"num_classes": classes, **(config.get("model_args") or {})})
        return plain(architecture, classes)

    tensors = load_file(directory / "model.safetensors")
    # Create it without memory, which avoids initialising what is replaced.
    with torch.device("meta"):
        module = create()
        quantize(module, tensors)
    module.load_state_dict(tensors, assign=True)
    if any(of.is_meta for of in (*module.parameters(), *module.buffers())):
        # It has buffers that are not saved.
        module = create()
        quantize(module, tensors)
        module.load_state_dict(tensors)
    pretrained = config.get("pretrained_cfg") or {}
    height, width = pretrained.get("input_size", [3, 224, 224])[1:]
    mean, std = (list(pretrained.get(name) or [0.5] * 3) for name in ("mean", "std"))
    return Loaded(architecture, module.eval().requires_grad_(False), (height, width), mean, std, source)
