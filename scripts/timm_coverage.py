"""Which of timm's entry points load, and how far hipvit is from timm: every architecture of a module, one block deep (Swin and
Hiera: one or two in a stage), with random weights, written as timm writes a hub repository.

    python scripts/timm_coverage.py                                    # all modules
    python scripts/timm_coverage.py vision_transformer --only 'aimv2*' # some
    python scripts/timm_coverage.py --hipvit target/release/hipvit --device hip

Prints a line for each that is refused or differs, and a table by module; exits 1 if one that loads differs by more than
2e-5 of its largest logit. Needs the packages of scripts/requirements.txt, and some minutes.
See also: goldens.py, whose small models are committed.
"""

import argparse
import fnmatch
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import timm
import torch
from PIL import Image
from timm.data import create_transform, resolve_data_config
from timm.models import save_for_hf

import timm_mixers  # noqa: F401
from golden_weights import randomise

ROOT = Path(__file__).resolve().parent.parent
MODULES = ("vision_transformer", "deit", "eva", "beit", "mlp_mixer", "naflexvit", "swin_transformer", "swin_transformer_v2", "hiera")
TOLERANCE = 2e-5


@torch.no_grad()
def difference(name: str, directory: Path, hipvit: list[str]) -> float | str:
    """The largest difference as a part of the largest logit, or why hipvit refuses the model."""
    # Its own counts are one per block of the whole depth.
    heads = {"num_kv_heads": 1} if "sapiens2" in name else {}
    if name.startswith("swin"):
        # The second block of a stage shifts the windows.
        depth = {"depths": [2, 1, 2, 1]}
    elif name.startswith("hiera"):
        # The first stage has no pooled block, and its first block is not pooled.
        depth = {"stages": [1, 2, 2, 2]}
    else:
        depth = {"num_blocks" if name in timm.list_models(module="mlp_mixer") else "depth": 1}
    model = timm.create_model(name, **depth, num_classes=10, **heads).eval()
    randomise(model, name)
    save_for_hf(model, directory, safe_serialization=True)
    transform = create_transform(**resolve_data_config({}, model=model), is_training=False)
    image = ROOT / "tests/golden/images/tall.png"
    pixels = transform(Image.open(image).convert("RGB"))
    expected = model.double()(pixels[None].double())[0]
    command = [*hipvit, "--model", str(directory), "--logits", "--format", "json", str(image)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        return ran.stderr.strip().replace(str(directory), ".").splitlines()[-1]
    logits = torch.tensor(json.loads(ran.stdout)["logits"], dtype=torch.float64)
    return float((logits - expected).abs().max() / expected.abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("modules", nargs="*", default=MODULES, help=f"of timm.models (default: {' '.join(MODULES)})")
    parser.add_argument("--only", default="*", help="architectures that match this pattern")
    parser.add_argument("--hipvit", default=str(ROOT / "target/release/hipvit"))
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    hipvit = [arguments.hipvit, "classify", "--device", arguments.device]

    rows = []
    for module in arguments.modules:
        names = fnmatch.filter(timm.list_models(module=module), arguments.only)
        differences = []
        for name in names:
            with tempfile.TemporaryDirectory() as directory:
                result = difference(name, Path(directory), hipvit)
            if isinstance(result, str):
                print(f"{name}: {result}", flush=True)
                continue
            differences.append(result)
            if not result <= TOLERANCE:
                print(f"{name}: differs by {result:.1e}", flush=True)
        agree = sum(result <= TOLERANCE for result in differences)
        rows.append((module, len(names), len(differences), agree, max(differences, default=0.0)))
    print(f"{'module':20} {'models':>6} {'load':>6} {'agree':>6}  largest difference")
    for module, count, load, agree, largest in rows:
        print(f"{module:20} {count:6} {load:6} {agree:6}  {largest:.1e}")
    sys.exit(any(load != agree for _, _, load, agree, _ in rows))


if __name__ == "__main__":
    main()
