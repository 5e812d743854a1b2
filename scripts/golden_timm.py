"""The timm cases: real architecture names, shrunk by `model_args`, written as timm writes a hub repository.

Each case is saved, sometimes edited into another form that hub repositories have, and then loaded back by timm itself
(`local-dir:`), so the committed directory is what the golden output came from.

See also: goldens.py, which runs the cases, and golden_weights.py, which draws the weights.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

import timm
import torch
from safetensors.torch import load_file, save_file
from timm.data import create_transform, resolve_data_config
from timm.models import save_for_hf
from timm.models.beit import gen_relative_position_index

import timm_mixers  # noqa: F401
from golden_weights import randomise


@dataclass
class TimmCase:
    name: str
    family: str
    architecture: str
    args: dict[str, Any]
    # Preprocessing of the checkpoint, if it differs from the architecture's.
    data: dict[str, Any] = field(default_factory=dict)
    images: tuple[str, ...] = ("small.png", "wide.png")
    labels: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    # Changes config.json and the tensors after saving, before timm loads them.
    edit: Callable[[dict, dict], tuple[dict, dict]] | None = None
    # Arguments of `timm.create_model` in addition to the directory: another input size.
    override_image_size: tuple[int, int] | None = None
    note: str = ""
    library = "timm"

    def save(self, directory: Path) -> None:
        model = timm.create_model(self.architecture, **self.args).eval()
        randomise(model, self.name)
        model.to(self.dtype)
        save_for_hf(model, directory, model_config=self.labels, data_config=self.data, safe_serialization=True)
        if self.edit:
            config_path, weights_path = directory / "config.json", directory / "model.safetensors"
            config, tensors = self.edit(json.loads(config_path.read_text()), load_file(weights_path))
            config_path.write_text(json.dumps(config, indent=2))
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, weights_path)

    def load(self, directory: Path) -> torch.nn.Module:
        override = {"img_size": self.override_image_size} if self.override_image_size else {}
        return timm.create_model(f"local-dir:{directory}", pretrained=True, **override).eval().double()

    def preprocess(self, directory: Path, model: torch.nn.Module, images: list) -> torch.Tensor:
        override = {"input_size": (3, *self.override_image_size)} if self.override_image_size else {}
        transform = create_transform(**resolve_data_config(override, model=model), is_training=False)
        return torch.stack([transform(image) for image in images])

    def outputs(self, model: torch.nn.Module, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits" if model.num_classes else "embedding": model(pixel_values.double())}

    def describe(self) -> dict[str, Any]:
        call = "timm.create_model('local-dir:DIR', pretrained=True).double()(pixel_values)"
        if self.override_image_size:
            call = call.replace("pretrained=True", f"pretrained=True, img_size={self.override_image_size}")
        described = {"architecture": self.architecture, "call": call}
        if self.override_image_size:
            described["override_image_size"] = list(self.override_image_size)
        return described


def without_args(*keys: str):
    """Drops `model_args`, as in repositories written before timm recorded them: the architecture's defaults apply."""

    def edit(config, tensors):
        for key in keys:
            del config["model_args"][key]
        return config, tensors

    return edit


def with_pre_logits(config, tensors):
    """A checkpoint from before timm dropped the representation layer: its tensors are still there, and are skipped."""
    width = config["num_features"]
    generator = torch.Generator().manual_seed(11)
    tensors["pre_logits.fc.weight"] = torch.randn(width, width, generator=generator)
    tensors["pre_logits.fc.bias"] = torch.randn(width, generator=generator)
    return config, tensors


def with_relative_position_index(config, tensors):
    """A checkpoint as BEiT's authors wrote it: with the buffers of indices, which are skipped."""
    for name in [name for name in tensors if name.endswith("relative_position_bias_table")]:
        buffer = name.removesuffix("bias_table") + "index"
        tensors[buffer] = gen_relative_position_index((4, 4))
    return config, tensors


def with_buffers(config, tensors):
    """A checkpoint as Swin's authors wrote it: with the buffers, which are skipped."""
    tensors["layers.0.blocks.1.attn.relative_position_index"] = torch.zeros(16, 16, dtype=torch.int64)
    tensors["layers.0.blocks.1.attn_mask"] = torch.zeros(4, 16, 16)
    return config, tensors


def with_hot_heads(config, tensors):
    """Temperatures above the largest, 100, for some heads."""
    for name in [name for name in tensors if name.endswith("logit_scale")]:
        tensors[name][0] = 5.5
    return config, tensors


def stored_for(size: int):
    """Sets another image size than that of the saved tensors: timm resamples at load."""

    def edit(config, tensors):
        config["model_args"]["img_size"] = [size, size] if isinstance(size, int) else list(size)
        config["pretrained_cfg"]["input_size"] = [3, *config["model_args"]["img_size"]]
        return config, tensors

    return edit


SMALL = {"embed_dim": 24, "depth": 2, "num_heads": 3, "mlp_ratio": 2}
SWIN = {"embed_dim": 12, "depths": [2, 2], "num_heads": [2, 3], "window_size": 4, "mlp_ratio": 2, "img_size": 32,
        "num_classes": 7}
# The network of the bias has 512 channels, whatever the model's size.
SWINV2 = SWIN | {"embed_dim": 8, "num_heads": [2, 2], "pretrained_window_sizes": [0, 0]}
HIERA = {"embed_dim": 8, "num_heads": 1, "mlp_ratio": 1, "num_classes": 7}
NAFLEX = SMALL | {"patch_size": 8, "num_classes": 7}
MIXER = {"embed_dim": 24, "num_blocks": 2, "patch_size": 8, "img_size": [40, 24], "num_classes": 7}

CASES = [
    TimmCase("timm_vit_class_token", "vit", "vit_tiny_patch16_224",
             {"embed_dim": 24, "depth": 2, "img_size": 48, "num_classes": 10}, images=("photo.jpg", "tall.png"),
             edit=without_args("img_size", "in_chans", "global_pool", "num_classes"),
             labels={"label_names": [f"n{index:08}" for index in range(10)],
                     "label_descriptions": {f"n{index:08}": f"thing {index}, or so" for index in range(10)}},
             note="num_heads, mlp_ratio and patch_size come from the architecture; the image size from "
                  "pretrained_cfg.input_size because fixed_input_size is true; the class count from the top level"),
    TimmCase("timm_vit_avg_pool", "vit", "vit_small_patch16_224",
             SMALL | {"patch_size": 8, "img_size": 40, "num_classes": 7, "global_pool": "avg"},
             data={"crop_pct": 0.875, "interpolation": "bilinear"}, images=("tall.png", "small.png")),
    TimmCase("timm_vit_no_qkv_bias", "vit", "vit_base_patch16_224",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7, "qkv_bias": False, "no_embed_class": True},
             data={"crop_pct": 1.0, "crop_mode": "squash"}),
    TimmCase("timm_vit_pre_norm_layer_scale", "vit", "vit_base_patch16_224",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7, "pre_norm": True, "init_values": 0.1},
             data={"crop_pct": 0.8, "crop_mode": "border"}, images=("tall.png", "wide.png"),
             note="pre_norm also removes the bias of patch_embed.proj"),
    TimmCase("timm_vit_non_square", "vit", "vit_base_patch16_224",
             {"embed_dim": 20, "depth": 2, "num_heads": 2, "mlp_ratio": 1.5, "patch_size": [8, 12],
              "img_size": [32, 60], "num_classes": 5}, images=("small.png", "tall.png")),
    TimmCase("timm_vit_no_class_token", "vit", "vit_small_patch8_224",
             SMALL | {"img_size": 40, "num_classes": 7, "class_token": False, "global_pool": "avg", "fc_norm": False},
             note="fc_norm=false keeps `norm` before the pooling although the pooling is avg"),
    TimmCase("timm_vit_max_pool", "vit", "vit_small_patch8_224",
             SMALL | {"img_size": 32, "num_classes": 7, "global_pool": "max"}, images=("tall.png",)),
    TimmCase("timm_vit_gap", "vit", "vit_medium_patch16_gap_240",
             SMALL | {"patch_size": 8, "img_size": 40, "num_classes": 7}, images=("tall.png", "wide.png")),
    TimmCase("timm_vit_reg4_gap", "vit", "vit_medium_patch16_reg4_gap_256",
             SMALL | {"patch_size": 8, "img_size": 40, "num_classes": 7}),
    TimmCase("timm_vit_embedding", "vit", "vit_tiny_patch16_224",
             {"embed_dim": 27, "depth": 2, "patch_size": 8, "img_size": 32, "mlp_ratio": 2, "num_classes": 0}),
    TimmCase("timm_test_vit", "vit", "test_vit", {"embed_dim": 24, "depth": 2, "img_size": 64, "num_classes": 7},
             data={"input_size": (3, 48, 80)}, images=("tall.png",),
             note="dynamic_img_size, so fixed_input_size is false: images come at input_size, 48x80, and the positions "
                  "of img_size's 4x4 grid are resampled to 3x5 in the forward pass"),
    TimmCase("timm_vit_pre_logits", "vit", "vit_tiny_patch16_224",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 6}, edit=with_pre_logits,
             labels={"label_names": {str(index): f"kind {index}" for index in range(6)}},
             note="holds pre_logits.fc.*, which timm ignores; label_names is an object"),
    TimmCase("timm_vit_f16", "vit", "vit_tiny_patch16_224",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7}, dtype=torch.float16),
    TimmCase("timm_vit_bf16", "vit", "vit_tiny_patch16_224",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7}, dtype=torch.bfloat16),
    TimmCase("timm_vit_resampled_up", "vit", "vit_small_patch8_224",
             SMALL | {"img_size": 32, "num_classes": 7}, edit=stored_for((40, 72)),
             note="pos_embed is stored for a 4x4 grid, the model's is 5x9"),
    TimmCase("timm_vit_resampled_down", "vit", "vit_medium_patch16_reg4_gap_256",
             SMALL | {"patch_size": 8, "img_size": 72, "num_classes": 7}, edit=stored_for((40, 32)),
             note="pos_embed is stored for a 9x9 grid, the model's is 5x4; antialiased; no class or register positions"),
    TimmCase("timm_vit_override_size", "vit", "vit_small_patch8_224",
             SMALL | {"img_size": [24, 48], "num_classes": 7}, override_image_size=(48, 40),
             note="the directory is whole for a 3x6 grid; the caller asks for 6x5"),
    TimmCase("timm_vit_avg_max_pool", "vit", "vit_tiny_patch16_224",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7, "global_pool": "avgmax", "qk_norm": True,
                      "scale_attn_norm": True},
             note="q_norm and k_norm of each head, and a norm before attn.proj"),
    TimmCase("timm_vit_self_attention_pool", "vit", "vit_tiny_patch16_224",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7, "global_pool": "prr"},
             note="the pooling attends without projections and takes the class token"),
    TimmCase("timm_vit_rms_norm", "vit", "test_vit4",
             {"embed_dim": 24, "depth": 2, "img_size": 48, "num_classes": 7}, data={"input_size": (3, 48, 48)}),
    TimmCase("timm_vit_reg4_map", "vit", "vit_so150m_patch16_reg4_map_256",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7},
             note="the pooling's keys and values leave the registers out"),
    TimmCase("timm_vit_post_norm", "vit", "vit_base_patch16_rpn_224",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7}),
    TimmCase("timm_vit_pairs", "vit", "vit_small_patch16_18x2_224",
             SMALL | {"depth": 1, "patch_size": 8, "img_size": 32, "num_classes": 7},
             note="two attentions side by side, then two networks"),
    TimmCase("timm_vit_parallel", "vit", "vit_pwee_patch16_reg1_gap_256",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7}),
    TimmCase("timm_vit_parallel_qk_norm", "vit", "vit_base_patch16_xp_224",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7},
             note="RMS norms; the network's bias is a tensor of its own, as in_proj has none"),
    TimmCase("timm_vit_differential", "vit", "vit_dwee_patch16_reg1_gap_256",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7}),
    TimmCase("timm_vit_parallel_differential", "vit", "vit_dpwee_patch16_reg1_gap_256",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7}, images=("tall.png", "wide.png"),
             note="one output projection of attention and network side by side"),
    TimmCase("timm_flexivit", "vit", "flexivit_small",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7}, edit=stored_for((40, 72)),
             note="pos_embed is stored for a 4x4 grid, the model's is 5x9; bilinear"),
    TimmCase("timm_radio", "vit", "vit_base_patch16_radio_v3",
             SMALL | {"patch_size": 8, "img_size": 72, "num_classes": 0}, edit=stored_for((40, 32)),
             note="pos_embed is stored for a 9x9 grid, the model's is 5x4; bilinear with aligned corners; seven registers, "
                  "no norm after the blocks"),
    TimmCase("timm_aimv2", "vit", "aimv2_large_patch14_224",
             SMALL | {"patch_size": 8, "img_size": 32, "mlp_ratio": 2.75, "num_classes": 7},
             note="RMS norms, one of the patches too; SwiGLU with a layer each for gate and value; biases of the patches and "
                  "the head alone"),
    TimmCase("timm_beit3", "vit", "beit3_base_patch16_224",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7},
             note="norms before attn.proj and before mlp.fc2"),
    TimmCase("timm_eva02", "eva", "eva02_tiny_patch14_224",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7}, edit=stored_for((40, 72)),
             note="rotary positions beside pos_embed, which is stored for a 4x4 grid, the model's is 5x9; packed qkv.weight with "
                  "q_bias and v_bias; packed SwiGLU"),
    TimmCase("timm_eva02_clip", "eva", "eva02_base_patch16_clip_224",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7}, images=("tall.png", "wide.png"),
             note="a layer each for queries, keys (without bias) and values; norms before attn.proj and mlp.fc2"),
    TimmCase("timm_eva02_override_size", "eva", "eva02_base_patch14_224",
             SMALL | {"patch_size": 8, "img_size": [24, 48], "num_classes": 7}, override_image_size=(48, 40),
             note="the directory is whole for a 3x6 grid; the caller asks for 6x5, for which the angles are computed anew"),
    TimmCase("timm_eva02_post_norm", "eva", "eva02_enormous_patch14_clip_224",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7},
             note="norms after attention and network; no rotary positions"),
    TimmCase("timm_vit_rope", "vit", "vit_small_patch16_rope_224",
             SMALL | {"patch_size": 8, "img_size": [40, 24], "num_classes": 7},
             note="rotary positions alone, columns before rows"),
    TimmCase("timm_vit_rope_mixed_ape", "vit", "vit_small_patch16_rope_mixed_ape_224",
             SMALL | {"patch_size": 8, "img_size": [40, 24], "num_classes": 7},
             note="learned frequencies of each block and head; pos_embed for the patches alone"),
    TimmCase("timm_vit_rope_reg4_gap", "vit", "vit_betwixt_patch16_rope_reg4_gap_256",
             SMALL | {"patch_size": 8, "img_size": 40, "num_classes": 7, "qkv_bias": False}),
    TimmCase("timm_pe_core", "vit", "vit_pe_core_tiny_patch16_384",
             SMALL | {"patch_size": 8, "img_size": 40, "num_classes": 7, "attn_pool_num_heads": 4},
             note="the pooling has other heads than the blocks, and reads the class token too"),
    TimmCase("timm_pe_spatial", "vit", "vit_pe_spatial_gigantic_patch14_448",
             SMALL | {"patch_size": 8, "img_size": 40, "num_classes": 0},
             note="no norm after the blocks, no class token"),
    TimmCase("timm_dinov3", "dinov3", "vit_base_patch16_dinov3",
             SMALL | {"patch_size": 8, "num_classes": 7}, data={"input_size": (3, 40, 64)}, images=("tall.png",),
             note="dynamic_img_size: the size is that of input_size"),
    TimmCase("timm_dinov3_swiglu", "dinov3", "vit_small_plus_patch16_dinov3_qkvb",
             SMALL | {"patch_size": 8, "num_classes": 0, "global_pool": "token", "mlp_ratio": 1.6},
             data={"input_size": (3, 48, 40)},
             note="38 channels of the network rounded up to 40"),
    TimmCase("timm_sapiens2", "vit", "vit_base_patch16_sapiens2",
             SMALL | {"patch_size": 8, "img_size": [48, 32], "num_classes": 7, "num_kv_heads": [3, 1]},
             data={"input_size": (3, 48, 32)},
             note="one head of keys and values in the second block; RMS norms of queries and keys before their rotation; "
                  "LayerScale of attention alone"),
    TimmCase("timm_beit", "beit", "beit_base_patch16_224",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7}, edit=with_relative_position_index,
             note="a bias of the scores by relative position, a table for each block; keys without a bias; holds "
                  "relative_position_index, which timm ignores"),
    TimmCase("timm_beit_shared", "beit", "beit_base_patch16_224",
             SMALL | {"patch_size": 8, "img_size": [40, 24], "num_classes": 7, "use_rel_pos_bias": False,
                      "use_shared_rel_pos_bias": True, "use_abs_pos_emb": True, "global_pool": "token", "init_values": None},
             images=("tall.png", "wide.png"),
             note="one table for all blocks, beside pos_embed; the class token, so that the last block needs one query's bias"),
    TimmCase("timm_beitv2_override_size", "beit", "beitv2_base_patch16_224",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7}, override_image_size=(48, 40),
             note="the tables are for a 4x4 grid; the caller asks for 6x5: resize_rel_pos_bias_table"),
    TimmCase("timm_swin", "swin", "swin_tiny_patch4_window7_224", SWIN, images=("tall.png", "wide.png"),
             edit=with_buffers,
             note="windows of 4x4 in grids of 8x8 and 4x4; the second block of the first stage shifts them; holds "
                  "relative_position_index and attn_mask, which timm ignores"),
    TimmCase("timm_swin_padded", "swin", "swin_s3_tiny_224",
             SWIN | {"img_size": [40, 24], "window_size": [[4, 4], [2, 3]], "qkv_bias": False, "global_pool": "avgmax"},
             note="grids of 10x6 and 5x3, rolled before they are padded to whole windows, which each stage has of its own"),
    TimmCase("timm_swin_always_partition", "swin", "swin_base_patch4_window12_384",
             SWIN | {"img_size": [20, 28], "always_partition": True, "num_classes": 0},
             note="grids of 5x7 and 3x4: windows are larger than the grid and shifted all the same; merging pads odd rows"),
    TimmCase("timm_swin_override_size", "swin", "swin_tiny_patch4_window7_224", SWIN | {"window_size": 7},
             override_image_size=(40, 52), images=("wide.png",),
             note="the second stage's tables are for windows of 4x4; the caller asks for a grid of 5x7: "
                  "resize_rel_pos_bias_table"),
    TimmCase("timm_swinv2", "swin", "swinv2_base_window12to16_192to256", SWINV2 | {"pretrained_window_sizes": [6, 3]},
             images=("tall.png",), edit=with_hot_heads,
             note="cosine attention; coordinates of the bias relative to windows of the pre-training; temperatures above 100"),
    TimmCase("timm_swinv2_dynamic", "swin", "swinv2_tiny_window8_256",
             SWINV2 | {"img_size": [16, 32], "dynamic_img_size": True, "global_pool": "max"}, data={"input_size": (3, 40, 24)},
             images=("tall.png",),
             note="windows by img_size: 4x4 and 2x4 in grids of 10x6 and 5x3 of the image, padded"),
    TimmCase("timm_hiera", "hiera", "hiera_tiny_224", HIERA | {"img_size": [64, 32], "stages": [1, 2, 2, 1]},
             images=("tall.png", "wide.png"),
             note="a grid of 16x8, so two windows of 8x8 that pooling reduces to one token each"),
    TimmCase("timm_hiera_abswin", "hiera", "hiera_small_abswin_256",
             HIERA | {"img_size": [32, 64], "stages": [2, 1, 1, 1], "global_pos_size": [5, 3], "num_classes": 0},
             note="positions of 5x3 resampled to the grid, beside those of a window; residuals of maximum and mean; LayerScale"),
    TimmCase("timm_hiera_override_size", "hiera", "hiera_base_abswin_256",
             HIERA | {"num_heads": 2, "img_size": 32, "stages": [1, 1, 2, 1], "global_pos_size": [4, 4], "global_pool": "avgmax"},
             override_image_size=(64, 96), images=("wide.png",),
             note="positions of 4x4; the caller asks for a grid of 16x24; two heads in the first stage"),
    TimmCase("timm_naflex", "vit", "naflexvit_base_patch16_gap",
             NAFLEX | {"pos_embed_grid_size": [5, 3]}, data={"input_size": (3, 32, 40)}, images=("tall.png", "wide.png"),
             note="the patch projection is a linear layer; a 5x3 grid of positions, resampled to the image's 4x5"),
    TimmCase("timm_naflex_factorized", "vit", "naflexvit_base_patch16_parfac_gap",
             NAFLEX | {"pos_embed_grid_size": [6, 3]}, data={"input_size": (3, 24, 40)}, images=("wide.png",),
             note="positions of rows and of columns, both resampled to 5, of which the rows keep 3"),
    TimmCase("timm_naflex_siglip", "siglip", "naflexvit_base_patch16_siglip",
             NAFLEX | {"pos_embed_grid_size": [7, 6], "attn_pool_num_heads": 2, "attn_pool_mlp_ratio": 1.5},
             data={"input_size": (3, 32, 32)}, images=("wide.png",),
             note="bilinear with antialias; attention pooling with heads and hidden channels of its own"),
    TimmCase("timm_naflex_radio", "vit", "naflexvit_base_patch16_radio_v3",
             NAFLEX | {"pos_embed_grid_size": [8, 8], "num_classes": 0}, data={"input_size": (3, 24, 32)}, images=("wide.png",),
             note="bilinear with aligned corners, resampled to 4x4, of which the image has 3x4; no final norm"),
    TimmCase("timm_deit", "deit", "deit_tiny_patch16_224",
             SMALL | {"patch_size": 8, "img_size": 40, "num_classes": 7}, images=("tall.png", "wide.png")),
    TimmCase("timm_deit_distilled", "deit", "deit_tiny_distilled_patch16_224",
             SMALL | {"patch_size": 8, "img_size": 40, "num_classes": 7}),
    TimmCase("timm_deit3", "deit", "deit3_small_patch16_224",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7}),
    TimmCase("timm_dinov2", "dinov2", "vit_small_patch14_dinov2",
             SMALL | {"img_size": 56, "num_classes": 0}, images=("wide.png",)),
    TimmCase("timm_dinov2_reg4", "dinov2", "vit_small_patch14_reg4_dinov2",
             SMALL | {"img_size": 42, "num_classes": 7}),
    TimmCase("timm_dinov2_reg4_swiglu", "dinov2", "vit_giant_patch14_reg4_dinov2",
             {"embed_dim": 24, "depth": 2, "num_heads": 2, "img_size": 42, "num_classes": 0},
             note="the architecture's mlp_ratio, 2 x 2.66667, gives fc1 int(24 x 5.33334) = 128 rows: 64 of gate, then 64 of value"),
    TimmCase("timm_clip", "clip", "vit_base_patch16_clip_224",
             SMALL | {"patch_size": 8, "img_size": 40, "num_classes": 12}, images=("small.png", "tall.png")),
    TimmCase("timm_clip_quickgelu", "clip", "vit_base_patch16_clip_quickgelu_224",
             SMALL | {"img_size": 48, "num_classes": 12}),
    TimmCase("timm_siglip", "siglip", "vit_base_patch16_siglip_224",
             SMALL | {"patch_size": 8, "img_size": 40, "num_classes": 0}, images=("tall.png", "wide.png")),
    TimmCase("timm_siglip2_tanh", "siglip", "vit_base_patch32_siglip_256",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 7}, data={"crop_mode": "squash", "crop_pct": 1.0}),
    TimmCase("timm_siglip_gap", "siglip", "vit_base_patch16_siglip_gap_256",
             SMALL | {"patch_size": 8, "img_size": 32, "num_classes": 0}),
    TimmCase("timm_mixer", "mixer", "mixer_b16_224",
             MIXER | {"mlp_ratio": [1.5, 2.5]}, images=("tall.png", "wide.png"),
             note="15 tokens; the network over the tokens has 36 channels, that over the channels 60"),
    TimmCase("timm_gmixer", "mixer", "gmixer_12_224",
             MIXER | {"mlp_ratio": [1.25, 2], "stem_norm": True}, data={"crop_pct": 1.0},
             note="SwiGLU in both networks, the value before the gate; a norm of the patches"),
    TimmCase("timm_resmlp", "mixer", "resmlp_12_224",
             MIXER | {"mlp_ratio": 2}, images=("tall.png",),
             note="affine maps in place of norms; one layer over the tokens; LayerScale"),
    TimmCase("timm_gmlp", "mixer", "gmlp_s16_224",
             MIXER | {"mlp_ratio": 3, "num_classes": 0},
             note="spatial gating, whose norm's epsilon is 1e-5"),
]
