//! The graph of Hiera: pooled windows, the passes, stages and shards.

use super::rotary::{check, check_shards, check_stages, count, golden, optimized};
use crate::graph::{OutputKind, interpret, shard};
use crate::model::{self, InputKind, LoadOptions};
use crate::reference::assert_close;
use crate::tensor::Input;

const MODELS: [&str; 3] = ["timm_hiera", "timm_hiera_abswin", "timm_hiera_override_size"];

/// Tokens change their order once, since the windows of each stage are those of the pooled tokens.
#[test]
fn windows_are_made_once() {
    for name in MODELS {
        let graph = golden(name);
        assert_eq!(count(&graph, "permute_tokens"), 1, "{name}");
        let (maxima, means) = if name == "timm_hiera_abswin" {
            (6, 3)
        } else {
            (6, 0)
        };
        assert_eq!(count(&graph, "max_pool"), maxima, "{name}");
        assert_eq!(count(&graph, "average_pool"), means, "{name}");
    }
}

#[test]
fn passes_keep_the_outputs() {
    for name in MODELS {
        check(name, &golden(name), &optimized(name));
    }
}

/// The first channel of some blocks' tokens, for the first image, by timm's
/// `forward_intermediates(coarse=False, output_fmt="NHWC")` in double precision.
#[test]
fn hidden_layers_are_in_the_order_of_the_image() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/timm_hiera");
    let options = LoadOptions {
        input: InputKind::PixelValues,
        tokens: true,
        hidden_layers: vec![0, 1, 3, 4, 5],
        ..LoadOptions::default()
    };
    let graph = model::load(&directory, &options).unwrap().graph;
    let bytes = std::fs::read(directory.join("golden.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let values = tensors.tensor("pixel_values").unwrap();
    let values: Vec<f32> = values
        .data()
        .as_chunks::<4>()
        .0
        .iter()
        .map(|&bytes| f32::from_le_bytes(bytes))
        .collect();
    let outputs = interpret(&graph, 2, Input::Values(&values)).unwrap();
    let first_row = [
        0.579_547_73,
        0.134_159_53,
        0.637_796_31,
        1.735_376_88,
        1.216_528_00,
        -0.097_451_91,
        -0.160_257_48,
        0.006_514_57,
        0.950_654_64,
        1.142_984_87,
    ];
    let pooled = [
        -0.515_130_06,
        0.196_864_57,
        0.001_953_83,
        -0.434_667_29,
        0.662_874_71,
        0.173_508_0,
        -0.197_223_72,
        -0.271_518_89,
        0.625_663_97,
        -0.853_279_0,
    ];
    let global = [
        -1.468_130_19,
        -2.559_244_74,
        -2.470_788_61,
        -3.186_168_99,
        -2.647_927_08,
        -2.454_869_6,
        -2.733_242_9,
        -2.542_078_93,
    ];
    let pooled_twice = [
        -0.458_274_22,
        -1.349_019_02,
        -1.302_905_26,
        -2.024_889_49,
        -1.930_086_66,
        -1.807_556_25,
        -2.071_432_39,
        -1.866_690_57,
    ];
    let last = [0.561_420_82, 1.383_017_93];
    for (kind, tokens, expected) in [
        (OutputKind::HiddenLayer(0), 128, &first_row[..]),
        (OutputKind::HiddenLayer(1), 32, &pooled[..]),
        (OutputKind::HiddenLayer(3), 8, &pooled_twice[..]),
        (OutputKind::HiddenLayer(4), 8, &global[..]),
        (OutputKind::HiddenLayer(5), 2, &last[..]),
        (OutputKind::Tokens, 2, &last[..]),
    ] {
        let (_, found) = outputs.iter().find(|(other, _)| *other == kind).unwrap();
        // The rows of both images.
        assert_eq!(found.nrows(), 2 * tokens, "{kind:?}");
        let found: Vec<f64> = found.column(0).iter().copied().take(expected.len()).collect();
        assert_close(&found, expected, 1e-6);
    }
}

#[test]
fn stages_are_cut_where_images_are_whole() {
    for name in MODELS {
        check_stages(name, &optimized(name));
    }
}

/// Attention with pooled queries is not divided, all other attention and the networks are.
#[test]
fn shards_compute_the_same() {
    let shards = check_shards(&optimized("timm_hiera_override_size"));
    // Five blocks, of which two have no pooled queries.
    assert_eq!(count(&shards[0], "all_reduce"), 7);
}

#[test]
fn one_head_is_not_divided() {
    let error = shard(&optimized("timm_hiera"), 0, 2).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "has 1 attention heads, which cannot be divided evenly among 2 GPUs: use another parallelism"
        ),
        "{error}"
    );
}
