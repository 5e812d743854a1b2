//! Transposition of each image's tokens and channels, with what may follow it in one pass over memory.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::operands::{Rest, count, expect, one};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::dtype::DType;
use crate::reference::{narrow, tolerance};

/// `(x [B,M,N], gamma [M]?, y [B,N − crop,M + pad]?) → gamma · xᵀ` of each image, without the last `crop` rows and with `pad` columns of zeros, then
/// `+ y` or `· y`. Between two of them a Linear mixes tokens. <https://arxiv.org/abs/2105.01601>
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transpose {
    /// Whether the operand `gamma`, a factor of each of the result's channels, is there.
    pub scale: bool,
    /// What is done with the operand `y`, if it is there.
    pub combine: Option<Combine>,
    /// Zeros at the end of each row of what was transposed and scaled, before `y` comes in.
    pub pad: usize,
    /// Elements at the end of each row of x that are left out; fewer than there are.
    pub crop: usize,
}

/// What [`Transpose`] does with what it has transposed and its operand `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        if self.scale || self.combine.is_some() {
            narrow(dtype) + tolerance(DType::F32, 2)
        } else {
            0.0
        }
    }
}
