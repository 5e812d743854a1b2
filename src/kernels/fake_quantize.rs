//! `fake_quantize`: rounding to int8 in quantisation-aware training, and its derivative.

use hipvit_graph::op::{FakeQuantize, FakeQuantizeBackward, Int8Grid, Levels};

use super::bindings::{FakeQuantizeArgs, QuantizeCode, ROW_THREADS};
use super::lower::{Call, Lower, Lowering, one};
use super::{
    Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent, optional,
};

impl FakeQuantizeArgs {
    /// Creates the arguments for `x`, `gradient` and `out` `[rows, channels]`. `gradient` may be null.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [x, gradient, out]: [DeviceAddress; 3],
        [rows, channels]: [usize; 2],
        grid: Int8Grid,
    ) -> Result<Self, KernelError> {
        let (code, factor, zero) = match grid {
            Int8Grid::Activations(Levels::Range) => (QuantizeCode::Range, 0.0, 0),
            Int8Grid::Activations(Levels::Fixed { scale, zero }) => (QuantizeCode::Fixed, scale, zero),
            Int8Grid::Activations(Levels::Magnitude) | Int8Grid::Weights => (QuantizeCode::Magnitude, 0.0, 0),
        };
        Ok(Self {
            x,
            gradient,
            out,
            rows: extent(rows)?,
            channels: extent(channels)?,
            code: code as u32,
            factor,
            zero: zero.into(),
            weight: (grid == Int8Grid::Weights).into(),
            whole_block: 0,
            reserved: 0,
        })
    }
}

// SAFETY: see hip/fake_quantize.hip. Waves and blocks beyond the last row return.
unsafe impl KernelArguments for FakeQuantizeArgs {
    const FILE: &'static str = "fake_quantize";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let (launch, whole_block) =
            target.rows(self.rows.into(), self.channels, ROW_THREADS, target.row_of_wave())?;
        self.whole_block = whole_block;
        Ok(launch)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let all = bytes(element, &[self.rows, self.channels]);
        visit(Access::read("x", self.x, all));
        visit(optional(Access::read("gradient", self.gradient, all)));
        visit(Access::write("out", self.out, all));
    }
}

impl Lower for FakeQuantize {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("fake_quantize"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let addresses = [step.address(0)?, DeviceAddress::NULL, step.out];
        one(FakeQuantizeArgs::new(addresses, step.matrix()?, self.grid)?)
    }
}

impl Lower for FakeQuantizeBackward {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("fake_quantize"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let addresses = [step.address(0)?, step.address(1)?, step.out];
        one(FakeQuantizeArgs::new(addresses, step.matrix()?, self.grid)?)
    }
}
