//! `swiglu`: the gate `silu(x[:, :channels] + bias) · (x[:, channels:] + bias)`. `swiglu_norm`: the gate, normalised over the channels.

use hipvit_graph::op::{SwiGlu, SwiGluNorm};

use super::Unit;
use super::lower::{Call, Lower, Lowering, one};
use std::borrow::Cow;

use super::bindings::{SWIGLU_NORM_ROW, SWIGLU_NORM_THREADS, SwiGluArgs, SwiGluNormArgs};
use super::{
    Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent, float8, optional,
};

impl SwiGluArgs {
    /// Creates the arguments for `x` `[rows, 2·channels]` and `out` `[rows, channels]`. `bias` `[2·channels]` may be null.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [x, bias, out]: [DeviceAddress; 3],
        [rows, channels]: [usize; 2],
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            bias,
            out,
            rows: extent(rows)?,
            channels: extent(channels)?,
            float8_factor: 0.0,
            reserved: 0,
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

// SAFETY: see hip/swiglu.hip. Threads beyond the last row return.
unsafe impl KernelArguments for SwiGluArgs {
    const FILE: &'static str = "swiglu";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        float8::check(self.float8_factor)?;
        target.elementwise(self.rows.into(), self.channels)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let bytes = |extents: &[u32]| bytes(element, extents);
        visit(Access::read("x", self.x, bytes(&[self.rows, 2, self.channels])));
        visit(optional(Access::read(
            "bias",
            self.bias,
            bytes(&[2, self.channels]),
        )));
        let result = float8::element(element, self.float8_factor);
        let all = super::bytes(result, &[self.rows, self.channels]);
        visit(Access::write("out", self.out, all));
    }
}

impl SwiGluNormArgs {
    /// Creates the arguments for `x` `[rows, 2·channels]`, `weight` and `bias` `[channels]`, and `out` `[rows, channels]`, which must alias
    /// no operand.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn new(
        [x, weight, bias, out]: [DeviceAddress; 4],
        [rows, channels]: [usize; 2],
        epsilon: f32,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            weight,
            bias,
            out,
            rows: extent(rows)?,
            channels: extent(channels)?,
            epsilon,
            float8_factor: 0.0,
            whole_block: 0,
            normed: extent(channels)?,
        })
    }

    /// Makes the last `padding` columns padding.
    ///
    /// # Errors
    ///
    /// No other columns are left.
    pub(crate) fn padded(self, padding: usize) -> Result<Self, KernelError> {
        match u32::try_from(padding) {
            Ok(padding) if padding < self.channels.max(1) => Ok(Self {
                normed: self.channels - padding,
                ..self
            }),
            _ => Err(format!("has {} channels, of which {padding} are padding", self.channels).into()),
        }
    }

    /// Writes the result as E4M3, divided by `scale`, one byte per element.
    pub(crate) fn to_float8(self, scale: f32) -> Self {
        Self {
            float8_factor: float8::factor(scale),
            ..self
        }
    }
}

// SAFETY: see hip/swiglu.hip. Waves and blocks beyond the last row return.
unsafe impl KernelArguments for SwiGluNormArgs {
    const FILE: &'static str = "swiglu";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("swiglu_norm".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        float8::check(self.float8_factor)?;
        let (launch, whole_block) = target.rows(
            self.rows.into(),
            self.channels,
            SWIGLU_NORM_THREADS,
            SWIGLU_NORM_ROW,
        )?;
        self.whole_block = whole_block;
        Ok(launch)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let row = bytes(element, &[self.channels]);
        visit(Access::read(
            "x",
            self.x,
            bytes(element, &[self.rows, 2, self.channels]),
        ));
        visit(Access::read("weight", self.weight, row));
        visit(Access::read("bias", self.bias, row));
        let result = float8::element(element, self.float8_factor);
        visit(Access::write(
            "out",
            self.out,
            bytes(result, &[self.rows, self.channels]),
        ));
    }
}

impl Lower for SwiGlu {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("swiglu"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let arguments = SwiGluArgs::new([step.address(0)?, DeviceAddress::NULL, step.out], step.matrix()?)?;
        one(step
            .float8()
            .map_or(arguments, |scale| arguments.to_float8(scale)))
    }
}

impl Lower for SwiGluNorm {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("swiglu"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let addresses = [step.address(0)?, step.address(1)?, step.address(2)?, step.out];
        let arguments = SwiGluNormArgs::new(addresses, step.matrix()?, self.epsilon)?;
        let arguments = arguments.padded(self.padding)?;
        one(step
            .float8()
            .map_or(arguments, |scale| arguments.to_float8(scale)))
    }
}
