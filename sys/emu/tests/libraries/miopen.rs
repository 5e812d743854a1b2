//! MIOpen.

mod attention;
mod convolution;
mod norm;
mod pointwise;

use std::ffi::c_void;
use std::ptr;

use hipvit_sys::Miopen;
use hipvit_sys::miopen::{
    miopenActivationMode_t as Activation, miopenConvAlgoPerf_t, miopenConvFwdAlgorithm_t,
    miopenConvSolution_t, miopenConvolutionDescriptor_t, miopenConvolutionMode_t, miopenDataType_t,
    miopenHandle_t, miopenNormMode_t, miopenSoftmaxAlgorithm_t, miopenSoftmaxMode_t,
    miopenStatus_t as Status, miopenTensorDescriptor_t, miopenTensorOp_t,
};

use crate::gpu::{Buffer, Kind, compare, numbers, ok, provider, refused};

const ONE: *const c_void = (&raw const F32_ONE).cast();
const ZERO: *const c_void = (&raw const F32_ZERO).cast();
static F32_ONE: f32 = 1.0;
static F32_ZERO: f32 = 0.0;

fn miopen() -> &'static Miopen {
    provider().miopen().expect("MIOpen")
}

struct Handle(miopenHandle_t);

impl Handle {
    fn new() -> Self {
        let mut handle = ptr::null_mut();
        ok(unsafe { miopen().miopenCreate(&mut handle) });
        Self(handle)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        ok(unsafe { miopen().miopenDestroy(self.0) });
    }
}

fn datatype(kind: Kind) -> miopenDataType_t {
    match kind {
        Kind::F16 => miopenDataType_t::miopenHalf,
        Kind::Bf16 => miopenDataType_t::miopenBFloat16,
        Kind::F32 => miopenDataType_t::miopenFloat,
        Kind::F64 => miopenDataType_t::miopenDouble,
        Kind::I8 => miopenDataType_t::miopenInt8,
        Kind::I32 => miopenDataType_t::miopenInt32,
    }
}

/// A tensor in device memory, with its descriptor; its numbers in the order of its dimensions.
struct Tensor {
    desc: miopenTensorDescriptor_t,
    lengths: Vec<usize>,
    values: Vec<f64>,
    buffer: Buffer,
}

impl Tensor {
    fn packed(kind: Kind, lengths: &[usize], values: Vec<f64>) -> Self {
        let mut strides = vec![1; lengths.len()];
        for axis in (1..lengths.len()).rev() {
            strides[axis - 1] = strides[axis] * lengths[axis];
        }
        Self::with_strides(kind, lengths, &strides, values)
    }

    fn with_strides(kind: Kind, lengths: &[usize], strides: &[usize], values: Vec<f64>) -> Self {
        let mut places = vec![0];
        for (length, stride) in lengths.iter().zip(strides) {
            places = places
                .iter()
                .flat_map(|place| (0..*length).map(move |index| place + index * stride))
                .collect();
        }
        let int = |values: &[usize]| values.iter().map(|value| *value as i32).collect::<Vec<_>>();
        let mut desc = ptr::null_mut();
        let (sizes, steps) = (int(lengths), int(strides));
        unsafe {
            ok(miopen().miopenCreateTensorDescriptor(&mut desc));
            let count = lengths.len() as i32;
            ok(miopen().miopenSetTensorDescriptor(
                desc,
                datatype(kind),
                count,
                sizes.as_ptr(),
                steps.as_ptr(),
            ));
        }
        Self {
            desc,
            lengths: lengths.to_vec(),
            buffer: Buffer::at(kind, &values, places),
            values,
        }
    }

    fn random(kind: Kind, lengths: &[usize], seed: u64) -> Self {
        Self::packed(kind, lengths, numbers(kind, lengths.iter().product(), seed))
    }

    fn zeroes(kind: Kind, lengths: &[usize]) -> Self {
        Self::packed(kind, lengths, vec![0.0; lengths.iter().product()])
    }

    fn at(&self) -> *mut c_void {
        self.buffer.address()
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        ok(unsafe { miopen().miopenDestroyTensorDescriptor(self.desc) });
    }
}
