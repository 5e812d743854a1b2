//! MIOpen: its operations that vision models use.

mod attention;
mod convolution;
mod descriptor;

use std::fmt;
use std::ptr;
use std::sync::Arc;

use hipvit_sys::miopen::{miopenHandle_t, miopenNormMode_t, miopenSoftmaxAlgorithm_t, miopenSoftmaxMode_t};

pub use self::attention::{Attention, MultiHeadAttention};
pub use self::convolution::{Convolution, ConvolutionShape};
use self::descriptor::{Tensor, data_type};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::libraries;
use crate::memory::buffer::DeviceBuffer;
use crate::memory::operand::Operand;
use crate::status::call;
use crate::stream::{Handle, Stream};

/// A MIOpen handle on a stream.
pub struct Dnn {
    stream: Stream,
    raw: miopenHandle_t,
    handle: Arc<Handle>,
    /// Statistics that layer norm writes besides its result.
    statistics: Option<DeviceBuffer<u8>>,
}

// SAFETY: a MIOpen handle may be used from any thread, one at a time, which `&mut self` ensures.
unsafe impl Send for Dnn {}

/// A packed row-major matrix `[rows, columns]`. Each row is normalised separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    /// Number of rows.
    pub rows: usize,
    /// Elements per row.
    pub columns: usize,
    /// f32, f16 or bf16.
    pub dtype: DType,
}

/// Two four-dimensional tensors of the same extents with different layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Relayout {
    /// Extents of both tensors.
    pub shape: [usize; 4],
    /// Strides of the tensor that is read, in elements.
    pub from: [usize; 4],
    /// Strides of the tensor that is written, in elements.
    pub to: [usize; 4],
    /// f32, f16 or bf16.
    pub dtype: DType,
}

impl Relayout {
    /// Returns the bytes from the first element to the end of the last one.
    fn bytes(&self, strides: [usize; 4]) -> usize {
        if self.shape.contains(&0) {
            return 0;
        }
        let last: usize = self
            .shape
            .iter()
            .zip(strides)
            .map(|(n, stride)| (n - 1) * stride)
            .sum();
        (last + 1) * self.dtype.size()
    }
}

impl Rows {
    fn bytes(&self) -> usize {
        self.rows * self.columns * self.dtype.size()
    }
}

impl Dnn {
    /// Creates a handle on `stream`.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`](crate::Error::Provider) if MIOpen cannot be opened; [`Error::Device`](crate::Error::Device) if it fails.
    pub fn new(stream: &Stream) -> Result<Self> {
        let device = stream.device();
        let table = libraries::miopen(device)?;
        let create = |device: &Device| {
            let mut raw = ptr::null_mut();
            // SAFETY: the call writes one handle; the stream lives as long as the handle.
            unsafe { call!(device, table.miopenCreateWithStream(&mut raw, stream.raw())) }?;
            Ok(raw)
        };
        let (raw, handle) = Handle::new(stream, create, |device, raw| {
            let table = libraries::miopen(device)?;
            // SAFETY: destroyed once, when it is no longer used.
            unsafe { call!(device, table.miopenDestroy(raw)) }
        })?;
        Ok(Self {
            stream: stream.clone(),
            raw,
            handle,
            statistics: None,
        })
    }

    /// Returns MIOpen's version, such as 3.5.1.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`](crate::Error::Provider) if MIOpen cannot be opened; [`Error::Device`](crate::Error::Device) if it fails.
    pub fn version(device: &Device) -> Result<String> {
        device.miopen_version()
    }

    /// Returns the stream that work is submitted to.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Submits the softmax of each row of `x` to `y`, both of `shape`. Subtracts the maximum of the row first.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`](crate::Error::Argument) if an operand is too small; [`Error::Device`](crate::Error::Device) if MIOpen fails.
    pub fn softmax(&mut self, shape: Rows, x: Operand<'_>, y: Operand<'_>) -> Result<()> {
        x.expect("x", shape.bytes(), false)?;
        y.expect("y", shape.bytes(), true)?;
        let device = self.stream.device();
        let table = libraries::miopen(device)?;
        let tensor = Tensor::new(device, shape.dtype, &[shape.rows, shape.columns, 1, 1])?;
        let (one, zero) = (1f32, 0f32);
        self.stream.keep(|| self.handle.clone());
        self.stream.submit(&[x, y], |_| {
            // SAFETY: the handle and the tensor are alive. The operands have the tensor's bytes. The scalars are read before the call
            // returns.
            unsafe {
                call!(
                    device,
                    table.miopenSoftmaxForward_V2(
                        self.raw,
                        ptr::from_ref(&one).cast(),
                        tensor.raw(),
                        x.pointer(),
                        ptr::from_ref(&zero).cast(),
                        tensor.raw(),
                        y.pointer(),
                        miopenSoftmaxAlgorithm_t::MIOPEN_SOFTMAX_ACCURATE,
                        miopenSoftmaxMode_t::MIOPEN_SOFTMAX_MODE_CHANNEL,
                    )
                )
            }
        })
    }

    /// Submits a copy of `x` to `y`, each in its layout. `to` must not map two indices to one element of `y`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`](crate::Error::Argument) if an operand is too small; [`Error::Device`](crate::Error::Device) if MIOpen fails.
    pub fn relayout(&mut self, relayout: Relayout, x: Operand<'_>, y: Operand<'_>) -> Result<()> {
        let Relayout {
            shape,
            from,
            to,
            dtype,
        } = relayout;
        x.expect("x", relayout.bytes(from), false)?;
        y.expect("y", relayout.bytes(to), true)?;
        let device = self.stream.device();
        let table = libraries::miopen(device)?;
        let tensor = |strides| Tensor::of(device, data_type(dtype)?, &shape, &strides);
        let (read, written) = (tensor(from)?, tensor(to)?);
        let (one, zero) = (1f32, 0f32);
        self.stream.keep(|| self.handle.clone());
        self.stream.submit(&[x, y], |_| {
            // SAFETY: the handle and the tensors are alive. The operands reach to the tensors' last elements. The scalars are read before
            // the call returns.
            unsafe {
                call!(
                    device,
                    table.miopenTransformTensor(
                        self.raw,
                        ptr::from_ref(&one).cast(),
                        read.raw(),
                        x.pointer(),
                        ptr::from_ref(&zero).cast(),
                        written.raw(),
                        y.pointer(),
                    )
                )
            }
        })
    }

    /// Submits the layer norm of each row of `x` to `y`, both of `shape`: `(x - mean) / √(variance + epsilon) · weight + bias`. Weight and
    /// bias have `columns` elements of the same dtype.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`](crate::Error::Argument) if an operand is too small; [`Error::Device`](crate::Error::Device) if MIOpen fails.
    pub fn layer_norm(
        &mut self,
        shape: Rows,
        epsilon: f32,
        x: Operand<'_>,
        [weight, bias]: [Operand<'_>; 2],
        y: Operand<'_>,
    ) -> Result<()> {
        x.expect("x", shape.bytes(), false)?;
        y.expect("y", shape.bytes(), true)?;
        weight.expect("weight", shape.columns * shape.dtype.size(), false)?;
        bias.expect("bias", shape.columns * shape.dtype.size(), false)?;
        let stream = self.stream.clone();
        let device = stream.device();
        let table = libraries::miopen(device)?;
        let matrix = Tensor::new(device, shape.dtype, &[shape.rows, shape.columns])?;
        let row = Tensor::new(device, shape.dtype, &[shape.columns])?;
        let column = Tensor::new(device, shape.dtype, &[shape.rows])?;
        let half = shape.rows * shape.dtype.size();
        let statistics = grown(&mut self.statistics, &stream, 2 * half)?.writing();
        let (mean, deviation) = (statistics.part(0..half)?, statistics.part(half..2 * half)?);
        stream.keep(|| self.handle.clone());
        stream.submit(&[x, weight, bias, y, statistics], |_| {
            // SAFETY: the handle and the tensors are alive; the operands have the tensors' bytes.
            unsafe {
                call!(
                    device,
                    table.miopenLayerNormForward(
                        self.raw,
                        miopenNormMode_t::MIOPEN_WEIGHT_BIAS,
                        matrix.raw(),
                        x.pointer(),
                        row.raw(),
                        weight.pointer(),
                        row.raw(),
                        bias.pointer(),
                        epsilon,
                        1,
                        matrix.raw(),
                        y.pointer(),
                        column.raw(),
                        mean.pointer(),
                        column.raw(),
                        deviation.pointer(),
                    )
                )
            }
        })
    }
}

/// Returns a buffer of at least `bytes` bytes. Replaces the present one if it is smaller.
fn grown<'a>(
    buffer: &'a mut Option<DeviceBuffer<u8>>,
    stream: &Stream,
    bytes: usize,
) -> Result<&'a mut DeviceBuffer<u8>> {
    let large_enough = buffer.take().filter(|buffer| buffer.bytes() >= bytes);
    let large_enough = match large_enough {
        Some(large_enough) => large_enough,
        None => stream.allocate(bytes)?,
    };
    Ok(buffer.insert(large_enough))
}

impl fmt::Debug for Dnn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dnn").field(&self.stream).finish()
    }
}
