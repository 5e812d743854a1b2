//! Loads a model directory of timm, transformers or open_clip, or an ONNX file: its computation graph, its labels and its preprocessing.
//! `Session::load` uses it.
//!
//! - `load` loads a model with the following modules.
//! - `source` finds the files, and `hub` finds models of the Hugging Face hub in its local cache.
//! - `weights` holds the tensors.
//! - `timm` and `hugging_face` read the configuration into one description (`vit`), with the library's tensor names
//!   (`names`).
//! - `builder` makes the graph from description and tensors.
//! - `onnx` loads ONNX files.
//!
//! [`crate::image`] prepares the pixels, and [`crate::graph`] optimises the graph.

mod adapter;
mod bf16_layers;
mod builder;
mod channels_last;
mod checkpoint;
mod compressed_tensors;
mod convert;
mod depth;
mod depth_source;
mod description;
mod detect_source;
mod document;
mod fields;
mod file_names;
mod hiera;
mod hierarchy;
mod hub;
mod hugging_face;
mod info;
mod invalid;
mod layers;
mod load;
mod loaded;
mod mapped;
mod model_bytes;
mod names;
mod norm;
mod onnx;
mod open_clip;
mod options;
mod packed_layout;
mod packing;
mod pairs;
mod patches;
mod pixel_input;
mod positions;
mod preprocessing;
mod relative;
mod renames;
mod rotary;
mod rt_detr;
mod sam;
mod shell;
mod source;
mod splice;
mod stage_sizes;
mod stored;
mod swin;
// Without the feature, a text tower is loaded but not run, so that each of its tensors is accounted for.
#[cfg_attr(not(feature = "text"), allow(dead_code))]
mod text;
mod timm;
mod vision_task;
mod vit;
mod weights;

pub use checkpoint::{Checkpoint, Copied, Copies, Format, Replacement, TensorValues, replace_file};
pub use compressed_tensors::{Quantization, Sparsity};
pub use depth::PREDICTED_DEPTH;
pub(crate) use depth_source::DepthSource;
pub(crate) use detect_source::{BoxScoring, DetectSource};
pub use fields::Fields;
pub use file_names::TOKENIZER_FILES;
#[cfg(feature = "hub")]
pub use hub::download::{PullProgress, Pulled, pull};
pub use info::{DepthMapInfo, Family, Info, Library, OnnxInfo};
pub(crate) use load::{depth_source, detect_source};
pub use load::{directory, from_bytes, load, tensor_shapes, tiling, tinyvit32};
pub use loaded::Model;
pub use model_bytes::ModelBytes;
pub use onnx::{ImageRule, input_names};
pub(crate) use onnx::{OpenExtents, open_extents};
pub use options::{InputKind, LoadOptions, MAX_FLOPS};
pub use packing::Packing;
pub use pairs::{TEXT_EMBEDDING, TextInput, pair_inputs};
pub(crate) use pixel_input::PixelInput;
pub(crate) use positions::resample_cubic;
pub(crate) use rt_detr::{BOXES, LOGITS};
pub use rt_detr::{DETECTOR_COPIES, DETECTOR_OUTPUTS, DetectorTraining, detector_training};
pub(crate) use sam::{EMBEDDING, TOKENS};
pub use sam::{MASKS, PromptRow, SCORES, mask_inputs};
pub(crate) use sam::{PromptPoint, SamSource, sam_source};
pub use text::TextInfo;
pub use text::TextTower;
#[cfg(feature = "text")]
pub use text::{Detokenizer, Tokenizer, Tokens};
pub use vision_task::{VisionTask, vision_task};
pub use weights::Ignored;
