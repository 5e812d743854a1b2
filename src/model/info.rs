//! Facts about a loaded model.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::compressed_tensors::{Quantization, Sparsity};
use super::text::TextInfo;
use super::weights::Ignored;
use crate::tensors::TensorInfo;

/// Facts about a model.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Info {
    /// Library that wrote the files.
    pub library: Library,
    /// Family of the model.
    pub family: Family,
    /// Architecture name in timm, or class in transformers.
    pub architecture: String,
    /// Height and width of the image, in pixels.
    pub image_size: [usize; 2],
    /// Height and width of a patch, in pixels.
    pub patch: [usize; 2],
    /// Number of tokens after the last block: class, distillation, registers and patches. If images may have any aspect ratio, the number
    /// for the largest image.
    pub tokens: usize,
    /// True if images may have any aspect ratio.
    ///
    /// Then [`image_size`](Self::image_size) is the size of the packed bytes that
    /// [`Preprocess::apply`](crate::image::Preprocess::apply) returns.
    /// [`Preprocess::patch_grid`](crate::image::Preprocess::patch_grid) returns the patches of an image.
    pub any_aspect_ratio: bool,
    /// Number of tokens before the patches.
    pub prefix_tokens: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Number of channels. In the last stage, for a model with stages.
    pub dim: usize,
    /// Number of attention heads. In the last stage, for a model with stages. 0 for a model without attention.
    pub heads: usize,
    /// Rows and columns of patches after the last block, if not one for each patch of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged_grid: Option<[usize; 2]>,
    /// Number of logits. 0 without a classifier.
    pub classes: usize,
    /// Number of parameters in use.
    pub parameters: u64,
    /// Stored grid of patches and grid of the image, if position embeddings were interpolated.
    pub interpolated: Option<([usize; 2], [usize; 2])>,
    /// Tensors of the weight file that are not used.
    pub ignored: Vec<Ignored>,
    /// Text tower of a model that compares images with texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<TextInfo>,
    /// Description of the adapter that was merged into the weights, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Quantisation of the weights, if they are quantised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantization: Option<Quantization>,
    /// Packed 2:4 sparse weights, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sparsity: Option<Sparsity>,
    /// Depths that the model returns, if it [estimates depth](crate::depth).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth_map: Option<DepthMapInfo>,
    /// Inputs, outputs and operators of an ONNX file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub onnx: Option<Box<OnnxInfo>>,
}

/// Facts about an ONNX model.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct OnnxInfo {
    /// Version of ONNX's operators.
    pub opset: i64,
    /// Name and version of the program that wrote the file.
    pub producer: String,
    /// Inputs, in the order of the file.
    pub inputs: Vec<TensorInfo>,
    /// Outputs, in the order of the file.
    pub outputs: Vec<TensorInfo>,
    /// Number of nodes of each operator.
    pub operators: BTreeMap<String, usize>,
    /// Reason why the model takes [tensors](super::InputKind::Tensors) instead of images. `None` if it takes images.
    pub no_images: Option<String>,
}

/// Facts about the depths that a model returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DepthMapInfo {
    /// Height and width for an image of [`Info::image_size`].
    pub size: [usize; 2],
    /// True if depths are distances in metres. Otherwise nearer points have larger values, which are known up to scale and shift.
    pub is_metric: bool,
}

/// Libraries whose model directories can be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Library {
    /// PyTorch Image Models.
    Timm,
    /// Hugging Face transformers.
    Transformers,
    /// open_clip.
    #[serde(rename = "open_clip")]
    OpenClip,
    /// ONNX files.
    Onnx,
}

/// Families of Vision Transformers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// ViT, <https://arxiv.org/abs/2010.11929>.
    Vit,
    /// DeiT, distilled or not, <https://arxiv.org/abs/2012.12877>; DeiT III, <https://arxiv.org/abs/2204.07118>.
    Deit,
    /// DINOv2, <https://arxiv.org/abs/2304.07193>, with or without registers, <https://arxiv.org/abs/2309.16588>.
    Dinov2,
    /// DINOv3, <https://arxiv.org/abs/2508.10104>.
    Dinov3,
    /// EVA, <https://arxiv.org/abs/2211.07636>, and EVA-02, <https://arxiv.org/abs/2303.11331>.
    Eva,
    /// BEiT, <https://arxiv.org/abs/2106.08254>, and BEiT v2, <https://arxiv.org/abs/2208.06366>.
    Beit,
    /// Vision tower of AIMv2, <https://arxiv.org/abs/2411.14402>.
    Aimv2,
    /// CLIP, <https://arxiv.org/abs/2103.00020>.
    Clip,
    /// SigLIP, <https://arxiv.org/abs/2303.15343>, and SigLIP 2, <https://arxiv.org/abs/2502.14786>, with or without
    /// NaFlex.
    Siglip,
    /// Swin, <https://arxiv.org/abs/2103.14030>, and Swin V2, <https://arxiv.org/abs/2111.09883>.
    Swin,
    /// Hiera, <https://arxiv.org/abs/2306.00989>.
    Hiera,
    /// MLP-Mixer, <https://arxiv.org/abs/2105.01601>, ResMLP, <https://arxiv.org/abs/2105.03404>, and gMLP,
    /// <https://arxiv.org/abs/2105.08050>. They have no attention; linear layers mix the tokens.
    Mixer,
    /// SAM, which segments by points and boxes, <https://arxiv.org/abs/2304.02643>.
    Sam,
    /// RT-DETR, which detects objects, <https://arxiv.org/abs/2304.08069>, and RT-DETRv2, <https://arxiv.org/abs/2407.17140>.
    RtDetr,
    /// Any architecture, from an ONNX file.
    Other,
}

impl Info {
    /// Returns the facts about an ONNX model that takes [tensors](super::InputKind::Tensors).
    pub(crate) fn tensors(&self) -> Option<&OnnxInfo> {
        self.onnx.as_deref().filter(|onnx| onnx.no_images.is_some())
    }

    /// Returns true if the model has attention.
    pub fn has_attention(&self) -> bool {
        self.heads > 0
    }

    /// Returns the rows and columns of patches after the last block, or `None` if each image has its own grid.
    pub fn patch_grid(&self) -> Option<[usize; 2]> {
        let patches = || [0, 1].map(|axis| self.image_size[axis] / self.patch[axis].max(1));
        let grid = self.merged_grid.unwrap_or_else(patches);
        (!self.any_aspect_ratio).then_some(grid)
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Timm => "timm",
            Self::Transformers => "transformers",
            Self::OpenClip => "open_clip",
            Self::Onnx => "onnx",
        })
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Vit => "ViT",
            Self::Deit => "DeiT",
            Self::Dinov2 => "DINOv2",
            Self::Dinov3 => "DINOv3",
            Self::Eva => "EVA",
            Self::Beit => "BEiT",
            Self::Aimv2 => "AIMv2",
            Self::Clip => "CLIP",
            Self::Siglip => "SigLIP",
            Self::Swin => "Swin",
            Self::Hiera => "Hiera",
            Self::Mixer => "MLP-Mixer",
            Self::Sam => "SAM",
            Self::RtDetr => "RT-DETR",
            Self::Other => "model",
        })
    }
}

/// Formats the inputs and outputs, one per line.
impl fmt::Display for OnnxInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "opset {}, written by {}", self.opset, self.producer)?;
        for input in &self.inputs {
            writeln!(f, "input {input}")?;
        }
        for output in &self.outputs {
            writeln!(f, "output {output}")?;
        }
        Ok(())
    }
}

/// Formats a few lines: the model's name and family, its sizes, and the tensors that are not used.
impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            image_size: [height, width],
            patch: [patch_height, patch_width],
            ..
        } = self;
        writeln!(f, "{} ({}, {})", self.architecture, self.family, self.library)?;
        if let Some(onnx) = &self.onnx {
            return onnx.fmt(f);
        }
        let heads = if self.has_attention() {
            format!("{} heads", self.heads)
        } else {
            "no attention".to_owned()
        };
        let image = if self.any_aspect_ratio {
            "images of any aspect ratio".to_owned()
        } else {
            format!("image {height}×{width}")
        };
        writeln!(
            f,
            "{image}, patch {patch_height}×{patch_width}, {} tokens, depth {}, {} channels, {heads}, \
             {} classes, {} parameters",
            self.tokens, self.depth, self.dim, self.classes, self.parameters
        )?;
        if let Some(([rows, columns], [new_rows, new_columns])) = self.interpolated {
            writeln!(
                f,
                "position embeddings interpolated from {rows}×{columns} to {new_rows}×{new_columns}"
            )?;
        }
        if let Some(map) = &self.depth_map {
            let ([height, width], kind) = (map.size, if map.is_metric { "metric" } else { "relative" });
            writeln!(f, "estimates {kind} depth, {height}×{width}")?;
        }
        if let Some(text) = &self.text {
            writeln!(f, "{text}")?;
        }
        if let Some(adapter) = &self.adapter {
            writeln!(f, "{adapter}")?;
        }
        if let Some(quantization) = &self.quantization {
            writeln!(f, "quantised, {quantization}")?;
        }
        if let Some(sparsity) = &self.sparsity {
            writeln!(f, "sparse, {sparsity}")?;
        }
        for ignored in &self.ignored {
            writeln!(f, "ignored: {} ({})", ignored.tensor, ignored.reason)?;
        }
        Ok(())
    }
}
