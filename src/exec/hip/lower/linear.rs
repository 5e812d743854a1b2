//! Linear layers: a GEMM, then bias, activation and residual. Which library computes it and whether its epilogue does all
//! of that is [selected](crate::exec::select) when it is submitted.

use super::{Call, Lowering, one, rows};
use crate::exec::select::LinearShape;
use crate::hip::Gemm;
use crate::kernels::BiasActivationArgs;
use crate::ops::{Activation, Linear};

/// Whether anything can follow the GEMM.
pub(super) fn needs_kernel(spec: &Linear) -> bool {
    spec.bias || spec.activation.is_some() || spec.residual
}

/// `activation(x · weightᵀ + bias) + residual`; `bias` and `residual` may be 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::exec) struct LinearCall {
    pub(in crate::exec) gemm: Gemm,
    pub(in crate::exec) x: u64,
    pub(in crate::exec) weight: u64,
    pub(in crate::exec) bias: u64,
    pub(in crate::exec) residual: u64,
    pub(in crate::exec) out: u64,
    /// As large as the result, where the residual lies where the result goes and an activation comes before it.
    pub(in crate::exec) scratch: u64,
    pub(in crate::exec) activation: Option<Activation>,
}

/// A GEMM, and the kernel that finishes its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::exec) struct Unfused {
    pub(in crate::exec) gemm: Gemm,
    pub(in crate::exec) c: u64,
    pub(in crate::exec) kernel: Option<BiasActivationArgs>,
}

impl LinearCall {
    pub(in crate::exec) fn shape(&self) -> LinearShape {
        LinearShape {
            m: self.gemm.m,
            n: self.gemm.n,
            k: self.gemm.k,
            dtype: self.gemm.inputs,
            bias: self.bias != 0,
            activation: self.activation,
            residual: self.residual != 0,
        }
    }

    /// Without an epilogue. A residual that lies where the result goes is added by the GEMM itself; before an activation
    /// that would be wrong, and the GEMM writes to scratch memory.
    pub(in crate::exec) fn unfused(&self) -> Result<Unfused, String> {
        let in_place = self.residual != 0 && self.residual == self.out;
        let (c, beta, residual) = match (in_place, self.activation) {
            (true, None) => (self.out, 1.0, 0),
            (true, Some(_)) => (self.scratch, 0.0, self.residual),
            (false, _) => (self.out, 0.0, self.residual),
        };
        let Gemm { m, n, .. } = self.gemm;
        let kernel = match self.bias != 0 || self.activation.is_some() || residual != 0 {
            true => {
                let addresses = [c, self.bias, residual, self.out];
                Some(BiasActivationArgs::new(addresses, [m, n], self.activation)?)
            }
            false => None,
        };
        let gemm = Gemm { beta, ..self.gemm };
        Ok(Unfused { gemm, c, kernel })
    }
}

impl Lowering<'_> {
    pub(super) fn linear(&self, spec: &Linear) -> Result<Vec<Call>, String> {
        match self.patch_embedding()? {
            Some(call) => one(Call::Projection(call)),
            None => one(Call::Linear(self.linear_call(spec)?)),
        }
    }

    pub(super) fn linear_call(&self, spec: &Linear) -> Result<LinearCall, String> {
        let [n, inner @ ..] = self.shape_of(1)? else {
            return Err("the weight is a scalar".into());
        };
        let residual = match spec.residual {
            true => self.address(2 + usize::from(spec.bias))?,
            false => 0,
        };
        Ok(LinearCall {
            gemm: Gemm::linear(rows(self.shape)?, *n, inner.iter().product(), self.plan.dtype()),
            x: self.address(0)?,
            weight: self.address(1)?,
            bias: if spec.bias { self.address(2)? } else { 0 },
            residual,
            out: self.out,
            scratch: self.addresses.scratch,
            activation: spec.activation,
        })
    }

    pub(super) fn activation(&self, activation: Activation) -> Result<Vec<Call>, String> {
        let addresses = [self.address(0)?, 0, 0, self.out];
        one(BiasActivationArgs::new(
            addresses,
            self.matrix()?,
            Some(activation),
        )?)
    }
}
