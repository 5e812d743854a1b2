//! Linear layers: a GEMM with an epilogue of bias, activation and residual.

mod attributes;

use std::borrow::Cow;
use std::fmt;

use half::bf16;
use rayon::prelude::*;

pub use self::attributes::Linear;
use super::activation::ACTIVATIONS;
use super::operands::{Rest, count, expect, matmul_flops, one};
use super::{
    Activation, ActivationBackward, Definition, Gradients, GraphBuilder, Locality, MatMul, NodeValues,
    OpError, Shape, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{
    AWKWARD, Cases, Operand, Role, Scale, activation, byte_weight, parameter, sparse_weight, with,
};
use crate::dtype::DType;
use crate::float8::{self, Float8Scale};
use crate::int8::{Int8Grid, RowGrid};
use crate::matmul::{gemm, rows, rows_mut};
use crate::rounding::{Levels, Rounding};
use crate::tolerance::tolerance;
use crate::value::ValueId;

/// Rounds the values to bf16 from f32, as executors do.
fn rounded_bf16<T: Real>(values: &[T]) -> Vec<T> {
    let round = |x: &T| T::from_f32(bf16::from_f32(x.to_f32()).to_f32());
    values.iter().map(round).collect()
}

/// Rounds the row to E4M3 in f32, as executors do.
fn rounded_float8<T: Real>(row: &[T], scale: Float8Scale) -> Vec<T> {
    let row: Vec<f32> = row.iter().map(|x| x.to_f32()).collect();
    let rounded = float8::rounded(&row, row.len(), scale);
    rounded.into_iter().map(T::from_f32).collect()
}

/// Rounds the row to 8 bits in f32, so that the same values are rounded as in executors.
fn rounded_int8<T: Real>(row: &[T], levels: Levels) -> Vec<T> {
    let grid = RowGrid::of(row.iter().map(|x| x.to_f32()), Int8Grid::Activations(levels));
    let scale = T::from_f32(grid.scale);
    row.iter()
        .map(|x| T::from_f32(grid.level(x.to_f32())) * scale)
        .collect()
}

/// Returns the error of FP8 GEMMs on Hopper. Its matrix cores add 32 products at once to sums of 14 bits and truncate the rest. The error
/// is half of 2⁻¹³ each time, always towards 0. <https://arxiv.org/abs/2412.19437>, section 3.3.2
fn float8_accumulation(channels: usize) -> f64 {
    channels.div_ceil(32) as f64 * 2f64.powi(-14)
}

impl Definition for Linear {
    const NAME: &'static str = "linear";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.rounding {
            None => "",
            Some(Rounding::Int8(Levels::Range)) => " int8",
            Some(Rounding::Int8(Levels::Magnitude)) => " int8 symmetric",
            Some(Rounding::Int8(Levels::Fixed { .. })) => " int8 static",
            Some(Rounding::Float8(Float8Scale::Row)) => " fp8 dynamic",
            Some(Rounding::Float8(Float8Scale::Fixed(_))) => " fp8",
            Some(Rounding::Bf16) => " bf16",
        })?;
        f.write_str(if self.bias { "+bias" } else { "" })?;
        self.activation.map_or(Ok(()), |a| write!(f, "+{}", a.name()))?;
        f.write_str(if self.residual { "+residual" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let mut rest = Rest::new(operands);
        let x = rest.required("x")?;
        let weight = rest.required("weight")?;
        let bias = rest.optional(self.bias, "bias")?;
        let residual = rest.optional(self.residual, "residual")?;
        rest.finish()?;
        let Some((&k, outer)) = x.split_last() else {
            return Err("x is a scalar".into());
        };
        let [n, width] = *weight else {
            return Err(OpError::layout("`weight`", weight, format!("[N, {k}]")));
        };
        expect("weight", &[n, width], &[n, k])?;
        if let Some(bias) = bias {
            expect("bias", bias, &[n])?;
        }
        let result: Shape = outer.iter().copied().chain([n]).collect();
        if let Some(residual) = residual {
            expect("residual", residual, &result)?;
        }
        one(result)
    }

    fn flops(&self, operands: &[&[usize]], results: &[Shape]) -> u64 {
        let activation = self.activation.map_or(0, Activation::flops_per_element);
        let per_element = activation + u64::from(self.residual);
        matmul_flops(&results[0], operands[1][1], self.bias) + per_element * count(&results[0])
    }

    fn may_alias(&self) -> Option<usize> {
        self.residual.then_some(2 + usize::from(self.bias))
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows {
            parameters: 1..2 + usize::from(self.bias),
        }
    }

    fn tokenwise(&self) -> Option<Vec<usize>> {
        let residual = self.residual.then_some(2 + usize::from(self.bias));
        Some(std::iter::once(0).chain(residual).collect())
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let (x, weight) = (operands[0].values(), operands[1].values());
        let [n, k] = operands[1].extents();
        let weight = match self.rounding {
            Some(Rounding::Bf16) => rounded_bf16(weight).into(),
            _ => Cow::Borrowed(weight),
        };
        let rounded_rows = |round: &dyn Fn(&[T]) -> Vec<T>| x.chunks(k.max(1)).flat_map(round).collect();
        let x: Cow<'_, [T]> = match self.rounding {
            Some(Rounding::Float8(scale)) => rounded_rows(&|row| rounded_float8(row, scale)),
            Some(Rounding::Int8(levels)) => rounded_rows(&|row| rounded_int8(row, levels)),
            Some(Rounding::Bf16) => rounded_bf16(x).into(),
            None => Cow::Borrowed(x),
        };
        let y = results[0].values_mut();
        gemm(rows(&x, k), rows(&weight, k).reversed_axes(), rows_mut(y, n));
        let bias = self.bias.then(|| operands[2].values());
        let residual = self.residual.then(|| operands[operands.len() - 1].values());
        y.par_chunks_mut(n).enumerate().for_each(|(row, y)| {
            for (j, y) in y.iter_mut().enumerate() {
                let sum = *y + bias.map_or(T::ZERO, |bias| bias[j]);
                let active = self.activation.map_or(sum, |activation| activation.apply(sum));
                *y = active + residual.map_or(T::ZERO, |residual| residual[row * n + j]);
            }
        });
    }

    fn cases(cases: &mut Cases<Self>) {
        match cases.scale() {
            Scale::Model { sizes, every_form } => {
                let (outer, c) = ([sizes.batch, sizes.tokens], sizes.channels());
                let mut add =
                    |spec, [k, n]: [usize; 2], in_arena| linear(cases, &outer, [k, n], spec, in_arena);
                add(PLAIN, [c, c], false);
                add(BIAS, [c, 3 * c], false);
                add(RESIDUAL, [c, c], true);
                add(GELU, [c, 4 * c], false);
                add(RESIDUAL, [4 * c, c], true);
                for (spec, size) in [(BIAS, [c, 3 * c]), (GELU, [c, 4 * c]), (RESIDUAL, [4 * c, c])] {
                    for rounding in [Rounding::Int8(Levels::Range)]
                        .into_iter()
                        .chain(FLOAT8)
                        .chain([Rounding::Bf16])
                        .map(Some)
                    {
                        add(Linear { rounding, ..spec }, size, spec.residual);
                    }
                }
                if every_form {
                    add(RESIDUAL, [c, c], false);
                    let both = Linear {
                        residual: true,
                        ..GELU
                    };
                    add(both, [c, c], true);
                }
                linear(cases, &[sizes.batch], [c, 1000], BIAS, false);
                for (spec, size) in [(BIAS, [c, 3 * c]), (GELU, [c, 4 * c]), (RESIDUAL, [4 * c, c])] {
                    for role in SPARSE {
                        sparse(cases, &outer, size, spec, spec.residual, role);
                    }
                }
            }
            Scale::Awkward => {
                for a in &AWKWARD {
                    for (form, activation) in ACTIVATIONS.into_iter().map(Some).chain([None]).enumerate() {
                        let spec = Linear {
                            bias: form % 2 == 0,
                            activation,
                            residual: form % 3 != 1,
                            rounding: None,
                        };
                        linear(cases, &[a.batch, a.tokens], [a.k, a.n], spec, false);
                        let roundings = LEVELS.map(Rounding::Int8).into_iter().chain(FLOAT8);
                        for rounding in roundings.chain([Rounding::Bf16]).map(Some) {
                            let spec = Linear { rounding, ..spec };
                            linear(cases, &[a.batch, a.tokens], [a.k, a.n], spec, false);
                        }
                        // Multiples that the kernel and the library support.
                        for (multiple, role) in [4, 8].into_iter().zip(SPARSE) {
                            let k = a.k.next_multiple_of(multiple);
                            let n = if multiple == 8 {
                                a.n.next_multiple_of(8)
                            } else {
                                a.n
                            };
                            sparse(cases, &[a.batch, a.tokens], [k, n], spec, spec.residual, role);
                        }
                        // Multiples that FP8 GEMMs of GPUs support.
                        let [k, n] = [a.k, a.n].map(|channels| channels.next_multiple_of(16));
                        for rounding in FLOAT8.map(Some) {
                            let spec = Linear { rounding, ..spec };
                            linear(cases, &[a.batch, a.tokens], [k, n], spec, spec.residual);
                        }
                        if spec.residual {
                            linear(cases, &[a.batch, a.tokens], [a.k, a.n], spec, true);
                        }
                    }
                }
            }
            Scale::Heads => {}
        }
    }

    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let channels = operands[1].shape().iter().skip(1).product();
        let accumulation = match self.rounding {
            Some(Rounding::Float8(_)) if dtype.size() == 2 => float8_accumulation(channels),
            _ => 0.0,
        };
        tolerance(dtype, channels) + accumulation
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        self.vjp_by(builder, node, only_gradient(gradients)?, false)
    }
}

impl Linear {
    /// Computes [`Definition::vjp`], optionally with the [secant](ActivationBackward::secant) as the activation's slope.
    /// Rounding counts as the identity (straight-through estimator). <https://arxiv.org/abs/1308.3432>
    ///
    /// # Errors
    ///
    /// [`OpError`] if the op does not accept the operands' shapes.
    pub fn vjp_by(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradient: ValueId,
        secant: bool,
    ) -> Result<Gradients, OpError> {
        let (x, weight) = (node.inputs[0], node.inputs[1]);
        let mut inner = gradient;
        if let Some(activation) = self.activation {
            let before = Self {
                activation: None,
                residual: false,
                ..*self
            };
            let operands = &node.inputs[..2 + usize::from(self.bias)];
            let before = builder.push(before, operands)?;
            let backward = ActivationBackward {
                activation,
                secant,
                sums: false,
            };
            inner = builder.push(backward, [before, gradient])?;
        }
        // The gradient of the weight comes first, so that x need not live beside its gradient.
        let d_weight = builder.push(MatMul::TRANSPOSED, [inner, x])?;
        let d_bias = if self.bias {
            Some(builder.sum_to_size(inner, node.inputs[2])?)
        } else {
            None
        };
        let d_x = builder.push(MatMul::default(), [inner, weight])?;
        let mut gradients = vec![Some(d_x), Some(d_weight)];
        gradients.extend(d_bias.map(Some));
        gradients.extend(self.residual.then_some(Some(gradient)));
        Ok(gradients)
    }
}

const PLAIN: Linear = Linear {
    bias: false,
    activation: None,
    residual: false,
    rounding: None,
};
const BIAS: Linear = Linear { bias: true, ..PLAIN };
const RESIDUAL: Linear = Linear {
    residual: true,
    ..BIAS
};
const GELU: Linear = Linear {
    activation: Some(Activation::GeluErf),
    ..BIAS
};
/// Levels of activations. Activations are uniform in ±1, norms about that, so some of them are beyond the fixed levels.
pub const LEVELS: [Levels; 3] = [
    Levels::Range,
    Levels::Magnitude,
    Levels::Fixed {
        scale: 0.007,
        zero: 120,
    },
];

/// 448 steps are 0.9, so that some activations are beyond it.
const FLOAT8: [Rounding; 2] = [
    Rounding::Float8(Float8Scale::Fixed(0.002)),
    Rounding::Float8(Float8Scale::Row),
];

/// Adds a case with activations `[outer.., k]` and a weight `[n, k]`.
fn linear(cases: &mut Cases<Linear>, outer: &[usize], extents: [usize; 2], spec: Linear, in_arena: bool) {
    let [k, n] = extents;
    let weight = match spec.rounding {
        None | Some(Rounding::Bf16) => parameter(&[n, k]),
        Some(Rounding::Int8(_)) => byte_weight(&[n, k], DType::I8),
        Some(Rounding::Float8(_)) => byte_weight(&[n, k], DType::F8E4M3),
    };
    of_weight(cases, outer, extents, spec, in_arena, weight);
}

/// Adds a case with a 2:4 sparse weight.
fn sparse(
    cases: &mut Cases<Linear>,
    outer: &[usize],
    extents: [usize; 2],
    spec: Linear,
    in_arena: bool,
    role: Role,
) {
    let [k, n] = extents;
    of_weight(
        cases,
        outer,
        extents,
        spec,
        in_arena,
        sparse_weight(&[n, k], role),
    );
}

/// Forms of a 2:4 sparse weight on a GPU.
const SPARSE: [Role; 2] = [Role::SparseWeight, Role::CompressedWeight];

fn of_weight(
    cases: &mut Cases<Linear>,
    outer: &[usize],
    [k, n]: [usize; 2],
    spec: Linear,
    in_arena: bool,
    weight: Operand,
) {
    let mut operands = vec![activation(&with(outer, k)), weight];
    operands.extend(spec.bias.then(|| parameter(&[n])));
    operands.extend(spec.residual.then(|| activation(&with(outer, n))));
    if in_arena {
        cases.push_in_arena(spec, operands);
    } else {
        cases.push(spec, operands);
    }
}
