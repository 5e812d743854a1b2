"""Writes tests/golden/naflex: tiny random-weight models of SigLIP 2 with NaFlex as transformers saves them, for images of
several aspect ratios in one batch, with the library's own patches and double-precision outputs.

    venv/bin/python scripts/golden_naflex.py

`pixel_values`, `spatial_shapes` and `pixel_attention_mask` are the processor's; outputs are the model's, tokens those of the
patches that an image has, the rest 0. See also: goldens.py, golden_weights.py, golden_zero_shot.py, whose tokenizer this is.
"""

import json
import shutil

import torch
import transformers as hf
from PIL import Image
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

from golden_outputs import save_golden
from golden_transformers import ANIMALS, rewrite, with_prefix
from golden_weights import randomise, silent_tensors
from golden_zero_shot import CONTEXT, GOLDEN, TEXTS, siglip, siglip2_tokenizer

DIRECTORY = GOLDEN / "naflex"
# Wider and narrower than their grids, larger and smaller.
IMAGES = ["../images/tall.png", "../images/wide.png", "../images/small.png", "../images/photo.jpg", "banner.png", "square.png"]
VISION = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 60, "patch_size": 8}


def config(**vision) -> hf.Siglip2Config:
    text = siglip(siglip2_tokenizer()).text_config.to_dict()
    text = {key: value for key, value in text.items() if key not in ("model_type", "architectures", "transformers_version")}
    return hf.Siglip2Config(vision_config=VISION | vision, text_config=text)


@torch.no_grad()
def run(name: str, model_class: type, config, processor, tokenizer=None, edits=(), note="") -> None:
    directory = DIRECTORY / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    model = model_class(config).eval()
    randomise(model, name)
    if tokenizer:
        model.logit_scale.fill_(2.3)
        model.logit_bias.fill_(-3.1)
        tokenizer.save_pretrained(directory)
    model.save_pretrained(directory)
    processor.save_pretrained(directory)
    for edit in edits:
        edit(directory)

    model, report = model_class.from_pretrained(directory, dtype=torch.float64, output_loading_info=True)
    model.eval()
    problems = {key: value for key, value in report.items() if value and key != "unexpected_keys"}
    assert not problems, f"{name}: {problems}"
    processor = type(processor).from_pretrained(directory)
    assert processor.backend == "pil"
    images = [Image.open(DIRECTORY / image).convert("RGB") for image in IMAGES]
    made = processor(images, return_tensors="pt")
    shapes, mask = made["spatial_shapes"], made["pixel_attention_mask"]
    counts = mask.sum(1).tolist()
    assert len(set(counts)) > 1 and len(set(map(tuple, shapes.tolist()))) > 3, f"{name}: {shapes}"
    inputs = {"pixel_values": made["pixel_values"].double(), "pixel_attention_mask": mask, "spatial_shapes": shapes}

    def outputs() -> dict[str, torch.Tensor]:
        if model_class is hf.Siglip2Model:
            ids = tokenizer(TEXTS, return_tensors="pt", padding="max_length", max_length=CONTEXT, truncation=True)
            result = model(input_ids=ids["input_ids"], **inputs)
            embeds = model.get_image_features(**inputs).pooler_output
            return {"image_embeds": embeds, "logits_per_image": result.logits_per_image}
        result = model(**inputs)
        if model_class is hf.Siglip2VisionModel:
            return {"pooler_output": result.pooler_output, "last_hidden_state": result.last_hidden_state * mask[..., None]}
        return {"logits": result.logits}

    made_outputs = outputs()
    main = next(iter(made_outputs))
    # Padded patches must not matter: use the library's own mask.
    kept = inputs["pixel_values"].clone()
    inputs["pixel_values"][mask == 0] = 3.0
    assert torch.allclose(outputs()[main], made_outputs[main], atol=1e-9), f"{name}: padding matters"
    inputs["pixel_values"] = kept
    unused = silent_tensors(model, lambda: outputs()[main])
    tensors = {"pixel_values": made["pixel_values"], "spatial_shapes": shapes, "pixel_attention_mask": mask, **made_outputs}
    save_golden(tensors, directory / "golden.safetensors")
    golden = {
        "name": name, "architecture": model_class.__name__, "output": main, "images": IMAGES, "note": note,
        "grids": shapes.tolist(), "max_num_patches": processor.max_num_patches, "unused_tensors": unused,
        "texts": TEXTS if tokenizer else [], "transformers": hf.__version__,
    }
    (directory / "golden.json").write_text(json.dumps(golden, indent=2, ensure_ascii=False) + "\n")
    print(f"{name:24} {main:14} max {float(made_outputs[main].abs().max()):5.2f}  grids {shapes.tolist()} "
          f"patches {counts} of {processor.max_num_patches}  unused {[n for n in unused if not n.endswith('k_proj.bias')]}")


def main() -> None:
    torch.set_num_threads(1)
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    photo = Image.open(GOLDEN / "images" / "photo.jpg").convert("RGB")
    DIRECTORY.mkdir(exist_ok=True)
    photo.resize((150, 11)).save(DIRECTORY / "banner.png")
    photo.crop((0, 0, 40, 40)).save(DIRECTORY / "square.png")
    run("hf_siglip2_vision", hf.Siglip2VisionModel, config(num_patches=16).vision_config,
        Siglip2ImageProcessorPil(patch_size=8, max_num_patches=25), edits=(with_prefix("vision_model."),),
        note="positions of a 4x4 grid; the tensors' names have a prefix")
    run("hf_siglip2_classifier", hf.Siglip2ForImageClassification,
        hf.Siglip2Config(vision_config=VISION | {"num_patches": 9}, text_config=config().text_config.to_dict(), **ANIMALS),
        Siglip2ImageProcessorPil(patch_size=8, max_num_patches=40, resample=3),
        note="positions of a 3x3 grid; the mean of an image's own tokens, the pooling head has no part in it")
    run("hf_siglip2", hf.Siglip2Model, config(num_patches=49), Siglip2ImageProcessorPil(patch_size=8, max_num_patches=12),
        siglip2_tokenizer(),
        (rewrite("preprocessor_config.json", lambda values: {key: value for key, value in values.items()
                                                           if key not in ("resample", "image_mean", "image_std")}),),
        note="positions of a 7x7 grid, finer than any image's; with the text tower; the processor leaves out defaults")


if __name__ == "__main__":
    main()
