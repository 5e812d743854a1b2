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
    AutoTokenizer,
    BlipConfig,
    BlipForConditionalGeneration,
    DeiTConfig,
    DonutSwinConfig,
    MBartConfig,
    TrOCRConfig,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
    XLMRobertaTokenizer,
)
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.donut.image_processing_pil_donut import DonutImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from golden_weights import randomise

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
DIRECTORY = GOLDEN / "generation"
IMAGES = ["photo.jpg", "tall.png", "small.png", "wide.png"]
NEW_TOKENS = 24
# Steps whose two largest logits are closer than this would depend on rounding.
MARGIN = 1e-4
VOCABULARY = ["<s>", "<pad>", "</s>", "<unk>", *"abcdefghijklmnopqrstuvwxyz", "Ġthe", "Ġof", "ing", "Ġ", ".", ",", "0", "1", "2", "3"]


# Donut's tags are special tokens, which its texts keep.
TAGS = ["<s_docvqa>", "<s_cord-v2>", "<s_question>", "</s_question>", "<s_answer>", "</s_answer>", "<sep/>"]
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", *"abcdefghijklmnopqrstuvwxyz0123", "▁the", "ing", "▁of", ".", "?"]
DONUT_VOCABULARY = len(PIECES) + 1 + len(TAGS)


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


def blip(width: int = 24, encoder: int = 32, **more) -> BlipForConditionalGeneration:
    text = {
        "vocab_size": len(VOCABULARY), "hidden_size": width, "encoder_hidden_size": encoder, "intermediate_size": 2 * width, "num_hidden_layers": 2,
        "num_attention_heads": 3, "max_position_embeddings": 40, "bos_token_id": 0, "sep_token_id": 27, "pad_token_id": 1, **more,
    }
    return BlipForConditionalGeneration(BlipConfig(text_config=text, vision_config=small(encoder)))


def donut(size: list[int], encoder: dict, width: int, ends: list[int], **more) -> VisionEncoderDecoderModel:
    encoder = DonutSwinConfig(image_size=size, patch_size=4, embed_dim=8, mlp_ratio=2.0, **encoder)
    text = MBartConfig(
        vocab_size=DONUT_VOCABULARY, d_model=width, decoder_layers=2, decoder_attention_heads=2, decoder_ffn_dim=2 * width,
        max_position_embeddings=64, **more,
    )
    return trocr(encoder, text, ends)


def donut_processor(size: list[int], **more) -> DonutImageProcessorPil:
    return DonutImageProcessorPil(size={"height": size[0], "width": size[1]}, **more)


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
    # As naver-clova-ix/donut-base-finetuned-docvqa. The last stage has padded windows.
    "donut": (
        lambda: donut([48, 32], {"depths": [2, 2], "num_heads": [2, 4], "window_size": 4}, 16, [2, 8], scale_embedding=True),
        donut_processor([48, 32]),
    ),
    # Images are rotated, both stages have padded and shifted windows, and the encoder's tokens are projected.
    "donut_wide": (
        lambda: donut([40, 56], {"depths": [2, 2], "num_heads": [1, 2], "window_size": 3}, 24, [2, 44], activation_function="relu"),
        donut_processor([40, 56], do_align_long_axis=True, resample=3),
    ),
    # Stages with odd rows and columns, which are padded before patches are merged, and weights of the projection to logits of their own.
    "donut_stages": (
        lambda: donut(
            [56, 40], {"depths": [1, 2, 1], "num_heads": [2, 2, 4], "window_size": 3, "qkv_bias": False}, 32, [2, 46],
            forced_eos_token_id=None, tie_word_embeddings=False,
        ),
        donut_processor([56, 40]),
    ),
}
# Three models of each family.
CASES |= {
    "blip_wide": (lambda: blip(48, 16, num_attention_heads=2), BlipImageProcessorPil(size=SQUARE)),
    "blip_eight": (lambda: blip(40, 40, num_attention_heads=5), BlipImageProcessorPil(size=SQUARE)),
}
PROMPTS = {
    "donut": "<s_docvqa><s_question>the cat of a dog?</s_question><s_answer>",
    "donut_stages": "<s_cord-v2>",
}


def tokenizer(directory: Path) -> None:
    byte_level = Tokenizer(models.BPE({token: index for index, token in enumerate(VOCABULARY)}, [], unk_token="<unk>"))
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level.decoder = decoders.ByteLevel()
    byte_level.add_special_tokens(VOCABULARY[:4])
    byte_level.save(str(directory / "tokenizer.json"))


def donut_tokenizer(directory: Path) -> None:
    scores = [(piece, -1.0 - len(piece) % 3) for piece in PIECES]
    tokens = XLMRobertaTokenizer(vocab=[*scores, ("<mask>", 0.0)])
    tokens.add_special_tokens({"additional_special_tokens": TAGS})
    assert len(tokens) == DONUT_VOCABULARY
    tokens.save_pretrained(directory)


def prompt(name: str) -> dict:
    """The arguments of `generate` for a case's prompt, made as transformers' documentation of Donut does."""
    if name not in PROMPTS:
        return {}
    tokens = AutoTokenizer.from_pretrained(DIRECTORY / name)
    ids = tokens(PROMPTS[name], add_special_tokens=False, return_tensors="pt").input_ids
    return {"decoder_input_ids": ids.repeat(len(IMAGES), 1)}


def decoded(name: str, new: list[int]) -> str:
    if not name.startswith("donut"):
        return Tokenizer.from_file(str(DIRECTORY / name / "tokenizer.json")).decode(new).strip()
    # As the documentation does: tags stay.
    tokens = AutoTokenizer.from_pretrained(DIRECTORY / name)
    return tokens.decode(new).replace(tokens.eos_token, "").replace(tokens.pad_token, "").strip()


def new_tokens(sequence: list[int], start: int, ends: list[int]) -> list[int]:
    new = sequence[start:]
    ended = next((place for place, token in enumerate(new) if token in ends), len(new) - 1)
    return new[: ended + 1]


def loaded(directory: Path, kind):
    """The model in the precision of the files, computed in double precision."""
    model = kind.from_pretrained(directory)
    text_decoder = getattr(model, "decoder", None)
    if text_decoder is not None and not getattr(text_decoder.config, "use_learned_position_embeddings", True):
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
    if name in ("trocr_untied", "donut_stages"):
        model.generation_config.update(no_repeat_ngram_size=3, repetition_penalty=1.2 if name == "donut_stages" else 1.1)
    model.save_pretrained(directory)
    processor.save_pretrained(directory)
    (donut_tokenizer if name.startswith("donut") else tokenizer)(directory)

    model = loaded(directory, type(model))
    ends = [27] if name.startswith("blip") else model.generation_config.eos_token_id
    images = [Image.open(GOLDEN / "images" / image).convert("RGB") for image in IMAGES]
    pixels = processor(images, return_tensors="pt")["pixel_values"].double()
    results = model.generate(
        pixel_values=pixels, do_sample=False, num_beams=1, max_new_tokens=NEW_TOKENS, output_logits=True, return_dict_in_generate=True,
        use_cache=True, **prompt(name),
    )
    logits = torch.stack(results.logits, dim=1)
    texts = []
    for index, sequence in enumerate(results.sequences.tolist()):
        new = new_tokens(sequence, len(sequence) - logits.shape[1], ends)
        two = logits[index, : len(new)].topk(2).values
        margin = (two[:, 0] - two[:, 1]).min().item()
        assert margin > MARGIN, f"{name} {IMAGES[index]}: {margin}"
        texts.append({"image": IMAGES[index], "tokens": new, "text": decoded(name, new), "ended": new[-1] in ends, "margin": margin})
    save_file({"logits": logits.float().contiguous()}, directory / "golden.safetensors")
    for file in directory.iterdir():
        file.chmod(0o644)
    return {"name": name, "prompt": PROMPTS.get(name), "texts": texts}


# Beams, length penalty and early stopping. BLIP reads the last two from no file.
SEARCHES = [(3, 1.0, False), (4, 2.0, True), (2, -0.5, "never"), (3, 1.5, "never")]


@torch.no_grad()
def beams(name: str, make, processor) -> list[dict]:
    """The texts of `generate` by beam search."""
    directory = DIRECTORY / name
    model = loaded(directory, type(make()))
    ends = [27] if name.startswith("blip") else model.generation_config.eos_token_id
    images = [Image.open(GOLDEN / "images" / image).convert("RGB") for image in IMAGES]
    pixels = processor(images, return_tensors="pt")["pixel_values"].double()
    cases = []
    for number, penalty, stopping in SEARCHES[:1] if name.startswith("blip") else SEARCHES:
        results = model.generate(
            pixel_values=pixels, do_sample=False, num_beams=number, length_penalty=penalty, early_stopping=stopping, max_new_tokens=NEW_TOKENS,
            **prompt(name),
        )
        start = prompt(name)["decoder_input_ids"].shape[1] if name in PROMPTS else 1
        texts = [new_tokens(sequence, start, ends) for sequence in results.tolist()]
        cases.append({"name": name, "num_beams": number, "length_penalty": penalty, "early_stopping": stopping, "tokens": texts})
    return cases


# Prompts of models whose texts begin with a token of their own.
MORE_PROMPTS = {"trocr_base": "bag of x.", "blip": "a thing of z"}


@torch.no_grad()
def prompted(name: str, text: str, make, processor) -> dict:
    """The texts of greedy `generate` after a prompt."""
    directory = DIRECTORY / name
    model = loaded(directory, type(make()))
    ids = Tokenizer.from_file(str(directory / "tokenizer.json")).encode(text, add_special_tokens=False).ids
    ends = [27] if name.startswith("blip") else model.generation_config.eos_token_id
    images = [Image.open(GOLDEN / "images" / image).convert("RGB") for image in IMAGES]
    pixels = processor(images, return_tensors="pt")["pixel_values"].double()
    # BLIP puts its first token in place of BERT's, and drops BERT's last one.
    given = {"input_ids": [0, *ids, 27]} if name == "blip" else {"decoder_input_ids": ids}
    given = {key: torch.tensor([value]).repeat(len(IMAGES), 1) for key, value in given.items()}
    results = model.generate(
        pixel_values=pixels, do_sample=False, num_beams=1, max_new_tokens=NEW_TOKENS, output_logits=True, return_dict_in_generate=True, **given,
    )
    texts = [new_tokens(sequence, 1 + len(ids), ends) for sequence in results.sequences.tolist()]
    for index, new in enumerate(texts):
        assert results.sequences[index, : 1 + len(ids)].tolist()[1:] == ids
        two = torch.stack(results.logits, dim=1)[index, : len(new)].topk(2).values
        assert (two[:, 0] - two[:, 1]).min() > MARGIN, name
    return {"name": name, "prompt": text, "tokens": texts}


def main() -> None:
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    cases = [write(name, *parts) for name, parts in CASES.items()]
    (DIRECTORY / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")
    more = [prompted(name, text, *CASES[name]) for name, text in MORE_PROMPTS.items()]
    (DIRECTORY / "prompts.json").write_text(json.dumps(more) + "\n")
    searches = [case for name, parts in CASES.items() for case in beams(name, parts[0], parts[1])]
    (DIRECTORY / "beams.json").write_text(json.dumps(searches) + "\n")


if __name__ == "__main__":
    main()
