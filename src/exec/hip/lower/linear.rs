//! Linear layers: a GEMM, then bias, activation and residual in one kernel.

use super::{Call, Lowering, one, rows};
use crate::hip::Gemm;
use crate::kernels::BiasActivationArgs;
use crate::ops::{Activation, Linear};

/// Whether anything can follow the GEMM.
pub(super) fn needs_kernel(spec: &Linear) -> bool {
    spec.bias || spec.activation.is_some() || spec.residual
}

impl Lowering<'_> {
    /// A residual that lies where the result goes is added by the GEMM itself; before an activation that would be wrong,
    /// and the GEMM writes to scratch memory.
    pub(super) fn linear(&self, spec: &Linear) -> Result<Vec<Call>, String> {
        let [n, inner @ ..] = self.shape_of(1)? else {
            return Err("the weight is a scalar".into());
        };
        let k = inner.iter().product();
        let m = rows(self.shape)?;
        let bias = if spec.bias { self.address(2)? } else { 0 };
        let residual = match spec.residual {
            true => self.address(2 + usize::from(spec.bias))?,
            false => 0,
        };
        let in_place = spec.residual && residual == self.out;
        let (c, beta, residual) = match (in_place, spec.activation) {
            (true, None) => (self.out, 1.0, 0),
            (true, Some(_)) => (self.addresses.scratch, 0.0, residual),
            (false, _) => (self.out, 0.0, residual),
        };
        let gemm = Gemm {
            beta,
            ..Gemm::linear(m, *n, k, self.plan.dtype())
        };
        let (a, b) = (self.address(0)?, self.address(1)?);
        let mut calls = vec![Call::Gemm { gemm, a, b, c }];
        if bias != 0 || spec.activation.is_some() || residual != 0 {
            let addresses = [c, bias, residual, self.out];
            calls.push(BiasActivationArgs::new(addresses, self.matrix()?, spec.activation)?.into());
        }
        Ok(calls)
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
