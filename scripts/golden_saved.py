"""Writes tests/golden/saved and tests/golden/zero_shot/open_clip_saved: small models as the libraries' own functions save them for
the hub, and timm's directories as people edit them, with the libraries' outputs in double precision.

    venv/bin/python scripts/golden_saved.py

See also: goldens.py, and tests/golden/README.md for the files.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import open_clip
import timm
import torch
from open_clip.model import set_model_preprocess_cfg
from open_clip.push_to_hf_hub import generate_readme as open_clip_readme, save_for_hf as save_open_clip
from PIL import Image
from timm.models import save_for_hf
from timm.models._hub import generate_readme

from golden_outputs import save_golden
from golden_timm import TimmCase
from golden_weights import randomise
from golden_zero_shot import CONTEXT, IMAGES, LABELS, TEMPLATES, TEXTS, clip_tokenizer, clip_vocabulary, unit

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
TINY = {"embed_dim": 12, "depth": 1, "num_heads": 2, "mlp_ratio": 2, "num_classes": 4}


@dataclass
class HubCase(TimmCase):
    """The files of `timm.models.push_to_hf_hub`: weights in both formats and a model card. The hub adds `.gitattributes`, which here
    would make git take the weights for LFS files."""

    def save(self, directory: Path) -> None:
        model = timm.create_model(self.architecture, **self.args).eval()
        randomise(model, self.name)
        save_for_hf(model, directory, model_config=self.labels, data_config=self.data, safe_serialization="both")
        (directory / "README.md").write_text(generate_readme({"license": "mit"}, self.name))


def edited(model_args: dict | None = None, pretrained_cfg: dict | None = None, **top):
    """Changes keys of config.json, as people do by hand."""

    def edit(config, tensors):
        config |= top
        config["model_args"] |= model_args or {}
        config["pretrained_cfg"] |= pretrained_cfg or {}
        return config, tensors

    return edit


CASES = [
    HubCase("timm_hub", "vit", "vit_tiny_patch16_224", TINY | {"patch_size": 8, "img_size": 32},
            images=("small.png",), labels={"label_names": ["cat", "dog", "okapi", "tench"]},
            note="what push_to_hf_hub uploads"),
    TimmCase("timm_tag", "vit", "vit_small_patch16_224", TINY | {"patch_size": 8, "img_size": 32}, images=("wide.png",),
             edit=edited(architecture="vit_small_patch16_224.augreg_in21k_ft_in1k",
                         pretrained_cfg={"mean": 0.4, "std": 0.3, "crop_pct": 1.25, "crop_mode": "centre"}),
             note="an architecture with a tag, one number for mean and for std, a crop_pct above 1"),
    TimmCase("timm_patch", "vit", "vit_small_patch8_224", TINY | {"patch_size": 8, "img_size": 32}, images=("small.png",),
             edit=edited({"patch_size": 12, "img_size": 36}, {"input_size": [3, 36, 36]}),
             note="the weights are of patches of 8x8, the model's of 12x12: timm resamples them at load"),
    TimmCase("timm_patch_flexi", "vit", "flexivit_small", TINY | {"patch_size": 8, "img_size": 32}, images=("tall.png",),
             edit=edited({"patch_size": [6, 5]}),
             note="as timm_patch, to patches of 6x5 and by bilinear interpolation, as FlexiViT's are"),
    TimmCase("timm_dynamic", "vit", "vit_tiny_patch16_224", TINY | {"patch_size": 8, "img_size": 32}, images=("small.png",),
             edit=edited({"dynamic_img_size": True, "img_size": [48, 40]}, {"input_size": [3, 40, 64]}),
             note="positions of 4x4 patches are fitted to the model's 6x5 at load, and to the image's 5x8 in the forward pass"),
    TimmCase("timm_patch_bf16", "vit", "vit_small_patch8_224", TINY | {"patch_size": 8, "img_size": 32}, images=("small.png",),
             dtype=torch.bfloat16, edit=edited({"patch_size": 12, "img_size": [48, 60]}, {"input_size": [3, 48, 60]}),
             note="patches and positions are resampled, and rounded to the stored type"),
    TimmCase("timm_no_classes", "vit", "vit_tiny_patch16_224", TINY | {"patch_size": 8, "img_size": 32},
             images=("small.png",), edit=edited({"num_classes": 0, "qkv_bias": 1, "pool_include_prefix": None}),
             note="model_args.num_classes is 0: timm drops the stored classifier"),
]


@torch.no_grad()
def run_timm(case: TimmCase) -> dict:
    directory = GOLDEN / "saved" / case.name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    case.save(directory)
    model = case.load(directory)
    images = [Image.open(GOLDEN / "images" / name).convert("RGB") for name in case.images]
    pixels = case.preprocess(directory, model, images)
    outputs = case.outputs(model, pixels)
    save_golden({"pixel_values": pixels} | {name: value.double() for name, value in outputs.items()},
                directory / "golden.safetensors")
    golden = {"name": f"saved/{case.name}", "output": next(iter(outputs)), "images": list(case.images),
              "image_size": list(pixels.shape[2:]), "note": case.note, "timm": timm.__version__}
    (directory / "golden.json").write_text(json.dumps(golden, indent=2) + "\n")
    report(directory)
    return golden


@torch.no_grad()
def run_open_clip() -> None:
    """The files of open_clip's `push_to_hf_hub`, without its pickled copy of the weights."""
    directory = GOLDEN / "zero_shot" / "open_clip_saved"
    shutil.rmtree(directory, ignore_errors=True)
    vocabulary, _ = clip_vocabulary()
    config = {
        "embed_dim": 12,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8, "mlp_ratio": 2.0,
                       "norm_kwargs": {"eps": 1e-3}, "act_kwargs": {"approximate": "tanh"}, "pos_embed_type": "learnable"},
        "text_cfg": {"context_length": CONTEXT, "vocab_size": len(vocabulary), "width": 8, "heads": 2, "layers": 1,
                     "mlp_ratio": 2.0, "pad_id": 0, "proj_type": "linear"},
    }
    model = open_clip.CLIP(**config).eval()
    randomise(model, "open_clip_saved")
    model.logit_scale.fill_(2.3)
    preprocess_cfg = {"size": 32, "mode": "RGB", "mean": (0.5, 0.45, 0.4), "std": (0.3, 0.25, 0.2),
                      "interpolation": "bilinear", "resize_mode": "squash", "fill_color": 0}
    set_model_preprocess_cfg(model, preprocess_cfg)
    save_open_clip(model, clip_tokenizer(), config, str(directory), safe_serialization=True)
    (directory / "README.md").write_text(open_clip_readme({}, "open_clip_saved"))

    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{directory}")
    model = model.eval().double()
    pixels = torch.stack([preprocess(Image.open(GOLDEN / "images" / image).convert("RGB")) for image in IMAGES])
    tokenizer = clip_tokenizer()

    def ids(texts: list[str]) -> dict:
        return tokenizer(texts, return_tensors="pt", padding="max_length", max_length=CONTEXT, truncation=True)

    def embed(texts: list[str]) -> torch.Tensor:
        return model.encode_text(ids(texts)["input_ids"])

    def logits(texts: torch.Tensor) -> torch.Tensor:
        return unit(model.encode_image(pixels.double())) @ unit(texts).T * model.logit_scale.exp()

    encoded = ids(TEXTS)
    labels = torch.stack([unit(embed([template.format(label) for template in TEMPLATES])).mean(0) for label in LABELS])
    tensors = {"pixel_values": pixels, "input_ids": encoded["input_ids"].masked_fill(encoded["attention_mask"] == 0, -1),
               "text_embeds": embed(TEXTS), "logits_per_image": logits(embed(TEXTS)), "ensemble": logits(labels)}
    save_golden(tensors, directory / "golden.safetensors")
    golden = {"texts": TEXTS, "labels": LABELS, "templates": TEMPLATES, "images": IMAGES, "open_clip": open_clip.__version__}
    (directory / "golden.json").write_text(json.dumps(golden, indent=2, ensure_ascii=False) + "\n")
    report(directory)


def report(directory: Path) -> None:
    print(f"{directory.name:20} {sum(file.stat().st_size for file in directory.iterdir()) / 1000:6.1f} kB")


def main() -> None:
    torch.set_num_threads(1)
    goldens = [run_timm(case) for case in CASES]
    (GOLDEN / "saved" / "cases.json").write_text(json.dumps(goldens, indent=2) + "\n")
    run_open_clip()


if __name__ == "__main__":
    main()
