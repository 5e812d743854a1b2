//! `quantize_float8`, `quantize_float8_rows` and `quantize_int8` convert operands of GEMMs to 8 bits. `dequantize` and `dequantize_float8`
//! complete the results of such GEMMs.

use std::borrow::Cow;

use super::activation_code::activation_code;
use super::bindings::{DequantizeArgs, QuantizeArgs, QuantizeCode, ROW_THREADS};
use super::{
    Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent, float8, optional,
};
use crate::ops::{Activation, Levels};

impl QuantizeArgs {
    /// Creates the arguments to write `x` / `scale` as E4M3, for `x` and `out` `[rows, channels]`. `out` must alias no operand.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn float8(
        [x, out]: [DeviceAddress; 2],
        [rows, channels]: [usize; 2],
        scale: f32,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            out,
            ranges: DeviceAddress::NULL,
            rows: extent(rows)?,
            channels: extent(channels)?,
            code: QuantizeCode::Float8 as u32,
            factor: float8::factor(scale),
            zero: 0,
            whole_block: 0,
        })
    }

    /// Creates the arguments to round rows as [`Float8Scale::Row`](crate::ops::Float8Scale::Row) does, for `x` and `out`
    /// `[rows, channels]`. Writes the scale of each row to `scales`, f32 `[rows]`. `out` must alias no operand.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn float8_rows(
        [x, out, scales]: [DeviceAddress; 3],
        extents: [usize; 2],
    ) -> Result<Self, KernelError> {
        Ok(Self {
            ranges: scales,
            code: QuantizeCode::Float8Rows as u32,
            factor: 0.0,
            ..Self::float8([x, out], extents, 1.0)?
        })
    }

    /// Creates the arguments to round rows as [`quantize_row`](crate::cpu::int8::quantize_row) does, to i8 q − 128, for `x` and `out`
    /// `[rows, channels]`. Writes the scale and the zero point − 128 of each row to `ranges`, f32 `[rows, 2]`. `out` must alias no operand.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn int8(
        [x, out, ranges]: [DeviceAddress; 3],
        extents: [usize; 2],
        levels: Levels,
    ) -> Result<Self, KernelError> {
        let (code, factor, zero) = match levels {
            Levels::Range => (QuantizeCode::Range, 0.0, 0),
            Levels::Magnitude => (QuantizeCode::Magnitude, 0.0, 0),
            Levels::Fixed { scale, zero } => (QuantizeCode::Fixed, scale, zero),
        };
        Ok(Self {
            ranges,
            code: code as u32,
            factor,
            zero: zero.into(),
            ..Self::float8([x, out], extents, 1.0)?
        })
    }

    /// Returns true if each row has its own scale.
    pub(super) fn is_of_rows(&self) -> bool {
        !self.is(QuantizeCode::Float8)
    }

    fn is(&self, code: QuantizeCode) -> bool {
        self.code == code as u32
    }
}

// SAFETY: see hip/quantize.hip. Threads, waves and blocks beyond the last row return.
unsafe impl KernelArguments for QuantizeArgs {
    const FILE: &'static str = "quantize";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok(if self.is(QuantizeCode::Float8) {
            "quantize_float8".into()
        } else if self.is(QuantizeCode::Float8Rows) {
            "quantize_float8_rows".into()
        } else {
            "quantize_int8".into()
        })
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if self.is(QuantizeCode::Float8) {
            float8::check(self.factor)?;
            return target.elementwise(self.rows.into(), self.channels);
        }
        let (launch, whole_block) =
            target.rows(self.rows.into(), self.channels, ROW_THREADS, target.row_of_wave())?;
        self.whole_block = whole_block;
        Ok(launch)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let matrix = [self.rows, self.channels];
        visit(Access::read("x", self.x, bytes(element, &matrix)));
        visit(Access::write("out", self.out, bytes(1, &matrix)));
        if !self.is(QuantizeCode::Float8) {
            let of_row = if self.is(QuantizeCode::Float8Rows) { 1 } else { 2 };
            visit(Access::write(
                "ranges",
                self.ranges,
                bytes(4, &[self.rows, of_row]),
            ));
        }
    }
}

impl DequantizeArgs {
    /// Creates the arguments for i32 `sums` and `out` `[rows, channels]`. The operands of the sums are the bytes of [`QuantizeArgs::int8`]
    /// with `ranges` `[rows, 2]`, and a weight with `scales` f32 and `column_sums` i32 `[channels]`. `bias` `[channels]` and `residual`
    /// `[rows, channels]` may be null. `out` may alias `residual`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn new(
        [sums, ranges, scales, column_sums]: [DeviceAddress; 4],
        [bias, residual, out]: [DeviceAddress; 3],
        [rows, channels]: [usize; 2],
        activation: Option<Activation>,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            sums,
            ranges,
            scales,
            column_sums,
            bias,
            residual,
            out,
            rows: extent(rows)?,
            channels: extent(channels)?,
            activation: activation_code(activation) as u32,
            reserved: 0,
        })
    }

    /// Creates the arguments for f32 `sums` of FP8 operands: the bytes of [`QuantizeArgs::float8_rows`] with `row_scales` f32 `[rows]`, and
    /// a weight with `scales` f32 `[channels]`. All other arguments are as in [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn float8(
        [sums, row_scales, scales]: [DeviceAddress; 3],
        rest: [DeviceAddress; 3],
        extents: [usize; 2],
        activation: Option<Activation>,
    ) -> Result<Self, KernelError> {
        Self::new(
            [sums, row_scales, scales, DeviceAddress::NULL],
            rest,
            extents,
            activation,
        )
    }

    fn is_float8(&self) -> bool {
        self.column_sums.is_null()
    }
}

// SAFETY: see hip/quantize.hip. Threads beyond the last row return.
unsafe impl KernelArguments for DequantizeArgs {
    const FILE: &'static str = "quantize";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok(if self.is_float8() {
            "dequantize_float8".into()
        } else {
            "dequantize".into()
        })
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        target.elementwise(self.rows.into(), self.channels)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let (all, row) = ([self.rows, self.channels], [self.channels]);
        visit(Access::read("sums", self.sums, bytes(4, &all)));
        let of_row = if self.is_float8() { 1 } else { 2 };
        visit(Access::read(
            "ranges",
            self.ranges,
            bytes(4, &[self.rows, of_row]),
        ));
        visit(Access::read("scales", self.scales, bytes(4, &row)));
        if !self.is_float8() {
            visit(Access::read("column_sums", self.column_sums, bytes(4, &row)));
        }
        visit(optional(Access::read("bias", self.bias, bytes(element, &row))));
        visit(optional(Access::read(
            "residual",
            self.residual,
            bytes(element, &all),
        )));
        visit(Access::write("out", self.out, bytes(element, &all)));
    }
}
