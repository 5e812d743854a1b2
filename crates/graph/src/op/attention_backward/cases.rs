//! Cases of the derivative of attention: all layouts of operands, with and without the results of the forward pass.

use super::attributes::AttentionBackward;
use crate::cases::{AWKWARD, Cases, Operand, Role, Scale, activation};
use crate::op::attention::cases::{bias, spec};
use crate::op::{Attention, AttentionOperands};

/// Maximum number of scores at sizes of models. The reference computes whole results, since the gradient of a bias is a sum over all images.
const SCORES: usize = 1 << 22;

pub(super) fn add(cases: &mut Cases<AttentionBackward>) {
    match cases.scale() {
        Scale::Model { sizes, every_form } => {
            let all = SCORES / (sizes.tokens * sizes.tokens).max(1);
            let heads = sizes.heads.min(all).max(1);
            let batch = sizes.batch.min(all / heads).max(1);
            let heads = (heads, sizes.head_dim);
            packed(cases, batch, sizes.tokens, heads);
            if every_form && sizes.head_dim <= 128 {
                causal(cases, batch, sizes.tokens, heads);
                shared(cases, batch + 1, sizes.tokens, heads);
                biased(cases, batch, sizes.tokens, heads);
            }
        }
        Scale::Awkward => {
            for a in &AWKWARD {
                for &heads in a.heads {
                    packed(cases, a.batch, a.tokens, heads);
                    causal(cases, a.batch, a.tokens, heads);
                    shared(cases, a.batch, a.tokens, heads);
                    biased(cases, a.batch, a.tokens, heads);
                    cross(cases, a.batch, a.tokens, heads);
                    padded(cases, a.batch, a.tokens, heads);
                }
            }
            for tokens in [1, 63, 64, 65, 197, 257] {
                packed(cases, 1, tokens, (1, 64));
                causal(cases, 1, tokens, (2, 64));
                biased(cases, 2, tokens, (1, 64));
            }
            // Sums over so many images are of several chunks.
            biased(cases, 20, 37, (2, 32));
        }
        // Each size would be compiled for this op alone. The awkward sizes have heads of all sizes.
        Scale::Heads => {}
    }
}

/// Adds packed queries, keys and values. The softmax is computed again.
fn packed(cases: &mut Cases<AttentionBackward>, batch: usize, tokens: usize, heads: (usize, usize)) {
    let qkv = activation(&[batch, tokens, 3 * heads.0 * heads.1]);
    push(
        cases,
        &[0],
        spec(heads, AttentionOperands::PackedQkv),
        vec![qkv],
        tokens,
    );
}

/// Adds causal attention, with the results of the forward pass.
fn causal(cases: &mut Cases<AttentionBackward>, batch: usize, tokens: usize, heads: (usize, usize)) {
    let op = Attention {
        causal: true,
        statistics: true,
        ..spec(heads, AttentionOperands::PackedQkv)
    };
    let qkv = activation(&[batch, tokens, 3 * heads.0 * heads.1]);
    push(cases, &[0], op, vec![qkv], tokens);
}

/// Adds one query for all images, whose gradient is a sum over the images, and patch tokens only as keys.
fn shared(cases: &mut Cases<AttentionBackward>, batch: usize, tokens: usize, heads: (usize, usize)) {
    let c = heads.0 * heads.1;
    let op = Attention {
        first_key: tokens / 9,
        ..spec(heads, AttentionOperands::PackedKv)
    };
    let operands = vec![activation(&[1, 1, c]), activation(&[batch, tokens, 2 * c])];
    push(cases, &[0, 1], op, operands, 1);
}

/// Adds a bias, whose gradient is a sum over the images.
fn biased(cases: &mut Cases<AttentionBackward>, batch: usize, tokens: usize, heads: (usize, usize)) {
    let op = Attention {
        bias: true,
        statistics: tokens % 2 == 1,
        ..spec(heads, AttentionOperands::PackedQkv)
    };
    let qkv = activation(&[batch, tokens, 3 * heads.0 * heads.1]);
    push(
        cases,
        &[0, 1],
        op,
        vec![qkv, bias(heads.0, [tokens, tokens])],
        tokens,
    );
}

/// Adds separate operands with fewer queries than keys, and one query per image.
fn cross(cases: &mut Cases<AttentionBackward>, batch: usize, tokens: usize, heads: (usize, usize)) {
    let c = heads.0 * heads.1;
    let op = |operands| Attention {
        statistics: true,
        ..spec(heads, operands)
    };
    let queries = tokens.div_ceil(3);
    let keys = activation(&[batch, tokens, c]);
    let separate = vec![activation(&[batch, queries, c]), keys.clone(), keys];
    push(
        cases,
        &[0, 1, 2],
        op(AttentionOperands::Separate),
        separate,
        queries,
    );
    let vector = vec![activation(&[batch, c]), activation(&[batch, tokens, 2 * c])];
    push(cases, &[0, 1], op(AttentionOperands::PackedKv), vector, 1);
}

/// Adds padded keys, with a bias.
fn padded(cases: &mut Cases<AttentionBackward>, batch: usize, tokens: usize, heads: (usize, usize)) {
    let op = Attention {
        key_mask: true,
        bias: true,
        ..spec(heads, AttentionOperands::PackedQkv)
    };
    let qkv = activation(&[batch, tokens, 3 * heads.0 * heads.1]);
    let mask = Operand {
        role: Role::KeyMask,
        ..activation(&[batch, tokens])
    };
    let operands = vec![qkv, bias(heads.0, [tokens, tokens]), mask];
    push(cases, &[0, 1], op, operands, tokens);
}

/// Adds a case for each of these results. Appends what the forward pass has saved, and the gradient, to the operands.
fn push(
    cases: &mut Cases<AttentionBackward>,
    results: &[usize],
    op: Attention,
    mut operands: Vec<Operand>,
    queries: usize,
) {
    let keys = &operands[op.operands.keys()].shape;
    let (batch, keys) = (keys[0], keys[1]);
    let y = match operands[0].shape.len() {
        2 => activation(&[batch, op.heads * op.head_dim]),
        _ => activation(&[batch, queries, op.heads * op.head_dim]),
    };
    if op.statistics {
        // Logarithms of about the sums of as many exponentials.
        let statistics = Operand {
            mean: 1.0 + (keys as f32).ln(),
            spread: 0.5,
            ..activation(&[batch, op.heads, queries, 3])
        };
        operands.extend([y.clone(), statistics]);
    }
    operands.push(y);
    for &result in results {
        cases.push_result(result, AttentionBackward(op), operands.clone());
    }
}
