//! Convolutions.

use std::fmt;
use std::mem::MaybeUninit;
use std::ptr;

use hipvit_sys::miopen::{
    miopenConvAlgoPerf_t, miopenConvFwdAlgorithm_t, miopenConvolutionDescriptor_t, miopenConvolutionMode_t,
};

use super::Dnn;
use super::descriptor::{Tensor, data_type, int, packed};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::libraries;
use crate::memory::buffer::DeviceBuffer;
use crate::memory::operand::Operand;
use crate::status::call;

/// A convolution without a bias. Image `[batch, channels, height, width]` and filters `[features, channels / groups, kernel]` give
/// `[batch, features, rows, columns]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvolutionShape {
    /// Number of images.
    pub batch: usize,
    /// Channels of an image.
    pub channels: usize,
    /// Height of an image in pixels.
    pub height: usize,
    /// Width of an image in pixels.
    pub width: usize,
    /// Channels of the result.
    pub features: usize,
    /// Height and width of the kernel in pixels.
    pub kernel: [usize; 2],
    /// Distance of windows, down and across.
    pub stride: [usize; 2],
    /// Distance of a window's pixels, down and across.
    pub dilation: [usize; 2],
    /// Zeros above and below the image, and at the left and the right.
    pub padding: [usize; 2],
    /// Number of groups of channels.
    pub groups: usize,
    /// True if image, filter and result have the layout `[batch, height, width, channels]` (NHWC).
    pub channels_last: bool,
    /// Dtype of image, filter and result: f32, f16 or bf16.
    pub dtype: DType,
}

impl ConvolutionShape {
    /// Returns the shapes of image, filter and result. Extents without a window are 0.
    fn shapes(&self) -> [[usize; 4]; 3] {
        let windows = |axis: usize, extent: usize| {
            let reach = self.kernel[axis].saturating_sub(1) * self.dilation[axis] + 1;
            let free = (extent + 2 * self.padding[axis]).checked_sub(reach);
            free.map_or(0, |free| free / self.stride[axis].max(1) + 1)
        };
        [
            [self.batch, self.channels, self.height, self.width],
            [
                self.features,
                self.channels / self.groups.max(1),
                self.kernel[0],
                self.kernel[1],
            ],
            [
                self.batch,
                self.features,
                windows(0, self.height),
                windows(1, self.width),
            ],
        ]
    }

    fn tensor(&self, device: &Device, shape: [usize; 4]) -> Result<Tensor> {
        let [_, channels, height, width] = shape;
        let strides = if self.channels_last {
            [height * width * channels, 1, width * channels, channels]
        } else {
            packed(shape)
        };
        Tensor::of(device, data_type(self.dtype)?, &shape, &strides)
    }
}

/// A prepared convolution of MIOpen.
pub struct Convolution {
    device: Device,
    shape: ConvolutionShape,
    raw: miopenConvolutionDescriptor_t,
    /// Descriptors of the image, the filter and the result.
    tensors: [Tensor; 3],
    algorithm: miopenConvFwdAlgorithm_t,
    workspace: Option<DeviceBuffer<u8>>,
}

// SAFETY: descriptions are host memory of the library, used by one thread at a time.
unsafe impl Send for Convolution {}

impl Dnn {
    /// Prepares a convolution: lets MIOpen measure its algorithms on these operands, which overwrites `y`. This may take minutes the first
    /// time. MIOpen stores the result in its database.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if an operand is too small; [`Error::Device`] if MIOpen fails.
    pub fn convolution(
        &mut self,
        shape: ConvolutionShape,
        [x, filter, y]: [Operand<'_>; 3],
    ) -> Result<Convolution> {
        let stream = self.stream.clone();
        let device = stream.device();
        let table = libraries::miopen(device)?;
        device.enter()?;
        let [image, weight, result] = shape.shapes();
        let mut convolution = Convolution {
            device: device.clone(),
            shape,
            raw: ptr::null_mut(),
            tensors: [
                shape.tensor(device, image)?,
                shape.tensor(device, weight)?,
                shape.tensor(device, result)?,
            ],
            algorithm: miopenConvFwdAlgorithm_t(0),
            workspace: None,
        };
        convolution.check(&x, &filter, &y)?;
        let pair = |[down, across]: [usize; 2]| Ok::<_, Error>([int(down)?, int(across)?]);
        let (padding, stride, dilation) = (pair(shape.padding)?, pair(shape.stride)?, pair(shape.dilation)?);
        let (mode, groups) = (miopenConvolutionMode_t::miopenConvolution, int(shape.groups)?);
        // SAFETY: the calls write one handle and initialise it.
        unsafe {
            call!(
                device,
                table.miopenCreateConvolutionDescriptor(&mut convolution.raw)
            )?;
            call!(
                device,
                table.miopenInitConvolutionDescriptor(
                    convolution.raw,
                    mode,
                    padding[0],
                    padding[1],
                    stride[0],
                    stride[1],
                    dilation[0],
                    dilation[1],
                )
            )?;
            if groups != 1 {
                call!(
                    device,
                    table.miopenSetConvolutionGroupCount(convolution.raw, groups)
                )?;
            }
        }
        convolution.check_result()?;
        let [x_tensor, filter_tensor, y_tensor] = convolution.tensors.each_ref().map(Tensor::raw);
        let mut bytes = 0;
        // SAFETY: the handle and descriptions are alive; the call writes one size.
        unsafe {
            call!(
                device,
                table.miopenConvolutionForwardGetWorkSpaceSize(
                    self.raw,
                    filter_tensor,
                    x_tensor,
                    convolution.raw,
                    y_tensor,
                    &mut bytes,
                )
            )
        }?;
        if bytes > 0 {
            convolution.workspace = Some(stream.allocate(bytes)?);
        }
        let mut found = MaybeUninit::<miopenConvAlgoPerf_t>::zeroed();
        let mut count = 0;
        let raw = convolution.raw;
        let scratch = convolution.workspace.as_mut().map(DeviceBuffer::writing);
        let operands: Vec<_> = [x, filter, y].into_iter().chain(scratch).collect();
        stream.submit(&operands, |_| {
            // SAFETY: the handle and descriptions are alive. The operands have the tensors' bytes, which `check` ensured, and the workspace
            // its size. There is memory for one result.
            unsafe {
                call!(
                    device,
                    table.miopenFindConvolutionForwardAlgorithm(
                        self.raw,
                        x_tensor,
                        x.pointer(),
                        filter_tensor,
                        filter.pointer(),
                        raw,
                        y_tensor,
                        y.pointer(),
                        1,
                        &mut count,
                        found.as_mut_ptr(),
                        scratch.map_or(ptr::null_mut(), |w| w.pointer()),
                        bytes,
                        false,
                    )
                )
            }
        })?;
        if count < 1 {
            return Err(Error::Device {
                device: device.name().to_owned(),
                call: "miopenFindConvolutionForwardAlgorithm",
                status: format!("no algorithm for {shape:?}"),
                advice: String::new(),
            });
        }
        // SAFETY: numbers, for which zeroes are valid. A forward search sets this field.
        convolution.algorithm = unsafe { found.assume_init_ref().__bindgen_anon_1.fwd_algo };
        Ok(convolution)
    }

    /// Submits a prepared convolution.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if an operand is too small; [`Error::Device`] if MIOpen fails.
    pub fn convolve(
        &mut self,
        convolution: &mut Convolution,
        [x, filter, y]: [Operand<'_>; 3],
    ) -> Result<()> {
        convolution.check(&x, &filter, &y)?;
        let device = self.stream.device();
        let table = libraries::miopen(device)?;
        let [x_tensor, filter_tensor, y_tensor] = convolution.tensors.each_ref().map(Tensor::raw);
        let (raw, algorithm) = (convolution.raw, convolution.algorithm);
        let scratch = convolution.workspace.as_mut().map(DeviceBuffer::writing);
        let operands: Vec<_> = [x, filter, y].into_iter().chain(scratch).collect();
        let (one, zero) = (1f32, 0f32);
        self.stream.keep(|| self.handle.clone());
        self.stream.submit(&operands, |_| {
            // SAFETY: as for the search, which chose the algorithm for these tensors and this workspace.
            unsafe {
                call!(
                    device,
                    table.miopenConvolutionForward(
                        self.raw,
                        ptr::from_ref(&one).cast(),
                        x_tensor,
                        x.pointer(),
                        filter_tensor,
                        filter.pointer(),
                        raw,
                        algorithm,
                        ptr::from_ref(&zero).cast(),
                        y_tensor,
                        y.pointer(),
                        scratch.map_or(ptr::null_mut(), |w| w.pointer()),
                        scratch.map_or(0, |w| w.bytes()),
                    )
                )
            }
        })
    }
}

impl Convolution {
    fn check(&self, x: &Operand<'_>, filter: &Operand<'_>, y: &Operand<'_>) -> Result<()> {
        let size = self.shape.dtype.size();
        let bytes = self.shape.shapes().map(|s| s.iter().product::<usize>() * size);
        x.expect("x", bytes[0], false)?;
        filter.expect("filter", bytes[1], false)?;
        y.expect("y", bytes[2], true)
    }

    /// Checks the result's shape. With contradicting descriptions, MIOpen computes nothing without reporting an error.
    fn check_result(&self) -> Result<()> {
        let table = libraries::miopen(&self.device)?;
        let mut found = [0; 4];
        let [n, c, h, w] = &mut found;
        let [image, filter, _] = self.tensors.each_ref().map(Tensor::raw);
        // SAFETY: the descriptions are alive; the call writes four ints.
        unsafe {
            call!(
                self.device,
                table.miopenGetConvolutionForwardOutputDim(self.raw, image, filter, n, c, h, w)
            )
        }?;
        let expected = self.shape.shapes()[2];
        if found.map(|n| usize::try_from(n).unwrap_or(0)) != expected {
            return Err(Error::argument(
                "convolution",
                format!("MIOpen makes {found:?} of {:?}, not {expected:?}", self.shape),
            ));
        }
        Ok(())
    }
}

impl Drop for Convolution {
    fn drop(&mut self) {
        if !self.raw.is_null()
            && let Ok(table) = libraries::miopen(&self.device)
        {
            // SAFETY: destroyed once, by its owner.
            let result = unsafe { call!(self.device, table.miopenDestroyConvolutionDescriptor(self.raw)) };
            self.device.park(result);
        }
    }
}

impl fmt::Debug for Convolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Convolution")
            .field("shape", &self.shape)
            .field("algorithm", &self.algorithm)
            .finish()
    }
}
