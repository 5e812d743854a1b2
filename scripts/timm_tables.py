"""Writes the tables that hipvit takes from timm, in timm's own order:

    python scripts/timm_tables.py           # assets/imagenet/imagenet_1k.tsv, src/model/timm/pretrained.tsv
    python scripts/timm_tables.py --check   # fails if they are not what this timm gives
    python scripts/timm_tables.py --labels imagenet-12k > labels.tsv    # a file for hipvit's --labels

`--labels` is for models whose names are not embedded: imagenet-12k (11,821 classes), imagenet-21k-miil (11,221), imagenet-22k
(21,841), imagenet-22k-ms (21,842), imagenet-21k-goog (21,843). timm 1.0.31.
"""

import argparse
import json
import sys
from pathlib import Path

import timm
from timm.data import ImageNetInfo
from timm.models import get_pretrained_cfg

ROOT = Path(__file__).resolve().parents[1]


def labels(subset):
    """A class per line, in the order of the logits: the WordNet id, a tab, the names."""
    info = ImageNetInfo(subset)
    return "".join(f"{name}\t{info.label_name_to_description(name)}\n" for name in info.label_names())


def pretrained():
    """The hub's repository of an architecture's default weights, which its bare name stands for in timm; below timm/."""
    known = {}
    for file in ("timm_architectures.json", "timm_eva.json", "timm_beit.json", "timm_mixer.json", "timm_naflex.json", "timm_swin.json",
                 "timm_hiera.json"):
        known |= json.loads((ROOT / "tests/data/model" / file).read_text())
    repositories = {name: get_pretrained_cfg(name).hf_hub_id or "" for name in sorted(known)}
    return "".join(
        f"{name}\t{repository.removeprefix('timm/')}\n"
        for name, repository in repositories.items()
        if repository.startswith("timm/")
    )


TABLES = {
    "assets/imagenet/imagenet_1k.tsv": lambda: labels("imagenet-1k"),
    "src/model/timm/pretrained.tsv": pretrained,
}

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--check", action="store_true", help="compare instead of writing")
parser.add_argument("--labels", metavar="SUBSET", help="print the labels of one of timm's ImageNet subsets")
arguments = parser.parse_args()
if arguments.labels:
    sys.stdout.write(labels(arguments.labels))
    sys.exit()
for path, table in TABLES.items():
    text, file = table(), ROOT / path
    if not arguments.check:
        file.write_text(text)
    elif file.read_text() != text:
        sys.exit(f"{path} is not what timm {timm.__version__} gives")
