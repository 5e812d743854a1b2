//! `preprocessor_config.json` of transformers.

#![no_main]

use std::sync::LazyLock;

use hipvit_fuzz::{Model, load};
use libfuzzer_sys::fuzz_target;

static MODEL: LazyLock<Model> = LazyLock::new(|| Model::golden("hf_vit"));

fuzz_target!(|data: &[u8]| {
    load(&MODEL.config, MODEL.weights.clone(), Some(data));
});
