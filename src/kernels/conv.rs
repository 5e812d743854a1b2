//! `conv_patches`, `direct_conv` and `conv_transpose_sum`: convolutions of images, channels last.

mod builtin;
pub(crate) mod call;
mod lower;

use std::borrow::Cow;

use hipvit_graph::op::Windows;

use super::bindings::{
    ConvPatchesArgs, ConvTransposeSumArgs, DirectConvArgs, ELEMENTWISE_THREADS, WindowGeometry,
};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent, optional};
pub(crate) use lower::{conv_units, has_group_gemm};

impl WindowGeometry {
    /// Creates the geometry of windows over `x` `[images, height, width, channels]` that make `[rows, columns]` pixels.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn new(
        x: &[usize],
        [rows, columns]: [usize; 2],
        [down, across]: [Windows; 2],
    ) -> Result<Self, KernelError> {
        let &[images, height, width, channels] = x else {
            return Err("takes images".into());
        };
        let pair =
            |of: fn(&Windows) -> usize| Ok::<_, KernelError>([extent(of(&down))?, extent(of(&across))?]);
        Ok(Self {
            images: extent(images)?,
            height: extent(height)?,
            width: extent(width)?,
            channels: extent(channels)?,
            rows: extent(rows)?,
            columns: extent(columns)?,
            kernel: pair(|windows| windows.kernel)?,
            stride: pair(|windows| windows.stride)?,
            dilation: pair(|windows| windows.dilation)?,
            before: pair(|windows| windows.padding[0])?,
        })
    }

    /// Returns the elements of a window.
    pub(crate) fn taps(&self) -> u64 {
        u64::from(self.kernel[0]) * u64::from(self.kernel[1])
    }

    /// Returns the pixels of the result.
    pub(crate) fn pixels(&self) -> u64 {
        u64::from(self.images) * u64::from(self.rows) * u64::from(self.columns)
    }

    /// Checks what the kernels divide by, and that positions in the padded image fit 32 bits.
    pub(super) fn check(&self) -> Result<(), KernelError> {
        let extents = [self.height, self.width, self.channels, self.rows, self.columns];
        let windows = [self.kernel, self.stride, self.dilation];
        if extents.contains(&0) || windows.as_flattened().contains(&0) {
            return Err("has no pixels, channels, or elements of windows".into());
        }
        for axis in 0..2 {
            let [result, image] = [[self.rows, self.columns][axis], [self.height, self.width][axis]];
            let last = u64::from(result) * u64::from(self.stride[axis])
                + u64::from(self.kernel[axis]) * u64::from(self.dilation[axis])
                + u64::from(self.before[axis])
                + u64::from(image);
            if last >= u64::from(u32::MAX) {
                return Err(KernelError::Extent(last as usize));
            }
        }
        Ok(())
    }

    /// Returns the bytes of x.
    pub(super) fn bytes_of_x(&self, element: usize) -> usize {
        bytes(element, &[self.images, self.height, self.width, self.channels])
    }

    /// Returns the bytes of a result with this number of channels.
    pub(super) fn bytes_of_result(&self, element: usize, channels: u32) -> usize {
        bytes(element, &[self.images, self.rows, self.columns, channels])
    }
}

/// Checks that `groups` divides the channels of x and of the result.
fn check_groups(windows: &WindowGeometry, groups: u32, features: u32) -> Result<(), KernelError> {
    let divides = |channels: u32| groups != 0 && channels != 0 && channels.is_multiple_of(groups);
    if divides(windows.channels) && divides(features) {
        return Ok(());
    }
    Err(format!(
        "{groups} groups do not divide {} channels into {features}",
        windows.channels
    )
    .into())
}

// SAFETY: see hip/conv.hip. Threads beyond the last row return.
unsafe impl KernelArguments for ConvPatchesArgs {
    const FILE: &'static str = "conv";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("conv_patches".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        self.windows.check()?;
        check_groups(&self.windows, self.groups, self.groups)?;
        let vectors = u64::from(self.windows.channels / self.groups).div_ceil(target.vec128());
        let rows = self.windows.pixels().saturating_mul(self.groups.into());
        let threads = rows.saturating_mul(self.windows.taps().saturating_mul(vectors));
        target.threads(threads, ELEMENTWISE_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let WindowGeometry { kernel, channels, .. } = self.windows;
        let row = bytes(element, &[kernel[0], kernel[1], channels]);
        visit(Access::read("x", self.x, self.windows.bytes_of_x(element)));
        visit(Access::write(
            "out",
            self.out,
            self.windows.bytes_of_result(row, 1),
        ));
    }
}

/// Visits the operands of a convolution with `features` channels of the result.
pub(super) fn visit(
    [x, weight, bias, residual, out]: [DeviceAddress; 5],
    windows: &WindowGeometry,
    weight_bytes: usize,
    features: u32,
    element: usize,
    visit: &mut dyn FnMut(Access),
) {
    let all = windows.bytes_of_result(element, features);
    visit(Access::read("x", x, windows.bytes_of_x(element)));
    visit(Access::read("weight", weight, weight_bytes));
    visit(optional(Access::read("bias", bias, bytes(element, &[features]))));
    visit(optional(Access::read("residual", residual, all)));
    visit(Access::write("out", out, all));
}

// SAFETY: see hip/conv.hip. Threads beyond the last pixel return.
unsafe impl KernelArguments for DirectConvArgs {
    const FILE: &'static str = "conv";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("direct_conv".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        self.windows.check()?;
        check_groups(&self.windows, self.groups, self.features)?;
        let elements = self.windows.pixels().saturating_mul(self.features.into());
        target.threads(elements, ELEMENTWISE_THREADS)
    }

    fn accesses(&self, element: usize, visitor: &mut dyn FnMut(Access)) {
        let WindowGeometry { kernel, channels, .. } = self.windows;
        let depth = channels.checked_div(self.groups).unwrap_or(0);
        let weight = bytes(element, &[self.features, kernel[0], kernel[1], depth]);
        let operands = [self.x, self.weight, self.bias, self.residual, self.out];
        visit(operands, &self.windows, weight, self.features, element, visitor);
    }
}

// SAFETY: see hip/conv.hip. Threads beyond the last pixel return.
unsafe impl KernelArguments for ConvTransposeSumArgs {
    const FILE: &'static str = "conv";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("conv_transpose_sum".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        self.windows.check()?;
        let elements = self.windows.pixels().saturating_mul(self.windows.channels.into());
        target.threads(elements, ELEMENTWISE_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let WindowGeometry { kernel, channels, .. } = self.windows;
        let products = self.windows.bytes_of_x(bytes(element, &kernel));
        visit(Access::read("products", self.products, products));
        visit(optional(Access::read(
            "bias",
            self.bias,
            bytes(element, &[channels]),
        )));
        visit(Access::write(
            "out",
            self.out,
            self.windows.bytes_of_result(element, channels),
        ));
    }
}
