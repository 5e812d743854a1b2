//! Means of sliding windows over images, channels last.

use std::fmt;

use super::max_pool::{fmt_windows, for_each_window, shapes};
use super::operands::count;
use super::windows::Windows;
use super::{
    Coordinates, Definition, Gradients, GraphBuilder, Interpolate, InterpolationKernel, Locality, MulScalar,
    NearestRounding, NodeValues, OpError, Shape, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, Scale, activation, image_size};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// `(x [B,H,W,C]) → [B,h,w,C]`: mean of each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AveragePool {
    /// Height and width of a window.
    pub kernel: [usize; 2],
    /// Distance of windows, down and across.
    pub stride: [usize; 2],
    /// Distance of a window's elements, down and across.
    pub dilation: [usize; 2],
    /// Padding: `[[top, bottom], [left, right]]`.
    pub padding: [[usize; 2]; 2],
    /// True if the last window may end behind the padding. A window that starts behind the image is left out.
    pub ceil: bool,
    /// True if zeros in the padding count as elements of a window. Elements behind the padding never count.
    pub count_padding: bool,
}

impl AveragePool {
    /// Returns the windows along height and width.
    pub fn windows(&self) -> [Windows; 2] {
        Windows::of(self.kernel, self.stride, self.dilation, self.padding)
    }

    /// Returns the number of elements that count along `axis`, for window `index` over `extent` elements.
    pub fn counted(&self, axis: usize, index: usize, extent: usize) -> usize {
        let [before, after] = self.padding[axis];
        let counts = |tap: &usize| {
            let at = index * self.stride[axis] + tap * self.dilation[axis];
            let end = extent + before + if self.count_padding { after } else { 0 };
            at < end && (self.count_padding || at >= before)
        };
        (0..self.kernel[axis]).filter(counts).count()
    }
}

impl Definition for AveragePool {
    const NAME: &'static str = "average_pool";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_windows(f, self.kernel, self.stride)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        shapes(operands, self.windows(), self.ceil)
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        count(&results[0]) * count(&self.kernel)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [_, height, width, _] = operands[0].extents();
        let y = &mut results[0];
        for_each_window(self.windows(), operands[0], y, |[row, column], elements, y| {
            let counted = self.counted(0, row, height) * self.counted(1, column, width);
            *y = elements.sum::<T>() / T::from_f64(counted as f64);
        });
    }

    fn cases(cases: &mut Cases<Self>) {
        for (pool, size) in of_cases(cases.scale()) {
            cases.push(pool, vec![activation(&size)]);
        }
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        narrow(dtype) + tolerance(DType::F32, self.kernel.iter().product())
    }

    /// Only for windows that divide the image: each element of the gradient is repeated.
    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let x = builder.shape(node.inputs[0]);
        let size = [x[1], x[2]];
        let divides = |(extent, kernel): (&usize, &usize)| extent.is_multiple_of(*kernel);
        let is_division = self.kernel == self.stride
            && self.dilation == [1; 2]
            && self.padding == [[0; 2]; 2]
            && size.iter().zip(&self.kernel).all(divides);
        if !is_division {
            let reason =
                format!("means of windows that do not divide an image of {size:?} have no derivative");
            return Err(OpError::derivative(reason));
        }
        let repeat = Interpolate {
            size,
            scale: None,
            kernel: InterpolationKernel::Nearest(NearestRounding::Floor),
            coordinates: Coordinates::Asymmetric,
            antialias: false,
            exclude_outside: false,
        };
        let area = self.kernel.iter().product::<usize>();
        let share = builder.push(MulScalar(1.0 / area as f32), [only_gradient(gradients)?])?;
        Ok(vec![Some(builder.push(repeat, [share])?)])
    }
}

/// Returns pools with shapes of x.
fn of_cases(scale: Scale) -> Vec<(AveragePool, [usize; 4])> {
    let two = AveragePool {
        kernel: [2; 2],
        stride: [2; 2],
        dilation: [1; 2],
        padding: [[0; 2]; 2],
        ceil: false,
        count_padding: false,
    };
    let three = AveragePool {
        kernel: [3; 2],
        padding: [[1; 2]; 2],
        ..two
    };
    match scale {
        Scale::Model { sizes, .. } => {
            let [height, width] = image_size(sizes.tokens, [1, 1], 0);
            vec![(three, [sizes.batch, height, width, sizes.channels()])]
        }
        Scale::Awkward => {
            let counted = AveragePool {
                count_padding: true,
                ceil: true,
                ..three
            };
            let dilated = AveragePool {
                kernel: [2, 3],
                stride: [1, 3],
                dilation: [3, 2],
                padding: [[2, 1], [0, 3]],
                ceil: true,
                ..two
            };
            vec![
                (two, [1, 7, 4, 1]),
                (three, [3, 9, 12, 33]),
                (AveragePool { ceil: true, ..two }, [2, 7, 5, 16]),
                (counted, [2, 8, 6, 16]),
                (dilated, [2, 9, 8, 65]),
            ]
        }
        Scale::Heads => Vec::new(),
    }
}
