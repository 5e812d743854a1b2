//! The passes, one per file. Each is a pure function from a graph to an equivalent one; `optimize.rs` lists their order.

pub(super) mod attention_statistics;
pub(super) mod bias_gradients;
pub(super) mod cancel_permutes;
pub(super) mod float8;
pub(super) mod fold_constants;
pub(super) mod fold_scales;
pub(super) mod fuse_activations;
pub(super) mod fuse_elementwise;
pub(super) mod fuse_gates;
pub(super) mod fuse_patches;
pub(super) mod fuse_residuals;
pub(super) mod fuse_roundings;
pub(super) mod fuse_tokens;
pub(super) mod infer_shapes;
pub(super) mod pack_qkv;
pub(super) mod pad_hidden;
pub(super) mod pad_tokens;
pub(super) mod prune_tokens;
pub(super) mod round_rows;
