"""Random weights that make every tensor matter, and a check that each does.

A new model has zero biases, unit norms and a tiny LayerScale. A loader that drops or swaps those would still give the right logits.
`randomise` draws every tensor. `silent_tensors` then disturbs each tensor alone and reports those that do not change the output.

See also: golden_timm.py and golden_transformers.py, which build the models.
"""

import math
import zlib

import torch

# Standard deviations of outputs, chosen for logits of a few units and attention far from uniform.
ATTENTION_GAIN = 1.5
HEAD_GAIN = 2.5
EMBEDDING_STD = 0.6

ATTENTION = ("qkv", "q_proj", "k_proj", "query", "key", ".q.", ".kv.", "in_proj_weight", "in_proj.weight")
HEADS = ("head.weight", "head_dist.weight", "classifier.weight", "projection.weight")
EMBEDDINGS = ("pos_embed", "position_embedding", "token", "class_embedding", "latent", "probe")


def draw(name: str, shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    """One tensor, by the role that its name and rank imply."""
    normal = torch.randn(shape, generator=generator)
    if any(part in name for part in EMBEDDINGS):
        return normal * EMBEDDING_STD
    if name.endswith(("gamma", "gamma_1", "gamma_2", "lambda1")):
        return 0.4 + 0.6 * torch.rand(shape, generator=generator)
    if len(shape) == 1 and name.endswith("weight") or name.endswith(".alpha"):
        return 0.6 + 0.8 * torch.rand(shape, generator=generator)
    if len(shape) <= 1 or name.endswith(".beta"):
        return normal * 0.25
    gain = 1.0
    if any(part in name for part in ATTENTION):
        gain = ATTENTION_GAIN
    elif name.endswith(HEADS):
        gain = HEAD_GAIN
    return normal * (gain / math.sqrt(math.prod(shape[1:])))


@torch.no_grad()
def randomise(model: torch.nn.Module, case: str) -> None:
    """Fills every parameter from a generator seeded by the case and the tensor's name, so order does not matter."""
    for name, parameter in model.named_parameters():
        generator = torch.Generator().manual_seed(zlib.crc32(f"{case}/{name}".encode()))
        parameter.copy_(draw(name, parameter.shape, generator))


@torch.no_grad()
def silent_tensors(model: torch.nn.Module, output) -> list[str]:
    """Names of parameters that do not move `output()` when disturbed; an f64 model, so 1e-9 is far above rounding."""
    before = output()
    silent = []
    for name, parameter in model.named_parameters():
        kept = parameter.clone()
        generator = torch.Generator().manual_seed(7)
        parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype), alpha=0.1)
        if (output() - before).abs().max() < 1e-9:
            silent.append(name)
        parameter.copy_(kept)
    return silent
