"""Writes tests/data/explain: pixel contributions of golden timm models' logits, by other implementations.

    venv/bin/pip install -r scripts/requirements.txt captum==0.9.0 lxt==2.1
    venv/bin/python scripts/golden_explanations.py

Integrated gradients are captum's; AttnLRP and conservative propagation are gradient times input with the rules of lxt
(`lxt.efficient.rules`) in timm's layers. All in double precision, stored as f32. The models and pixel values are those of
tests/golden, whose images come first. See also: goldens.py.
"""

import importlib.metadata
import importlib.util
import json
from pathlib import Path

import captum
import timm
import torch
from captum.attr import IntegratedGradients
from safetensors.torch import load_file, save_file

def lxt_rules():
    """The module of rules alone: the package imports models of transformers 4."""
    file = next(f for f in importlib.metadata.files("lxt") if str(f) == "lxt/efficient/rules.py")
    spec = importlib.util.spec_from_file_location("lxt_rules", file.locate())
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rules = lxt_rules()
divide_gradient, identity_rule_implicit, stop_gradient = rules.divide_gradient, rules.identity_rule_implicit, rules.stop_gradient

TESTS = Path(__file__).resolve().parent.parent / "tests"
MODELS = ["timm_vit_no_qkv_bias", "timm_vit_reg4_gap", "timm_siglip2_tanh", "timm_dinov2_reg4", "timm_vit_rms_norm",
          "timm_vit_differential"]
STEPS = 20
original_attention = torch.nn.functional.scaled_dot_product_attention


def layer_norm(self, x):
    mean = x.mean(-1, keepdim=True)
    deviation = (((x - mean) ** 2).mean(-1, keepdim=True) + self.eps).sqrt()
    return (x - mean) / stop_gradient(deviation) * self.weight + self.bias


def rms_norm(self, x):
    return x * stop_gradient(((x ** 2).mean(-1, keepdim=True) + self.eps).rsqrt()) * self.weight


def attnlrp_attention(query, key, value, **options):
    return original_attention(divide_gradient(query, 4), divide_gradient(key, 4), divide_gradient(value, 2), **options)


def conservative_attention(query, key, value, **options):
    return original_attention(stop_gradient(query), stop_gradient(key), value, **options)


def relevance(name: str, image: torch.Tensor, target: int, attention) -> torch.Tensor:
    model = load(name)
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.forward = layer_norm.__get__(module)
        elif type(module).__name__ == "RmsNorm":
            module.forward = rms_norm.__get__(module)
        elif type(module).__name__ in ("GELU", "GELUTanh", "QuickGELU"):
            function = module.forward
            module.forward = lambda x, function=function: identity_rule_implicit(function, x)
    image = image.clone().requires_grad_()
    torch.nn.functional.scaled_dot_product_attention = attention
    try:
        model(image)[0, target].backward()
    finally:
        torch.nn.functional.scaled_dot_product_attention = original_attention
    return (image.grad * image).detach()


def load(name: str) -> torch.nn.Module:
    return timm.create_model(f"local-dir:{TESTS / 'golden' / name}", pretrained=True).eval().double()


def main() -> None:
    torch.set_num_threads(1)
    directory = TESTS / "data" / "explain"
    directory.mkdir(parents=True, exist_ok=True)
    described = {"captum": captum.__version__, "torch": torch.__version__.split("+")[0], "timm": timm.__version__,
                 "lxt": "2.1", "steps": STEPS, "baseline": 0, "models": {}}
    for name in MODELS:
        pixel_values = load_file(TESTS / "golden" / name / "golden.safetensors")["pixel_values"]
        image = pixel_values[:1].double()
        model = load(name)
        logits = model(image)[0]
        target = int(logits.argmax())
        integrated = IntegratedGradients(model).attribute(image, target=target, n_steps=STEPS, method="gausslegendre")
        tensors = {
            "integrated-gradients": integrated.detach(),
            "attnlrp": relevance(name, image, target, attnlrp_attention),
            "conservative": relevance(name, image, target, conservative_attention),
        }
        save_file({key: value[0].float().contiguous() for key, value in tensors.items()}, directory / f"{name}.safetensors")
        described["models"][name] = {"class": target, "logit": float(logits[target].detach())}
        print(name, target, float(logits[target].detach()), {key: float(value.sum()) for key, value in tensors.items()})
    (directory / "explanations.json").write_text(json.dumps(described, indent=2) + "\n")


if __name__ == "__main__":
    main()
