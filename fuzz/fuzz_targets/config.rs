//! `config.json` of a model: of timm, of transformers, with and without quantization.

#![no_main]

use std::sync::LazyLock;

use hipvit_fuzz::{Model, load};
use libfuzzer_sys::fuzz_target;

/// The golden models, each with a mark that only its configuration contains.
static MODELS: LazyLock<Vec<(&[u8], Model)>> = LazyLock::new(|| {
    let models: [(&[u8], &str); 7] = [
        (b"dinov2_with_registers", "hf_dinov2_registers"),
        (b"dinov2", "hf_dinov2"),
        (b"siglip", "hf_siglip"),
        (b"beit", "hf_beit"),
        (b"compressed-tensors", "quantized/int8_token"),
        (b"deit_", "timm_deit"),
        (b"vit", "hf_vit"),
    ];
    models.map(|(mark, name)| (mark, Model::golden(name))).into()
});

fuzz_target!(|data: &[u8]| {
    let has = |mark: &[u8]| data.windows(mark.len()).any(|part| part == mark);
    let model = MODELS.iter().find(|(mark, _)| has(mark)).or(MODELS.last());
    let (_, model) = model.expect("there is a model");
    load(data, model.weights.clone(), model.preprocessor.as_deref());
});
