//! Attention: the op with each packing of its operands, with and without a bias; the fused kernels with
//! masks; the kernel for few queries.

use std::fmt;
use std::ops::Range;

use super::case::{Addresses, KernelForm, flops};
use super::list::List;
use crate::validate::part::{Part, by_image, image_of};
use hipvit::graph::cases::{AWKWARD, Operand, Role, Scale, activation};
use hipvit::hip::DeviceAddress;
use hipvit::kernels::Visibility;
use hipvit::kernels::{AttentionArgs, KernelCall, KernelError, ScoreBias, Strided, is_fused, visibility};
use hipvit::ops::attention::cases::{bias, spec};
use hipvit::ops::{Attention, AttentionOperands, Op, OpError};
use hipvit::reference::{Array, fused_attention_tolerance, op_tolerance};
use hipvit::tensor::{DType, Tensor};

pub(super) const CAUSAL: Mask = Mask {
    left: None,
    right: Some(0),
    padding: false,
};
pub(super) const WINDOW: Mask = Mask {
    left: Some(40),
    right: Some(7),
    padding: false,
};
pub(super) const PADDING: Mask = Mask {
    left: None,
    right: None,
    padding: true,
};
pub(super) const EVERY: Mask = Mask {
    padding: false,
    ..PADDING
};

/// One head size for each fused kernel, and one without a fused kernel.
const HEAD_DIMS: [usize; 5] = [64, 80, 96, 128, 132];

pub(super) fn cases(list: &mut List) {
    match list.scale() {
        Scale::Model { sizes, every_form } => {
            let (batch, tokens, heads) = (sizes.batch, sizes.tokens, (sizes.heads, sizes.head_dim));
            if !is_fused(&spec(heads, AttentionOperands::Separate)) {
                return;
            }
            masked(list, batch, [tokens, tokens], heads, CAUSAL);
            let both = Mask {
                padding: true,
                ..WINDOW
            };
            masked(list, batch, [tokens, tokens], heads, both);
            if every_form {
                masked(list, batch, [tokens, tokens], heads, EVERY);
                masked_and_biased(list, batch, [tokens, tokens], heads, both);
                for scale in [0.0, -0.3] {
                    scaled(list, batch, [tokens + 7, tokens], heads, CAUSAL, scale);
                }
            }
        }
        Scale::Awkward => {
            for a in &AWKWARD {
                for &heads in a.heads {
                    let queries = a.tokens.div_ceil(3);
                    masked(list, a.batch, [a.tokens, a.tokens], heads, CAUSAL);
                    masked(list, a.batch, [queries, a.tokens], heads, EVERY);
                    masked(list, a.batch, [queries, a.tokens], heads, WINDOW);
                    masked(list, a.batch, [queries, a.tokens], heads, PADDING);
                    let both = Mask {
                        padding: true,
                        ..CAUSAL
                    };
                    masked(list, a.batch, [a.tokens + 3, a.tokens], heads, both);
                    masked_and_biased(list, a.batch, [queries, a.tokens], heads, PADDING);
                    masked_and_biased(list, a.batch, [a.tokens + 3, a.tokens], heads, both);
                }
            }
            // As ops these are few enough for the kernel for few queries; here they are the other kernel's.
            for tokens in [1, 63, 64, 65, 197, 257] {
                masked(list, 1, [tokens, tokens], (1, 64), EVERY);
                masked_and_biased(list, 2, [tokens, tokens], (2, 32), PADDING);
            }
            // With and without keys for every wave, and with more than one tile per wave.
            for [queries, keys] in [[1, 1], [17, 31], [16, 33], [5, 300], [33, 513]] {
                for head_dim in [32, 64, 80, 96, 128] {
                    split(list, 2, [queries, keys], (2, head_dim));
                }
            }
            scaled(list, 1, [65, 33], (2, 32), CAUSAL, 0.0);
            scaled(list, 2, [40, 70], (1, 64), PADDING, -0.3);
        }
        Scale::Heads => {
            for head_dim in HEAD_DIMS {
                let heads = (2, head_dim);
                if is_fused(&spec(heads, AttentionOperands::Separate)) {
                    let both = Mask {
                        padding: true,
                        ..CAUSAL
                    };
                    masked(list, 1, [17, 65], (1, head_dim), EVERY);
                    masked(list, 1, [20, 35], (1, head_dim), both);
                }
            }
        }
    }
}

fn masked(list: &mut List, batch: usize, extents: [usize; 2], heads: (usize, usize), mask: Mask) {
    let spec = spec(heads, AttentionOperands::Separate);
    masked_form(list, batch, extents, spec, mask);
}

/// Adds the kernel with a bias.
fn masked_and_biased(list: &mut List, batch: usize, extents: [usize; 2], heads: (usize, usize), mask: Mask) {
    let spec = Attention {
        bias: true,
        ..spec(heads, AttentionOperands::Separate)
    };
    masked_form(list, batch, extents, spec, mask);
}

fn scaled(list: &mut List, batch: usize, extents: [usize; 2], heads: (usize, usize), mask: Mask, scale: f32) {
    let spec = Attention {
        scale,
        ..spec(heads, AttentionOperands::Separate)
    };
    masked_form(list, batch, extents, spec, mask);
}

fn masked_form(list: &mut List, batch: usize, [queries, keys]: [usize; 2], spec: Attention, mask: Mask) {
    let tokens = |n| activation(&[batch, n, spec.heads * spec.head_dim]);
    let mut operands = vec![tokens(queries), tokens(keys), tokens(keys)];
    operands.extend(spec.bias.then(|| bias(spec.heads, [queries, keys])));
    operands.extend(mask.operand(batch, keys));
    let form = MaskedAttention {
        spec,
        mask,
        split: false,
    };
    list.push_kernel(form, operands);
}

/// Adds the kernel for few queries, if the dtype has it.
fn split(list: &mut List, batch: usize, [queries, keys]: [usize; 2], heads: (usize, usize)) {
    let tokens = |n| activation(&[batch, n, heads.0 * heads.1]);
    let form = MaskedAttention {
        spec: spec(heads, AttentionOperands::Separate),
        mask: EVERY,
        split: true,
    };
    list.push_kernel(form, vec![tokens(queries), tokens(keys), tokens(keys)]);
}

/// Keys that a query sees: from `left` before its position to `right` after it, without those that the key
/// mask hides.
///
/// Positions are counted from the end, as with a cache of earlier keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::validate) struct Mask {
    pub(in crate::validate) left: Option<u32>,
    pub(in crate::validate) right: Option<u32>,
    /// True if the last operand is a key mask.
    pub(in crate::validate) padding: bool,
}

impl Mask {
    /// Returns the position of query 0 among the keys.
    fn diagonal(queries: usize, keys: usize) -> i64 {
        keys as i64 - queries as i64
    }

    /// Returns the keys that `query` sees by its position.
    pub(in crate::validate) fn keys(&self, query: usize, queries: usize, keys: usize) -> Range<usize> {
        let position = query as i64 + Self::diagonal(queries, keys);
        let within = |key: i64| key.clamp(0, keys as i64) as usize;
        let first = self.left.map_or(0, |left| within(position - i64::from(left)));
        let end = self
            .right
            .map_or(keys, |right| within(position + i64::from(right) + 1));
        first..end.max(first)
    }

    /// Returns the key mask, if there is one.
    pub(super) fn operand(&self, batch: usize, keys: usize) -> Option<Operand> {
        self.padding.then(|| Operand {
            role: Role::KeyMask,
            ..activation(&[batch, keys])
        })
    }

    /// Returns the mask as a kernel argument.
    pub(super) fn visibility(
        &self,
        key_mask: DeviceAddress,
        queries: usize,
        keys: usize,
    ) -> Result<Visibility, OpError> {
        let signed = |n: i64| i32::try_from(n).map_err(|_| format!("{n} exceeds 32 bits"));
        let bound = |bound: Option<u32>| bound.map(|bound| signed(i64::from(bound))).transpose();
        let diagonal = signed(Self::diagonal(queries, keys))?;
        Ok(visibility(
            key_mask,
            diagonal,
            bound(self.left)?,
            bound(self.right)?,
        ))
    }
}

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.left, self.right) {
            (None, None) => Ok(()),
            (None, Some(0)) => f.write_str(" causal"),
            (left, right) => {
                let bound = |b: Option<u32>| b.map_or("∞".to_owned(), |b| b.to_string());
                write!(f, " window {}+{}", bound(left), bound(right))
            }
        }?;
        f.write_str(if self.padding { " key-padding" } else { "" })
    }
}

/// `(q [B,Nq,C], k [B,N,C], v [B,N,C], bias [heads,Nq,N]?, key mask [B,N]?) → [B,Nq,C]`.
#[derive(Debug)]
struct MaskedAttention {
    spec: Attention,
    mask: Mask,
    /// True to use the kernel for few queries where it supports them.
    split: bool,
}

impl fmt::Display for MaskedAttention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Op::Attention(self.spec), self.mask)?;
        if self.split {
            f.write_str(" split")?;
        }
        match self.spec.scale {
            scale if scale <= 0.0 => write!(f, " scale {scale}"),
            _ => Ok(()),
        }
    }
}

impl KernelForm for MaskedAttention {
    fn op_name(&self) -> &'static str {
        "attention"
    }

    fn flops(&self, operands: &[&[usize]], result: &[usize]) -> u64 {
        let (queries, keys) = (operands[0][1], operands[1][1]);
        let seen: usize = (0..queries)
            .map(|query| self.mask.keys(query, queries, keys).len())
            .sum();
        let all = flops(&Op::Attention(self.spec), operands, result);
        (all as f64 * seen as f64 / (queries * keys).max(1) as f64) as u64
    }

    fn expect(&self, operands: &[Tensor], rows: &[usize], dtype: DType) -> Result<Vec<Part>, OpError> {
        attention_parts(&self.spec, Some(self.mask), operands, rows, dtype)
    }

    fn call(&self, operands: &[&[usize]], memory: &Addresses) -> Result<KernelCall, KernelError> {
        let (arguments, bias) = masked_arguments(&self.spec, self.mask, operands, memory, memory.result)?;
        if let Some(bias) = bias {
            return Ok(arguments.with_bias(bias)?.into());
        }
        // There is no such kernel for f32, which uses the other one.
        let split = self
            .split
            .then(|| arguments.split(memory.element, u32::MAX))
            .flatten();
        Ok(split.map_or_else(|| arguments.into(), KernelCall::from))
    }
}

/// Returns the kernel's arguments for operands `(q, k, v, bias?, key mask?)` and a result at `out`.
pub(super) fn masked_arguments(
    spec: &Attention,
    mask: Mask,
    operands: &[&[usize]],
    memory: &Addresses,
    out: DeviceAddress,
) -> Result<(AttentionArgs, Option<ScoreBias>), KernelError> {
    let (images, queries, keys) = (operands[0][0], operands[0][1], operands[1][1]);
    let channels = spec.heads * spec.head_dim;
    let strided = |address, tokens| Strided {
        address,
        tokens,
        image: tokens * channels,
        token: channels,
    };
    let bias = spec.bias.then(|| ScoreBias {
        address: memory.operand(Some(3)),
        head: queries * keys,
        query: keys,
    });
    let key_mask = memory.operand(mask.padding.then_some(key_mask_index(spec)));
    let operands = [
        strided(memory.operand(Some(0)), queries),
        strided(memory.operand(Some(1)), keys),
        strided(memory.operand(Some(2)), keys),
        strided(out, queries),
    ];
    let visible = mask.visibility(key_mask, queries, keys)?;
    Ok((AttentionArgs::new(spec, images, operands, visible)?, bias))
}

/// Returns the index of the key mask.
pub(super) fn key_mask_index(spec: &Attention) -> usize {
    spec.operands.count() + usize::from(spec.bias)
}

/// Returns the unpacked queries of these rows by image, each with all of its keys and values.
pub(in crate::validate) fn attention_parts(
    spec: &Attention,
    mask: Option<Mask>,
    operands: &[Tensor],
    rows: &[usize],
    dtype: DType,
) -> Result<Vec<Part>, OpError> {
    let c = spec.heads * spec.head_dim;
    let at = |index: usize| operands.get(index).ok_or("an operand is missing");
    let [q, k, v] = match spec.operands {
        AttentionOperands::Separate => [(at(0)?, 0), (at(1)?, 0), (at(2)?, 0)],
        AttentionOperands::PackedQkv => [(at(0)?, 0), (at(0)?, c), (at(0)?, 2 * c)],
        AttentionOperands::PackedKv => [(at(0)?, 0), (at(1)?, 0), (at(1)?, c)],
    };
    let queries = match q.0.shape() {
        [_, queries, _] => *queries,
        _ => 1,
    };
    let keys = k.0.shape()[1];
    let all: Vec<usize> = (0..keys).collect();
    let separate = Attention {
        operands: AttentionOperands::Separate,
        causal: false,
        key_mask: false,
        ..*spec
    };
    let of_spec = spec.causal.then_some(CAUSAL).or(spec.key_mask.then_some(PADDING));
    let mask = mask.or(of_spec);
    by_image(rows, queries)
        .into_iter()
        .map(|(image, rows)| {
            let (rows, wanted): (Vec<usize>, Vec<usize>) = rows.into_iter().unzip();
            let mut arrays = vec![
                tokens(q, image, &wanted, c)?,
                tokens(k, image, &all, c)?,
                tokens(v, image, &all, c)?,
            ];
            if spec.bias {
                arrays.push(bias_rows(at(spec.operands.count())?, &wanted)?);
            }
            let arrays: Vec<&Array> = arrays.iter().collect();
            let padding = match mask {
                Some(Mask { padding: true, .. }) => {
                    Some(image_of(at(key_mask_index(spec))?, image)?.into_values())
                }
                _ => None,
            };
            let visible = |_: usize, query: usize, key: usize| {
                let present = padding.as_ref().is_none_or(|keys| keys[key] != 0.0);
                present && mask.is_none_or(|mask| mask.keys(wanted[query], queries, keys).contains(&key))
            };
            let result = separate.eval_masked(&arrays, visible)?.swap_remove(0);
            let tolerance = if is_fused(spec) {
                // The bias is converted to base 2 and added, each with one rounding of at most twice its size.
                let largest = arrays.get(3).map_or(0.0, |bias| {
                    bias.values().iter().fold(0f64, |max, v| max.max(v.abs()))
                });
                fused_attention_tolerance(dtype, keys, spec.head_dim)
                    + 2.0 * largest * f64::from(f32::EPSILON)
            } else {
                op_tolerance(&Op::Attention(separate), &arrays, dtype)
            };
            Ok(Part::new(&result, &rows, tolerance))
        })
        .collect()
}

/// Returns the rows of a bias `[heads, queries, keys]` for these queries.
fn bias_rows(tensor: &Tensor, queries: &[usize]) -> Result<Array, OpError> {
    let &[heads, all, keys] = tensor.shape() else {
        return Err("takes a bias of heads, queries and keys".into());
    };
    let values = tensor.to_f32();
    let row = |(head, query): (usize, usize)| values[(head * all + query) * keys..][..keys].iter();
    let rows = (0..heads).flat_map(|head| queries.iter().map(move |&query| (head, query)));
    let gathered = rows.flat_map(row).map(|&v| f64::from(v)).collect();
    Array::new([heads, queries.len(), keys], gathered).ok_or_else(|| "a bias of another size".into())
}

/// Returns `c` channels starting at `offset` of these tokens of an image: `[1, tokens, c]`.
fn tokens(
    (tensor, offset): (&Tensor, usize),
    image: usize,
    tokens: &[usize],
    c: usize,
) -> Result<Array, OpError> {
    let (images, count, channels) = match *tensor.shape() {
        [images, channels] => (images, 1, channels),
        [images, count, channels] => (images, count, channels),
        ref shape => return Err(format!("takes tokens, not {shape:?}").into()),
    };
    let image = if images == 1 { 0 } else { image };
    let values = tensor.to_f32();
    let token = |token: &usize| values[(image * count + token) * channels + offset..][..c].iter();
    let gathered = tokens.iter().flat_map(token).map(|&v| f64::from(v)).collect();
    Array::new([1, tokens.len(), c], gathered).ok_or_else(|| "an operand of another size".into())
}
