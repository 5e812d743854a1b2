"""Times embeddings of images and texts beside sentence-transformers, in one run: per second, medians of rounds in which the engines take turns.
The embeddings are compared first.

    pip install ./python torch transformers sentence-transformers pillow
    python benches/embeddings.py --device hip --dtype bfloat16 --count 1024 --batch 64
    python benches/embeddings.py --threads 2

The model has the size of CLIP ViT-B/32, whose class in sentence-transformers is CLIPModel, and random weights. Images have 640×480 pixels. Times are
from PIL images and strings to NumPy arrays.
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
import transformers as hf
from PIL import Image

Encode = Callable[[list[Any]], np.ndarray]
WORDS = "a photo of two small dogs running along the beach in the evening light near old boats and people".split()


def write_model(directory: Path) -> None:
    torch.manual_seed(1)
    letters = [chr(code) for code in [*range(33, 127), *range(161, 173), *range(174, 324)]]
    vocabulary = {token: index for index, token in enumerate([*letters, *(letter + "</w>" for letter in letters)])}
    for token in ("<|startoftext|>", "<|endoftext|>"):
        vocabulary[token] = len(vocabulary)
    (directory / "vocab.json").write_text(json.dumps(vocabulary))
    (directory / "merges.txt").write_text("#version: 0.2\n")
    config = hf.CLIPConfig()
    config.text_config.vocab_size = len(vocabulary)
    config.text_config.bos_token_id, config.text_config.eos_token_id = len(vocabulary) - 2, len(vocabulary) - 1
    model = hf.CLIPModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=parameter[0].numel() ** -0.5)
    model.save_pretrained(directory)
    tokenizer = hf.CLIPTokenizer(str(directory / "vocab.json"), str(directory / "merges.txt"))
    hf.CLIPProcessor(hf.CLIPImageProcessor(), tokenizer).save_pretrained(directory)


def pictures(count: int) -> list[Image.Image]:
    random = np.random.default_rng(1)
    small = random.integers(0, 256, (count, 12, 16, 3), dtype=np.uint8)
    return [Image.fromarray(pixels).resize((640, 480), Image.Resampling.BICUBIC) for pixels in small]


def sentences(count: int) -> list[str]:
    random = np.random.default_rng(2)
    return [" ".join(random.choice(WORDS, random.integers(3, 9))) for _ in range(count)]


def hipvit_engine(directory: Path, arguments: argparse.Namespace) -> dict[str, Encode]:
    import hipvit

    options = {"threads": arguments.threads} if arguments.threads else {}
    model = hipvit.load(str(directory), arguments.device, dtype=arguments.dtype, batch=arguments.batch, **options)
    return {"images": model.embed, "texts": model.embed_texts}


def sentence_engine(directory: Path, arguments: argparse.Namespace) -> dict[str, Encode]:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import CLIPModel

    device, dtype = arguments.device.replace("hip", "cuda"), getattr(torch, arguments.dtype)
    model = SentenceTransformer(modules=[CLIPModel(str(directory))], device=device).to(dtype)
    encode = lambda values: model.encode(values, batch_size=arguments.batch, show_progress_bar=False).astype(np.float32)  # noqa: E731
    return {"images": encode, "texts": encode}


def cosine(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The least cosine of the rows of two matrices."""
    product = np.sum(ours * theirs, axis=1)
    return float(np.min(product / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        write_model(directory)
        engines = [make(directory, arguments) for make in (hipvit_engine, sentence_engine)]
        for kind, values in {"images": pictures(arguments.count), "texts": sentences(arguments.count)}.items():
            results = [[engine[kind](values) for _ in range(2)][-1] for engine in engines]
            times: list[list[float]] = [[], []]
            for _ in range(arguments.rounds):
                for engine, of_engine in zip(engines, times):
                    start = time.perf_counter()
                    engine[kind](values)
                    of_engine.append(time.perf_counter() - start)
            ours, theirs = (arguments.count / statistics.median(of_engine) for of_engine in times)
            print(
                f"{kind}, {arguments.dtype}, batch {arguments.batch}: hipvit {ours:,.1f}/s, sentence-transformers {theirs:,.1f}/s ({ours / theirs:.2f}×); "
                f"least cosine {cosine(*results):.5f}", flush=True,
            )


if __name__ == "__main__":
    main()
