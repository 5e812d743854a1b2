//! Maxima of sliding windows over images, channels last.

use std::fmt;

use super::operands::{count, exactly, one};
use super::windows::{Windows, checked};
use super::{
    Definition, Gradients, GraphBuilder, Locality, MaxPoolBackward, NodeValues, OpError, Shape, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, Scale, activation, image_size};
use crate::dtype::DType;
use crate::value::ValueId;

/// `(x [B,H,W,C]) → [B,h,w,C]`: maximum of each window. Elements in the padding do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxPool {
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
}

impl MaxPool {
    /// Returns the windows along height and width.
    pub fn windows(&self) -> [Windows; 2] {
        Windows::of(self.kernel, self.stride, self.dilation, self.padding)
    }
}

impl Definition for MaxPool {
    const NAME: &'static str = "max_pool";

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
        let windows = self.windows();
        for_each_window(windows, operands[0], &mut results[0], |_, elements, y| {
            *y = elements.fold(T::NEG_INFINITY, |most, x| if x > most { x } else { most });
        });
    }

    fn cases(cases: &mut Cases<Self>) {
        for (pool, size) in of_cases(cases.scale()) {
            cases.push(pool, vec![activation(&size)]);
        }
    }

    /// Elements are moved.
    fn tolerance(&self, _index: usize, _operands: &[&Array], _dtype: DType) -> f64 {
        0.0
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let operands = [node.inputs[0], only_gradient(gradients)?];
        Ok(vec![Some(builder.push(MaxPoolBackward(*self), operands)?)])
    }
}

pub(super) fn fmt_windows(
    f: &mut fmt::Formatter<'_>,
    [height, width]: [usize; 2],
    [down, across]: [usize; 2],
) -> fmt::Result {
    write!(f, " {height}×{width} /{down}×{across}")
}

pub(super) fn shapes(
    operands: &[&[usize]],
    [rows, columns]: [Windows; 2],
    ceil: bool,
) -> Result<Vec<Shape>, OpError> {
    let [x] = exactly(operands)?;
    let [batch, height, width, channels] = *x else {
        return Err(OpError::layout("x", x, "[B, H, W, C]"));
    };
    rows.check_pool()?;
    columns.check_pool()?;
    let (height, width) = (rows.count(height, ceil)?, columns.count(width, ceil)?);
    one(checked([batch, height, width, channels])?)
}

/// Calls `f([row, column], elements, y)` for each element y of the result, with the elements of x in its window.
pub(super) fn for_each_window<T: Real>(
    [rows, columns]: [Windows; 2],
    x: &Array<T>,
    y: &mut Array<T>,
    f: impl Fn([usize; 2], &mut dyn Iterator<Item = T>, &mut T),
) {
    let [_, height, width, channels] = x.extents();
    let [_, down, across, _] = y.extents();
    let x = x.values();
    for (index, y) in y.values_mut().iter_mut().enumerate() {
        let (pixel, channel) = (index / channels, index % channels);
        let (row, column) = (pixel / across % down, pixel % across);
        let image = pixel / across / down * height;
        let mut elements = (0..rows.kernel)
            .filter_map(|tap| rows.at(row, tap, height))
            .flat_map(|row| {
                let taps = (0..columns.kernel).filter_map(|tap| columns.at(column, tap, width));
                taps.map(move |column| x[((image + row) * width + column) * channels + channel])
            });
        f([row, column], &mut elements, y);
    }
}

/// Returns pools with shapes of x.
pub(super) fn of_cases(scale: Scale) -> Vec<(MaxPool, [usize; 4])> {
    let three = MaxPool {
        kernel: [3; 2],
        stride: [2; 2],
        dilation: [1; 2],
        padding: [[1; 2]; 2],
        ceil: false,
    };
    match scale {
        Scale::Model { sizes, .. } => {
            let [height, width] = image_size(sizes.tokens, [1, 1], 0);
            vec![(three, [sizes.batch, height, width, sizes.channels()])]
        }
        Scale::Awkward => {
            let two = MaxPool {
                kernel: [2; 2],
                padding: [[0; 2]; 2],
                ..three
            };
            let ceil = MaxPool { ceil: true, ..two };
            let dilated = MaxPool {
                kernel: [2, 3],
                stride: [1, 3],
                dilation: [3, 2],
                padding: [[2, 1], [0, 3]],
                ceil: true,
            };
            vec![
                (three, [3, 9, 12, 33]),
                (two, [1, 7, 4, 1]),
                (ceil, [2, 7, 5, 16]),
                (dilated, [2, 9, 8, 65]),
            ]
        }
        Scale::Heads => Vec::new(),
    }
}
