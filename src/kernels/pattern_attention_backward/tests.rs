use hipvit_graph::op::{AttentionOperands, PatternAttention};
use hipvit_graph::pattern::{Float, Pattern, floats, ints, masks, scores};

use super::*;
use crate::kernels::arguments::KernelArguments;
use crate::kernels::bindings::AttentionPattern;
use crate::kernels::launch::Target;
use crate::tensor::DType;

const EXTENTS: Extents = Extents {
    images: 20,
    queries: 37,
    keys: 37,
    shares_queries: false,
};

fn op(pattern: &Pattern) -> PatternAttentionBackward {
    let spec = PatternAttention::new((2, 64), 0.125, AttentionOperands::PackedQkv, pattern).unwrap();
    PatternAttentionBackward(PatternAttention {
        log_sum_exp: true,
        ..spec
    })
}

fn loads(score: Float) -> Vec<Load> {
    let op = op(&Pattern::new().with_score(score));
    Load::all(&op, &derivative(&op), EXTENTS)
}

#[test]
fn loads_of_images_are_kept_apart() {
    let bias = &loads(scores::bias(scores::score(), "bias"))[0];
    assert!(bias.is_bias && !bias.of_images);
    // Sums over images of several chunks.
    assert_eq!(
        (bias.chunk, bias.chunks(EXTENTS), bias.images(EXTENTS)),
        (7, 3, 1)
    );
    let of_images = &loads(scores::score() + floats::load("x", [ints::batch(), ints::key()]))[0];
    assert!(!of_images.is_bias && of_images.of_images);
    assert_eq!((of_images.chunks(EXTENTS), of_images.images(EXTENTS)), (20, 20));
    let transposed = floats::load("x", [ints::head(), ints::key(), ints::query()]);
    assert!(!loads(scores::score() + transposed)[0].is_bias);
    let twice = floats::load("x", [ints::head()]) * scores::score() + floats::load("x", [ints::query()]);
    let twice = loads(twice);
    assert_eq!((twice.len(), twice[0].tensor, twice[1].tensor), (2, 0, 0));
    assert_eq!((twice[0].number, twice[1].number), (0, 1));
}

#[test]
fn masks_are_of_the_images_and_heads_that_they_depend_on() {
    let extents = |pattern: Pattern| seen_extents(&op(&pattern), 20);
    assert_eq!(extents(Pattern::new()), [0, 0]);
    assert_eq!(extents(Pattern::new().with_mask(masks::causal())), [1, 1]);
    let documents = Pattern::new().with_mask(masks::documents("ids"));
    assert_eq!(extents(documents), [20, 1]);
    let of_heads = Pattern::new().with_mask(ints::head().less(ints::key()));
    assert_eq!(extents(of_heads), [1, 2]);
}

fn gradient(stage: u32) -> AttentionPatternGradientArgs {
    let some = DeviceAddress::from_raw(256);
    AttentionPatternGradientArgs {
        pattern: AttentionPattern {
            tensors: Default::default(),
            extents: Default::default(),
            element_bytes: Default::default(),
            scalars: Default::default(),
            heads: 2,
            queries: 37,
            keys: 37,
            images: 20,
        },
        partial: some,
        sums: some,
        largest: some,
        out: some,
        chunks: 3,
        images: 1,
        elements: 257,
        load: 4,
        stage,
        summands: 2 * 37 * 37,
    }
}

#[test]
fn a_gradient_has_a_thread_for_each_element_or_score() {
    let target = Target {
        dtype: DType::BF16,
        wave_size: 64,
        max_blocks: 1 << 31,
        tile: 0,
    };
    for (stage, entry, blocks) in [
        (GRADIENT_CLEAR, "attention_pattern_clear", 2),
        (GRADIENT_LARGEST, "attention_pattern_largest", 11),
        (GRADIENT_ADD, "attention_pattern_add_4", 11),
        (GRADIENT_STORE, "attention_pattern_store", 2),
    ] {
        let mut arguments = gradient(stage);
        assert_eq!(arguments.entry().unwrap(), entry);
        let launch = arguments.plan(&target).unwrap();
        assert_eq!(launch, crate::hip::Launch::new(blocks, 256), "{entry}");
        arguments.pattern.keys = 1 << 31;
        let is_error = matches!(stage, GRADIENT_LARGEST | GRADIENT_ADD);
        assert_eq!(arguments.plan(&target).is_err(), is_error, "{entry}");
    }
}
