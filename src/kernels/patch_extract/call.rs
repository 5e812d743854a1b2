//! A patch embedding as a call.

use crate::kernels::bindings::PatchExtractArgs;
use crate::kernels::linear::call::LinearCall;

/// Both steps of a patch embedding of u8 pixels. One candidate is selected for them together: the buffer between them fits pixels or
/// patches, and both use the same order of weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PatchEmbeddingCall {
    pub(crate) extract: PatchExtractArgs,
    pub(crate) linear: LinearCall,
}
