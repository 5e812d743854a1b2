"""Writes tests/golden/generation: small decoders of transformers with random weights, and the texts and logits of its greedy `generate` in double
precision.

    venv/bin/python scripts/golden_generation.py

See also: goldens.py, and tests/golden/README.md for the files.
"""

import json
import shutil
from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    BlipConfig,
    BlipForConditionalGeneration,
    DeiTConfig,
    TrOCRConfig,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
)
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from golden_weights import randomise

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
DIRECTORY = GOLDEN / "generation"
IMAGES = ["photo.jpg", "tall.png", "small.png", "wide.png"]
NEW_TOKENS = 24
VOCABULARY = ["<s>", "<pad>", "</s>", "<unk>", *"abcdefghijklmnopqrstuvwxyz", "Ġthe", "Ġof", "ing", "Ġ", ".", ",", "0", "1", "2", "3"]


def small(width: int, **more) -> dict:
    return {"hidden_size": width, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 2 * width, "image_size": 32, "patch_size": 8, **more}


def decoder(width: int, **more) -> TrOCRConfig:
    return TrOCRConfig(
        vocab_size=len(VOCABULARY), d_model=width, decoder_layers=2, decoder_attention_heads=2, decoder_ffn_dim=2 * width,
        max_position_embeddings=40, **more,
    )


def trocr(encoder, text_decoder: TrOCRConfig, ends: list[int]) -> VisionEncoderDecoderModel:
    """`ends` are the tokens that end a text, chosen so that some texts end early."""
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, text_decoder)
    config.decoder_start_token_id, config.eos_token_id, config.pad_token_id = 2, ends, 1
    return VisionEncoderDecoderModel(config)


def blip() -> BlipForConditionalGeneration:
    text = {
        "vocab_size": len(VOCABULARY), "hidden_size": 24, "encoder_hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 3, "max_position_embeddings": 40, "bos_token_id": 0, "sep_token_id": 27, "pad_token_id": 1,
    }
    return BlipForConditionalGeneration(BlipConfig(text_config=text, vision_config=small(32)))


SQUARE = {"height": 32, "width": 32}
CASES = {
    # As microsoft/trocr-base-printed.
    "trocr_base": (lambda: trocr(ViTConfig(**small(32)), decoder(24, cross_attention_hidden_size=32), [2, 14]), ViTImageProcessorPil(size=SQUARE)),
    # As microsoft/trocr-small-printed: positions of sines, scaled embeddings, relu. Here with a projection of the encoder's tokens.
    "trocr_small": (
        lambda: trocr(
            DeiTConfig(**small(16)),
            decoder(24, use_learned_position_embeddings=False, scale_embedding=True, activation_function="relu", layernorm_embedding=False),
            [2, 29],
        ),
        DeiTImageProcessorPil(size=SQUARE, do_center_crop=False),
    ),
    # Weights of the projection to logits of their own, heads of 20 channels.
    "trocr_untied": (
        lambda: trocr(ViTConfig(**small(40)), decoder(40, tie_word_embeddings=False, cross_attention_hidden_size=40), [2, 36]),
        ViTImageProcessorPil(size=SQUARE),
    ),
    # As Salesforce/blip-image-captioning-base.
    "blip": (blip, BlipImageProcessorPil(size=SQUARE)),
}


def tokenizer(directory: Path) -> None:
    byte_level = Tokenizer(models.BPE({token: index for index, token in enumerate(VOCABULARY)}, [], unk_token="<unk>"))
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level.decoder = decoders.ByteLevel()
    byte_level.add_special_tokens(VOCABULARY[:4])
    byte_level.save(str(directory / "tokenizer.json"))


def loaded(directory: Path, kind):
    """The model in the precision of the files, computed in double precision."""
    model = kind.from_pretrained(directory)
    text_decoder = getattr(model, "decoder", None)
    if text_decoder is not None and not text_decoder.config.use_learned_position_embeddings:
        # transformers 5.24 leaves this table without memory.
        positions, config = text_decoder.model.decoder.embed_positions, text_decoder.config
        rows = config.max_position_embeddings + config.pad_token_id + 1
        positions.weights = positions.get_embedding(rows, config.d_model, config.pad_token_id).double()
    return model.double().eval()


@torch.no_grad()
def write(name: str, make, processor) -> dict:
    directory = DIRECTORY / name
    directory.mkdir(parents=True)
    model = make().eval()
    randomise(model, name)
    # Texts that differ from token to token, and from image to image.
    for parameter_name, parameter in model.named_parameters():
        if "embed_positions" in parameter_name or "text_decoder.bert.embeddings.position" in parameter_name:
            parameter *= 3
        elif ("encoder_attn" in parameter_name or "crossattention" in parameter_name) and parameter.ndim == 2:
            parameter *= 2
    if name == "trocr_untied":
        model.generation_config.update(no_repeat_ngram_size=3, repetition_penalty=1.1)
    model.save_pretrained(directory)
    processor.save_pretrained(directory)
    tokenizer(directory)
    text = Tokenizer.from_file(str(directory / "tokenizer.json"))

    model = loaded(directory, type(model))
    ends = [27] if name == "blip" else model.generation_config.eos_token_id
    images = [Image.open(GOLDEN / "images" / image).convert("RGB") for image in IMAGES]
    pixels = processor(images, return_tensors="pt")["pixel_values"].double()
    results = model.generate(
        pixel_values=pixels, do_sample=False, num_beams=1, max_new_tokens=NEW_TOKENS, output_logits=True, return_dict_in_generate=True,
        use_cache=True,
    )
    logits = torch.stack(results.logits, dim=1)
    texts = []
    for index, sequence in enumerate(results.sequences.tolist()):
        new = sequence[1:]
        ended = next((place for place, token in enumerate(new) if token in ends), len(new) - 1)
        new = new[: ended + 1]
        two = logits[index, : len(new)].topk(2).values
        margin = (two[:, 0] - two[:, 1]).min().item()
        texts.append({"image": IMAGES[index], "tokens": new, "text": text.decode(new).strip(), "margin": margin})
    save_file({"logits": logits.float().contiguous()}, directory / "golden.safetensors")
    for file in directory.iterdir():
        file.chmod(0o644)
    return {"name": name, "texts": texts}


# Beams, length penalty and early stopping. BLIP reads the last two from no file.
SEARCHES = [(3, 1.0, False), (4, 2.0, True), (2, -0.5, "never"), (3, 1.5, "never")]


@torch.no_grad()
def beams(name: str, make, processor) -> list[dict]:
    """The texts of `generate` by beam search."""
    directory = DIRECTORY / name
    model = loaded(directory, type(make()))
    ends = [27] if name == "blip" else model.generation_config.eos_token_id
    images = [Image.open(GOLDEN / "images" / image).convert("RGB") for image in IMAGES]
    pixels = processor(images, return_tensors="pt")["pixel_values"].double()
    cases = []
    for number, penalty, stopping in SEARCHES[:1] if name == "blip" else SEARCHES:
        results = model.generate(
            pixel_values=pixels, do_sample=False, num_beams=number, length_penalty=penalty, early_stopping=stopping, max_new_tokens=NEW_TOKENS,
        )
        texts = []
        for sequence in results.tolist():
            new = sequence[1:]
            ended = next((place for place, token in enumerate(new) if token in ends), len(new) - 1)
            texts.append(new[: ended + 1])
        cases.append({"name": name, "num_beams": number, "length_penalty": penalty, "early_stopping": stopping, "tokens": texts})
    return cases


def main() -> None:
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    cases = [write(name, *parts) for name, parts in CASES.items()]
    (DIRECTORY / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")
    searches = [case for name, parts in CASES.items() for case in beams(name, parts[0], parts[1])]
    (DIRECTORY / "beams.json").write_text(json.dumps(searches) + "\n")


if __name__ == "__main__":
    main()
