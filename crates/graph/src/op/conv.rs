//! Convolution of images, channels last.

use std::fmt;

use super::operands::{Rest, count, expect, matmul_flops, one};
use super::window_gradients::{WindowAttributes, of_weight, refuse_groups, sides, swapped};
use super::windows::{Convolution, Windows, checked};
use super::{
    Activation, ActivationBackward, ConvTranspose, Definition, Gradients, GraphBuilder, Locality, NodeValues,
    OpError, Shape, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, Scale, activation, image_size, parameter};
use crate::dtype::DType;
use crate::tolerance::tolerance;
use crate::value::ValueId;

/// Convolution `(x [B,H,W,C], weight [K,kh,kw,C/groups], bias [K]?, residual [B,h,w,K]?) → activation(x ∗ weight + bias) + residual`.
/// Input channels of group g contribute to the output channels of group g only. Padding is zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv {
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
    /// Distance of windows, down and across.
    pub stride: [usize; 2],
    /// Distance of a window's elements, down and across.
    pub dilation: [usize; 2],
    /// Zeros around the image: `[[top, bottom], [left, right]]`.
    pub padding: [[usize; 2]; 2],
    /// Number of groups of channels.
    pub groups: usize,
    /// True if the operand `bias` exists.
    pub bias: bool,
    /// Activation applied after the bias.
    pub activation: Option<Activation>,
    /// True if the operand `residual`, added last, exists.
    pub residual: bool,
}

impl Conv {
    /// Returns a convolution of one group with stride and dilation 1, and without padding and bias.
    pub const fn new(kernel: [usize; 2]) -> Self {
        Self {
            kernel,
            stride: [1; 2],
            dilation: [1; 2],
            padding: [[0; 2]; 2],
            groups: 1,
            bias: false,
            activation: None,
            residual: false,
        }
    }

    /// Returns true if each pixel of the result depends on the same pixel of x only, and on all of its channels.
    pub fn is_pointwise(&self) -> bool {
        self.kernel == [1; 2] && self.stride == [1; 2] && self.padding == [[0; 2]; 2] && self.groups == 1
    }

    /// Returns the windows along height and width.
    pub fn windows(&self) -> [Windows; 2] {
        Windows::of(self.kernel, self.stride, self.dilation, self.padding)
    }
}

impl Definition for Conv {
    const NAME: &'static str = "conv";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [height, width] = self.kernel;
        write!(f, " {height}×{width}")?;
        if self.stride != [1; 2] {
            write!(f, " /{}×{}", self.stride[0], self.stride[1])?;
        }
        if self.dilation != [1; 2] {
            write!(f, " dilated {}×{}", self.dilation[0], self.dilation[1])?;
        }
        if self.groups != 1 {
            write!(f, " in {} groups", self.groups)?;
        }
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
        let result = [
            batch,
            rows.count(height, false)?,
            columns.count(width, false)?,
            features,
        ];
        if let Some(residual) = residual {
            expect("residual", residual, &result)?;
        }
        one(checked(result)?)
    }

    fn flops(&self, operands: &[&[usize]], results: &[Shape]) -> u64 {
        let activation = self.activation.map_or(0, Activation::flops_per_element);
        let per_element = activation + u64::from(self.residual);
        let length = operands[1][1..].iter().product();
        matmul_flops(&results[0], length, self.bias) + per_element * count(&results[0])
    }

    fn may_alias(&self) -> Option<usize> {
        self.residual.then_some(2 + usize::from(self.bias))
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let windows = self.windows();
        let convolution = Convolution {
            kernel: self.kernel,
            groups: self.groups,
            at: |axis: usize, index, tap, extent| windows[axis].at(index, tap, extent),
        };
        let bias = self.bias.then(|| operands[2].values());
        let residual = self.residual.then(|| operands[operands.len() - 1].values());
        let finish = |pixel: usize, y: &mut [T]| {
            let features = y.len();
            for (j, y) in y.iter_mut().enumerate() {
                let sum = *y + bias.map_or(T::ZERO, |bias| bias[j]);
                let active = self.activation.map_or(sum, |activation| activation.apply(sum));
                *y = active + residual.map_or(T::ZERO, |residual| residual[pixel * features + j]);
            }
        };
        convolution.compute(operands[0], operands[1], &mut results[0], finish);
    }

    fn cases(cases: &mut Cases<Self>) {
        let three = Self {
            padding: [[1; 2]; 2],
            bias: true,
            ..Self::new([3, 3])
        };
        match cases.scale() {
            Scale::Model { sizes, every_form } => {
                let image = (sizes.batch, image_size(sizes.tokens, [1, 1], 0));
                let channels = sizes.channels();
                let depthwise = Self {
                    groups: channels,
                    ..three
                };
                add(cases, three, image, [channels, channels], false);
                add(cases, depthwise, image, [channels, channels], false);
                let relu = Self {
                    stride: [2; 2],
                    activation: Some(Activation::Relu),
                    ..three
                };
                add(cases, relu, image, [3, channels], false);
                if every_form {
                    let residual = Self {
                        residual: true,
                        ..three
                    };
                    add(cases, residual, image, [channels, channels], true);
                    let grouped = Self {
                        groups: channels / 16,
                        ..three
                    };
                    add(cases, grouped, image, [channels, channels], false);
                }
            }
            Scale::Awkward => {
                for (conv, size, channels) in awkward() {
                    for batch in [1, 3] {
                        add(cases, conv, (batch, size), channels, false);
                    }
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
        let mut inner = gradient;
        if let Some(activation) = self.activation {
            let before = Self {
                activation: None,
                residual: false,
                ..*self
            };
            let before = builder.push(before, &node.inputs[..2 + usize::from(self.bias)])?;
            let backward = ActivationBackward {
                activation,
                secant: false,
                sums: false,
            };
            inner = builder.push(backward, [before, gradient])?;
        }
        // The gradient of the weight comes first, so that x need not live beside its gradient.
        let windows = WindowAttributes {
            kernel: self.kernel,
            stride: self.stride,
            dilation: self.dilation,
            padding: self.padding,
        };
        let d_weight = of_weight(builder, [x, inner], windows)?;
        let d_weight = swapped(builder, d_weight)?;
        let d_bias = if self.bias {
            Some(builder.sum_to_size(inner, node.inputs[2])?)
        } else {
            None
        };
        let transposed = ConvTranspose {
            stride: self.stride,
            dilation: self.dilation,
            padding: self.padding,
            ..ConvTranspose::new(self.kernel)
        };
        let (extents, results) = (sides(builder, x)?, sides(builder, inner)?);
        let mut output_padding = [0; 2];
        for (axis, windows) in transposed.windows().into_iter().enumerate() {
            // Pixels of x after the last window.
            output_padding[axis] = extents[axis] - windows.transposed(results[axis], 0)?;
        }
        let weight = swapped(builder, weight)?;
        let transposed = ConvTranspose {
            output_padding,
            ..transposed
        };
        let d_x = builder.push(transposed, [inner, weight])?;
        let mut gradients = vec![Some(d_x), Some(d_weight)];
        gradients.extend(d_bias.map(Some));
        gradients.extend(self.residual.then_some(Some(gradient)));
        Ok(gradients)
    }
}

/// Checks that `groups` divides the channels of x and the result.
pub(super) fn check_groups(groups: usize, channels: usize, features: usize) -> Result<(), OpError> {
    if groups != 0
        && channels.is_multiple_of(groups)
        && features.is_multiple_of(groups)
        && channels != 0
        && features != 0
    {
        return Ok(());
    }
    Err(format!("has {groups} groups, which do not divide {channels} channels into {features}").into())
}

/// Convolutions with the height and width of x, and its channels and those of the result: even and odd kernels, strides beyond the kernel,
/// dilation, padding at one side only, kernels that are larger than the image, groups of each kind.
fn awkward() -> Vec<(Conv, [usize; 2], [usize; 2])> {
    let conv = Conv::new;
    vec![
        (conv([1, 1]), [7, 5], [33, 65]),
        (
            Conv {
                stride: [2; 2],
                bias: true,
                ..conv([1, 1])
            },
            [8, 9],
            [16, 24],
        ),
        (
            Conv {
                stride: [2, 2],
                padding: [[3; 2]; 2],
                bias: true,
                activation: Some(Activation::Relu),
                ..conv([7, 7])
            },
            [15, 18],
            [3, 16],
        ),
        (
            Conv {
                padding: [[1, 0], [0, 2]],
                activation: Some(Activation::GeluErf),
                ..conv([2, 4])
            },
            [5, 6],
            [5, 7],
        ),
        (
            Conv {
                dilation: [2, 3],
                padding: [[2; 2], [3; 2]],
                bias: true,
                residual: true,
                ..conv([3, 3])
            },
            [9, 10],
            [17, 17],
        ),
        (
            Conv {
                stride: [3, 4],
                groups: 4,
                bias: true,
                activation: Some(Activation::Silu),
                ..conv([2, 3])
            },
            [9, 12],
            [20, 12],
        ),
        (
            Conv {
                padding: [[3; 2]; 2],
                groups: 33,
                bias: true,
                ..conv([7, 7])
            },
            [3, 4],
            [33, 33],
        ),
        // Depthwise, with two features for each channel.
        (
            Conv {
                stride: [2, 1],
                padding: [[1; 2], [2; 2]],
                groups: 40,
                residual: true,
                activation: Some(Activation::Silu),
                ..conv([3, 5])
            },
            [11, 13],
            [40, 80],
        ),
        // Square kernels of depthwise convolutions of even channels, for which GPUs have kernels: images that are no multiple of their tiles.
        (
            Conv {
                padding: [[3; 2]; 2],
                groups: 34,
                bias: true,
                ..conv([7, 7])
            },
            [9, 15],
            [34, 34],
        ),
        (
            Conv {
                padding: [[1, 0], [0, 2]],
                groups: 70,
                residual: true,
                activation: Some(Activation::Relu),
                ..conv([3, 3])
            },
            [7, 8],
            [70, 70],
        ),
        (
            Conv {
                stride: [2; 2],
                padding: [[2; 2]; 2],
                groups: 36,
                bias: true,
                residual: true,
                activation: Some(Activation::GeluErf),
                ..conv([5, 5])
            },
            [11, 13],
            [36, 36],
        ),
        // One dimension.
        (
            Conv {
                padding: [[0; 2], [4; 2]],
                groups: 2,
                bias: true,
                ..conv([1, 9])
            },
            [1, 50],
            [48, 32],
        ),
    ]
}

fn add(
    cases: &mut Cases<Conv>,
    conv: Conv,
    (batch, size): (usize, [usize; 2]),
    [channels, features]: [usize; 2],
    in_arena: bool,
) {
    let x = [batch, size[0], size[1], channels];
    let weight = [features, conv.kernel[0], conv.kernel[1], channels / conv.groups];
    let mut operands = vec![activation(&x), parameter(&weight)];
    operands.extend(conv.bias.then(|| parameter(&[features])));
    if conv.residual {
        let [rows, columns] = conv.windows();
        let extents = rows
            .count(size[0], false)
            .ok()
            .zip(columns.count(size[1], false).ok());
        operands.extend(extents.map(|(rows, columns)| activation(&[batch, rows, columns, features])));
    }
    if in_arena {
        cases.push_in_arena(conv, operands);
    } else {
        cases.push(conv, operands);
    }
}
