//! Rotary position embedding: rotates pairs of channels of queries and keys by angles that depend on the token's position.

use std::fmt;

use super::operands::{count, exactly, expect, one};
use super::{
    Definition, Division, Gradients, GraphBuilder, Locality, Mul, NodeValues, OpError, OperandShare, Shape,
    only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{AWKWARD, Cases, Scale, activation, parameter};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// Rotary position embedding of queries and keys, `(x [B,N,n·C], table [1,P,d] or [1,P,C]) → [B,N,n·C]`.
///
/// x has n groups of `C = heads · d` channels. Rotates pairs of channels in the last P tokens, in the first [`rotated`](Self::rotated)
/// groups. All other elements are copied. For each of the P tokens, and for each head or for all heads, the table has the cosines of the
/// head's d/2 pairs, then the sines. <https://arxiv.org/abs/2104.09864>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rope {
    /// Heads per group.
    pub heads: usize,
    /// Channels per head, an even number.
    pub head_dim: usize,
    /// Number of groups that are rotated: 2 for packed queries, keys and values.
    pub rotated: usize,
    /// Pairing of the channels.
    pub pairs: RopePairs,
}

/// Pairing of a head's `d` channels in [`Rope`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairs {
    /// 0 and 1, 2 and 3, …
    Interleaved,
    /// 0 and d/2, 1 and d/2 + 1, …
    Halves,
}

/// Two multiplications and an addition per rotated element.
const FLOPS_PER_ELEMENT: u64 = 3;

impl Definition for Rope {
    const NAME: &'static str = "rope";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}×{}×{}", self.rotated, self.heads, self.head_dim)?;
        f.write_str(match self.pairs {
            RopePairs::Interleaved => " interleaved",
            RopePairs::Halves => " halves",
        })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, table] = exactly(operands)?;
        let width = self.heads * self.head_dim;
        if width == 0 || !self.head_dim.is_multiple_of(2) {
            return Err(format!(
                "has {} heads of {} channels, which cannot be rotated in pairs",
                self.heads, self.head_dim
            )
            .into());
        }
        let &[_, tokens, channels] = x else {
            return Err(OpError::layout("x", x, "[B,N,C]"));
        };
        if !channels.is_multiple_of(width) || self.rotated == 0 || self.rotated > channels / width {
            return Err(format!(
                "x has {channels} channels, expected at least {} times {width}",
                self.rotated.max(1)
            )
            .into());
        }
        match *table {
            [1, places, d] if (1..=tokens).contains(&places) => {
                let of_heads = if d == self.head_dim { d } else { width };
                expect("table", table, &[1, places, of_heads])?;
                one(x)
            }
            _ => Err(OpError::layout(
                "`table`",
                table,
                format!("at most {tokens} tokens"),
            )),
        }
    }

    fn flops(&self, operands: &[&[usize]], results: &[Shape]) -> u64 {
        let rotated = [
            results[0][0],
            operands[1][1],
            self.rotated,
            self.heads,
            self.head_dim,
        ];
        FLOPS_PER_ELEMENT * count(&rotated)
    }

    fn may_alias(&self) -> Option<usize> {
        Some(0)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn tokenwise(&self) -> Option<Vec<usize>> {
        Some(vec![0])
    }

    fn division(&self, blocks: usize) -> Option<Division> {
        Some(Division::of_channels(blocks))
    }

    fn of_rank(&self, ranks: usize) -> Self {
        Self {
            heads: self.heads / ranks,
            ..*self
        }
    }

    /// All heads may share a table.
    fn operand_share(&self, _index: usize, shape: &[usize]) -> OperandShare {
        if shape.last() == Some(&self.head_dim) {
            OperandShare::Whole
        } else {
            OperandShare::Channels
        }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let (x, table) = (operands[0], operands[1]);
        let d = self.head_dim;
        let [tokens, channels] = [1, 2].map(|axis| x.shape()[axis]);
        let [places, stride] = [1, 2].map(|axis| table.shape()[axis]);
        let x = x.values();
        for (i, v) in results[0].values_mut().iter_mut().enumerate() {
            let (token, channel) = (i / channels % tokens, i % channels);
            if token < tokens - places || channel >= self.rotated * self.heads * d {
                *v = x[i];
                continue;
            }
            let (head, within) = (channel / d, channel % d);
            // The pair's number, true for its first element, and the distance of its elements.
            let (pair, first, apart) = match self.pairs {
                RopePairs::Interleaved => (within / 2, within % 2 == 0, 1),
                RopePairs::Halves => (within % (d / 2), within < d / 2, d / 2),
            };
            let angles = &table.values()[(token + places - tokens) * stride + head * d % stride..];
            let (cosine, sine) = (angles[pair], angles[d / 2 + pair]);
            *v = if first {
                x[i] * cosine - x[i + apart] * sine
            } else {
                x[i] * cosine + x[i - apart] * sine
            };
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        match cases.scale() {
            Scale::Model { sizes, every_form } => {
                let extents = [sizes.batch, sizes.tokens, sizes.heads, sizes.head_dim & !1];
                let prefix = usize::from(sizes.tokens > 1);
                forms(cases, extents, prefix, every_form);
                if cases.is_micro() {
                    // Heads whose halves are not whole vectors, and one that is shorter than a vector.
                    forms(cases, [2, 3, 2, 22], 2, true);
                    forms(cases, [1, 2, 3, 2], 0, true);
                }
            }
            Scale::Awkward => {
                for a in &AWKWARD {
                    for &(heads, head_dim) in a.heads {
                        let prefix = [0, 1, 5][(a.tokens + heads) % 3].min(a.tokens - 1);
                        let even = head_dim.next_multiple_of(2);
                        forms(cases, [a.batch, a.tokens, heads, even], prefix, true);
                    }
                }
            }
            Scale::Heads => {}
        }
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        narrow(dtype) + tolerance(DType::F32, 2)
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        // The transpose of a rotation is the inverse rotation: negative sines. The angles are not differentiated.
        let gradient = only_gradient(gradients)?;
        let table = node.inputs[1];
        let len = builder.shape(table)[2];
        let half = self.head_dim / 2;
        let signs = [vec![1.0; half], vec![-1.0; half]].concat();
        let signs = builder.constant(len, &signs)?;
        let back = builder.push(Mul, [table, signs])?;
        let d_x = builder.push(*self, [gradient, back])?;
        Ok(vec![Some(d_x), None])
    }
}

/// Packed queries, keys and values in place. With `every_form` also queries alone, and results in separate memory.
fn forms(
    cases: &mut Cases<Rope>,
    [batch, tokens, heads, head_dim]: [usize; 4],
    prefix: usize,
    every_form: bool,
) {
    let width = heads * head_dim;
    for pairs in [RopePairs::Interleaved, RopePairs::Halves] {
        for (groups, rotated, table) in [(3, 2, head_dim), (2, 1, width), (1, 1, head_dim)] {
            if groups < 3 && !every_form {
                continue;
            }
            let op = Rope {
                heads,
                head_dim,
                rotated,
                pairs,
            };
            let table = parameter(&[1, tokens - prefix, table]);
            let operands = vec![activation(&[batch, tokens, groups * width]), table];
            if every_form {
                cases.push(op, operands.clone());
            }
            cases.push_in_arena(op, operands);
        }
    }
}
