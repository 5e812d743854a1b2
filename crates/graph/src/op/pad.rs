//! Padding of a tensor.

use std::fmt;

use super::operands::{exactly, one};
use super::{
    Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape, Slice, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, integers};
use crate::dtype::DType;
use crate::strided::strides;
use crate::value::ValueId;

/// `(x) → x with elements before and after each axis`. Elements may be of any dtype.
#[derive(Clone, Debug, PartialEq)]
pub struct Pad {
    /// Number of elements before each axis.
    pub before: Vec<usize>,
    /// Number of elements after each axis.
    pub after: Vec<usize>,
    /// Elements of the padding.
    pub mode: PadMode,
}

/// Elements of a padding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PadMode {
    /// A number.
    Constant(f32),
    /// Mirrored around the first and the last element, which are not repeated.
    Reflect,
    /// The first or the last element.
    Edge,
}

impl PadMode {
    /// Returns the index of x for index `at` of an axis that starts `before` elements earlier. `None` if it is a constant.
    pub fn source(self, at: usize, before: usize, extent: usize) -> Option<usize> {
        match at.checked_sub(before) {
            Some(index) if index < extent => Some(index),
            _ if matches!(self, Self::Constant(_)) => None,
            Some(_) if self == Self::Edge => Some(extent - 1),
            Some(index) => (2 * (extent - 1)).checked_sub(index),
            None if self == Self::Edge => Some(0),
            None => Some(before - at),
        }
    }
}

impl Pad {
    /// Returns a padding of zeros, of no elements yet, for a tensor of this rank.
    pub fn zeros(rank: usize) -> Self {
        Self {
            before: vec![0; rank],
            after: vec![0; rank],
            mode: PadMode::Constant(0.0),
        }
    }

    /// Returns the index of x for each index of an axis. `None` for a constant.
    pub fn sources(&self, axis: usize, extent: usize) -> Vec<Option<usize>> {
        let [before, after] = [self.before[axis], self.after[axis]];
        let source = |at| self.mode.source(at, before, extent);
        (0..before + extent + after).map(source).collect()
    }
}

impl Definition for Pad {
    const NAME: &'static str = "pad";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode {
            PadMode::Constant(value) => write!(f, " {value}")?,
            PadMode::Reflect => f.write_str(" reflect")?,
            PadMode::Edge => f.write_str(" edge")?,
        }
        write!(f, " {:?} {:?}", self.before, self.after)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        if [self.before.len(), self.after.len()] != [x.len(); 2] {
            return Err(format!("pads {} axes, got {x:?}", self.before.len()).into());
        }
        let mut shape = Shape::with_capacity(x.len());
        for ((&extent, &before), &after) in x.iter().zip(&self.before).zip(&self.after) {
            let is_valid = match self.mode {
                PadMode::Constant(_) => true,
                PadMode::Edge => extent > 0,
                PadMode::Reflect => before.max(after) < extent.max(1),
            };
            let padded = before.checked_add(extent).and_then(|sum| sum.checked_add(after));
            match padded.filter(|_| is_valid) {
                Some(padded) => shape.push(padded),
                None => return Err(format!("cannot pad {x:?}").into()),
            }
        }
        one(shape)
    }

    fn keeps_dtype_of(&self) -> Option<usize> {
        Some(0)
    }

    fn flops(&self, _operands: &[&[usize]], _results: &[Shape]) -> u64 {
        0
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let constant = match self.mode {
            PadMode::Constant(value) => T::from_f32(value),
            PadMode::Reflect | PadMode::Edge => T::ZERO,
        };
        let shape = operands[0].shape();
        let sources: Vec<_> = (0..shape.len())
            .map(|axis| self.sources(axis, shape[axis]))
            .collect();
        let strides = strides(shape);
        let x = operands[0].values();
        for (index, y) in results[0].values_mut().iter_mut().enumerate() {
            let (mut rest, mut from) = (index, Some(0));
            for (sources, &stride) in sources.iter().zip(&strides).rev() {
                let source = sources[rest % sources.len()];
                from = from
                    .zip(source)
                    .map(|(from, source)| from + source * stride.unsigned_abs());
                rest /= sources.len();
            }
            *y = from.map_or(constant, |from| x[from]);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        let modes = [PadMode::Constant(-0.5), PadMode::Reflect, PadMode::Edge];
        cases.for_each_shape(|cases, shape, every_form| {
            let pad = Self {
                before: vec![0, 1, 0],
                after: vec![0, 2, 3],
                mode: PadMode::Constant(0.0),
            };
            cases.push(pad.clone(), vec![activation(&shape)]);
            for mode in modes
                .iter()
                .filter(|_| every_form && shape[1] > 3 && shape[2] > 3)
            {
                let pad = Self {
                    mode: *mode,
                    ..pad.clone()
                };
                cases.push(pad, vec![activation(&shape)]);
            }
            if cases.is_micro() {
                let pad = Self {
                    before: vec![0, 3],
                    after: vec![1, 0],
                    mode: PadMode::Constant(7.0),
                };
                cases.push(pad, vec![integers(&[2, 60], 50)]);
                for mode in modes {
                    let pad = Self {
                        before: vec![1, 0, 2, 3],
                        after: vec![0, 1, 1, 0],
                        mode,
                    };
                    cases.push(pad, vec![activation(&[2, 3, 4, 5])]);
                }
            }
        });
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], _dtype: DType) -> f64 {
        0.0
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        if !matches!(self.mode, PadMode::Constant(_)) {
            return Err(OpError::derivative(
                "padding with elements of x has no derivative",
            ));
        }
        let mut gradient = only_gradient(gradients)?;
        for (axis, (&before, &after)) in self.before.iter().zip(&self.after).enumerate() {
            if before + after > 0 {
                let extent = builder.shape(node.inputs[0])[axis];
                gradient = builder.push(Slice::new(axis, before, extent), [gradient])?;
            }
        }
        Ok(vec![Some(gradient)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_numpy() {
        let x = Array::new([1, 3], vec![1.0, 2.0, 3.0]).unwrap();
        let padded = |mode| {
            let pad = Pad {
                before: vec![0, 2],
                after: vec![0, 1],
                mode,
            };
            pad.eval(&[&x]).unwrap()[0].values().to_vec()
        };
        assert_eq!(padded(PadMode::Constant(9.0)), [9.0, 9.0, 1.0, 2.0, 3.0, 9.0]);
        assert_eq!(padded(PadMode::Reflect), [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]);
        assert_eq!(padded(PadMode::Edge), [1.0, 1.0, 1.0, 2.0, 3.0, 3.0]);
        let too_wide = Pad {
            before: vec![0, 3],
            after: vec![0, 0],
            mode: PadMode::Reflect,
        };
        assert!(too_wide.shapes(&[&[1, 3]]).is_err());
        assert!(too_wide.shapes(&[&[3]]).is_err());
    }
}
