"""Writes tests/golden/adapters: LoRA adapters as peft saves them, for the models of tests/golden, with peft's outputs in double precision:

    venv/bin/pip install -r scripts/requirements.txt
    venv/bin/python scripts/golden_adapters.py

Each folder has adapter_config.json, adapter_model.safetensors and golden.safetensors: `output`, what the base model with the adapter makes
of the `pixel_values` of the base model's own golden.safetensors. cases.json names the base model and the output. Every output is computed
twice, by peft's PeftModel and, for models of transformers, by from_pretrained of a directory with the model and the adapter.

See also: goldens.py, which writes the base models.
"""

import json
import re
import shutil
import tempfile
import zlib
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import peft
import timm
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from transformers.models.aimv2.modeling_aimv2 import Aimv2RMSNorm

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
DIRECTORY = GOLDEN / "adapters"


@dataclass
class Case:
    name: str
    base: str
    lora: dict[str, Any]
    # "logits", "pooler_output", "image_embeds" or "text_embeds".
    output: str = "logits"
    # Renames tensors after saving, into the names of other releases.
    renames: tuple[tuple[str, str], ...] = ()
    # Changes of adapter_config.json after saving.
    config: dict[str, Any] = field(default_factory=dict)
    # Why transformers' from_pretrained gives other values, or none.
    only_peft: str = ""


DORA = "it does not load DoRA's magnitudes (transformers 5.23 reports them as missing)"
V4 = ((r"\.layers\.", ".encoder.layer."), (r"attention\.q_proj", "attention.attention.query"),
      (r"attention\.v_proj", "attention.attention.value"))
CASES = [
    Case("vit_plain", "hf_vit", {"target_modules": ["q_proj", "v_proj"], "r": 2, "lora_alpha": 8}),
    Case("vit_rslora", "hf_vit", {"target_modules": ["q_proj", "v_proj"], "r": 4, "lora_alpha": 3, "use_rslora": True}),
    Case("vit_patterns", "hf_vit", {"target_modules": r".*\.(q_proj|v_proj|fc1|fc2)", "r": 2, "lora_alpha": 4,
                                    "rank_pattern": {"layers.0.attention.q_proj": 3, "fc[12]": 1},
                                    "alpha_pattern": {"v_proj": 7, r"layers\.1\.mlp\.fc2": 5}}),
    Case("vit_dora", "hf_vit", {"target_modules": ["q_proj", "o_proj", "fc2"], "r": 2, "lora_alpha": 4, "use_dora": True},
         only_peft=DORA),
    Case("vit_dora_conv", "hf_vit", {"target_modules": ["projection", "v_proj"], "r": 2, "lora_alpha": 4, "use_dora": True},
         only_peft=DORA),
    Case("vit_modules_to_save", "hf_vit", {"target_modules": ["query", "q_proj", "v_proj"], "modules_to_save": ["classifier", "layernorm"],
                                           "r": 2}),
    Case("vit_bias_all", "hf_vit", {"target_modules": ["q_proj", "v_proj"], "r": 2, "bias": "all"}),
    Case("vit_bias_lora_only", "hf_vit", {"target_modules": ["q_proj", "fc1"], "r": 2, "bias": "lora_only"}),
    Case("vit_lora_bias", "hf_vit", {"target_modules": ["q_proj", "fc1"], "r": 2, "lora_bias": True}),
    Case("vit_conv", "hf_vit", {"target_modules": ["projection", "k_proj"], "r": 3, "lora_alpha": 6}),
    Case("vit_all_linear", "hf_vit", {"target_modules": "all-linear", "exclude_modules": ["fc1"], "r": 1}),
    Case("vit_one_layer", "hf_vit", {"target_modules": ["q_proj"], "layers_to_transform": [1], "layers_pattern": "layers", "r": 2}),
    Case("vit_parameters", "hf_vit", {"target_modules": [], "target_parameters": ["q_proj.weight", "fc1.weight"], "r": 2}),
    Case("vit_fan_in_fan_out", "hf_vit", {"target_modules": ["q_proj", "fc1"], "fan_in_fan_out": True, "r": 2}),
    Case("vit_v4_names", "hf_vit", {"target_modules": ["q_proj", "v_proj"], "r": 2, "lora_alpha": 8}, renames=V4,
         config={"target_modules": ["query", "value"]}, only_peft="its modules have other names now"),
    Case("vit_shards", "hf_vit_sharded", {"target_modules": ["q_proj", "v_proj", "classifier"], "r": 2}),
    Case("vit_trunk", "hf_vit_model", {"target_modules": ["k_proj", "dense"], "r": 2}, output="pooler_output"),
    Case("deit", "hf_deit", {"target_modules": ["q_proj", "fc2"], "r": 2}),
    Case("dinov2_swiglu", "hf_dinov2_swiglu", {"target_modules": ["gate_proj", "up_proj", "down_proj", "v_proj", "o_proj"], "r": 2},
         output="pooler_output"),
    Case("dinov2_swiglu_dora", "hf_dinov2_swiglu", {"target_modules": ["up_proj", "down_proj"], "r": 2, "use_dora": True},
         output="pooler_output", only_peft=DORA),
    Case("dinov2_registers", "hf_dinov2_registers", {"target_modules": ["q_proj", "fc1"], "r": 2}),
    Case("dinov3", "hf_dinov3_gated", {"target_modules": ["q_proj", "gate_proj", "down_proj"], "r": 2}, output="pooler_output"),
    Case("beit", "hf_beit", {"target_modules": ["q_proj", "k_proj", "fc1"], "r": 2}),
    Case("aimv2", "hf_aimv2", {"target_modules": ["q_proj", "visual_projection"], "r": 2}, output="image_embeds"),
    Case("siglip", "hf_siglip", {"target_modules": ["q_proj", "fc2"], "r": 2}, output="image_embeds"),
    Case("siglip_vision", "hf_siglip_vision", {"target_modules": ["k_proj", "fc1"], "r": 2}, output="pooler_output"),
    Case("siglip_pool", "hf_siglip_vision", {"target_modules": ["head.attention"], "r": 2}, output="pooler_output"),
    Case("siglip_classifier", "hf_siglip_classifier", {"target_modules": ["q_proj"], "modules_to_save": ["classifier"], "r": 2}),
    Case("clip_vision", "hf_clip_vision", {"target_modules": ["q_proj", "v_proj"], "r": 2}, output="pooler_output"),
    Case("clip_vision_prefixed", "hf_clip_vision_prefixed", {"target_modules": ["q_proj", "v_proj"], "r": 2}, output="pooler_output",
         renames=((r"base_model\.model\.", "base_model.model.vision_model."),)),
    Case("clip_towers", "zero_shot/hf_clip", {"target_modules": ["q_proj", "visual_projection", "text_projection", "token_embedding",
                                                                 "position_embedding"], "r": 2}, output="text_embeds"),
    Case("clip_towers_dora", "zero_shot/hf_clip", {"target_modules": ["v_proj", "token_embedding"], "r": 2, "use_dora": True},
         output="text_embeds", only_peft=DORA),
    Case("timm_qkv", "timm_test_vit", {"target_modules": ["qkv", "proj", "fc1"], "modules_to_save": ["head"], "r": 2}),
    Case("timm_bf16", "timm_vit_bf16", {"target_modules": ["qkv", "fc2"], "r": 2}),
    Case("timm_f16_dora", "timm_vit_f16", {"target_modules": ["qkv", "fc2"], "r": 2, "use_dora": True}),
]


def rms_norm(module: Aimv2RMSNorm, x: torch.Tensor) -> torch.Tensor:
    """The library's, in double precision."""
    return module.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + module.variance_epsilon)


def in_double(model: torch.nn.Module) -> torch.nn.Module:
    for module in model.modules():
        if isinstance(module, Aimv2RMSNorm):
            module.forward = partial(rms_norm, module)
    return model.double().eval()


def is_timm(directory: Path) -> bool:
    return "architecture" in json.loads((directory / "config.json").read_text())


def load(directory: Path) -> torch.nn.Module:
    if is_timm(directory):
        return timm.create_model(f"local-dir:{directory}", pretrained=True).double().eval()
    config = json.loads((directory / "config.json").read_text())
    return in_double(getattr(hf, config["architectures"][0]).from_pretrained(directory, dtype=torch.float64))


@torch.no_grad()
def outputs(case: Case, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    base = GOLDEN / case.base
    golden = load_file(base / "golden.safetensors")
    pixels = golden["pixel_values"].double()
    if is_timm(base):
        return {"output": model(pixels)}
    if case.output == "logits":
        return {"output": model(pixel_values=pixels).logits}
    if case.output == "pooler_output":
        return {"output": model(pixel_values=pixels).pooler_output}
    images = {"output": model.get_image_features(pixel_values=pixels).pooler_output}
    if case.output == "text_embeds":
        ids = golden["input_ids"].long()
        mask = (ids >= 0).long()
        text = model.get_text_features(input_ids=ids.clamp(min=0), attention_mask=mask)
        images["text_embeds"] = text.pooler_output
    return images


@torch.no_grad()
def randomise(model: torch.nn.Module, case: Case) -> None:
    """Draws what the adapter saves. An untrained adapter changes nothing."""
    biases = case.lora.get("bias", "none")
    for name, parameter in model.named_parameters():
        generator = torch.Generator().manual_seed(zlib.crc32(f"{case.name}/{name}".encode()))
        normal = torch.randn(parameter.shape, generator=generator)
        if "lora_magnitude_vector" in name:
            parameter.mul_(1 + 0.2 * normal)
        elif "lora_" in name:
            parameter.copy_(normal * 0.35)
        elif "modules_to_save" in name:
            parameter.add_(normal * 0.3)
        elif name.endswith("bias") and (biases == "all" or biases == "lora_only" and "base_layer" in name):
            parameter.copy_(normal * 0.3)


def run(case: Case) -> dict[str, Any]:
    directory = DIRECTORY / case.name
    base = GOLDEN / case.base
    shutil.rmtree(directory, ignore_errors=True)
    model = peft.get_peft_model(load(base).float(), peft.LoraConfig(**case.lora))
    randomise(model, case)
    model.save_pretrained(directory)
    (directory / "README.md").unlink()

    saved = peft.PeftModel.from_pretrained(load(base), directory)
    result = outputs(case, in_double(saved))
    merged = outputs(case, in_double(saved.merge_and_unload()))
    plain = outputs(case, load(base))
    for name, value in result.items():
        assert torch.allclose(value, merged[name], rtol=1e-6, atol=1e-6), f"{case.name}: {name} differs when merged"
        assert (value - plain[name]).abs().max() > 0.01, f"{case.name}: {name} is the base model's"

    file = directory / "adapter_config.json"
    config = json.loads(file.read_text()) | {"base_model_name_or_path": f"golden/{case.base}"} | case.config
    # Sets are saved in no defined order.
    lists = ("target_modules", "modules_to_save", "target_parameters", "exclude_modules")
    config |= {key: sorted(config[key]) for key in lists if isinstance(config.get(key), list)}
    file.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    if case.renames:
        tensors = load_file(directory / "adapter_model.safetensors")
        for pattern, name in case.renames:
            tensors = {re.sub(pattern, name, key): value for key, value in tensors.items()}
        save_file(tensors, directory / "adapter_model.safetensors", metadata={"format": "pt"})
    if not is_timm(base) and not case.only_peft:
        with tempfile.TemporaryDirectory() as both:
            shutil.copytree(base, both, dirs_exist_ok=True)
            shutil.copytree(directory, both, dirs_exist_ok=True)
            beside = outputs(case, load(Path(both)))
        for name, value in result.items():
            assert torch.allclose(value, beside[name], rtol=1e-6, atol=1e-6), f"{case.name}: {name} of from_pretrained differs"
    save_file({name: value.contiguous() for name, value in result.items()}, directory / "golden.safetensors")
    return {"name": case.name, "base": case.base, "output": case.output}


if __name__ == "__main__":
    index = [run(case) for case in CASES]
    (DIRECTORY / "cases.json").write_text(json.dumps(index, indent=1) + "\n")
