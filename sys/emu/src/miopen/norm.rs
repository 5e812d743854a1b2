//! Layer normalization: plain, of a sum, and RMS norm (T5's).

use std::ffi::c_void;

use gcnrun::{FaultKind, Memory};
use hip_provider::export;
use hip_provider::miopen::{BAD_PARAMETER as BAD, run, tensor};
use hipvit_sys::miopen::{miopenHandle_t, miopenNormMode_t, miopenStatus_t, miopenTensorDescriptor_t};

use super::submitted;
use super::tensor::{DeviceMemory as _, DeviceTensor};

/// The normalized dimensions: those from `first` on, together.
struct Norm {
    x: DeviceTensor,
    /// Added to `x` first.
    other: Option<DeviceTensor>,
    weight: Option<DeviceTensor>,
    bias: Option<DeviceTensor>,
    epsilon: f32,
    first: usize,
    /// True if the mean is subtracted.
    centred: bool,
    y: DeviceTensor,
    mean: Option<DeviceTensor>,
    /// Receives the factor `1 / sqrt(variance + epsilon)`.
    factor: Option<DeviceTensor>,
}

impl Norm {
    /// Checks that the shapes fit.
    fn check(&self) -> Result<(), miopenStatus_t> {
        let lengths = &self.x.tensor.lengths;
        if self.first > lengths.len() {
            return Err(BAD);
        }
        let inner: usize = lengths[self.first..].iter().product();
        let outer: usize = lengths[..self.first].iter().product();
        let same = |other: &DeviceTensor| other.tensor.lengths == *lengths;
        let of = |count: usize| move |placed: &DeviceTensor| placed.tensor.count() == count;
        let fits = same(&self.y)
            && self.other.as_ref().is_none_or(same)
            && [&self.weight, &self.bias]
                .into_iter()
                .all(|row| row.as_ref().is_none_or(of(inner)))
            && [&self.mean, &self.factor]
                .into_iter()
                .all(|column| column.as_ref().is_none_or(of(outer)));
        if fits { Ok(()) } else { Err(BAD) }
    }

    /// In f64, rounded once.
    fn run(&self, memory: &Memory) -> Result<(), FaultKind> {
        let lengths = &self.x.tensor.lengths;
        let inner: usize = lengths[self.first..].iter().product();
        let mut values = self.x.load::<f64>(memory)?;
        if let Some(other) = &self.other {
            values
                .iter_mut()
                .zip(other.load::<f64>(memory)?)
                .for_each(|(value, other)| *value += other);
        }
        let load = |row: &Option<DeviceTensor>| row.as_ref().map(|row| row.load::<f64>(memory)).transpose();
        let (weight, bias) = (load(&self.weight)?, load(&self.bias)?);
        let (mut means, mut factors) = (Vec::new(), Vec::new());
        for row in values.chunks_mut(inner) {
            let count = inner as f64;
            let mean = if self.centred {
                row.iter().sum::<f64>() / count
            } else {
                0.0
            };
            let variance = row.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
            let factor = 1.0 / (variance + f64::from(self.epsilon)).sqrt();
            for (index, value) in row.iter_mut().enumerate() {
                let weight = weight.as_ref().map_or(1.0, |weight| weight[index]);
                let bias = bias.as_ref().map_or(0.0, |bias| bias[index]);
                *value = (*value - mean) * factor * weight + bias;
            }
            means.push(mean);
            factors.push(factor);
        }
        self.y.store(memory, &values)?;
        for (column, values) in [(&self.mean, means), (&self.factor, factors)] {
            if let Some(column) = column {
                column.store(memory, &values)?;
            }
        }
        Ok(())
    }

    fn submit(self, of: miopenHandle_t, name: &str) -> Result<(), miopenStatus_t> {
        self.check()?;
        submitted(of, name, move |memory| self.run(memory))
    }
}

/// An optional tensor, absent if its address is null.
fn optional(
    desc: miopenTensorDescriptor_t,
    at: *const c_void,
) -> Result<Option<DeviceTensor>, miopenStatus_t> {
    if at.is_null() {
        Ok(None)
    } else {
        tensor(desc)?.at(at).map(Some)
    }
}

/// The weight or bias that a mode uses.
fn affine(
    is_used: bool,
    desc: miopenTensorDescriptor_t,
    at: *const c_void,
) -> Result<Option<DeviceTensor>, miopenStatus_t> {
    if is_used {
        tensor(desc)?.at(at).map(Some)
    } else {
        Ok(None)
    }
}

/// Returns true for the mode with a weight and a bias, and false for the mode without. Both modes are arguments.
fn has_weight(
    mode: miopenNormMode_t,
    [without, with]: [miopenNormMode_t; 2],
) -> Result<bool, miopenStatus_t> {
    match mode {
        _ if mode == with => Ok(true),
        _ if mode == without => Ok(false),
        _ => Err(BAD),
    }
}

fn dimension(number: i32) -> Result<usize, miopenStatus_t> {
    usize::try_from(number).map_err(|_| BAD)
}

export! { miopen, miopenStatus_t, run;
    /// Over the dimensions from `first` on. The mean and the factor are written if they have an address.
    fn miopenLayerNormForward(
        of: miopenHandle_t, mode: miopenNormMode_t, x_desc: miopenTensorDescriptor_t, x: *const c_void,
        weight_desc: miopenTensorDescriptor_t, weight: *const c_void, bias_desc: miopenTensorDescriptor_t,
        bias: *const c_void, epsilon: f32, first: i32, y_desc: miopenTensorDescriptor_t, y: *mut c_void,
        mean_desc: miopenTensorDescriptor_t, mean: *mut c_void, factor_desc: miopenTensorDescriptor_t,
        factor: *mut c_void,
    ) {
        let weighted =
            has_weight(mode, [miopenNormMode_t::MIOPEN_ELEMENTWISE_AFFINE, miopenNormMode_t::MIOPEN_WEIGHT_BIAS])?;
        Norm {
            x: tensor(x_desc)?.at(x)?,
            other: None,
            weight: affine(weighted, weight_desc, weight)?,
            bias: affine(weighted, bias_desc, bias)?,
            epsilon,
            first: dimension(first)?,
            centred: true,
            y: tensor(y_desc)?.at(y)?,
            mean: optional(mean_desc, mean)?,
            factor: optional(factor_desc, factor)?,
        }
        .submit(of, "miopenLayerNormForward")
    }

    fn miopenAddLayerNormForward(
        of: miopenHandle_t, mode: miopenNormMode_t, x_desc: miopenTensorDescriptor_t, x: *const c_void,
        other_desc: miopenTensorDescriptor_t, other: *const c_void, weight_desc: miopenTensorDescriptor_t,
        weight: *const c_void, bias_desc: miopenTensorDescriptor_t, bias: *const c_void, epsilon: f32, first: i32,
        y_desc: miopenTensorDescriptor_t, y: *mut c_void, mean_desc: miopenTensorDescriptor_t, mean: *mut c_void,
        factor_desc: miopenTensorDescriptor_t, factor: *mut c_void,
    ) {
        let weighted = has_weight(mode, [
            miopenNormMode_t::MIOPEN_ELEMENTWISE_AFFINE_FUSED_ADD,
            miopenNormMode_t::MIOPEN_WEIGHT_BIAS_FUSED_ADD,
        ])?;
        Norm {
            x: tensor(x_desc)?.at(x)?,
            other: Some(tensor(other_desc)?.at(other)?),
            weight: affine(weighted, weight_desc, weight)?,
            bias: affine(weighted, bias_desc, bias)?,
            epsilon,
            first: dimension(first)?,
            centred: true,
            y: tensor(y_desc)?.at(y)?,
            mean: optional(mean_desc, mean)?,
            factor: optional(factor_desc, factor)?,
        }
        .submit(of, "miopenAddLayerNormForward")
    }

    /// Over the last dimension.
    fn miopenT5LayerNormForward(
        of: miopenHandle_t, mode: miopenNormMode_t, x_desc: miopenTensorDescriptor_t, x: *const c_void,
        weight_desc: miopenTensorDescriptor_t, weight: *const c_void, epsilon: f32, y_desc: miopenTensorDescriptor_t,
        y: *mut c_void, factor_desc: miopenTensorDescriptor_t, factor: *mut c_void,
    ) {
        let weighted = has_weight(mode, [
            miopenNormMode_t::MIOPEN_ELEMENTWISE_AFFINE_T5,
            miopenNormMode_t::MIOPEN_WEIGHT_BIAS_T5,
        ])?;
        let x = tensor(x_desc)?.at(x)?;
        Norm {
            other: None,
            weight: affine(weighted, weight_desc, weight)?,
            bias: None,
            epsilon,
            first: x.tensor.lengths.len() - 1,
            x,
            centred: false,
            y: tensor(y_desc)?.at(y)?,
            mean: None,
            factor: optional(factor_desc, factor)?,
        }
        .submit(of, "miopenT5LayerNormForward")
    }
}
