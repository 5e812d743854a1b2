"""Writes timm_architectures.json: what timm's own entry points of `vision_transformer` and `deit` pass to their class; and
timm_eva.json, timm_beit.json, timm_mixer.json, timm_naflex.json and timm_swin.json: those of `eva`, `beit`, `mlp_mixer`,
`naflexvit` (its configuration), of `swin_transformer` and `swin_transformer_v2`; and timm_hiera.json, those of `hiera`.

    python tests/data/model/make_timm_architectures.py

Every architecture is there, supported by hipvit or not; arguments that are no JSON are written as their repr. timm 1.0.31.
"""

import dataclasses
import functools
import json
from pathlib import Path

import timm
from timm.layers import LayerNorm, RmsNorm, SwiGLUPacked
from timm.models import beit, deit, eva, hiera, mlp_mixer, naflexvit, swin_transformer, swin_transformer_v2, vision_transformer
from torch import nn

captured = {}


def capture(variant, pretrained=False, **arguments):
    captured[variant] = arguments


def capture_naflex(variant, pretrained=False, cfg=None):
    default = dataclasses.asdict(naflexvit.NaFlexVitCfg())
    captured[variant] = {key: value for key, value in dataclasses.asdict(cfg).items() if value != default[key]}


def plain(value):
    if value is SwiGLUPacked:
        return "swiglu_packed"
    if value is nn.SiLU:
        return "silu"
    if isinstance(value, functools.partial) and value.func is LayerNorm:
        return {"layer_norm": value.keywords["eps"]}
    if isinstance(value, functools.partial) and value.func is RmsNorm:
        return {"rms_norm": value.keywords["eps"]}
    if isinstance(value, functools.partial) and value.func is mlp_mixer.ResBlock:
        return "ResBlock"
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, bool | int | float | str | None) else getattr(value, "__name__", repr(value))


vision_transformer._create_vision_transformer = capture
deit._create_deit = capture
eva._create_eva = capture
beit._create_beit = capture
mlp_mixer._create_mixer = capture
naflexvit._create_naflexvit = capture_naflex
swin_transformer._create_swin_transformer = capture
swin_transformer_v2._create_swin_transformer_v2 = capture
hiera._create_hiera = capture
files = {
    "timm_architectures.json": ("vision_transformer", "deit"),
    "timm_eva.json": ("eva",),
    "timm_beit.json": ("beit",),
    "timm_mixer.json": ("mlp_mixer",),
    "timm_naflex.json": ("naflexvit",),
    "timm_swin.json": ("swin_transformer", "swin_transformer_v2"),
    "timm_hiera.json": ("hiera",),
}
for file, modules in files.items():
    captured.clear()
    for module in modules:
        for name in timm.list_models(module=module):
            timm.models.model_entrypoint(name)()
    lines = ",\n".join(
        f"{json.dumps(name)}: {json.dumps({key: plain(value) for key, value in captured[name].items()})}"
        for name in sorted(captured)
    )
    Path(__file__).with_name(file).write_text("{\n" + lines + "\n}\n")
