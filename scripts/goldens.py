"""Writes tests/golden: tiny random-weight models of every family, as timm and transformers save them, with the libraries'
own pixel values and double-precision outputs.

    python -m venv venv && venv/bin/pip install -r scripts/requirements.txt
    venv/bin/python scripts/goldens.py            # all cases, and the index
    venv/bin/python scripts/goldens.py hf_vit     # one case; the index is left alone

The same versions give the same bytes. See also: golden_images.py, golden_weights.py, golden_outputs.py, golden_timm.py,
golden_transformers.py; golden_quantized.py, for models in 8 bits; tests/golden/README.md says what each file holds.
"""

import argparse
import json
import math
import platform
import shutil
from pathlib import Path

import numpy
import PIL
import safetensors
import timm
import torch
import torchvision
import transformers

import golden_timm
import golden_transformers
from golden_images import write_images
from golden_outputs import save_golden
from golden_weights import silent_tensors

ROOT = Path(__file__).resolve().parent.parent / "tests" / "golden"
VERSIONS = {
    "python": platform.python_version(), "numpy": numpy.__version__, "pillow": PIL.__version__,
    "safetensors": safetensors.__version__, "timm": timm.__version__, "torch": torch.__version__.split("+")[0],
    "torchvision": torchvision.__version__.split("+")[0], "transformers": transformers.__version__,
}
# A key bias shifts a whole softmax row. A token's bias shifts all its channels, and norms subtract their mean.
INERT = ("k_proj.bias", "key.bias", "k_norm.bias", "mlp_tokens.fc2.bias")


class AttentionPeak:
    """A context that measures how far attention is from uniform: the largest weight of a row, times the row's length."""

    def __enter__(self):
        self.ratios, self.original = [], torch.nn.functional.scaled_dot_product_attention

        def measured(query, key, value, *args, **kwargs):
            scale = kwargs.get("scale") or query.shape[-1] ** -0.5
            weights = (query @ key.transpose(-2, -1) * scale).softmax(-1)
            self.ratios.append(float(weights.max(-1).values.mean()) * weights.shape[-1])
            return self.original(query, key, value, *args, **kwargs)

        torch.nn.functional.scaled_dot_product_attention = measured
        return self

    def __exit__(self, *_):
        torch.nn.functional.scaled_dot_product_attention = self.original


@torch.no_grad()
def run(case, images) -> dict:
    directory = ROOT / case.name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    case.save(directory)
    model = case.load(directory)
    pixel_values = case.preprocess(directory, model, [images[name] for name in case.images])
    assert pixel_values.dtype == torch.float32 and pixel_values.ndim == 4

    with AttentionPeak() as attention:
        outputs = case.outputs(model, pixel_values)
    main = next(iter(outputs))
    size = float(outputs[main].abs().max())
    assert 0.5 < size < 30, f"{case.name}: largest |{main}| is {size}"
    assert min(attention.ratios, default=math.inf) > 1.8, f"{case.name}: attention is nearly uniform, {attention.ratios}"
    silent = silent_tensors(model, lambda: case.outputs(model, pixel_values)[main])
    inert = [name for name in silent if name.endswith(INERT)]
    unused = [name for name in silent if name not in inert]

    tensors = {"pixel_values": pixel_values} | {name: value.double() for name, value in outputs.items()}
    save_golden(tensors, directory / "golden.safetensors")
    golden = {
        "name": case.name,
        "library": case.library,
        "family": case.family,
        **case.describe(),
        "output": main,
        "outputs": {name: list(value.shape) for name, value in outputs.items()},
        "images": list(case.images),
        "image_size": list(pixel_values.shape[2:]),
        "note": case.note,
        # Use the library's own names.
        "unused_tensors": unused,
        "inert_tensors": inert,
        "versions": VERSIONS,
    }
    (directory / "golden.json").write_text(json.dumps(golden, indent=2, ensure_ascii=False) + "\n")
    volume = sum(file.stat().st_size for file in directory.iterdir())
    towers = [name for name in unused if not name.startswith(("text_model", "text_proj"))]
    print(f"{case.name:32} {main:18} max {size:6.2f}  attention {min(attention.ratios, default=math.nan):4.1f}x  "
          f"{volume / 1000:6.1f} kB  unused {towers}")
    return golden


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="only these cases")
    names = parser.parse_args().names
    # Use one thread, so that the order of sums does not depend on the machine's cores.
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

    images = write_images(ROOT / "images")
    cases = [case for case in golden_timm.CASES + golden_transformers.CASES if not names or case.name in names]
    goldens = [run(case, images) for case in cases]
    if not names:
        index = [{key: value for key, value in golden.items()
                  if key not in ("versions", "unused_tensors", "inert_tensors", "note", "call")} for golden in goldens]
        (ROOT / "cases.json").write_text(json.dumps(index, indent=2) + "\n")
        other = {"adapters", "images", "naflex", "packed", "processor", "quantized", "saved", "wrapped", "zero_shot"}
        for stale in {path.name for path in ROOT.iterdir() if path.is_dir()} - {case.name for case in cases} - other:
            shutil.rmtree(ROOT / stale)
        total = sum(file.stat().st_size for file in ROOT.rglob("*") if file.is_file())
        print(f"{len(cases)} cases, {total / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
