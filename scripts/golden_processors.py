"""Writes tests/golden/processor: tiny dual encoders with the files that transformers' processors save today, and a model with the
image processor of a class that has no Pillow-backed form.

    venv/bin/python scripts/golden_processors.py

A processor saves its image processor's configuration in processor_config.json, and no preprocessor_config.json. golden.safetensors
has the `pixel_values` of the Pillow-backed class that is loaded from there, and `logits_per_image` of golden.json's `texts` in double
precision. For DINOv3 it has the class's own pixel values, which come from floats, and `pooler_output`.
See also: goldens.py, golden_zero_shot.py, golden_naflex.py.
"""

import json
import shutil

import torch
import transformers as hf
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

from golden_outputs import save_golden
from golden_transformers import square
from golden_weights import randomise
from golden_zero_shot import CONTEXT, GOLDEN, END, START, clip_tokenizer, clip_vocabulary, siglip2_tokenizer, siglip_tokenizer

DIRECTORY = GOLDEN / "processor"
IMAGES = ["photo.jpg", "tall.png"]
TEXTS = ["a photo of a cat", "the dog", "people on the beach"]
VISION = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "patch_size": 8}
TEXT = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12,
        "max_position_embeddings": CONTEXT}


def clip() -> hf.CLIPConfig:
    vocabulary, _ = clip_vocabulary()
    text = TEXT | {"vocab_size": len(vocabulary), "projection_dim": 12, "bos_token_id": vocabulary[START],
                   "eos_token_id": vocabulary[END]}
    return hf.CLIPConfig(vision_config=VISION | {"image_size": 32, "projection_dim": 12}, text_config=text, projection_dim=12)


def siglip(tokenizer) -> hf.SiglipConfig:
    return hf.SiglipConfig(vision_config=VISION | {"image_size": 32},
                           text_config=TEXT | {"vocab_size": len(tokenizer), "projection_size": 16})


def siglip2(tokenizer) -> hf.Siglip2Config:
    return hf.Siglip2Config(vision_config=VISION | {"num_patches": 16},
                            text_config=TEXT | {"vocab_size": len(tokenizer), "projection_size": 16})


def write(name: str, model, processor) -> torch.nn.Module:
    directory = DIRECTORY / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    randomise(model, name)
    for scale, value in (("logit_scale", 2.3), ("logit_bias", -3.1)):
        if hasattr(model, scale):
            getattr(model, scale).fill_(value)
    model.save_pretrained(directory)
    processor.save_pretrained(directory)
    return type(model).from_pretrained(directory, dtype=torch.float64).eval()


def keep(name: str, tensors: dict[str, torch.Tensor], note: str, texts=()) -> None:
    directory = DIRECTORY / name
    files = sorted(file.name for file in directory.iterdir())
    save_golden(tensors, directory / "golden.safetensors")
    golden = {"images": IMAGES, "texts": list(texts), "files": files, "note": note, "transformers": hf.__version__}
    (directory / "golden.json").write_text(json.dumps(golden, indent=2, ensure_ascii=False) + "\n")
    size = sum(file.stat().st_size for file in directory.iterdir())
    print(f"{name:16} {size / 1000:6.1f} kB  {files}")


def images() -> list[Image.Image]:
    return [Image.open(GOLDEN / "images" / image).convert("RGB") for image in IMAGES]


@torch.no_grad()
def dual_encoder(name: str, model, processor, note: str) -> None:
    model = write(name, model.eval(), processor)
    assert not (DIRECTORY / name / "preprocessor_config.json").exists()
    image_processor = type(processor.image_processor).from_pretrained(DIRECTORY / name)
    assert image_processor.backend == "pil"
    made = image_processor(images(), return_tensors="pt")
    tokenizer = type(processor).from_pretrained(DIRECTORY / name).tokenizer
    ids = tokenizer(TEXTS, return_tensors="pt", padding="max_length", max_length=CONTEXT, truncation=True)["input_ids"]
    inputs = {key: value.double() if value.is_floating_point() else value for key, value in made.items()}
    logits = model(input_ids=ids, **inputs).logits_per_image
    spread = float((logits[:, 0] - logits[:, 1]).abs().min())
    assert spread > 1e-2, f"{name}: texts differ by {spread}"
    tensors = {"pixel_values": made["pixel_values"], "logits_per_image": logits}
    if "spatial_shapes" in made:
        tensors["spatial_shapes"] = made["spatial_shapes"]
    keep(name, tensors, note, TEXTS)


@torch.no_grad()
def dinov3(name: str) -> None:
    config = hf.DINOv3ViTConfig(**VISION, image_size=32, num_register_tokens=2)
    processor = hf.DINOv3ViTImageProcessor(size={"height": 32, "width": 40})
    model = write(name, hf.DINOv3ViTModel(config).eval(), processor)
    processor = hf.AutoImageProcessor.from_pretrained(DIRECTORY / name)
    pixels = torch.stack([processor(image, return_tensors="pt").pixel_values[0] for image in images()])
    tensors = {"pixel_values": pixels, "pooler_output": model(pixels.double()).pooler_output}
    keep(name, tensors, "the class resizes rescaled images, in f32: pixel values differ from Pillow's by a level of 255 at most")


def main() -> None:
    torch.set_num_threads(1)
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    tokenizer = clip_tokenizer()
    processor = hf.CLIPProcessor(CLIPImageProcessorPil(size={"shortest_edge": 36}, crop_size=square(32)), tokenizer)
    dual_encoder("hf_clip", hf.CLIPModel(clip()), processor, "CLIPProcessor.save_pretrained")
    tokenizer = siglip_tokenizer()
    processor = hf.SiglipProcessor(SiglipImageProcessorPil(size=square(32)), tokenizer)
    dual_encoder("hf_siglip", hf.SiglipModel(siglip(tokenizer)), processor, "SiglipProcessor.save_pretrained")
    tokenizer = siglip2_tokenizer()
    processor = hf.Siglip2Processor(Siglip2ImageProcessorPil(patch_size=8, max_num_patches=12), tokenizer)
    dual_encoder("hf_siglip2", hf.Siglip2Model(siglip2(tokenizer)), processor, "Siglip2Processor.save_pretrained")
    dinov3("hf_dinov3")


if __name__ == "__main__":
    main()
