"""Lets the entry points of timm's `mlp_mixer` take arguments that they pass themselves, such as `embed_dim`, as those of other
modules do; they raise a TypeError otherwise. Importing this is enough.

See also: golden_timm.py and timm_coverage.py, which make small models of them.
"""

import functools

import timm
from timm.models import mlp_mixer
from timm.models._registry import _model_entrypoints


def overridable(entry):
    @functools.wraps(entry)
    def create(pretrained=False, **given):
        original = mlp_mixer._create_mixer
        mlp_mixer._create_mixer = lambda variant, pretrained=False, **own: original(variant, pretrained, **own | given)
        try:
            return entry(pretrained)
        finally:
            mlp_mixer._create_mixer = original

    return create


for name in timm.list_models(module="mlp_mixer"):
    _model_entrypoints[name] = overridable(_model_entrypoints[name])
