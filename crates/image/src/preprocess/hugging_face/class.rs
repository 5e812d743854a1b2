//! Image processor classes of transformers 5.23, with the defaults of their keys.

use super::super::geometry::Resize;
use crate::Filter;

const STANDARD: [f64; 3] = [0.5; 3];
const IMAGENET_MEAN: [f64; 3] = [0.485, 0.456, 0.406];
const IMAGENET_STD: [f64; 3] = [0.229, 0.224, 0.225];
const CLIP_MEAN: [f64; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
const CLIP_STD: [f64; 3] = [0.268_629_54, 0.261_302_58, 0.275_777_11];

/// A processor class: defaults of its keys, and its special steps.
pub(super) struct Class {
    pub(super) variant: Variant,
    pub(super) filter: Filter,
    pub(super) mean: [f64; 3],
    pub(super) std: [f64; 3],
    pub(super) size: Resize,
    /// True if a single number as `size` is the side of a square, false if it is the shorter edge.
    pub(super) default_to_square: bool,
    pub(super) do_center_crop: bool,
    pub(super) do_normalize: bool,
    pub(super) do_pad: bool,
    /// Height and width of the crop.
    pub(super) crop_size: Option<usize>,
}

/// Steps and keys that a class has in addition to the common ones.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Variant {
    /// Resize, crop, rescale, normalise and pad.
    Common,
    /// Common steps, and `use_square_size`.
    Clip,
    /// Common steps without padding.
    Beit,
    /// A resize to less than 384 pixels makes images larger by `1 / crop_pct`, then crops them. No padding.
    ConvNext { crop_pct: f64 },
    /// Rescales in f32 before it resizes; no padding.
    ///
    /// This crate resizes bytes, as Pillow does, which differs by at most one level of 255.
    Dinov3,
    /// Resizes to multiples of a number, on request in proportion. No crop, padding to a divisor.
    Dpt,
    /// Divides images into tiles of one size. The rule takes tiles.
    Tiles,
    /// Resizes to the shorter edge, then into `size`, and pads to it.
    Donut,
    /// Resizes to whole patches. No crop, no padding, no `size`.
    Siglip2 {
        patch_size: usize,
        max_num_patches: usize,
    },
}

const VIT: Class = Class {
    variant: Variant::Common,
    filter: Filter::Bilinear,
    mean: STANDARD,
    std: STANDARD,
    size: square(224),
    default_to_square: true,
    do_center_crop: false,
    do_normalize: true,
    do_pad: false,
    crop_size: None,
};
const DINOV3: Class = Class {
    variant: Variant::Dinov3,
    mean: IMAGENET_MEAN,
    std: IMAGENET_STD,
    ..VIT
};
const DEIT: Class = Class {
    filter: Filter::Bicubic,
    size: square(256),
    do_center_crop: true,
    crop_size: Some(224),
    ..VIT
};
const BEIT: Class = Class {
    variant: Variant::Beit,
    filter: Filter::Bicubic,
    crop_size: Some(224),
    ..VIT
};
const SIGLIP: Class = Class {
    filter: Filter::Bicubic,
    default_to_square: false,
    ..VIT
};
const SIGLIP2: Class = Class {
    variant: Variant::Siglip2 {
        patch_size: 16,
        max_num_patches: 256,
    },
    ..VIT
};
const DPT: Class = Class {
    variant: Variant::Dpt,
    filter: Filter::Bicubic,
    size: square(384),
    ..VIT
};
const DONUT: Class = Class {
    variant: Variant::Donut,
    size: Resize::Exact {
        height: 2560,
        width: 1920,
    },
    ..VIT
};
const SMOLVLM: Class = Class {
    variant: Variant::Tiles,
    filter: Filter::Lanczos,
    size: square(364),
    ..VIT
};
const BLIP: Class = Class {
    filter: Filter::Bicubic,
    mean: CLIP_MEAN,
    std: CLIP_STD,
    size: square(384),
    ..VIT
};
const BIT: Class = Class {
    variant: Variant::Common,
    ..CLIP
};
const CLIP: Class = Class {
    variant: Variant::Clip,
    filter: Filter::Bicubic,
    mean: CLIP_MEAN,
    std: CLIP_STD,
    size: Resize::Shortest {
        edge: 224,
        longest: None,
    },
    default_to_square: false,
    do_center_crop: true,
    do_normalize: true,
    do_pad: false,
    crop_size: Some(224),
};
/// Detectors. Their default keeps the aspect ratio, so `size` must give height and width.
const DETR: Class = Class {
    mean: IMAGENET_MEAN,
    std: IMAGENET_STD,
    size: Resize::Shortest {
        edge: 800,
        longest: Some(1333),
    },
    default_to_square: false,
    do_pad: true,
    ..VIT
};
const RT_DETR: Class = Class {
    size: square(640),
    do_normalize: false,
    do_pad: false,
    ..DETR
};
const CONVNEXT: Class = Class {
    variant: Variant::ConvNext {
        crop_pct: 224.0 / 256.0,
    },
    filter: Filter::Bicubic,
    size: Resize::Shortest {
        edge: 384,
        longest: None,
    },
    default_to_square: false,
    ..VIT
};

pub(super) const fn square(side: usize) -> Resize {
    Resize::Exact {
        height: side,
        width: side,
    }
}

impl Class {
    /// Returns the class with this name. Older files call it a feature extractor, and some append the backend.
    pub(super) fn by_name(name: &str) -> Option<&'static Self> {
        let name = name.trim_end_matches("Fast").trim_end_matches("Pil");
        let name = name
            .strip_suffix("ImageProcessor")
            .or_else(|| name.strip_suffix("FeatureExtractor"))?;
        Some(match name {
            "ViT" => &VIT,
            "DeiT" => &DEIT,
            "DINOv3ViT" => &DINOV3,
            "Bit" => &BIT,
            "Blip" => &BLIP,
            "CLIP" => &CLIP,
            "Beit" => &BEIT,
            "Siglip" => &SIGLIP,
            "Siglip2" => &SIGLIP2,
            "ConvNext" => &CONVNEXT,
            "DPT" => &DPT,
            "Donut" => &DONUT,
            "SmolVLM" | "Idefics3" => &SMOLVLM,
            "RTDetr" => &RT_DETR,
            "Detr" | "ConditionalDetr" | "DeformableDetr" | "Yolos" => &DETR,
            _ => return None,
        })
    }

    /// Returns the class that transformers uses for a model type.
    pub(super) fn by_model_type(model_type: &str) -> Option<&'static Self> {
        Some(match model_type {
            "vit" | "vit_mae" | "vit_msn" | "ijepa" | "swin" | "swinv2" => &VIT,
            "deit" => &DEIT,
            "beit" | "data2vec-vision" => &BEIT,
            "blip" => &BLIP,
            "dinov3_vit" => &DINOV3,
            "dinov2" | "dinov2_with_registers" => &BIT,
            "clip" | "clip_vision_model" | "aimv2" | "aimv2_vision_model" => &CLIP,
            "siglip" | "siglip_vision_model" => &SIGLIP,
            "siglip2" | "siglip2_vision_model" => &SIGLIP2,
            "convnext" | "convnextv2" => &CONVNEXT,
            "dpt" | "depth_anything" => &DPT,
            "donut-swin" => &DONUT,
            "smolvlm" | "idefics3" => &SMOLVLM,
            "rt_detr" | "rt_detr_v2" | "d_fine" => &RT_DETR,
            "detr" | "table-transformer" | "conditional_detr" | "deformable_detr" | "yolos" => &DETR,
            _ => return None,
        })
    }
}
