//! The calls of builtin kernels and GEMMs that compute a convolution.

use super::call::{ConvCall, Form};
use crate::dtype::to_hip;
use crate::hip::{DeviceAddress, Gemm, Matrix};
use crate::kernels::activation_code::activation_code;
use crate::kernels::bindings::{ConvPatchesArgs, DepthwiseConvArgs, DirectConvArgs, WindowGeometry};
use crate::kernels::call::Call;
use crate::kernels::linear::call::LinearCall;
use crate::kernels::{KernelError, extent};

impl ConvCall {
    /// Returns the calls of the builtin way.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn own(&self) -> Result<Vec<Call>, KernelError> {
        self.calls(self.images_at_once())
    }

    /// Returns the calls of the builtin way, with GEMMs of one image each: their results do not depend on the batch.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn own_by_image(&self) -> Result<Vec<Call>, KernelError> {
        self.calls(1)
    }

    fn calls(&self, at_once: usize) -> Result<Vec<Call>, KernelError> {
        let Self {
            windows,
            x,
            weight,
            bias,
            residual,
            out,
            ..
        } = *self;
        let activation = activation_code(self.activation) as u32;
        let kernel: Call = match self.form() {
            Form::Depthwise => DepthwiseConvArgs {
                x,
                weight,
                bias,
                residual,
                out,
                windows,
                activation,
                reserved: 0,
            }
            .into(),
            Form::Direct => DirectConvArgs {
                x,
                weight,
                bias,
                residual,
                out,
                windows,
                features: extent(self.features)?,
                groups: extent(self.groups)?,
                activation,
                transposed: 0,
            }
            .into(),
            Form::Linear | Form::Groups => return self.by_gemms(at_once),
        };
        Ok(vec![kernel])
    }

    fn by_gemms(&self, at_once: usize) -> Result<Vec<Call>, KernelError> {
        let element = self.dtype.size();
        let images = self.windows.images as usize;
        let windows = WindowGeometry {
            images: extent(at_once)?,
            ..self.windows
        };
        let mut calls = Vec::new();
        for first in (0..images).step_by(at_once) {
            let x = first * self.windows.bytes_of_x(element) / images;
            let result = first * self.pixels_of_image() * self.features * element;
            let patches = ConvPatchesArgs {
                x: self.x.offset(x),
                out: self.scratch,
                windows,
                groups: extent(self.groups)?,
                reserved: 0,
            };
            calls.push(patches.into());
            let (m, k) = (windows.pixels() as usize, self.length());
            calls.push(if self.groups == 1 {
                self.linear([m, k], result)
            } else {
                self.group_gemm([m, k], result)
            });
        }
        if self.groups != 1 {
            calls.extend(self.finish()?.map(Call::from));
        }
        Ok(calls)
    }

    /// Returns the linear layer of `m` rows of patches. Its result is `offset` bytes behind the start of the whole result.
    fn linear(&self, [m, k]: [usize; 2], offset: usize) -> Call {
        let part = |address: DeviceAddress| {
            if address.is_null() {
                address
            } else {
                address.offset(offset)
            }
        };
        Call::Linear(LinearCall {
            gemm: Gemm::linear(m, self.features, k, to_hip(self.dtype)),
            x: self.scratch,
            weight: self.weight,
            bias: self.bias,
            residual: part(self.residual),
            out: part(self.out),
            scratch: self.scratch.offset(self.sums_at()),
            activation: self.activation,
            preactivation: DeviceAddress::NULL,
            float8: None,
            int8: None,
            sparse: None,
        })
    }

    /// Returns the GEMMs of all groups of `m` rows of patches.
    fn group_gemm(&self, [m, k]: [usize; 2], offset: usize) -> Call {
        let n = self.features / self.groups;
        let gemm = Gemm {
            batch: self.groups,
            a: Matrix::rows(k).every(m * k),
            b: Matrix::transposed(k).every(n * k),
            c: Matrix::rows(self.features).every(n),
            ..Gemm::linear(m, n, k, to_hip(self.dtype))
        };
        Call::Gemm {
            gemm,
            a: self.scratch,
            b: self.weight,
            c: self.sums().offset(offset),
        }
    }
}
