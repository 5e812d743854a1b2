"""Models of transformers for onnx_zoo.py, with random weights: dense predictors, detectors, encoders and both towers of CLIP.

The graphs are those of the published architectures, with fewer layers or channels where a checkpoint is large.
"""

from collections.abc import Callable

import torch
import transformers

from onnx_inputs import SEED, random_inputs

Built = tuple[torch.nn.Module, Callable[[int], dict[str, torch.Tensor]], list[str]]


def pixels(side: int, height: int | None = None) -> Callable[[int], dict[str, torch.Tensor]]:
    return random_inputs({"pixel_values": (3, height or side, side)})


def tokens(length: int, vocabulary: int) -> Callable[[int], dict[str, torch.Tensor]]:
    """Texts of different lengths: the end token is the largest number, as CLIP's pooling expects."""

    def inputs(batch: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(SEED)
        ids = torch.randint(1, vocabulary - 2, (batch, length), generator=generator)
        mask = torch.zeros(batch, length, dtype=torch.int64)
        for row in range(batch):
            end = length - 1 - 3 * row
            ids[row, end:] = vocabulary - 1
            mask[row, : end + 1] = 1
        return {"input_ids": ids, "attention_mask": mask}

    return inputs


def segformer() -> Built:
    config = transformers.SegformerConfig(num_labels=19)
    return transformers.SegformerForSemanticSegmentation(config), pixels(128), ["logits"]


def dpt() -> Built:
    config = transformers.DPTConfig(hidden_size=96, num_attention_heads=4, intermediate_size=192, num_hidden_layers=4, image_size=128,
                                    backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[16, 32, 48, 64], fusion_hidden_size=32)
    return transformers.DPTForDepthEstimation(config), pixels(128), ["predicted_depth"]


def depth_anything() -> Built:
    """Depth-Anything-v2-small whole, at a smaller image."""
    backbone = transformers.Dinov2Config(hidden_size=384, num_attention_heads=6, num_hidden_layers=12, image_size=518, patch_size=14,
                                         out_indices=[3, 6, 9, 12], reshape_hidden_states=False, apply_layernorm=True)
    config = transformers.DepthAnythingConfig(backbone_config=backbone, patch_size=14, reassemble_hidden_size=384,
                                              neck_hidden_sizes=[48, 96, 192, 384], fusion_hidden_size=64, head_hidden_size=32)
    return transformers.DepthAnythingForDepthEstimation(config), pixels(140), ["predicted_depth"]


def resnet(**options) -> transformers.PretrainedConfig:
    return transformers.ResNetConfig(embedding_size=16, hidden_sizes=[32, 64, 96, 128], depths=[1, 1, 1, 1], **options)


def detr() -> Built:
    config = transformers.DetrConfig(use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, d_model=64,
                                     backbone_config=resnet(out_features=["stage4"]), encoder_layers=2, decoder_layers=2,
                                     encoder_ffn_dim=128, decoder_ffn_dim=128, encoder_attention_heads=4, decoder_attention_heads=4,
                                     num_queries=20)
    return transformers.DetrForObjectDetection(config), pixels(160, 128), ["logits", "pred_boxes"]


def rt_detr(version: str) -> Built:
    config_class = getattr(transformers, f"{version}Config")
    backbone = transformers.RTDetrResNetConfig(embedding_size=16, hidden_sizes=[32, 64, 96, 128], depths=[1, 1, 1, 1],
                                               layer_type="bottleneck", out_features=["stage2", "stage3", "stage4"])
    config = config_class(backbone_config=backbone, encoder_in_channels=[64, 96, 128], encoder_hidden_dim=64, encoder_ffn_dim=96,
                          feat_strides=[8, 16, 32], encoder_attention_heads=4, d_model=64, decoder_in_channels=[64, 64, 64],
                          decoder_ffn_dim=96, decoder_layers=2, decoder_attention_heads=4, num_queries=30, num_labels=10)
    model = getattr(transformers, f"{version}ForObjectDetection")(config)
    return model, pixels(128), ["logits", "pred_boxes"]


def rf_detr() -> Built:
    backbone = transformers.RfDetrDinov2Config(hidden_size=48, num_attention_heads=4, num_hidden_layers=4, image_size=128, patch_size=16,
                                               num_windows=2, out_features=["stage2", "stage3"], out_indices=[2, 3])
    config = transformers.RfDetrConfig(backbone_config=backbone, d_model=64, decoder_layers=2, decoder_self_attention_heads=4,
                                       decoder_cross_attention_heads=4, num_queries=30, decoder_ffn_dim=96, num_labels=10)
    return transformers.RfDetrForObjectDetection(config), pixels(128), ["logits", "pred_boxes"]


def sam() -> Built:
    """SAM's image encoder: windows, global attention with relative positions, the convolutional neck."""
    config = transformers.SamVisionConfig(hidden_size=96, num_hidden_layers=4, num_attention_heads=4, image_size=256, output_channels=64,
                                          global_attn_indexes=[1, 3], window_size=7, mlp_dim=192)
    return transformers.SamVisionModel(config), pixels(256), ["last_hidden_state"]


def sam2() -> Built:
    backbone = transformers.Sam2HieraDetConfig(hidden_size=32, image_size=[128, 128], blocks_per_stage=[1, 2, 3, 1], embed_dim_per_stage=[32, 64, 128, 256],
                                               num_attention_heads_per_stage=[1, 2, 4, 8], global_attention_blocks=[4, 5])
    config = transformers.Sam2VisionConfig(backbone_config=backbone, backbone_channel_list=[256, 128, 64, 32], fpn_hidden_size=64)
    return transformers.Sam2VisionModel(config), pixels(128), ["last_hidden_state"]


def clip_vision() -> Built:
    config = transformers.CLIPVisionConfig(hidden_size=192, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4, image_size=128,
                                           patch_size=16, projection_dim=64)
    return transformers.CLIPVisionModelWithProjection(config), pixels(128), ["image_embeds", "last_hidden_state"]


def clip_text() -> Built:
    config = transformers.CLIPTextConfig(vocab_size=400, hidden_size=96, intermediate_size=192, num_hidden_layers=3, num_attention_heads=4,
                                         max_position_embeddings=32, projection_dim=64, eos_token_id=399, bos_token_id=398, pad_token_id=399)
    return transformers.CLIPTextModelWithProjection(config), tokens(24, 400), ["text_embeds", "last_hidden_state"]


def siglip_vision() -> Built:
    config = transformers.SiglipVisionConfig(hidden_size=96, intermediate_size=192, num_hidden_layers=3, num_attention_heads=4, image_size=128)
    return transformers.SiglipVisionModel(config), pixels(128), ["pooler_output"]


def dinov2() -> Built:
    config = transformers.Dinov2WithRegistersConfig(hidden_size=96, num_attention_heads=4, num_hidden_layers=4, image_size=112, patch_size=14)
    return transformers.Dinov2WithRegistersModel(config), pixels(140), ["last_hidden_state", "pooler_output"]


def dinov3() -> Built:
    config = transformers.DINOv3ViTConfig(hidden_size=96, intermediate_size=192, num_attention_heads=4, num_hidden_layers=4, image_size=128,
                                          num_register_tokens=4)
    return transformers.DINOv3ViTModel(config), pixels(128), ["last_hidden_state", "pooler_output"]


def dinov3_convnext() -> Built:
    config = transformers.DINOv3ConvNextConfig(hidden_sizes=[32, 64, 96, 128], depths=[1, 1, 2, 1])
    return transformers.DINOv3ConvNextModel(config), pixels(128), ["pooler_output"]


def upernet() -> Built:
    backbone = transformers.SwinConfig(embed_dim=24, depths=[2, 2, 2, 2], num_heads=[1, 2, 4, 8], window_size=4, image_size=128,
                                       out_features=["stage1", "stage2", "stage3", "stage4"])
    config = transformers.UperNetConfig(backbone_config=backbone, hidden_size=32, auxiliary_in_channels=96, num_labels=10)
    return transformers.UperNetForSemanticSegmentation(config), pixels(128), ["logits"]


def mask_former() -> Built:
    backbone = transformers.SwinConfig(embed_dim=24, depths=[2, 2, 2, 2], num_heads=[1, 2, 4, 8], window_size=4, image_size=128,
                                       out_features=["stage1", "stage2", "stage3", "stage4"])
    config = transformers.Mask2FormerConfig(backbone_config=backbone, feature_size=32, mask_feature_size=32, hidden_dim=32, encoder_layers=2,
                                            decoder_layers=3, num_attention_heads=4, dim_feedforward=64, encoder_feedforward_dim=64,
                                            num_queries=10, num_labels=5)
    model = transformers.Mask2FormerForUniversalSegmentation(config)
    return model, pixels(128), ["class_queries_logits", "masks_queries_logits"]


def glpn() -> Built:
    config = transformers.GLPNConfig(depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 64, 96], decoder_hidden_size=32, num_attention_heads=[1, 2, 4, 8])
    return transformers.GLPNForDepthEstimation(config), pixels(128), ["predicted_depth"]


def zoe_depth() -> Built:
    backbone = transformers.BeitConfig(hidden_size=48, num_hidden_layers=4, num_attention_heads=4, intermediate_size=96, image_size=128,
                                       out_indices=[1, 2, 3, 4], use_relative_position_bias=True, reshape_hidden_states=False, patch_size=16)
    config = transformers.ZoeDepthConfig(backbone_config=backbone, neck_hidden_sizes=[16, 32, 48, 64], fusion_hidden_size=32,
                                         bottleneck_features=32, num_relative_features=16, bin_embedding_dim=32)
    return transformers.ZoeDepthForDepthEstimation(config), pixels(128), ["predicted_depth"]


def yolos() -> Built:
    config = transformers.YolosConfig(hidden_size=96, num_hidden_layers=3, num_attention_heads=4, intermediate_size=192, image_size=[128, 160],
                                      num_detection_tokens=20)
    return transformers.YolosForObjectDetection(config), pixels(160, 128), ["logits", "pred_boxes"]


def vit_pose() -> Built:
    backbone = transformers.VitPoseBackboneConfig(hidden_size=96, num_hidden_layers=3, num_attention_heads=4, image_size=[128, 96])
    config = transformers.VitPoseConfig(backbone_config=backbone, num_labels=17)
    return transformers.VitPoseForPoseEstimation(config), pixels(96, 128), ["heatmaps"]


MODELS = {
    "hf_segformer": segformer,
    "hf_dpt": dpt,
    "hf_depth_anything_v2_small": depth_anything,
    "hf_detr": detr,
    "hf_rt_detr": lambda: rt_detr("RTDetr"),
    "hf_rt_detr_v2": lambda: rt_detr("RTDetrV2"),
    "hf_rf_detr": rf_detr,
    "hf_sam_vision": sam,
    "hf_sam2_vision": sam2,
    "hf_clip_vision": clip_vision,
    "hf_clip_text": clip_text,
    "hf_siglip_vision": siglip_vision,
    "hf_dinov2_registers": dinov2,
    "hf_dinov3": dinov3,
    "hf_dinov3_convnext": dinov3_convnext,
    "hf_upernet_swin": upernet,
    "hf_mask2former": mask_former,
    "hf_glpn": glpn,
    "hf_zoe_depth": zoe_depth,
    "hf_yolos": yolos,
    "hf_vit_pose": vit_pose,
}


def build(name: str) -> Built:
    return MODELS[name]()
