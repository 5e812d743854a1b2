//! A linear layer as a call, and the kernels that compute parts of it.

use hipvit_graph::op::Activation;

use crate::hip::{DType, DeviceAddress, Gemm};
use crate::kernels::bindings::{BiasActivationArgs, DequantizeArgs, GemvArgs, Int8GemmArgs, SparseGemmArgs};
use crate::kernels::{KernelCall, KernelError};

/// Computes `activation(x · weightᵀ + bias) + residual`. `bias` and `residual` may be null. Or a GEMM of a backward pass: if x is transposed,
/// `bias` receives the sums of its columns.
///
/// With `preactivation`, a library's epilogue computes a layer in training: it also writes the sum before the activation, or, if the weight is
/// not transposed, it computes `activation'(preactivation) · (x · weight)`, and `bias` receives the sums of the result's columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LinearCall {
    pub(crate) gemm: Gemm,
    pub(crate) x: DeviceAddress,
    pub(crate) weight: DeviceAddress,
    pub(crate) bias: DeviceAddress,
    pub(crate) residual: DeviceAddress,
    pub(crate) out: DeviceAddress,
    /// Scratch memory of the size of the result in the activations' dtype. Needed for an FP8 result, and for a residual in place with an
    /// activation before it. In int8 and in FP8 by rows, memory for the sums of a library. For sums of columns, memory for partial sums.
    pub(crate) scratch: DeviceAddress,
    pub(crate) activation: Option<Activation>,
    /// Operand of the activation, if it is kept for the backward pass, or if this is the backward pass.
    pub(crate) preactivation: DeviceAddress,
    /// Set if x and the weight are in FP8.
    pub(crate) float8: Option<Float8Call>,
    /// Set if x and the weight are in int8.
    pub(crate) int8: Option<Int8Call>,
    /// Set if the weight is 2:4 sparse and the device can skip its zeros.
    pub(crate) sparse: Option<SparseForm>,
}

/// Form of a 2:4 sparse weight on a device that can skip its zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SparseForm {
    /// With zeros, for the libraries.
    Dense,
    /// Without zeros, for `sparse_gemm`.
    Packed,
    /// Compressed by hipSPARSELt to this many bytes.
    Compressed { bytes: usize },
}

/// Scales of an FP8 GEMM: addresses of one f32 each, or of one per row of x and of the weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Float8Call {
    pub(crate) rows: bool,
    pub(crate) x: DeviceAddress,
    pub(crate) weight: DeviceAddress,
    /// Set if the result is FP8.
    pub(crate) out: Option<Float8Result>,
}

/// Parameters of an int8 GEMM: addresses of scale and zero point per row of x, and of scale and sum per row of the weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Int8Call {
    pub(crate) ranges: DeviceAddress,
    pub(crate) scales: DeviceAddress,
    pub(crate) column_sums: DeviceAddress,
}

/// Scale of an FP8 result, and the address of its reciprocal, which the GEMM multiplies by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Float8Result {
    pub(crate) step: f32,
    pub(crate) reciprocal: DeviceAddress,
}

/// A GEMM, and the kernel that completes its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Unfused {
    pub(crate) gemm: Gemm,
    pub(crate) c: DeviceAddress,
    pub(crate) kernel: Option<KernelCall>,
}

impl LinearCall {
    /// Returns the kernel call with a packed weight.
    pub(crate) fn packed(&self) -> Result<SparseGemmArgs, KernelError> {
        let addresses = [self.x, self.weight, self.bias, self.residual, self.out];
        let Gemm { m, n, k, .. } = self.gemm;
        SparseGemmArgs::new(addresses, [m, n, k], self.activation)
    }

    /// Returns the kernel call that computes a layer of few rows.
    pub(crate) fn few_rows(&self) -> Result<GemvArgs, KernelError> {
        let addresses = [self.x, self.weight, self.bias, self.residual, self.out];
        let Gemm { m, n, k, .. } = self.gemm;
        GemvArgs::new(addresses, [m, n, k], self.activation)
    }

    /// Returns the kernel call that computes the layer in int8.
    pub(crate) fn bytes(&self) -> Result<Int8GemmArgs, KernelError> {
        let Int8Call {
            ranges,
            scales,
            column_sums,
        } = self.int8.ok_or_else(|| KernelError::internal("is not in int8"))?;
        let Gemm { m, n, k, .. } = self.gemm;
        let operands = [self.x, self.weight];
        let results = [self.bias, self.residual, self.out];
        Int8GemmArgs::new(
            operands,
            [ranges, scales, column_sums],
            results,
            [m, n, k],
            self.activation,
        )
    }

    /// Returns the GEMM without an epilogue, and the kernel after it. The GEMM adds a residual in place itself. With an activation before
    /// the residual that would be wrong, so the GEMM writes to scratch memory then, as for an FP8 result.
    pub(crate) fn unfused(&self) -> Result<Unfused, KernelError> {
        if !self.preactivation.is_null() {
            return Err(KernelError::internal(
                "is of a layer in training, which only an epilogue computes",
            ));
        }
        if let Some(int8) = self.int8 {
            return self.unfused_int8(int8);
        }
        if let Some(float8) = self.float8.filter(|float8| float8.rows) {
            return self.unfused_float8_rows(float8);
        }
        let in_place = !self.residual.is_null() && self.residual == self.out;
        let step = self.float8.and_then(|float8| float8.out).map(|out| out.step);
        let (c, beta, residual) = match (in_place, self.activation) {
            _ if step.is_some() => (self.scratch, 0.0, self.residual),
            (true, None) => (self.out, 1.0, DeviceAddress::NULL),
            (true, Some(_)) => (self.scratch, 0.0, self.residual),
            (false, _) => (self.out, 0.0, self.residual),
        };
        let Gemm { m, n, .. } = self.gemm;
        let has_bias = !self.bias.is_null() && !self.gemm.a.transposed;
        let follows = has_bias || self.activation.is_some() || !residual.is_null();
        let kernel = if follows || step.is_some() {
            let addresses = [c, self.bias, residual, self.out];
            let kernel = BiasActivationArgs::new(addresses, [m, n], self.activation)?;
            Some(step.map_or(kernel, |step| kernel.to_float8(step)).into())
        } else {
            None
        };
        let gemm = Gemm {
            beta,
            output: self.gemm.wide,
            ..self.gemm
        };
        Ok(Unfused { gemm, c, kernel })
    }

    fn unfused_float8_rows(&self, float8: Float8Call) -> Result<Unfused, KernelError> {
        let kernel = DequantizeArgs::float8(
            [self.scratch, float8.x, float8.weight],
            [self.bias, self.residual, self.out],
            [self.gemm.m, self.gemm.n],
            self.activation,
        )?;
        Ok(Unfused {
            gemm: Gemm {
                output: DType::F32,
                ..self.gemm
            },
            c: self.scratch,
            kernel: Some(kernel.into()),
        })
    }

    fn unfused_int8(&self, int8: Int8Call) -> Result<Unfused, KernelError> {
        let Gemm { m, n, k, .. } = self.gemm;
        let kernel = DequantizeArgs::new(
            [self.scratch, int8.ranges, int8.scales, int8.column_sums],
            [self.bias, self.residual, self.out],
            [m, n],
            self.activation,
        )?;
        Ok(Unfused {
            gemm: Gemm {
                output: DType::I32,
                ..Gemm::linear(m, n, k, DType::I8)
            },
            c: self.scratch,
            kernel: Some(kernel.into()),
        })
    }
}
