//! The header of `model.safetensors`: the input is its length and JSON; the tensors' bytes follow it as they are.

#![no_main]

use std::sync::LazyLock;

use hipvit_fuzz::{Model, load};
use libfuzzer_sys::fuzz_target;

static MODEL: LazyLock<Model> = LazyLock::new(|| Model::golden("hf_vit"));

fuzz_target!(|data: &[u8]| {
    let stated = MODEL
        .weights
        .first_chunk()
        .map_or(0, |length| u64::from_le_bytes(*length));
    let mut weights = data.to_vec();
    // Of the header's true length, so that its content is read, unless the input is short.
    if data.len() >= 16 {
        weights[..8].copy_from_slice(&(data.len() as u64 - 8).to_le_bytes());
    }
    weights.extend(&MODEL.weights[8 + stated as usize..]);
    load(&MODEL.config, weights, MODEL.preprocessor.as_deref());
});
