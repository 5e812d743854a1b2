"""Writes crops.json of tests/golden/generation and tests/golden/smolvlm: the greedy texts and those of three beams for 30 parts of images by each model.

    venv/bin/python scripts/golden_crops.py

Run golden_generation.py and golden_smolvlm.py first, which write the models. Texts are computed in double precision.
"""

import json

import numpy as np
import torch
from PIL import Image

import golden_generation as seq2seq
import golden_smolvlm as tiled
from golden_generation import GOLDEN, IMAGES, MARGIN, NEW_TOKENS, new_tokens

CROPS = 30
BEAMS = 3


def boxes() -> list[tuple[str, list[int]]]:
    """Images with left, top, right and bottom of a part."""
    random = np.random.default_rng(1)
    made = []
    for index in range(CROPS):
        name = IMAGES[index % len(IMAGES)]
        with Image.open(GOLDEN / "images" / name) as image:
            width, height = (int(random.integers(extent // 3, extent + 1)) for extent in image.size)
            left, top = (int(random.integers(0, extent - part + 1)) for extent, part in zip(image.size, (width, height)))
        made.append((name, [left, top, left + width, top + height]))
    return made


def crop(name: str, box: list[int]) -> Image.Image:
    return Image.open(GOLDEN / "images" / name).convert("RGB").crop(box)


def close(logits: torch.Tensor) -> int | None:
    """The first step whose two largest logits differ by less than MARGIN."""
    two = logits.topk(2).values
    found = torch.nonzero(two[:, 0] - two[:, 1] < MARGIN)
    return int(found[0]) if len(found) else None


@torch.no_grad()
def texts(model, given: list[dict], starts: list[int], ends: list[int]) -> list[dict]:
    made = []
    for inputs, start in zip(given, starts):
        greedy = model.generate(
            **inputs, do_sample=False, num_beams=1, max_new_tokens=NEW_TOKENS, output_logits=True, return_dict_in_generate=True,
        )
        tokens = new_tokens(greedy.sequences[0].tolist(), start, ends)
        searched = model.generate(**inputs, do_sample=False, num_beams=BEAMS, max_new_tokens=NEW_TOKENS)
        made.append({
            "tokens": tokens, "close": close(torch.stack(greedy.logits, dim=1)[0, : len(tokens)]),
            "beams": new_tokens(searched[0].tolist(), start, ends),
        })
    return made


def of_sequence_models(images: list[Image.Image]) -> dict:
    found = {}
    for name, (make, processor) in seq2seq.CASES.items():
        model = seq2seq.loaded(seq2seq.DIRECTORY / name, type(make()))
        ends = [27] if name.startswith("blip") else model.generation_config.eos_token_id
        prompt = {key: value[:1] for key, value in seq2seq.prompt(name).items()}
        given = [{"pixel_values": processor([image], return_tensors="pt")["pixel_values"].double(), **prompt} for image in images]
        start = prompt["decoder_input_ids"].shape[1] if prompt else 1
        found[name] = texts(model, given, [start] * len(images), ends)
    return found


def of_tiled_models(images: list[Image.Image]) -> dict:
    found = {}
    for name, (make, _, _, _, ends) in tiled.CASES.items():
        model = type(make()).from_pretrained(tiled.DIRECTORY / name).double().eval()
        given = [tiled.inputs(name, image) for image in images]
        found[name] = texts(model, given, [inputs["input_ids"].shape[1] for inputs in given], ends)
    return found


def main() -> None:
    parts = boxes()
    images = [crop(*part) for part in parts]
    for directory, made in [(seq2seq.DIRECTORY, of_sequence_models(images)), (tiled.DIRECTORY, of_tiled_models(images))]:
        models = ",\n".join(f"  {json.dumps(name)}: {json.dumps(of_model)}" for name, of_model in made.items())
        crops = json.dumps([{"image": image, "box": box} for image, box in parts])
        (directory / "crops.json").write_text(f'{{"crops": {crops},\n "models": {{\n{models}\n}}}}\n')


if __name__ == "__main__":
    main()
