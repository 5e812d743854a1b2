//! `bias_activation`: `activation(x + bias) + residual`, the operations after the GEMM of a linear layer.

use super::Unit;
use super::activation_code::activation_code;
use super::bindings::BiasActivationArgs;
use super::lower::{Call, Lower, Lowering, one};
use super::{
    Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent, float8,
    visit_epilogue,
};
use crate::ops::Activation;

impl BiasActivationArgs {
    /// Creates the arguments for `x` and `out` `[rows, channels]`. `bias` `[channels]` and `residual` `[rows, channels]` may be null.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [x, bias, residual, out]: [DeviceAddress; 4],
        [rows, channels]: [usize; 2],
        activation: Option<Activation>,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            bias,
            residual,
            out,
            rows: extent(rows)?,
            channels: extent(channels)?,
            activation: activation_code(activation) as u32,
            float8_factor: 0.0,
        })
    }

    /// Writes the result as E4M3, divided by `scale`, one byte per element. `out` must then alias no operand.
    pub(crate) fn to_float8(self, scale: f32) -> Self {
        Self {
            float8_factor: float8::factor(scale),
            ..self
        }
    }
}

// SAFETY: see hip/bias_activation.hip. Threads beyond the last row return.
unsafe impl KernelArguments for BiasActivationArgs {
    const FILE: &'static str = "bias_activation";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        float8::check(self.float8_factor)?;
        target.elementwise(self.rows.into(), self.channels)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let matrix = [self.rows, self.channels];
        visit(Access::read("x", self.x, bytes(element, &matrix)));
        let epilogue = [self.bias, self.residual, self.out];
        let elements = [element, float8::element(element, self.float8_factor)];
        visit_epilogue(epilogue, elements, matrix, visit);
    }
}

impl Lower for Activation {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("bias_activation"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let addresses = [
            step.address(0)?,
            DeviceAddress::NULL,
            DeviceAddress::NULL,
            step.out,
        ];
        one(BiasActivationArgs::new(addresses, step.matrix()?, Some(*self))?)
    }
}
