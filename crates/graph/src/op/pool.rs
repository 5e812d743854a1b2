//! Pooling of tokens to one vector per image.

mod attributes;

use std::fmt;

pub use self::attributes::Pool;
use super::operands::{exactly, one};
use super::{
    Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, PoolBackward, Shape, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{AWKWARD, Cases, Scale, activation};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

impl Definition for Pool {
    const NAME: &'static str = "pool";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(index) => write!(f, " token {index}"),
            Self::Mean { skip } => write!(f, " mean of {skip}.."),
            Self::Max { skip } => write!(f, " max of {skip}.."),
        }
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        let [b, n, d] = *x else {
            return Err(OpError::layout("x", x, "[B, N, D]"));
        };
        let wanted = match *self {
            Self::Token(index) => index,
            Self::Mean { skip } | Self::Max { skip } => skip,
        };
        if wanted < n {
            one([b, d])
        } else {
            Err(format!("there is no token {wanted} among {n}").into())
        }
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        let x = operands[0];
        match *self {
            Self::Token(_) => 0,
            Self::Mean { skip } | Self::Max { skip } => (x[0] * (x[1] - skip) * x[2]) as u64,
        }
    }

    fn elements_read(&self, index: usize, operands: &[&[usize]], results: &[Shape]) -> usize {
        match self {
            Self::Token(_) => results[0].iter().product(),
            _ => operands[index].iter().product(),
        }
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let x = operands[0];
        let [batch, n, d] = x.extents();
        let range = self.tokens(n);
        let tokens = T::from_f64(range.len() as f64);
        for b in 0..batch {
            for c in 0..d {
                let channel = range.clone().map(|token| x.values()[(b * n + token) * d + c]);
                results[0].values_mut()[b * d + c] = match self {
                    Self::Max { .. } => channel.fold(T::NEG_INFINITY, T::max),
                    Self::Token(_) | Self::Mean { .. } => channel.sum::<T>() / tokens,
                };
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        match cases.scale() {
            Scale::Model { sizes, .. } => {
                let skip = usize::from(sizes.tokens > 1);
                add(cases, [sizes.batch, sizes.tokens, sizes.channels()], skip);
                if cases.is_micro() {
                    add(cases, [3, 1, 65], 0);
                }
            }
            Scale::Awkward => {
                for a in &AWKWARD {
                    add(cases, [a.batch, a.tokens, a.channels], a.tokens / 2);
                }
                add(cases, [3, 1, 256], 0);
            }
            Scale::Heads => {}
        }
    }

    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let Self::Mean { skip } = *self else {
            return 0.0;
        };
        match operands[0].shape().get(1).map_or(1, |tokens| tokens - skip) {
            1 => 0.0,
            tokens => narrow(dtype) + tolerance(DType::F32, tokens),
        }
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let gradient = only_gradient(gradients)?;
        let d_x = builder.push(PoolBackward(*self), [node.inputs[0], gradient])?;
        Ok(vec![Some(d_x)])
    }
}

fn add(cases: &mut Cases<Pool>, shape: [usize; 3], skip: usize) {
    let pools = [Pool::Token(shape[1] - 1), Pool::Mean { skip }, Pool::Max { skip }];
    for pool in pools {
        cases.push(pool, vec![activation(&shape)]);
    }
}
