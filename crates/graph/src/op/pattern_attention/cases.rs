//! Cases of attention with patterns: ten forms, each layout of operands.

use super::attributes::PatternAttention;
use crate::cases::{AWKWARD, Cases, Operand, Role, Scale, activation, parameter};
use crate::op::AttentionOperands;
use crate::pattern::{Pattern, masks, scores};
use scores::score;

/// A pattern for a number of tokens, with its captured tensors.
#[derive(Debug)]
pub struct Form {
    /// Score and mask.
    pub pattern: Pattern,
    /// Captured tensors.
    pub captured: Vec<Operand>,
}

/// Returns the number of tokens before a grid, and the grid's rows and columns: a square, after a class token if it takes one, or a
/// single row.
fn grid(tokens: usize) -> (i32, [i32; 2]) {
    for prefix in [0, 1] {
        let side = (tokens - prefix).isqrt();
        if side > 1 && side * side + prefix == tokens {
            return (prefix as i32, [side as i32; 2]);
        }
    }
    (0, [1, tokens as i32])
}

/// Returns the forms for `batch` images with `heads` heads and `tokens` tokens.
pub fn forms([batch, heads, tokens]: [usize; 3]) -> Vec<Form> {
    let n = tokens as i32;
    let (first, [rows, columns]) = grid(tokens);
    let masked = |name: &str, mask| Form {
        pattern: Pattern::new().with_name(name).with_mask(mask),
        captured: Vec::new(),
    };
    let scored = |name: &str, score, captured| Form {
        pattern: Pattern::new().with_name(name).with_score(score),
        captured,
    };
    let integers = |below| Operand {
        role: Role::Integers { below },
        ..activation(&[batch, tokens])
    };
    let with = |captured, form| Form { captured, ..form };
    let window = [rows.min(7), columns.min(7)];
    let shifted = masks::shifted_window([rows, columns], window, window.map(|extent| extent / 2), first);
    let table = |extra: i32| parameter(&[((2 * rows - 1) * (2 * columns - 1) + extra) as usize, heads]);
    let (relative, table) = if first == 0 {
        (scores::relative_bias(score(), "table", [rows, columns]), table(0))
    } else {
        (
            scores::relative_bias_with_class(score(), "table", [rows, columns]),
            table(3),
        )
    };
    vec![
        masked("causal", masks::causal()),
        masked("window", masks::window(n / 8, n / 8)),
        masked("prefix", masks::prefix(n / 4) | masks::causal()),
        with(
            vec![integers(4)],
            masked("documents", masks::documents("documents")),
        ),
        with(
            vec![integers(2)],
            masked("padding", masks::key_padding("present")),
        ),
        masked("window_2d", masks::window_2d(columns, [3, 3], first)),
        masked("dilated", masks::dilated(3)),
        scored("alibi", scores::alibi(score()), Vec::new()),
        scored("soft_cap", scores::soft_cap(score(), 2.0), Vec::new()),
        scored(
            "bias",
            scores::bias(score(), "bias"),
            vec![parameter(&[heads, tokens, tokens])],
        ),
        Form {
            pattern: Pattern::new()
                .with_name("shifted_window")
                .with_score(relative)
                .with_mask(shifted),
            captured: vec![table],
        },
    ]
}

pub(super) fn add(cases: &mut Cases<PatternAttention>) {
    for PatternCase { op, operands } in all(cases.scale(), cases.is_micro()) {
        cases.push(op.clone(), operands.clone());
        cases.push_result(1, with_sums(op), operands);
    }
}

/// Returns the same cases for the derivative: attention with both results, and the operands of its derivative.
pub(in crate::op) fn of_derivative(scale: Scale, is_micro: bool) -> Vec<(PatternAttention, Vec<Operand>)> {
    if matches!(scale, Scale::Heads) {
        // The awkward sizes have heads of all sizes.
        return Vec::new();
    }
    let cases = all(scale, is_micro).into_iter();
    let with_results = cases.map(|PatternCase { op, mut operands }| {
        let [batch, tokens] = [operands[0].shape[0], operands[0].shape[1]];
        let o = activation(&[batch, tokens, op.heads * op.head_dim]);
        // Logarithms of about the sums of as many exponentials.
        let log_sum_exp = Operand {
            mean: 1.0 + (tokens as f32).ln(),
            spread: 0.5,
            ..activation(&[batch, op.heads, tokens])
        };
        operands.extend([o.clone(), log_sum_exp, o]);
        (with_sums(op), operands)
    });
    with_results.collect()
}

fn with_sums(op: PatternAttention) -> PatternAttention {
    PatternAttention {
        log_sum_exp: true,
        ..op
    }
}

/// Returns the forms at the sizes of `scale`.
fn all(scale: Scale, is_micro: bool) -> Vec<PatternCase> {
    let mut cases = Vec::new();
    match scale {
        Scale::Model { sizes, .. } => {
            let heads = (sizes.heads, sizes.head_dim);
            let forms = forms([sizes.batch, sizes.heads, sizes.tokens]);
            let few = if is_micro { 1 } else { forms.len() };
            let extents = [sizes.batch, sizes.tokens];
            for form in forms.into_iter().rev().take(few) {
                cases.extend(case(form, AttentionOperands::PackedQkv, extents, heads));
            }
        }
        Scale::Awkward => {
            // Pairwise: each form at each number of tokens, with one of the head sizes and layouts.
            let layouts = [
                AttentionOperands::PackedQkv,
                AttentionOperands::PackedKv,
                AttentionOperands::Separate,
            ];
            for (row, a) in AWKWARD.iter().enumerate() {
                for (column, form) in forms([a.batch, a.heads[0].0, a.tokens]).into_iter().enumerate() {
                    if is_micro && (row + column) % 3 > 0 {
                        continue;
                    }
                    let layout = layouts[(row + column) % 3];
                    cases.extend(case(form, layout, [a.batch, a.tokens], a.heads[0]));
                }
            }
        }
        Scale::Heads => {
            for (index, head_dim) in [32, 64, 80, 96, 128].into_iter().enumerate() {
                let form = forms([2, 2, 67]).remove(2 * index);
                cases.extend(case(form, AttentionOperands::PackedQkv, [2, 67], (2, head_dim)));
            }
        }
    }
    cases
}

/// A pattern with operands.
struct PatternCase {
    op: PatternAttention,
    operands: Vec<Operand>,
}

fn case(
    form: Form,
    operands: AttentionOperands,
    [batch, tokens]: [usize; 2],
    heads: (usize, usize),
) -> Option<PatternCase> {
    let scale = 3.0 / (heads.1 as f32).sqrt();
    let op = PatternAttention::new(heads, scale, operands, &form.pattern);
    debug_assert!(op.is_ok(), "the pattern {:?} is invalid", form.pattern.name);
    let packed = |parts: usize| activation(&[batch, tokens, parts * heads.0 * heads.1]);
    let parts: &[usize] = match operands {
        AttentionOperands::PackedQkv => &[3],
        AttentionOperands::PackedKv => &[1, 2],
        AttentionOperands::Separate => &[1, 1, 1],
    };
    let attended = parts.iter().map(|&parts| packed(parts));
    Some(PatternCase {
        op: op.ok()?,
        operands: attended.chain(form.captured).collect(),
    })
}
