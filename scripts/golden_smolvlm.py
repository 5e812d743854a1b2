"""Writes tests/golden/smolvlm: small models of SmolVLM and Idefics3 with random weights, and the texts and logits of their greedy `generate` in
double precision.

    venv/bin/python scripts/golden_smolvlm.py

See also: golden_generation.py, and tests/golden/README.md for the files.
"""

import json
import shutil
from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import Idefics3Config, Idefics3ForConditionalGeneration, LlamaConfig, PreTrainedTokenizerFast, SmolVLMConfig, SmolVLMForConditionalGeneration
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
from transformers.models.smolvlm.processing_smolvlm import DEFAULT_CHAT_TEMPLATE, get_image_prompt_string

from golden_generation import IMAGES, MARGIN, NEW_TOKENS, new_tokens
from golden_weights import randomise

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
DIRECTORY = GOLDEN / "smolvlm"
# The template of SmolVLM's first release.
FIRST_TEMPLATE = "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
LARGEST_GRID = 3
SPECIAL = [
    "<|endoftext|>", "<|im_start|>", "<end_of_utterance>", "<fake_token_around_image>", "<image>", "<global-img>",
    *[f"<row_{row}_col_{column}>" for row in range(1, LARGEST_GRID + 1) for column in range(1, LARGEST_GRID + 1)],
]
LETTERS = [*"abcdefghijklmnopqrstuvwxyz", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ", *".:?,-", "Ġ", "Ċ", "Ġthe", "ing"]
VOCABULARY = [*SPECIAL, *LETTERS]
IMAGE_TOKEN = SPECIAL.index("<image>")


def tokenizer() -> PreTrainedTokenizerFast:
    byte_level = Tokenizer(models.BPE({token: index for index, token in enumerate(VOCABULARY)}, []))
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level.decoder = decoders.ByteLevel()
    byte_level.add_special_tokens(SPECIAL)
    return PreTrainedTokenizerFast(
        tokenizer_object=byte_level, eos_token="<end_of_utterance>", bos_token="<|im_start|>", pad_token="<|im_start|>", unk_token="<|endoftext|>",
    )


def vision(width: int, image: int, patch: int) -> dict:
    return {"hidden_size": width, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 2 * width, "image_size": image, "patch_size": patch}


def llama(width: int, heads: int, kv_heads: int, ends, **more) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(VOCABULARY), hidden_size=width, intermediate_size=2 * width, num_hidden_layers=2, num_attention_heads=heads,
        num_key_value_heads=kv_heads, max_position_embeddings=256, bos_token_id=1, eos_token_id=ends, pad_token_id=1, **more,
    )


def smolvlm(image: int, patch: int, text: LlamaConfig, **more) -> SmolVLMForConditionalGeneration:
    config = SmolVLMConfig(vision_config=vision(32, image, patch), text_config=text, image_token_id=IMAGE_TOKEN, **more)
    return SmolVLMForConditionalGeneration(config)


def idefics3(image: int, patch: int, text: LlamaConfig, **more) -> Idefics3ForConditionalGeneration:
    config = Idefics3Config(vision_config=vision(24, image, patch), text_config=text, image_token_id=IMAGE_TOKEN, **more)
    return Idefics3ForConditionalGeneration(config)


def sizes(longest: int, tile: int, **more) -> dict:
    return {"size": {"longest_edge": longest}, "max_image_size": {"longest_edge": tile}, **more}


# Model, image processor, template, prompt, tokens that end a text.
CASES = {
    # As HuggingFaceTB/SmolVLM2-256M-Video-Instruct: grouped queries, weights of the projection to logits of their own.
    "smolvlm": (
        lambda: smolvlm(32, 8, llama(48, 4, 2, [2, 22], rope_theta=100000.0), scale_factor=2), SmolVLMImageProcessorPil(**sizes(96, 32)),
        DEFAULT_CHAT_TEMPLATE, "What is the thing?", [2, 22],
    ),
    # As HuggingFaceTB/SmolVLM-256M-Instruct. Three by three tokens of the encoder are one, images that are not split, tied weights.
    "idefics3": (
        lambda: idefics3(48, 8, llama(36, 3, 1, [2, 30], tie_word_embeddings=True), scale_factor=3, tie_word_embeddings=True),
        Idefics3ImageProcessorPil(**sizes(96, 48, do_image_splitting=False)), FIRST_TEMPLATE, None, [2, 30],
    ),
    # A patch that does not divide the image, and heads of another width than the model's.
    "smolvlm_odd": (
        lambda: smolvlm(34, 8, llama(32, 2, 2, [2], head_dim=24, tie_word_embeddings=True), scale_factor=4, tie_word_embeddings=True),
        SmolVLMImageProcessorPil(**sizes(68, 34, resample=3)), DEFAULT_CHAT_TEMPLATE, "Read it, please", [2],
    ),
}


def expanded(rows: int, columns: int, tokens: int, text: str) -> str:
    image = get_image_prompt_string(rows, columns, tokens, "<fake_token_around_image>", "<image>", "<global-img>")
    return text.replace("<image>", image)


def inputs(name: str, image: Image.Image) -> dict:
    directory = DIRECTORY / name
    _, processor, template, prompt, _ = CASES[name]
    config = json.loads((directory / "config.json").read_text())
    side = config["vision_config"]["image_size"] // config["vision_config"]["patch_size"]
    tokens = tokenizer()
    content = [{"type": "image"}, *([{"type": "text", "text": prompt}] if prompt else [])]
    text = tokens.apply_chat_template([{"role": "user", "content": content}], chat_template=template, add_generation_prompt=True, tokenize=False)
    made = processor([[image]], return_tensors="pt", return_row_col_info=True)
    text = expanded(made["rows"][0][0], made["cols"][0][0], (side // config["scale_factor"]) ** 2, text)
    # With the mask of the tokenizer: without one, `generate` hides tokens of padding, which begin a conversation here.
    return {
        **tokens(text, return_tensors="pt", return_token_type_ids=False), "pixel_values": made["pixel_values"].double(),
        "pixel_attention_mask": made["pixel_attention_mask"],
    }


@torch.no_grad()
def write(name: str, make, processor, template: str, prompt: str, ends: list[int]) -> dict:
    directory = DIRECTORY / name
    directory.mkdir(parents=True)
    model = make().eval()
    randomise(model, name)
    model.generation_config.update(eos_token_id=ends, pad_token_id=1)
    model.save_pretrained(directory)
    processor.save_pretrained(directory)
    tokens = tokenizer()
    tokens.save_pretrained(directory)
    (directory / "chat_template.jinja").write_text(template)
    model = type(model).from_pretrained(directory).double().eval()
    texts, steps = [], []
    for image_name in IMAGES:
        given = inputs(name, Image.open(GOLDEN / "images" / image_name).convert("RGB"))
        results = model.generate(
            **given, do_sample=False, num_beams=1, max_new_tokens=NEW_TOKENS, output_logits=True, return_dict_in_generate=True,
        )
        start = given["input_ids"].shape[1]
        new = new_tokens(results.sequences[0].tolist(), start, ends)
        logits = torch.stack(results.logits, dim=1)[0, : len(new)]
        two = logits.topk(2).values
        margin = (two[:, 0] - two[:, 1]).min().item()
        assert margin > MARGIN, f"{name} {image_name}: {margin}"
        searched = model.generate(**given, do_sample=False, num_beams=3, max_new_tokens=NEW_TOKENS)
        steps.append(torch.nn.functional.pad(logits, (0, 0, 0, NEW_TOKENS - len(new))))
        texts.append({
            "image": image_name, "prompt_tokens": start, "tokens": new, "text": tokens.decode(new, skip_special_tokens=True).strip(),
            "ended": new[-1] in ends, "beams": new_tokens(searched[0].tolist(), start, ends), "margin": margin,
        })
    save_file({"logits": torch.stack(steps).float().contiguous()}, directory / "golden.safetensors")
    for file in directory.iterdir():
        file.chmod(0o644)
    return {"name": name, "prompt": prompt, "texts": texts}


def main() -> None:
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    cases = [write(name, *parts) for name, parts in CASES.items()]
    (DIRECTORY / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
