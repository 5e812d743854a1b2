//! Lowering of a plan's steps to calls; see [`crate::kernels`].

pub(super) use crate::kernels::attention::call::AttentionCall;
pub(super) use crate::kernels::attention::lower::{attention_is_unfused, attention_units};
pub(super) use crate::kernels::attention_backward::lower::attention_backward_units;
pub(super) use crate::kernels::call::{AllReduceCall, CollectiveCall, RankPartCall};
pub(super) use crate::kernels::column_sum::column_sum_units;
pub(super) use crate::kernels::conv::call::ConvCall;
pub(super) use crate::kernels::conv::{conv_units, has_group_gemm};
pub(super) use crate::kernels::custom::call::CustomCall;
pub(super) use crate::kernels::generated_call::GeneratedCall;
pub(super) use crate::kernels::linear::call::*;
pub(super) use crate::kernels::linear::{decodes, linear_units};
pub(super) use crate::kernels::lower::InPlace;
pub(super) use crate::kernels::lower::*;
pub(super) use crate::kernels::patch_extract::call::PatchEmbeddingCall;
pub(super) use crate::kernels::pattern_attention::attention_call::PatternAttentionCall;
pub(super) use crate::kernels::pattern_attention::tile::AttentionTile;
pub(super) use crate::kernels::reduce::reduce_units;

#[cfg(test)]
pub(super) use crate::kernels::rope::rotation;
