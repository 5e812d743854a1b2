"""The transformers cases: models and Pillow-backed processors, saved with `save_pretrained`.

Each case is saved and then loaded back by transformers, so that the golden output is that of the committed directory. Some cases are
edited in between into other forms of hub repositories: older configs leave out defaults, older processors write a plain number as
size, older towers have a name prefix.

See also: goldens.py, which runs the cases, and golden_weights.py, which draws the weights.
"""

import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Callable

import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from transformers.models.aimv2.modeling_aimv2 import Aimv2RMSNorm
from transformers.models.beit.image_processing_pil_beit import BeitImageProcessorPil
from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from golden_weights import randomise

def rms_norm(module: Aimv2RMSNorm, x: torch.Tensor) -> torch.Tensor:
    """The library's, which computes in single precision whatever it is given, in double precision."""
    return module.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + module.variance_epsilon)


TWO_TOWERS = (hf.Aimv2Model, hf.CLIPModel, hf.SiglipModel)


@dataclass
class TransformersCase:
    name: str
    family: str
    model_class: type
    config: Any
    processor: Any
    # Names of the kept tensors, the main one first; see `outputs`.
    keep: tuple[str, ...] = ("logits",)
    images: tuple[str, ...] = ("small.png", "wide.png")
    model_args: dict[str, Any] = field(default_factory=dict)
    save_args: dict[str, Any] = field(default_factory=dict)
    interpolate: bool = False
    # Changes the files in the directory after saving, before transformers loads them back.
    edits: tuple[Callable[[Path], None], ...] = ()
    note: str = ""
    library = "transformers"

    def save(self, directory: Path) -> None:
        model = self.model_class(self.config, **self.model_args).eval()
        randomise(model, self.name)
        model.save_pretrained(directory, **self.save_args)
        self.processor.save_pretrained(directory)
        for edit in self.edits:
            edit(directory)

    def load(self, directory: Path) -> torch.nn.Module:
        model, report = self.model_class.from_pretrained(
            directory, dtype=torch.float64, output_loading_info=True, **self.model_args)
        problems = {key: value for key, value in report.items() if value and key != "unexpected_keys"}
        assert not problems, f"{self.name}: {problems}"
        for module in model.modules():
            if isinstance(module, Aimv2RMSNorm):
                module.forward = partial(rms_norm, module)
        return model.eval()

    def preprocess(self, directory: Path, _model: torch.nn.Module, images: list) -> torch.Tensor:
        processor = type(self.processor).from_pretrained(directory)
        assert processor.backend == "pil"
        return torch.stack([processor(image, return_tensors="pt").pixel_values[0] for image in images])

    def outputs(self, model: torch.nn.Module, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        inputs = {"pixel_values": pixel_values.double()}
        if self.interpolate:
            inputs["interpolate_pos_encoding"] = True
        if isinstance(model, TWO_TOWERS):
            # The embeddings are not normalised, because that is part of the comparison with text.
            return {"image_embeds": model.get_image_features(**inputs).pooler_output}
        result = model(**inputs)
        return {name: result[name] for name in self.keep}

    def describe(self) -> dict[str, Any]:
        arguments = "pixel_values" + (", interpolate_pos_encoding=True" if self.interpolate else "")
        method = ".get_image_features" if self.model_class in TWO_TOWERS else ""
        return {
            "architecture": self.model_class.__name__,
            "call": f"transformers.{self.model_class.__name__}.from_pretrained(DIR, dtype=torch.float64)"
                    f"{method}({arguments})",
            "interpolate_pos_encoding": self.interpolate,
        }


def rewrite(file: str, change: Callable[[dict], dict]) -> Callable[[Path], None]:
    def edit(directory: Path) -> None:
        path = directory / file
        path.write_text(json.dumps(change(json.loads(path.read_text())), indent=2) + "\n")

    return edit


def without_defaults(*config_classes: type) -> Callable[[Path], None]:
    """Keeps only what differs from the class's defaults, as repositories written by older releases do."""

    def strip(values: dict, config_class: type) -> dict:
        defaults = config_class().to_dict()
        kept = {"model_type", "architectures", "vision_config", "text_config", "id2label", "label2id"}
        return {key: value for key, value in values.items() if key in kept or value != defaults.get(key)}

    def change(values: dict) -> dict:
        values = strip(values, config_classes[0])
        for key, config_class in zip(("vision_config", "text_config"), config_classes[1:]):
            values[key] = strip(values[key], config_class)
        return values

    return rewrite("config.json", change)


def with_prefix(prefix: str) -> Callable[[Path], None]:
    """Gives every tensor the prefix that towers saved by releases before 5 have."""

    def edit(directory: Path) -> None:
        path = directory / "model.safetensors"
        save_file({prefix + name: tensor for name, tensor in load_file(path).items()}, path, {"format": "pt"})

    return edit


def with_position_ids(directory: Path) -> None:
    """Adds the integer buffers that releases before 4.31 saved."""
    path = directory / "model.safetensors"
    tensors = load_file(path)
    for name in [name for name in tensors if name.endswith("position_embedding.weight")]:
        buffer = name.removesuffix("position_embedding.weight") + "position_ids"
        tensors[buffer] = torch.arange(tensors[name].shape[0]).unsqueeze(0)
    save_file(tensors, path, {"format": "pt"})


def with_nested_layers(directory: Path) -> None:
    """Names DINOv3's blocks as the module of release 5 does, where its files have the names of release 4."""
    path = directory / "model.safetensors"
    tensors = {("model." if name.startswith("layer.") else "") + name: tensor for name, tensor in load_file(path).items()}
    save_file(tensors, path, {"format": "pt"})


def with_module_names(directory: Path) -> None:
    """Names Swin's tensors as the modules of release 5 do, where its files have the names of release 4."""
    path = directory / "model.safetensors"
    new = {"attention.self.query": "attention.q_proj", "attention.self.key": "attention.k_proj",
           "attention.self.value": "attention.v_proj", "attention.output.dense": "attention.o_proj",
           "attention.self.relative_position_bias_table": "attention.relative_position_bias.relative_position_bias_table",
           "intermediate.dense": "mlp.fc1", "output.dense": "mlp.fc2"}
    tensors = {}
    for name, tensor in load_file(path).items():
        for old, module in new.items():
            if f".{old}" in name:
                name = name.replace(old, module)
                break
        tensors[name] = tensor
    save_file(tensors, path, {"format": "pt"})


def labels(*names: str) -> dict[str, Any]:
    return {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}


def square(size: int) -> dict[str, int]:
    return {"height": size, "width": size}


SMALL = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "patch_size": 8, "image_size": 32}
SWIN = {"embed_dim": 12, "depths": [2, 2], "num_heads": [2, 3], "window_size": 4, "mlp_ratio": 2.0, "image_size": 32}
MLP = {"intermediate_size": 60}
TEXT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 32,
        "max_position_embeddings": 8, "bos_token_id": 0, "eos_token_id": 2}
ANIMALS = labels("cat", "dog, domestic dog", "okapi", "tench", "Zürich", "a:b", "0")
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
VIT_32 = ViTImageProcessorPil(size=square(32))
BIT_DINO = {"resample": 3, **IMAGENET}


def clip(projection: int = 20, **vision) -> hf.CLIPConfig:
    vision = SMALL | MLP | {"projection_dim": projection} | vision
    return hf.CLIPConfig(vision_config=vision, text_config=TEXT | {"projection_dim": projection},
                         projection_dim=projection)


def siglip(**vision) -> hf.SiglipConfig:
    return hf.SiglipConfig(vision_config=SMALL | MLP | vision, text_config=TEXT | {"projection_size": 24})


CASES = [
    TransformersCase("hf_vit", "vit", hf.ViTForImageClassification,
                     hf.ViTConfig(**SMALL, **MLP, **ANIMALS), VIT_32,
                     images=("tall.png", "wide.png", "photo.jpg")),
    TransformersCase("hf_vit_no_qkv_bias", "vit", hf.ViTForImageClassification,
                     hf.ViTConfig(**SMALL, **MLP, qkv_bias=False, layer_norm_eps=1e-3),
                     ViTImageProcessorPil(size=square(32), resample=3, **IMAGENET), images=("tall.png",),
                     note="two classes and no id2label: the library's default is two labels, LABEL_0 and LABEL_1"),
    TransformersCase("hf_vit_old_files", "vit", hf.ViTForImageClassification,
                     hf.ViTConfig(**SMALL, **MLP, **ANIMALS), VIT_32,
                     edits=(without_defaults(hf.ViTConfig),
                            rewrite("preprocessor_config.json", lambda _: {
                                "do_normalize": True, "do_resize": True, "image_mean": [0.5, 0.5, 0.5],
                                "image_std": [0.5, 0.5, 0.5], "size": 32})),
                     note="config.json leaves out defaults; preprocessor_config.json has a plain number as size, and "
                          "neither class, resample nor rescale"),
    TransformersCase("hf_vit_model", "vit", hf.ViTModel, hf.ViTConfig(**SMALL, **MLP), VIT_32,
                     keep=("pooler_output", "last_hidden_state"), images=("wide.png",)),
    TransformersCase("hf_vit_model_no_pooler", "vit", hf.ViTModel,
                     hf.ViTConfig(**SMALL, **MLP), VIT_32, keep=("last_hidden_state",), images=("wide.png",),
                     model_args={"add_pooling_layer": False}),
    TransformersCase("hf_vit_interpolated", "vit", hf.ViTForImageClassification,
                     hf.ViTConfig(**SMALL, **MLP, **ANIMALS),
                     ViTImageProcessorPil(size={"height": 40, "width": 72}), interpolate=True,
                     note="positions of a 4x4 grid, image of 5x9 patches; bicubic, no antialias"),
    TransformersCase("hf_vit_sharded", "vit", hf.ViTForImageClassification,
                     hf.ViTConfig(**SMALL, **MLP, **ANIMALS), VIT_32, save_args={"max_shard_size": "30KB"},
                     images=("tall.png",)),
    TransformersCase("hf_deit", "deit", hf.DeiTForImageClassification,
                     hf.DeiTConfig(**SMALL, **MLP, **ANIMALS),
                     DeiTImageProcessorPil(size=square(37), crop_size=square(32))),
    TransformersCase("hf_deit_teacher", "deit", hf.DeiTForImageClassificationWithTeacher,
                     hf.DeiTConfig(**SMALL, **MLP, **ANIMALS),
                     DeiTImageProcessorPil(size=square(37), crop_size=square(32), **IMAGENET), images=("tall.png", "wide.png")),
    TransformersCase("hf_deit_teacher_interpolated", "deit", hf.DeiTForImageClassificationWithTeacher,
                     hf.DeiTConfig(**SMALL, **MLP, **ANIMALS),
                     DeiTImageProcessorPil(size=square(64), crop_size={"height": 24, "width": 56}), interpolate=True,
                     note="positions of a 4x4 grid, image of 3x7 patches; two tokens keep theirs"),
    TransformersCase("hf_dinov2", "dinov2", hf.Dinov2ForImageClassification,
                     hf.Dinov2Config(**SMALL, mlp_ratio=2, **ANIMALS),
                     BitImageProcessorPil(size={"shortest_edge": 37}, crop_size=square(32), **BIT_DINO)),
    TransformersCase("hf_dinov2_model", "dinov2", hf.Dinov2Model,
                     hf.Dinov2Config(**SMALL | {"patch_size": 14, "image_size": 70}, mlp_ratio=2),
                     BitImageProcessorPil(size={"shortest_edge": 64}, crop_size=square(56), **BIT_DINO),
                     keep=("pooler_output", "last_hidden_state"), images=("small.png",),
                     note="positions of a 5x5 grid, image of 4x4 patches: always interpolated, without being asked; "
                          "bicubic, no antialias"),
    TransformersCase("hf_dinov2_same_count", "dinov2", hf.Dinov2ForImageClassification,
                     hf.Dinov2Config(**SMALL, mlp_ratio=2, **ANIMALS),
                     BitImageProcessorPil(size={"shortest_edge": 64}, crop_size={"height": 16, "width": 64}, **BIT_DINO),
                     note="16 positions of a 4x4 grid, image of 2x8 patches: as many, yet interpolated"),
    TransformersCase("hf_dinov2_swiglu", "dinov2", hf.Dinov2Model,
                     hf.Dinov2Config(**SMALL, mlp_ratio=3, use_swiglu_ffn=True),
                     BitImageProcessorPil(size={"shortest_edge": 37}, crop_size=square(32), **BIT_DINO),
                     keep=("pooler_output", "last_hidden_state"), images=("tall.png",)),
    TransformersCase("hf_dinov2_registers", "dinov2", hf.Dinov2WithRegistersForImageClassification,
                     hf.Dinov2WithRegistersConfig(**SMALL, mlp_ratio=2, **ANIMALS),
                     BitImageProcessorPil(size={"shortest_edge": 37}, crop_size=square(32), **BIT_DINO)),
    TransformersCase("hf_dinov2_registers_model", "dinov2", hf.Dinov2WithRegistersModel,
                     hf.Dinov2WithRegistersConfig(**SMALL | {"image_size": 56}, mlp_ratio=2, num_register_tokens=3),
                     BitImageProcessorPil(size={"shortest_edge": 48}, crop_size={"height": 40, "width": 32}, **BIT_DINO),
                     keep=("pooler_output", "last_hidden_state"), images=("wide.png",),
                     note="positions of a 7x7 grid, image of 5x4 patches: interpolated with antialias, unlike DINOv2 "
                          "without registers"),
    TransformersCase("hf_dinov3_model", "dinov3", hf.DINOv3ViTModel,
                     hf.DINOv3ViTConfig(**SMALL, **MLP, num_register_tokens=4),
                     ViTImageProcessorPil(size={"height": 40, "width": 56}, **IMAGENET),
                     keep=("pooler_output", "last_hidden_state"),
                     note="image of 5x7 patches, whatever image_size says; keys have no bias"),
    TransformersCase("hf_dinov3_gated", "dinov3", hf.DINOv3ViTModel,
                     hf.DINOv3ViTConfig(**SMALL, **MLP, use_gated_mlp=True, hidden_act="silu", key_bias=True,
                                        proj_bias=False, mlp_bias=False, rope_theta=50.0),
                     ViTImageProcessorPil(size=square(32), **IMAGENET), keep=("pooler_output", "last_hidden_state"),
                     images=("tall.png",), edits=(without_defaults(hf.DINOv3ViTConfig), with_nested_layers),
                     note="SwiGLU with a layer each for gate and value, no registers; tensor names as release 5's modules"),
    TransformersCase("hf_beit", "beit", hf.BeitForImageClassification,
                     hf.BeitConfig(**SMALL, **MLP, **ANIMALS, use_relative_position_bias=True, use_mask_token=True),
                     BeitImageProcessorPil(size=square(32)), edits=(without_defaults(hf.BeitConfig),),
                     note="a bias of the scores by relative position, a table for each layer; the mean of the patches, normed"),
    TransformersCase("hf_beit_model", "beit", hf.BeitModel,
                     hf.BeitConfig(**SMALL, **MLP, use_relative_position_bias=True, use_shared_relative_position_bias=True,
                                   use_absolute_position_embeddings=True, use_mean_pooling=False, layer_scale_init_value=0.0),
                     BeitImageProcessorPil(size={"height": 40, "width": 56}, **IMAGENET),
                     keep=("pooler_output", "last_hidden_state"), images=("tall.png",),
                     note="a table for all layers beside their own, for a 4x4 grid, image of 5x7 patches: interpolated without being "
                          "asked, bilinear"),
    TransformersCase("hf_swin", "swin", hf.SwinForImageClassification, hf.SwinConfig(**SWIN, **ANIMALS),
                     VIT_32, images=("tall.png", "wide.png"), edits=(without_defaults(hf.SwinConfig),),
                     note="windows of 4x4 in grids of 8x8 and 4x4"),
    TransformersCase("hf_swin_model", "swin", hf.SwinModel,
                     hf.SwinConfig(**SWIN, use_absolute_embeddings=True, layer_norm_eps=1e-3),
                     ViTImageProcessorPil(size={"height": 44, "width": 36}, **IMAGENET), interpolate=True,
                     keep=("pooler_output", "last_hidden_state"), images=("tall.png",), edits=(with_module_names,),
                     note="grids of 11x9 and 6x5, padded to whole windows before they are rolled; positions of an 8x8 grid, "
                          "interpolated; tensor names as release 5's modules"),
    TransformersCase("hf_swinv2", "swin", hf.Swinv2ForImageClassification,
                     hf.Swinv2Config(**SWIN | {"embed_dim": 8, "num_heads": [2, 2]}, pretrained_window_sizes=[6, 3], **ANIMALS),
                     VIT_32, images=("wide.png",),
                     note="cosine attention; coordinates of the bias relative to windows of the pre-training"),
    TransformersCase("hf_swinv2_model", "swin", hf.Swinv2Model,
                     hf.Swinv2Config(**SWIN | {"embed_dim": 8, "num_heads": [2, 2], "image_size": [24, 40]},
                                     pretrained_window_sizes=[0, 0], qkv_bias=False),
                     ViTImageProcessorPil(size={"height": 36, "width": 24}, **IMAGENET),
                     keep=("pooler_output", "last_hidden_state"), images=("wide.png",),
                     note="windows by the rows of image_size: 4x4 and 3x3 in grids of 9x6 and 5x3 of the image, padded; no shift "
                          "in the second stage"),
    TransformersCase("hf_aimv2", "aimv2", hf.Aimv2Model,
                     hf.Aimv2Config(vision_config=SMALL | MLP | {"num_attention_heads": 3},
                                    text_config={key: TEXT[key] for key in (
                                        "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                                        "vocab_size", "max_position_embeddings", "eos_token_id")}, projection_dim=20),
                     CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=square(32)),
                     note="a table of positions, no biases but the patches' and the pooling's last"),
    TransformersCase("hf_aimv2_native", "aimv2", hf.Aimv2VisionModel,
                     hf.Aimv2VisionConfig(**SMALL, **MLP, is_native=True, qkv_bias=True, mlp_bias=True),
                     ViTImageProcessorPil(size={"height": 40, "width": 56}, **IMAGENET),
                     keep=("pooler_output", "last_hidden_state"), images=("tall.png",),
                     note="sines and cosines as positions, image of 5x7 patches, whatever image_size says"),
    TransformersCase("hf_clip_projection", "clip", hf.CLIPVisionModelWithProjection, clip().vision_config,
                     CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=square(32)), keep=("image_embeds",)),
    TransformersCase("hf_clip_vision", "clip", hf.CLIPVisionModel, clip(hidden_act="gelu").vision_config,
                     CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size=square(32)),
                     keep=("pooler_output", "last_hidden_state"), images=("small.png", "tall.png"),
                     note="names without the vision_model prefix, as release 5 writes them; the crop is larger than the "
                          "resized image, so it is padded with black"),
    TransformersCase("hf_clip_vision_prefixed", "clip", hf.CLIPVisionModel, clip().vision_config,
                     CLIPImageProcessorPil(size={"shortest_edge": 40}, crop_size=square(32)),
                     keep=("pooler_output", "last_hidden_state"), images=("wide.png",),
                     edits=(with_prefix("vision_model."), with_position_ids),
                     note="names and the position_ids buffer as releases 4 wrote them"),
    TransformersCase("hf_clip", "clip", hf.CLIPModel, clip(),
                     CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=square(32)), keep=("image_embeds",),
                     edits=(with_position_ids, without_defaults(hf.CLIPConfig, hf.CLIPVisionConfig, hf.CLIPTextConfig),
                            rewrite("preprocessor_config.json", lambda _: {
                                "crop_size": 32, "do_center_crop": True, "do_normalize": True, "do_resize": True,
                                "feature_extractor_type": "CLIPFeatureExtractor",
                                "image_mean": [0.48145466, 0.4578275, 0.40821073],
                                "image_std": [0.26862954, 0.26130258, 0.27577711], "resample": 3, "size": 32})),
                     note="the whole model with its text tower; configs leave out defaults; plain numbers as sizes"),
    TransformersCase("hf_clip_classifier", "clip", hf.CLIPForImageClassification,
                     clip(), CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=square(32)),
                     images=("tall.png",),
                     note="mean of the patch tokens of the encoder's output; post_layernorm has no part in it"),
    TransformersCase("hf_clip_interpolated", "clip", hf.CLIPVisionModelWithProjection, clip().vision_config,
                     CLIPImageProcessorPil(size={"shortest_edge": 48}, crop_size={"height": 48, "width": 40}),
                     keep=("image_embeds",), interpolate=True, note="positions of a 4x4 grid, image of 6x5 patches"),
    TransformersCase("hf_siglip_vision", "siglip", hf.SiglipVisionModel, siglip().vision_config,
                     SiglipImageProcessorPil(size=square(32)), keep=("pooler_output", "last_hidden_state"),
                     images=("small.png",)),
    TransformersCase("hf_siglip_vision_prefixed", "siglip", hf.SiglipVisionModel,
                     siglip(hidden_act="gelu").vision_config, SiglipImageProcessorPil(size=square(40)),
                     keep=("pooler_output", "last_hidden_state"), images=("tall.png",), interpolate=True,
                     edits=(with_prefix("vision_model."),),
                     note="positions of a 4x4 grid, image of 5x5 patches"),
    TransformersCase("hf_siglip", "siglip", hf.SiglipModel, siglip(),
                     SiglipImageProcessorPil(size=square(32), resample=2), keep=("image_embeds",),
                     edits=(without_defaults(hf.SiglipConfig, hf.SiglipVisionConfig, hf.SiglipTextConfig),),
                     note="the whole model with its text tower; configs leave out defaults"),
    TransformersCase("hf_siglip_classifier", "siglip", hf.SiglipForImageClassification, siglip(),
                     SiglipImageProcessorPil(size=square(32)), images=("wide.png",),
                     note="mean of the tokens after post_layernorm; the pooling head has no part in it"),
]
