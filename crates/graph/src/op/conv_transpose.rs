//! Transposed convolution of images, channels last.

use std::fmt;

use super::conv::check_groups;
use super::operands::{Rest, expect, one};
use super::window_gradients::{WindowAttributes, cut, of_weight, refuse_groups, sides, swapped};
use super::windows::{Convolution, Windows, checked};
use super::{Conv, Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape, only_gradient};
use crate::array::{Array, Real};
use crate::cases::{Cases, Scale, activation, image_size, parameter};
use crate::dtype::DType;
use crate::tolerance::tolerance;
use crate::value::ValueId;

/// Transposed convolution `(x [B,H,W,C], weight [K,kh,kw,C/groups], bias [K]?) → [B,h,w,K]` with
/// `h = (H − 1)·stride − top − bottom + (kh − 1)·dilation + 1 + output_padding`. Element `(i, t)` of x and the kernel contributes to
/// element `i·stride + t·dilation − top` of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvTranspose {
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
    /// Distance of the pixels of x in the result, down and across.
    pub stride: [usize; 2],
    /// Distance of the kernel's elements, down and across.
    pub dilation: [usize; 2],
    /// Rows and columns that the result lacks: `[[top, bottom], [left, right]]`.
    pub padding: [[usize; 2]; 2],
    /// Rows and columns that the result has more at the bottom and at the right.
    pub output_padding: [usize; 2],
    /// Number of groups of channels.
    pub groups: usize,
    /// True if the operand `bias` exists.
    pub bias: bool,
}

impl ConvTranspose {
    /// Returns a transposed convolution of one group with stride and dilation 1, and without padding and bias.
    pub const fn new(kernel: [usize; 2]) -> Self {
        Self {
            kernel,
            stride: [1; 2],
            dilation: [1; 2],
            padding: [[0; 2]; 2],
            output_padding: [0; 2],
            groups: 1,
            bias: false,
        }
    }

    /// Returns the windows along height and width.
    pub fn windows(&self) -> [Windows; 2] {
        Windows::of(self.kernel, self.stride, self.dilation, self.padding)
    }
}

impl Definition for ConvTranspose {
    const NAME: &'static str = "conv_transpose";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([height, width], [down, across]) = (self.kernel, self.stride);
        write!(f, " {height}×{width} ·{down}×{across}")?;
        if self.groups != 1 {
            write!(f, " in {} groups", self.groups)?;
        }
        f.write_str(if self.bias { "+bias" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let mut rest = Rest::new(operands);
        let x = rest.required("x")?;
        let weight = rest.required("weight")?;
        let bias = rest.optional(self.bias, "bias")?;
        rest.finish()?;
        let [batch, height, width, channels] = *x else {
            return Err(OpError::layout("x", x, "[B, H, W, C]"));
        };
        let [features, ..] = *weight else {
            return Err("weight is a scalar".into());
        };
        check_groups(self.groups, channels, features)?;
        let [down, across] = self.kernel;
        expect(
            "weight",
            weight,
            &[features, down, across, channels / self.groups],
        )?;
        if let Some(bias) = bias {
            expect("bias", bias, &[features])?;
        }
        let [rows, columns] = self.windows();
        let [more_rows, more_columns] = self.output_padding;
        one(checked([
            batch,
            rows.transposed(height, more_rows)?,
            columns.transposed(width, more_columns)?,
            features,
        ])?)
    }

    fn flops(&self, operands: &[&[usize]], results: &[Shape]) -> u64 {
        let products: u64 = operands[0].iter().map(|&extent| extent as u64).product();
        let of_pixel: u64 = operands[1][..3].iter().map(|&extent| extent as u64).product();
        let bias = u64::from(self.bias) * results[0].iter().map(|&extent| extent as u64).product::<u64>();
        2 * products * of_pixel / self.groups as u64 + bias
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let windows = self.windows();
        let convolution = Convolution {
            kernel: self.kernel,
            groups: self.groups,
            at: |axis: usize, index, tap, extent| windows[axis].transposed_at(index, tap, extent),
        };
        let bias = self.bias.then(|| operands[2].values());
        let finish = |_, y: &mut [T]| {
            if let Some(bias) = bias {
                y.iter_mut().zip(bias).for_each(|(y, &bias)| *y += bias);
            }
        };
        convolution.compute(operands[0], operands[1], &mut results[0], finish);
    }

    fn cases(cases: &mut Cases<Self>) {
        let twice = Self {
            stride: [2; 2],
            bias: true,
            ..Self::new([2, 2])
        };
        match cases.scale() {
            Scale::Model { sizes, .. } => {
                let image = (sizes.batch, image_size(sizes.tokens, [1, 1], 0));
                add(cases, twice, image, [sizes.channels(), sizes.head_dim]);
                if cases.is_micro() {
                    add(cases, Self { bias: false, ..twice }, image, [8, 8]);
                }
            }
            Scale::Awkward => {
                let odd = Self {
                    stride: [2, 3],
                    dilation: [1, 2],
                    padding: [[1, 0], [2, 1]],
                    output_padding: [1, 0],
                    bias: true,
                    ..Self::new([3, 4])
                };
                let grouped = Self {
                    groups: 3,
                    bias: false,
                    padding: [[0; 2]; 2],
                    ..odd
                };
                for batch in [1, 3] {
                    add(cases, twice, (batch, [5, 7]), [33, 17]);
                    add(cases, odd, (batch, [4, 5]), [17, 10]);
                    add(cases, grouped, (batch, [3, 1]), [6, 15]);
                }
            }
            Scale::Heads => {}
        }
    }

    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        tolerance(dtype, operands[1].shape().iter().skip(1).product())
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        refuse_groups(self.groups)?;
        let gradient = only_gradient(gradients)?;
        let (x, weight) = (node.inputs[0], node.inputs[1]);
        let windows = WindowAttributes {
            kernel: self.kernel,
            stride: self.stride,
            dilation: self.dilation,
            padding: self.padding,
        };
        let d_weight = of_weight(builder, [gradient, x], windows)?;
        let d_bias = if self.bias {
            Some(builder.sum_to_size(gradient, node.inputs[2])?)
        } else {
            None
        };
        let conv = Conv {
            stride: self.stride,
            dilation: self.dilation,
            padding: self.padding,
            ..Conv::new(self.kernel)
        };
        let weight = swapped(builder, weight)?;
        let d_x = builder.push(conv, [gradient, weight])?;
        // More rows than those of x are of output padding.
        let extents = sides(builder, x)?;
        let mut gradients = vec![Some(cut(builder, d_x, extents)?), Some(d_weight)];
        gradients.extend(d_bias.map(Some));
        Ok(gradients)
    }
}

fn add(
    cases: &mut Cases<ConvTranspose>,
    conv: ConvTranspose,
    (batch, size): (usize, [usize; 2]),
    [channels, features]: [usize; 2],
) {
    let x = [batch, size[0], size[1], channels];
    let weight = [features, conv.kernel[0], conv.kernel[1], channels / conv.groups];
    let mut operands = vec![activation(&x), parameter(&weight)];
    operands.extend(conv.bias.then(|| parameter(&[features])));
    cases.push(conv, operands);
}
