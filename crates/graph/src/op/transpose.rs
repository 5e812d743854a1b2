//! Transposition of each image's tokens and channels, fused with the ops after it in one pass over memory.

use std::fmt;

use super::operands::{Rest, count, expect, one};
use super::{
    Definition, Gradients, GraphBuilder, Locality, Mul, NodeValues, OpError, Shape, Slice, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{AWKWARD, Cases, Scale, activation, parameter};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// `(x [B,M,N], gamma [M]?, y [B,N − crop,M + pad]?) → gamma · xᵀ` for each image, then `+ y` or `· y`. Omits the last `crop` rows and
/// appends `pad` columns of zeros. A Linear between two transpositions mixes tokens. <https://arxiv.org/abs/2105.01601>
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transpose {
    /// True if the operand `gamma`, a factor per channel of the result, exists.
    pub scale: bool,
    /// Use of the operand `y`. `None` if it does not exist.
    pub combine: Option<Combine>,
    /// Number of zeros at the end of each transposed and scaled row, before `y` is applied.
    pub pad: usize,
    /// Number of elements to omit at the end of each row of x. Less than the length of a row.
    pub crop: usize,
}

/// Use of the operand `y` in [`Transpose`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// A residual.
    Add,
    /// A gate (gMLP). <https://arxiv.org/abs/2105.08050>
    Multiply,
}

impl Definition for Transpose {
    const NAME: &'static str = "transpose";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.scale { "+scale" } else { "" })?;
        f.write_str(match self.combine {
            None => "",
            Some(Combine::Add) => "+residual",
            Some(Combine::Multiply) => "+gate",
        })?;
        if self.pad > 0 {
            write!(f, " pad {}", self.pad)?;
        }
        if self.crop > 0 {
            write!(f, " crop {}", self.crop)?;
        }
        Ok(())
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let mut rest = Rest::new(operands);
        let &[batch, rows, columns] = rest.required("x")? else {
            return Err(format!("takes [B,M,N], got {operands:?}").into());
        };
        if let Some(gamma) = rest.optional(self.scale, "gamma")? {
            expect("gamma", gamma, &[rows])?;
        }
        if self.crop >= columns && self.crop > 0 {
            return Err(format!("leaves out {} of {columns} columns", self.crop).into());
        }
        let result = [batch, columns - self.crop, rows + self.pad];
        if let Some(y) = rest.optional(self.combine.is_some(), "y")? {
            expect("y", y, &result)?;
        }
        rest.finish()?;
        one(result)
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        (u64::from(self.scale) + u64::from(self.combine.is_some())) * count(&results[0])
    }

    fn may_alias(&self) -> Option<usize> {
        self.combine.map(|_| 1 + usize::from(self.scale))
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [_, kept, width] = results[0].extents();
        let (rows, columns) = (width - self.pad, kept + self.crop);
        let x = operands[0].values();
        let other = operands.last().map_or(&[] as &[T], |y| y.values());
        for (i, v) in results[0].values_mut().iter_mut().enumerate() {
            let (image, column, row) = (i / width / kept, i / width % kept, i % width);
            let mut value = T::ZERO;
            if row < rows {
                value = x[(image * rows + row) * columns + column];
                if self.scale {
                    value *= operands[1].values()[row];
                }
            }
            *v = match self.combine {
                None => value,
                Some(Combine::Add) => value + other[i],
                Some(Combine::Multiply) => value * other[i],
            };
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        match cases.scale() {
            Scale::Model { sizes, every_form } => {
                forms(cases, [sizes.batch, sizes.tokens, sizes.channels()], every_form);
            }
            Scale::Awkward => {
                for a in &AWKWARD {
                    forms(cases, [a.batch, a.tokens, a.channels], true);
                    forms(cases, [a.batch, a.channels, a.tokens], true);
                }
            }
            Scale::Heads => {}
        }
        if cases.is_micro() {
            // Whole tiles, and rows that do not start at a multiple of a vector.
            forms(cases, [2, 64, 128], true);
            forms(cases, [3, 67, 3], true);
            forms(cases, [2, 5, 130], true);
        }
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        if self.scale || self.combine.is_some() {
            narrow(dtype) + tolerance(DType::F32, 2)
        } else {
            0.0
        }
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let mut gradient = only_gradient(gradients)?;
        let x = node.inputs[0];
        let mut of_y = None;
        if let (Some(combine), Some(&y)) = (self.combine, node.inputs.last()) {
            of_y = Some(gradient);
            if combine == Combine::Multiply {
                let alone = Self {
                    combine: None,
                    ..*self
                };
                let operands = &node.inputs[..node.inputs.len() - 1];
                let value = builder.push(alone, operands)?;
                of_y = Some(builder.push(Mul, [gradient, value])?);
                gradient = builder.push(Mul, [gradient, y])?;
            }
        }
        // Without the columns of zeros, which follow the rows of x.
        let rows = builder.shape(x)[1];
        if self.pad > 0 {
            gradient = builder.push(Slice::new(2, 0, rows), [gradient])?;
        }
        let mut of_gamma = None;
        if self.scale {
            let gamma = node.inputs[1];
            let transposed = Self {
                crop: self.crop,
                ..Self::default()
            };
            let transposed = builder.push(transposed, [x])?;
            let d_gamma = builder.push(Mul, [gradient, transposed])?;
            of_gamma = Some(builder.sum_to_size(d_gamma, gamma)?);
            gradient = builder.push(super::Scale, [gradient, gamma])?;
        }
        let back = Self {
            pad: self.crop,
            ..Self::default()
        };
        let d_x = builder.push(back, [gradient])?;
        let mut gradients = vec![Some(d_x)];
        gradients.extend(of_gamma.map(Some));
        gradients.extend(of_y.map(Some));
        Ok(gradients)
    }
}

/// Adds transpositions of `[batch, tokens, channels]`, and to and from rows that are padded to whole vectors. With `every_form`, adds each
/// combination of operands, in separate memory and in the arena.
fn forms(cases: &mut Cases<Transpose>, [batch, tokens, channels]: [usize; 3], every_form: bool) {
    let padded = tokens.next_multiple_of(8);
    sized(cases, [batch, tokens, channels], [0, 0], every_form);
    if padded != tokens {
        sized(cases, [batch, tokens, channels], [padded - tokens, 0], every_form);
        sized(cases, [batch, channels, padded], [0, padded - tokens], every_form);
    }
}

fn sized(
    cases: &mut Cases<Transpose>,
    [batch, tokens, channels]: [usize; 3],
    [pad, crop]: [usize; 2],
    every_form: bool,
) {
    for scale in [false, true] {
        for combine in [None, Some(Combine::Add), Some(Combine::Multiply)] {
            if scale && !every_form {
                continue;
            }
            let gamma = scale.then(|| parameter(&[tokens]));
            let y = combine.map(|_| activation(&[batch, channels - crop, tokens + pad]));
            let operands = [Some(activation(&[batch, tokens, channels])), gamma, y];
            let operands: Vec<_> = operands.into_iter().flatten().collect();
            let op = Transpose {
                scale,
                combine,
                pad,
                crop,
            };
            if every_form && combine.is_some() {
                cases.push_in_arena(op, operands.clone());
            }
            cases.push(op, operands);
        }
    }
}
