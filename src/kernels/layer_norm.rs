//! `layer_norm` and `rms_norm` of x, or of x + residual, over the channels. `_few` is for few rows, `_wide` for long rows.

use hipvit_graph::op::{LayerNorm, RmsNorm, Rounding};

use super::Unit;
use super::bindings::{NormQuantizeArgs, QuantizeArgs};
use super::lower::{Call, Lower, Lowering, one};
use std::borrow::Cow;

use super::bindings::{
    FEW_ROWS, FEW_ROWS_THREADS, LayerNormArgs, ROW_REGISTERS, ROW_THREADS, WIDE_ROW, WIDE_ROW_THREADS,
};
use super::{
    Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent, float8, optional,
};

impl LayerNormArgs {
    /// Creates the arguments for `x` and `out` `[rows, channels]`, and `weight` and `bias` `[channels]`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [x, weight, bias, out]: [DeviceAddress; 4],
        [rows, channels]: [usize; 2],
        epsilon: f32,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            residual: DeviceAddress::NULL,
            weight,
            bias,
            sum: DeviceAddress::NULL,
            out,
            rows: extent(rows)?,
            channels: extent(channels)?,
            epsilon,
            whole_block: 0,
            float8_factor: 0.0,
            reserved: 0,
        })
    }

    /// Creates the arguments of an RMS norm, as in [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn rms(
        [x, weight, out]: [DeviceAddress; 3],
        extents: [usize; 2],
        epsilon: f32,
    ) -> Result<Self, KernelError> {
        Self::new([x, weight, DeviceAddress::NULL, out], extents, epsilon)
    }

    /// Normalises x + `residual`, and stores this sum in `sum`.
    pub fn of_sum(self, residual: DeviceAddress, sum: DeviceAddress) -> Self {
        Self {
            residual,
            sum,
            ..self
        }
    }

    /// Writes the result as E4M3, divided by `scale`, one byte per element. `out` must then alias no operand.
    pub(crate) fn to_float8(self, scale: f32) -> Self {
        Self {
            float8_factor: float8::factor(scale),
            ..self
        }
    }

    /// Returns true if rows exceed the registers of the smallest wave, for any wave size of the device.
    pub(super) fn is_wide(&self) -> bool {
        const SMALLEST_WAVE: u32 = 32;
        self.channels > ROW_REGISTERS * SMALLEST_WAVE
    }

    /// Depends on the rows only. All variants in which a wave takes a row sum in the same order.
    fn variant(&self) -> Variant {
        if self.is_wide() {
            Variant::Wide
        } else if self.rows <= FEW_ROWS {
            Variant::Few
        } else {
            Variant::Many
        }
    }
}

/// Entry of the kernel for the rows.
#[derive(Clone, Copy)]
enum Variant {
    Many,
    Few,
    Wide,
}

// SAFETY: see hip/layer_norm.hip. Waves and blocks beyond the last row return.
unsafe impl KernelArguments for LayerNormArgs {
    const FILE: &'static str = "layer_norm";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        let entry = match (self.bias.is_null(), self.variant()) {
            (true, Variant::Many) => "rms_norm",
            (true, Variant::Few) => "rms_norm_few",
            (true, Variant::Wide) => "rms_norm_wide",
            (false, Variant::Many) => "layer_norm",
            (false, Variant::Few) => "layer_norm_few",
            (false, Variant::Wide) => "layer_norm_wide",
        };
        Ok(entry.into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        float8::check(self.float8_factor)?;
        let (threads, of_wave) = match self.variant() {
            Variant::Many => (ROW_THREADS, target.row_of_wave()),
            Variant::Few => (FEW_ROWS_THREADS, target.row_of_wave()),
            Variant::Wide => (WIDE_ROW_THREADS, WIDE_ROW),
        };
        let (launch, whole_block) = target.rows(self.rows.into(), self.channels, threads, of_wave)?;
        self.whole_block = whole_block;
        Ok(launch)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let all = bytes(element, &[self.rows, self.channels]);
        let row = bytes(element, &[self.channels]);
        visit(Access::read("x", self.x, all));
        visit(optional(Access::read("residual", self.residual, all)));
        visit(Access::read("weight", self.weight, row));
        visit(optional(Access::read("bias", self.bias, row)));
        visit(optional(Access::write("sum", self.sum, all)));
        let result = float8::element(element, self.float8_factor);
        let all = bytes(result, &[self.rows, self.channels]);
        visit(Access::write("out", self.out, all));
    }
}

impl Lower for LayerNorm {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("layer_norm"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let addresses = [step.address(0)?, step.address(1)?, step.address(2)?, step.out];
        step.norm(LayerNormArgs::new(addresses, step.groups()?, self.epsilon)?)
    }
}

impl Lower for RmsNorm {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("layer_norm"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let addresses = [step.address(0)?, step.address(1)?, step.out];
        step.norm(LayerNormArgs::rms(addresses, step.groups()?, self.epsilon)?)
    }
}

impl Lowering<'_> {
    /// Returns the norm, in the dtype that its result is stored in.
    fn norm(&self, norm: LayerNormArgs) -> Result<Vec<Call>, KernelError> {
        let result = self.plan.buffer(self.step.output());
        let Some(scales) = result.row_scales() else {
            return one(self.float8().map_or(norm, |step| norm.to_float8(step)));
        };
        let addresses = [DeviceAddress::NULL, self.out, self.out.offset(scales)];
        let quantize = match result.rounding {
            Some(Rounding::Int8(levels)) => QuantizeArgs::int8(addresses, self.matrix()?, levels)?,
            _ => QuantizeArgs::float8_rows(addresses, self.matrix()?)?,
        };
        let norm = LayerNormArgs {
            out: DeviceAddress::NULL,
            ..norm
        };
        one(NormQuantizeArgs::new(norm, quantize))
    }

    /// Returns the result as rows of channels that are normalised together, as many as the weight has.
    pub(super) fn groups(&self) -> Result<[usize; 2], KernelError> {
        let elements: usize = self.shape.iter().product();
        match *self.shape_of(1)? {
            [channels] if channels > 0 => Ok([elements / channels, channels]),
            ref shape => Err(format!("its weight has shape {shape:?}, expected [D]").into()),
        }
    }
}
