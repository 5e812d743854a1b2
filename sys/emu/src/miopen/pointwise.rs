//! Softmax, activation, and arithmetic on tensors. All in f64, rounded once.

use std::ffi::c_void;

use gcnrun::{FaultKind, Memory};
use hip_provider::export;
use hip_provider::miopen::{Activation, BAD_PARAMETER as BAD, activation, run, tensor};
use hipvit_sys::miopen::{
    miopenActivationDescriptor_t, miopenActivationMode_t, miopenHandle_t, miopenSoftmaxAlgorithm_t,
    miopenSoftmaxMode_t, miopenStatus_t, miopenTensorDescriptor_t, miopenTensorOp_t,
};
use rayon::prelude::*;

use super::tensor::{DeviceMemory as _, DeviceTensor};
use super::{scalar, submitted};

/// Applies an activation as MIOpen's documentation of `miopenActivationMode_t` defines it. `None` for an unknown mode.
fn activate(activation: &Activation, x: f64) -> Option<f64> {
    use miopenActivationMode_t as Mode;
    let Activation {
        mode,
        alpha,
        beta,
        gamma,
    } = *activation;
    Some(match mode {
        Mode::miopenActivationPASTHRU => x,
        Mode::miopenActivationLOGISTIC => 1.0 / (1.0 + (-x).exp()),
        Mode::miopenActivationTANH => beta * (alpha * x).tanh(),
        // Keeps NaN.
        Mode::miopenActivationRELU => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        // For a large x the exponential is infinite, and the result is x.
        Mode::miopenActivationSOFTRELU => {
            if x > 0.0 {
                x + (-x).exp().ln_1p()
            } else {
                x.exp().ln_1p()
            }
        }
        Mode::miopenActivationABS => x.abs(),
        Mode::miopenActivationPOWER => (alpha + beta * x).powf(gamma),
        Mode::miopenActivationCLIPPEDRELU => clamp(x, 0.0, alpha),
        Mode::miopenActivationLEAKYRELU => {
            if x > 0.0 {
                x
            } else {
                alpha * x
            }
        }
        Mode::miopenActivationELU => {
            if x > 0.0 {
                x
            } else {
                alpha * x.exp_m1()
            }
        }
        Mode::miopenActivationCLAMP => clamp(x, alpha, beta),
        _ => return None,
    })
}

/// Clamps like `f64::clamp`, and accepts any limits.
fn clamp(x: f64, least: f64, most: f64) -> f64 {
    if x < least {
        least
    } else if x > most {
        most
    } else {
        x
    }
}

/// A softmax, over the channels of each place or over all of an image.
struct Softmax {
    x: DeviceTensor,
    y: DeviceTensor,
    alpha: f64,
    beta: f64,
    algorithm: miopenSoftmaxAlgorithm_t,
    mode: miopenSoftmaxMode_t,
}

impl Softmax {
    fn submit(self, of: miopenHandle_t, name: &str) -> Result<(), miopenStatus_t> {
        let known = self.algorithm.0 <= miopenSoftmaxAlgorithm_t::MIOPEN_SOFTMAX_LOG.0
            && self.mode.0 <= miopenSoftmaxMode_t::MIOPEN_SOFTMAX_MODE_CHANNEL.0;
        if !known || self.x.tensor.lengths != self.y.tensor.lengths || self.x.tensor.lengths.len() < 2 {
            return Err(BAD);
        }
        submitted(of, name, move |memory| self.run(memory))
    }

    fn run(&self, memory: &Memory) -> Result<(), FaultKind> {
        let lengths = &self.x.tensor.lengths;
        let image: usize = lengths[1..].iter().product();
        // Numbers from one of a softmax to the next.
        let step = match self.mode {
            miopenSoftmaxMode_t::MIOPEN_SOFTMAX_MODE_CHANNEL => lengths[2..].iter().product(),
            _ => 1,
        };
        let mut values = self.x.load::<f64>(memory)?;
        values
            .par_chunks_mut(image)
            .for_each(|image| (0..step).for_each(|first| self.one(&mut image[first..], step)));
        self.y.blend(memory, self.alpha, values, self.beta)
    }

    /// Computes the softmax of every `step`th number.
    fn one(&self, values: &mut [f64], step: usize) {
        let largest = match self.algorithm {
            // Does not guard against overflow, as MIOpen's does not.
            miopenSoftmaxAlgorithm_t::MIOPEN_SOFTMAX_FAST => 0.0,
            _ => values
                .iter()
                .step_by(step)
                .copied()
                .fold(f64::NEG_INFINITY, f64::max),
        };
        // In f32 an exponential above about 88 is infinite.
        let power = |value: f64| f64::from((value - largest) as f32).exp();
        let overflows = |value: f64| {
            if value > f64::from(f32::MAX) {
                f64::INFINITY
            } else {
                value
            }
        };
        let sum: f64 = values
            .iter()
            .step_by(step)
            .map(|value| overflows(power(*value)))
            .sum();
        let is_log = self.algorithm == miopenSoftmaxAlgorithm_t::MIOPEN_SOFTMAX_LOG;
        for value in values.iter_mut().step_by(step) {
            *value = if is_log {
                *value - largest - sum.ln()
            } else {
                overflows(power(*value)) / sum
            };
        }
    }
}

/// `C = operation(alpha1·A, alpha2·B) + beta·C`, where B has C's lengths or 1.
struct Arithmetic {
    operation: fn(f64, f64) -> f64,
    alphas: [f64; 2],
    a: DeviceTensor,
    b: DeviceTensor,
    beta: f64,
    c: DeviceTensor,
}

impl Arithmetic {
    fn submit(self, of: miopenHandle_t, name: &str) -> Result<(), miopenStatus_t> {
        let lengths = &self.c.tensor.lengths;
        let of_b = &self.b.tensor.lengths;
        let broadcasts = |(of_b, length): (&usize, &usize)| *of_b == 1 || of_b == length;
        if self.a.tensor.lengths != *lengths
            || of_b.len() != lengths.len()
            || !of_b.iter().zip(lengths).all(broadcasts)
        {
            return Err(BAD);
        }
        submitted(of, name, move |memory| self.run(memory))
    }

    fn run(&self, memory: &Memory) -> Result<(), FaultKind> {
        let (mut values, b) = (self.a.load::<f64>(memory)?, self.b.load::<f64>(memory)?);
        let places = broadcast(&self.b.tensor.lengths, &self.c.tensor.lengths);
        for (value, place) in values.iter_mut().zip(places) {
            *value = (self.operation)(self.alphas[0] * *value, self.alphas[1] * b[place]);
        }
        self.c.blend(memory, 1.0, values, self.beta)
    }
}

/// Returns, for each element of a tensor of `lengths`, the element of a tensor whose lengths are the same or 1.
fn broadcast(of: &[usize], lengths: &[usize]) -> Vec<usize> {
    let mut places = vec![0];
    for (of, length) in of.iter().zip(lengths) {
        let along = |place: usize| (0..*length).map(move |index| place * of + index.min(of - 1));
        places = places.into_iter().flat_map(along).collect();
    }
    places
}

/// Adds a bias along the channels: `y = y + alpha·b + beta·y`, as MIOpen computes it.
pub(super) fn add_bias(
    of: miopenHandle_t,
    [alpha, beta]: [f64; 2],
    bias: DeviceTensor,
    y: DeviceTensor,
) -> Result<(), miopenStatus_t> {
    let sum = Arithmetic {
        operation: |y, b| y + b,
        alphas: [1.0, alpha],
        a: y.clone(),
        b: bias,
        beta,
        c: y,
    };
    sum.submit(of, "miopenConvolutionForwardBias")
}

export! { miopen, miopenStatus_t, run;
    fn miopenActivationForward(
        of: miopenHandle_t, with: miopenActivationDescriptor_t, alpha: *const c_void,
        x_desc: miopenTensorDescriptor_t, x: *const c_void, beta: *const c_void, y_desc: miopenTensorDescriptor_t,
        y: *mut c_void,
    ) {
        let activation = activation(with)?;
        let (x, y) = (tensor(x_desc)?.at(x)?, tensor(y_desc)?.at(y)?);
        if x.tensor.lengths != y.tensor.lengths || activate(&activation, 0.0).is_none() {
            return Err(BAD);
        }
        let (alpha, beta) = (scalar(alpha, y.element)?, scalar(beta, y.element)?);
        submitted(of, "miopenActivationForward", move |memory| {
            let values = x.load::<f64>(memory)?;
            let values = values.into_iter().map(|value| activate(&activation, value).unwrap_or(value)).collect();
            y.blend(memory, alpha, values, beta)
        })
    }

    /// Over the channels, after subtracting the maximum, as in MIOpen's first version.
    fn miopenSoftmaxForward(
        of: miopenHandle_t, alpha: *const c_void, x_desc: miopenTensorDescriptor_t, x: *const c_void,
        beta: *const c_void, y_desc: miopenTensorDescriptor_t, y: *mut c_void,
    ) {
        let (x, y) = (tensor(x_desc)?.at(x)?, tensor(y_desc)?.at(y)?);
        Softmax {
            alpha: scalar(alpha, y.element)?,
            beta: scalar(beta, y.element)?,
            x,
            y,
            algorithm: miopenSoftmaxAlgorithm_t::MIOPEN_SOFTMAX_ACCURATE,
            mode: miopenSoftmaxMode_t::MIOPEN_SOFTMAX_MODE_CHANNEL,
        }
        .submit(of, "miopenSoftmaxForward")
    }

    fn miopenSoftmaxForward_V2(
        of: miopenHandle_t, alpha: *const c_void, x_desc: miopenTensorDescriptor_t, x: *const c_void,
        beta: *const c_void, y_desc: miopenTensorDescriptor_t, y: *mut c_void, algorithm: miopenSoftmaxAlgorithm_t,
        mode: miopenSoftmaxMode_t,
    ) {
        let (x, y) = (tensor(x_desc)?.at(x)?, tensor(y_desc)?.at(y)?);
        let (alpha, beta) = (scalar(alpha, y.element)?, scalar(beta, y.element)?);
        Softmax { x, y, alpha, beta, algorithm, mode }.submit(of, "miopenSoftmaxForward_V2")
    }

    fn miopenOpTensor(
        of: miopenHandle_t, operation: miopenTensorOp_t, alpha1: *const c_void, a_desc: miopenTensorDescriptor_t,
        a: *const c_void, alpha2: *const c_void, b_desc: miopenTensorDescriptor_t, b: *const c_void,
        beta: *const c_void, c_desc: miopenTensorDescriptor_t, c: *mut c_void,
    ) {
        let c = tensor(c_desc)?.at(c)?;
        let operation: fn(f64, f64) -> f64 = match operation {
            miopenTensorOp_t::miopenTensorOpAdd => |a, b| a + b,
            miopenTensorOp_t::miopenTensorOpMul => |a, b| a * b,
            miopenTensorOp_t::miopenTensorOpMin => f64::min,
            miopenTensorOp_t::miopenTensorOpMax => f64::max,
            _ => return Err(BAD),
        };
        Arithmetic {
            operation,
            alphas: [scalar(alpha1, c.element)?, scalar(alpha2, c.element)?],
            a: tensor(a_desc)?.at(a)?,
            b: tensor(b_desc)?.at(b)?,
            beta: scalar(beta, c.element)?,
            c,
        }
        .submit(of, "miopenOpTensor")
    }

    /// The value has the tensor's type.
    fn miopenSetTensor(of: miopenHandle_t, desc: miopenTensorDescriptor_t, y: *mut c_void, value: *const c_void) {
        let y = tensor(desc)?.at(y)?;
        if value.is_null() {
            return Err(BAD);
        }
        let value = crate::compute::Scalar::new(value, y.element, false);
        submitted(of, "miopenSetTensor", move |memory| {
            y.store(memory, &vec![value.value(memory)?; y.tensor.count()])
        })
    }

    fn miopenScaleTensor(of: miopenHandle_t, desc: miopenTensorDescriptor_t, y: *mut c_void, factor: *const c_void) {
        let y = tensor(desc)?.at(y)?;
        let factor = scalar(factor, y.element)?;
        submitted(of, "miopenScaleTensor", move |memory| y.blend(memory, factor, y.load::<f64>(memory)?, 0.0))
    }

    /// Converts between layouts and types.
    fn miopenTransformTensor(
        of: miopenHandle_t, alpha: *const c_void, x_desc: miopenTensorDescriptor_t, x: *const c_void,
        beta: *const c_void, y_desc: miopenTensorDescriptor_t, y: *mut c_void,
    ) {
        let (x, y) = (tensor(x_desc)?.at(x)?, tensor(y_desc)?.at(y)?);
        if x.tensor.lengths != y.tensor.lengths {
            return Err(BAD);
        }
        let (alpha, beta) = (scalar(alpha, y.element)?, scalar(beta, y.element)?);
        submitted(of, "miopenTransformTensor", move |memory| y.blend(memory, alpha, x.load::<f64>(memory)?, beta))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_repeats_single_elements() {
        assert_eq!(broadcast(&[1, 2, 1], &[2, 2, 2]), [0, 0, 1, 1, 0, 0, 1, 1]);
        assert_eq!(broadcast(&[2, 3], &[2, 3]), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn activations_have_their_known_values() {
        use miopenActivationMode_t as Mode;
        let of = |mode, x| {
            let activation = Activation {
                mode,
                alpha: 0.5,
                beta: 2.0,
                gamma: 3.0,
            };
            activate(&activation, x)
        };
        assert_eq!(of(Mode::miopenActivationTANH, 0.0), Some(0.0));
        assert_eq!(of(Mode::miopenActivationPOWER, 1.0), Some(15.625));
        assert_eq!(of(Mode::miopenActivationCLIPPEDRELU, 7.0), Some(0.5));
        assert_eq!(of(Mode::miopenActivationLEAKYRELU, -4.0), Some(-2.0));
        assert_eq!(of(Mode::miopenActivationCLAMP, 0.0), Some(0.5));
        assert_eq!(of(Mode::miopenActivationSOFTRELU, 1000.0), Some(1000.0));
        assert_eq!(of(Mode::miopenActivationELU, 3.0), Some(3.0));
        assert_eq!(of(miopenActivationMode_t(99), 3.0), None);
    }
}
