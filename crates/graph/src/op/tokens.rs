//! Assembly of class, register and patch tokens.

use std::fmt;

use super::operands::{Rest, count, expect, one};
use super::{
    Add, Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape, Slice, only_gradient,
    prepend,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, parameter};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// Assembles tokens in one step: `(x [B,N,D], prefix [1,P,D]?, position [1,N,D]?) → [B,P+N,D]`. Adds the position table to x, and copies
/// the prefix before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// True if the operand `prefix` exists.
    pub prefix: bool,
    /// True if the operand `position` exists.
    pub position: bool,
}

impl Definition for Tokens {
    const NAME: &'static str = "tokens";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.prefix { "+prefix" } else { "" })?;
        f.write_str(if self.position { "+position" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let mut rest = Rest::new(operands);
        let x = rest.required("x")?;
        let prefix = rest.optional(self.prefix, "prefix")?;
        let position = rest.optional(self.position, "position")?;
        rest.finish()?;
        let [b, n, d] = *x else {
            return Err(OpError::layout("x", x, "[B, N, D]"));
        };
        if let Some(position) = position {
            expect("position", position, &[1, n, d])?;
        }
        match prefix {
            None => one([b, n, d]),
            Some(&[1, p, channels]) if channels == d => one([b, p + n, d]),
            Some(prefix) => Err(OpError::layout("`prefix`", prefix, format!("[1, P, {d}]"))),
        }
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        count(operands[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let mut x = operands[0].clone();
        if self.position {
            Add.compute(
                &[operands[0], operands[operands.len() - 1]],
                std::slice::from_mut(&mut x),
            );
        }
        let prefixes = if self.prefix { &operands[1..2] } else { &[] };
        prepend::join(prefixes, &x, &mut results[0]);
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            for (with_prefix, with_position) in [(true, true), (true, false), (false, true)] {
                let op = Self {
                    prefix: with_prefix,
                    position: with_position,
                };
                let x = activation(&[batch, tokens, channels]);
                let prefix = with_prefix.then(|| parameter(&[1, 5, channels]));
                let position = with_position.then(|| parameter(&[1, tokens, channels]));
                let operands = [Some(x), prefix, position];
                cases.push(op, operands.into_iter().flatten().collect());
            }
        });
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        if self.position {
            narrow(dtype) + tolerance(DType::F32, 1)
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
        let gradient = only_gradient(gradients)?;
        let (mut d_x, mut rest) = (gradient, Vec::new());
        if self.prefix {
            let [n, p] = [0, 1].map(|index: usize| builder.shape(node.inputs[index])[1]);
            let mut part = |start, len| builder.push(Slice::new(1, start, len), [gradient]);
            d_x = part(p, n)?;
            let d_prefix = part(0, p)?;
            rest.push(Some(builder.sum_to_size(d_prefix, node.inputs[1])?));
        }
        if self.position {
            rest.push(Some(
                builder.sum_to_size(d_x, node.inputs[node.inputs.len() - 1])?,
            ));
        }
        Ok(std::iter::once(Some(d_x)).chain(rest).collect())
    }
}
