"""Renders lines of digits and words, and writes a small TrOCR model with random weights and a tokenizer of characters, for `hipvit train`:

    python scripts/text_lines.py lines
    hipvit train lines/data -m lines/model -o run --recipe lines/recipe.toml

lines/data/train and lines/data/validation have images of 96×24 pixels in Pillow's default font, and metadata.jsonl as ImageFolder of Hugging
Face's datasets. No number is in both. Needs torch, transformers and Pillow.
"""

import argparse
import json
import random
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import TrOCRConfig, VisionEncoderDecoderConfig, VisionEncoderDecoderModel, ViTConfig
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from small_recipe import RECIPE

WIDTH, HEIGHT, CONTEXT = 96, 24, 12
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
WORDS = """zero one two three four five six seven eight nine ten eleven twelve apple bridge cloud dragon engine forest garden harbor island jacket
kitten lemon market needle orange pepper quartz river silver timber violet window yellow zebra""".split()


def render(text: str, source: random.Random) -> Image.Image:
    """Returns dark letters on a bright ground, with another place and pair of greys for each line."""
    ground, ink = source.randrange(200, 256), source.randrange(0, 80)
    image = Image.new("L", (WIDTH, HEIGHT), ground)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(16)
    place = source.randrange(2, 6), source.randrange(2, 6)
    draw.text(place, text, fill=ink, font=font)
    return image.convert("RGB")


def write_lines(folder: Path, texts: list[str], source: random.Random) -> None:
    folder.mkdir(parents=True)
    with (folder / "metadata.jsonl").open("w") as out:
        for index, text in enumerate(texts):
            name = f"{index:05}.png"
            render(text, source).save(folder / name)
            out.write(json.dumps({"file_name": name, "text": text}) + "\n")


def write_model(folder: Path, layers: int, width: int) -> None:
    """Writes a model of transformers with random weights."""
    torch.manual_seed(0)
    encoder = ViTConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 16, intermediate_size=2 * width, image_size=(HEIGHT, WIDTH),
        patch_size=8,
    )
    decoder = TrOCRConfig(
        vocab_size=len(SPECIAL) + len(CHARACTERS), d_model=width, decoder_layers=2, decoder_attention_heads=width // 16, decoder_ffn_dim=2 * width,
        max_position_embeddings=CONTEXT, cross_attention_hidden_size=width,
    )
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.eos_token_id, config.pad_token_id = 0, 2, 1
    model = VisionEncoderDecoderModel(config)
    model.generation_config.update(max_length=CONTEXT, decoder_start_token_id=0, eos_token_id=2, pad_token_id=1)
    model.save_pretrained(folder)
    ViTImageProcessorPil(size={"height": HEIGHT, "width": WIDTH}).save_pretrained(folder)
    tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate([*SPECIAL, *CHARACTERS])}, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lines", type=int, default=4000, help="training lines")
    parser.add_argument("--validation", type=int, default=400)
    parser.add_argument("--words", type=float, default=0.5, help="share of words among the lines")
    parser.add_argument("--digits", type=int, nargs=2, default=[3, 5], help="least and most digits of a number")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    arguments = parser.parse_args()
    source = random.Random(7)
    lengths, numbers, texts = range(arguments.digits[0], arguments.digits[1] + 1), set(), []
    for _ in range(arguments.lines + arguments.validation):
        if source.random() < arguments.words:
            texts.append(source.choice(WORDS))
            continue
        while (text := "".join(source.choice("0123456789") for _ in range(source.choice(lengths)))) in numbers:
            pass
        numbers.add(text)
        texts.append(text)
    data = arguments.folder / "data"
    write_lines(data / "train", texts[: arguments.lines], source)
    write_lines(data / "validation", texts[arguments.lines :], source)
    write_model(arguments.folder / "model", arguments.layers, arguments.width)
    every = max(1, arguments.epochs // 6)
    (arguments.folder / "recipe.toml").write_text(RECIPE.format(clip_norm=1.0, lr="1.5e-3", epochs=arguments.epochs, every=every))
    print(f"{arguments.folder}: {arguments.lines} training lines, {arguments.validation} others, such as {', '.join(texts[:6])}")


if __name__ == "__main__":
    main()
