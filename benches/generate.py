"""Times texts of images beside transformers' `generate`, in one run: tokens per second, medians of rounds in which the engines take turns.

    pip install ./python torch transformers pillow safetensors tokenizers
    python benches/generate.py --device hip --dtype bfloat16 --batches 1,8,64
    python benches/generate.py --dtype float32 --small --batches 1,4

The model has the size of TrOCR-base (an encoder of 12 layers at 384×384, a decoder of 12 layers with 1024 channels and 50,265 tokens) and random
weights; with --small, two layers each. All engines decode greedily to the same length. hipvit's time includes the preparation of the images,
that of transformers does not. `static` is transformers with `cache_implementation="static"`, which it compiles.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, Callable

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, decoders, models
from transformers import TrOCRConfig, VisionEncoderDecoderConfig, VisionEncoderDecoderModel, ViTConfig

VOCABULARY = 50265
END = 2


def write_model(directory: Path, small: bool) -> None:
    torch.manual_seed(1)
    layers = 2 if small else 12
    encoder = ViTConfig(image_size=384, num_hidden_layers=layers, qkv_bias=False)
    decoder = TrOCRConfig(
        vocab_size=VOCABULARY, d_model=1024, decoder_layers=layers, decoder_attention_heads=16, decoder_ffn_dim=4096, max_position_embeddings=512,
        cross_attention_hidden_size=768,
    )
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.eos_token_id, config.pad_token_id = END, END, 1
    model = VisionEncoderDecoderModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and "embed" not in name:
                parameter.normal_(std=1.5 / parameter.shape[1] ** 0.5)
        # The end has the logit 0, which is never the largest one.
        model.decoder.model.decoder.embed_tokens.weight[END] = 0
    model.save_pretrained(directory)
    text = Tokenizer(models.WordLevel({f"t{index}": index for index in range(VOCABULARY)}, unk_token="t3"))
    text.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    text.save(str(directory / "tokenizer.json"))
    processor = {
        "image_processor_type": "ViTImageProcessor", "do_resize": True, "size": {"height": 384, "width": 384}, "resample": 2, "do_rescale": True,
        "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
    }
    (directory / "preprocessor_config.json").write_text(json.dumps(processor))


def pictures(count: int) -> list[Image.Image]:
    random = np.random.default_rng(1)
    small = random.integers(0, 256, (count, 12, 12, 3), dtype=np.uint8)
    return [Image.fromarray(pixels).resize((384, 384), Image.Resampling.BICUBIC) for pixels in small]


def transformers_engine(directory: Path, arguments: argparse.Namespace, static: bool) -> Callable[[list[Image.Image]], Callable[[], list[str]]]:
    device, dtype = arguments.device.replace("hip", "cuda"), getattr(torch, arguments.dtype)
    model = VisionEncoderDecoderModel.from_pretrained(directory, dtype=dtype).eval().to(device)
    more: dict[str, Any] = {"cache_implementation": "static"} if static else {}

    def case(images: list[Image.Image]) -> Callable[[], list[str]]:
        array = np.stack([np.asarray(image) for image in images]).transpose(0, 3, 1, 2)
        pixels = (torch.tensor(array).float() / 255 - 0.5) / 0.5
        pixels = pixels.to(device, dtype)

        def run() -> list[str]:
            with torch.inference_mode():
                tokens = model.generate(pixel_values=pixels, do_sample=False, num_beams=1, max_new_tokens=arguments.tokens, **more)
            return [" ".join(f"t{token}" for token in row[1:]) for row in tokens.tolist()]

        return run

    return case


def hipvit_engine(directory: Path, arguments: argparse.Namespace) -> Callable[[list[Image.Image]], Callable[[], list[str]]]:
    import hipvit

    options = {"device": arguments.device, "dtype": arguments.dtype}
    if arguments.threads:
        options["threads"] = arguments.threads

    def case(images: list[Image.Image]) -> Callable[[], list[str]]:
        model = hipvit.load(str(directory), batch=len(images), **options)
        return lambda: model.generate(images, max_tokens=arguments.tokens)

    return case


def agreement(texts: list[str], others: list[str]) -> float:
    """Mean share of the first tokens that are equal."""
    shares = []
    for text, other in zip(texts, others):
        pairs = list(zip(text.split(), other.split()))
        different = next((index for index, (a, b) in enumerate(pairs) if a != b), len(pairs))
        shares.append(different / max(1, len(pairs)))
    return statistics.mean(shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--batches", default="1")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--static", action="store_true", help="also transformers with a static cache, compiled")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    if arguments.threads:
        torch.set_num_threads(arguments.threads)

    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        write_model(directory, arguments.small)
        engines = {"hipvit": hipvit_engine(directory, arguments), "transformers": transformers_engine(directory, arguments, False)}
        if arguments.static:
            engines["static"] = transformers_engine(directory, arguments, True)
        print(f"{arguments.tokens} tokens, {arguments.dtype}, {arguments.device}: tokens/s (ratio of hipvit to it), and the share of equal first tokens")
        for batch in map(int, arguments.batches.split(",")):
            images = pictures(batch)
            runs = {name: case(images) for name, case in engines.items()}
            texts = {}
            for name, run in list(runs.items()):
                try:
                    for _ in range(3):
                        texts[name] = run()
                except Exception as error:  # what transformers cannot compile is left out
                    print(f"{name}: {type(error).__name__}: {str(error)[:200]}")
                    del runs[name]
            times: dict[str, list[float]] = {name: [] for name in runs}
            for _ in range(arguments.rounds):
                for name, run in runs.items():
                    start = time.perf_counter()
                    run()
                    times[name].append(time.perf_counter() - start)
            speeds = {name: batch * arguments.tokens / statistics.median(of) for name, of in times.items()}
            cells = [f"batch {batch:3}"]
            for name, speed in speeds.items():
                ratio = "" if name == "hipvit" else f" ({speeds['hipvit'] / speed:.2f}×, {agreement(texts['hipvit'], texts[name]):.2f})"
                cells.append(f"{name} {speed:8.0f}{ratio}")
            print("   ".join(cells), flush=True)


if __name__ == "__main__":
    main()
