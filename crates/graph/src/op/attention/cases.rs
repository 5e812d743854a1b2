//! Cases of attention: all layouts of operands, biases, key masks, shared queries, and statistics.

use super::attributes::{Attention, AttentionOperands};
use crate::cases::{AWKWARD, Cases, Operand, Role, Scale, activation, parameter};

/// Channels per head: one of each size with a fused GPU kernel, and one without.
const HEAD_DIMS: [usize; 5] = [64, 80, 96, 128, 132];

pub(super) fn add(cases: &mut Cases<Attention>) {
    match cases.scale() {
        Scale::Model { sizes, every_form } => {
            let (batch, tokens, heads) = (sizes.batch, sizes.tokens, (sizes.heads, sizes.head_dim));
            packed(cases, batch, tokens, heads);
            padded(cases, batch, tokens, heads);
            biased(cases, batch, tokens, heads);
            if every_form {
                statistics(cases, batch, tokens, heads);
            }
        }
        Scale::Awkward => {
            for a in &AWKWARD {
                for &heads in a.heads {
                    packed(cases, a.batch, a.tokens, heads);
                    padded(cases, a.batch, a.tokens, heads);
                    shared(cases, a.batch, a.tokens, heads);
                    biased(cases, a.batch, a.tokens, heads);
                    statistics(cases, a.batch, a.tokens, heads);
                }
            }
            for tokens in [1, 63, 64, 65, 197, 257] {
                let op = spec((1, 64), AttentionOperands::PackedQkv);
                cases.push(op, vec![activation(&[1, tokens, 3 * 64])]);
                biased(cases, 1, tokens, (2, 64));
            }
        }
        Scale::Heads => {
            for head_dim in HEAD_DIMS {
                let heads = (2, head_dim);
                // More than one tile of keys, and a partial tile of queries.
                let op = spec(heads, AttentionOperands::PackedQkv);
                cases.push(op, vec![activation(&[1, 67, 6 * head_dim])]);
                let operands = vec![
                    activation(&[1, 1, 2 * head_dim]),
                    activation(&[2, 33, 4 * head_dim]),
                ];
                cases.push(spec(heads, AttentionOperands::PackedKv), operands);
                biased(cases, 1, 67, heads);
            }
            for head_dim in [32, 64, 80, 96, 128] {
                statistics(cases, 1, 67, (2, head_dim));
            }
        }
    }
}

/// Returns an attention op whose scores differ, so that the weights do.
pub fn spec((heads, head_dim): (usize, usize), operands: AttentionOperands) -> Attention {
    Attention {
        heads,
        head_dim,
        scale: 3.0 / (head_dim as f32).sqrt(),
        operands,
        ..Attention::default()
    }
}

/// Adds each layout of operands, causal attention, and one query for all images.
fn packed(cases: &mut Cases<Attention>, batch: usize, tokens: usize, heads: (usize, usize)) {
    let c = heads.0 * heads.1;
    let op = |operands| spec(heads, operands);
    let packed = |parts: usize| activation(&[batch, tokens, parts * c]);
    cases.push(op(AttentionOperands::PackedQkv), vec![packed(3)]);
    let separate = vec![packed(1), packed(1), packed(1)];
    cases.push(op(AttentionOperands::Separate), separate);
    let causal = Attention {
        causal: true,
        ..spec(heads, AttentionOperands::PackedQkv)
    };
    cases.push(causal, vec![packed(3)]);
    // One query for all images, as in attention pooling.
    let shared = activation(&[1, 1, c]);
    cases.push(op(AttentionOperands::PackedKv), vec![shared.clone(), packed(2)]);
    // One query for all images, with patch tokens only as keys.
    if tokens > 1 {
        let of_patches = Attention {
            first_key: tokens.div_ceil(9),
            ..spec(heads, AttentionOperands::PackedKv)
        };
        cases.push(of_patches, vec![shared, packed(2)]);
    }
}

/// Adds padded keys: for all queries, with and without a bias, and for one query of all images.
fn padded(cases: &mut Cases<Attention>, batch: usize, tokens: usize, heads: (usize, usize)) {
    let c = heads.0 * heads.1;
    let op = |operands, bias| Attention {
        key_mask: true,
        bias,
        ..spec(heads, operands)
    };
    let packed = |parts: usize| activation(&[batch, tokens, parts * c]);
    let mask = || Operand {
        role: Role::KeyMask,
        ..activation(&[batch, tokens])
    };
    cases.push(op(AttentionOperands::PackedQkv, false), vec![packed(3), mask()]);
    let biased = vec![packed(3), bias(heads.0, [tokens, tokens]), mask()];
    cases.push(op(AttentionOperands::PackedQkv, true), biased);
    let kv = vec![activation(&[1, 1, c]), packed(2), mask()];
    cases.push(op(AttentionOperands::PackedKv, false), kv);
}

/// Adds a bias: for all queries, and for one query of all images.
fn biased(cases: &mut Cases<Attention>, batch: usize, tokens: usize, heads: (usize, usize)) {
    let c = heads.0 * heads.1;
    let op = |operands| Attention {
        bias: true,
        ..spec(heads, operands)
    };
    let packed = |parts: usize| activation(&[batch, tokens, parts * c]);
    let qkv = vec![packed(3), bias(heads.0, [tokens, tokens])];
    cases.push(op(AttentionOperands::PackedQkv), qkv);
    let kv = vec![activation(&[1, 1, c]), packed(2), bias(heads.0, [1, tokens])];
    cases.push(op(AttentionOperands::PackedKv), kv);
}

/// Returns a bias of the size of the scores.
pub fn bias(heads: usize, [queries, keys]: [usize; 2]) -> Operand {
    Operand {
        mean: 0.0,
        spread: 3.0,
        ..parameter(&[heads, queries, keys])
    }
}

/// Adds different numbers of queries and keys, with and without shared queries.
fn shared(cases: &mut Cases<Attention>, batch: usize, tokens: usize, heads: (usize, usize)) {
    let c = heads.0 * heads.1;
    let op = |operands| spec(heads, operands);
    let packed = |parts: usize| activation(&[batch, tokens, parts * c]);
    let several = activation(&[batch, 7, c]);
    cases.push(op(AttentionOperands::PackedKv), vec![several, packed(2)]);
    let vector = activation(&[batch, c]);
    cases.push(op(AttentionOperands::PackedKv), vec![vector, packed(2)]);
    let longer = activation(&[1, tokens + 1, c]);
    let operands = vec![longer, packed(1), packed(1)];
    cases.push(op(AttentionOperands::Separate), operands);
}

/// Adds statistics: packed, causal, with one query for all images, and for one image with a bias.
fn statistics(cases: &mut Cases<Attention>, batch: usize, tokens: usize, heads: (usize, usize)) {
    let c = heads.0 * heads.1;
    let packed = |batch: usize, parts: usize| activation(&[batch, tokens, parts * c]);
    let qkv = spec(heads, AttentionOperands::PackedQkv);
    push(cases, qkv, vec![packed(batch, 3)]);
    let causal = Attention { causal: true, ..qkv };
    push(cases, causal, vec![packed(batch, 3)]);
    let kv = spec(heads, AttentionOperands::PackedKv);
    push(cases, kv, vec![activation(&[1, 1, c]), packed(batch, 2)]);
    let biased = Attention { bias: true, ..qkv };
    let operands = vec![packed(1, 3), bias(heads.0, [tokens, tokens])];
    push(cases, biased, operands);
}

/// Adds a case that checks the statistics.
fn push(cases: &mut Cases<Attention>, spec: Attention, operands: Vec<Operand>) {
    let op = Attention {
        statistics: true,
        ..spec
    };
    cases.push_result(1, op, operands);
}
